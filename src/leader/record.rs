//! Who leads, decided from what was seen and when it was seen here (pure). Clocks of different machines are never compared: a
//! holder counts as gone when its record has not changed for the lease's duration, measured here.
//!
//! ```text
//! holder:  |--renewed----------- renew-deadline -| writes nothing any more
//! others:     |--seen changed ------------------------ lease-duration -| may take over
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// What a Lease says about its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty: nobody.
    pub holder: String,
    /// How long the holder asked others to wait without a change, in whole seconds as it is stored.
    pub lease_duration: Duration,
    /// How often the holder has changed.
    pub transitions: u32,
    /// Changes with each write: compared for equality only.
    pub version: String,
}

/// The three times of an election. `lease_duration > renew_deadline > retry_period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Others wait this long after the last change.
    pub lease_duration: Duration,
    /// The holder stops this long after its last renewal.
    pub renew_deadline: Duration,
    /// Time between two tries.
    pub retry_period: Duration,
}

/// What to do after a look at the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStep {
    /// Somebody else holds it.
    Wait,
    /// Write this candidate into it; `transitions` as they shall be.
    Claim {
        /// How often the holder has changed, with this claim.
        transitions: u32,
        /// Whether it is ours already.
        renewal: bool,
    },
}

/// One candidate's view.
#[derive(Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    /// The record as last seen, and since when it is unchanged.
    seen: Option<(Record, Instant)>,
    leading_until: Option<Instant>,
}

impl Candidate {
    /// `identity` must be nobody else's, ever.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self { identity, timing, seen: None, leading_until: None }
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The holder as last seen; `None`: nobody, or no Lease.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().map(|(record, _)| record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// Until when this candidate leads; `None`: it does not.
    pub fn leading_until(&self) -> Option<Instant> {
        self.leading_until
    }

    /// Takes in what the Lease says (`None`: there is none), as received at `now`.
    pub fn look(&mut self, found: Option<Record>, now: Instant) -> LeaseStep {
        let Some(record) = found else {
            self.seen = None;
            return LeaseStep::Claim { transitions: 0, renewal: false };
        };
        let since = match &self.seen {
            Some((seen, since)) if *seen == record => *since,
            Some(_) | None => now,
        };
        let (transitions, ours) = (record.transitions, record.holder == self.identity);
        // Settings may differ between replicas during a rollout: the longer wait holds.
        let wait = record.lease_duration.max(self.timing.lease_duration);
        let free = record.holder.is_empty() || since.checked_add(wait).is_some_and(|end| now >= end);
        self.seen = Some((record, since));
        if ours {
            return LeaseStep::Claim { transitions, renewal: true };
        }
        // Whoever took it did so by the rules, or somebody has edited the Lease.
        self.leading_until = None;
        if free {
            LeaseStep::Claim { transitions: transitions.saturating_add(1), renewal: false }
        } else {
            LeaseStep::Wait
        }
    }

    /// The claim was written; it was sent at `asked`, so no one else can have counted from earlier.
    pub fn claimed(&mut self, record: Record, asked: Instant, now: Instant) {
        self.leading_until = asked.checked_add(self.timing.renew_deadline);
        self.seen = Some((record, now));
    }
}
