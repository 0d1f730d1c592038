//! Which of several replicas works: the holder of a Kubernetes Lease. Job: Lease -> [`WritePermit`].
//!
//! The permit ends `renew-deadline` after the last renewal was sent, others take over `lease-duration` after they saw it.
//! Even two leaders would lose no data, since each commit asserts the state it was computed from; this saves wasted work.

pub mod lease;
pub mod record;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::lease::{LeaseApi, LeaseObject, LeaseWrite};
use self::record::{Candidate, LeaseStep, Timing};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::permit::WritePermit;

/// Longest time to give the Lease back: the process is about to end, and others take over without it too.
const RELEASE: Duration = Duration::from_secs(2);

/// Longest time for one look and write. The process shows that it lives between two of them only.
const ROUND_MAX: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeadershipEnd {
    /// As told; the Lease is still held.
    Stopped,
    /// Somebody else holds the Lease, or it could not be renewed in time.
    Lost(String),
}

pub struct Election {
    candidate: Candidate,
    timing: Timing,
    lease: Box<dyn LeaseApi>,
    clock: Arc<dyn Clock>,
    permit: WritePermit,
}

impl Election {
    /// `name` stands before a random part in the Lease, so that people know the pod. The permit follows the outcome.
    pub fn new(
        name: &str,
        timing: Timing,
        lease: Box<dyn LeaseApi>,
        clock: Arc<dyn Clock>,
        permit: WritePermit,
    ) -> Self {
        let candidate = Candidate::new(format!("{name}_{}", clock.uuid()), timing);
        Self { candidate, timing, lease, clock, permit }
    }

    /// Tries until this replica leads; false if the token was cancelled before. `each_round` is called at each try.
    pub async fn win(&mut self, cancel: &CancellationToken, each_round: impl Fn()) -> bool {
        // Said once, and again when it changes: a try comes every few seconds.
        let (mut told, mut failing) = (None, String::new());
        loop {
            each_round();
            match self.round(self.round_limit()).await {
                Ok(true) => {
                    tracing::info!(identity = self.candidate.identity(), "leading");
                    return true;
                }
                Ok(false) => {
                    let holder = self.candidate.holder().map(str::to_owned);
                    if holder != told {
                        tracing::info!(holder = holder.as_deref().unwrap_or("nobody"), "standing by");
                        told = holder;
                    }
                }
                Err(error) if error.to_string() != failing => {
                    failing = error.to_string();
                    tracing::warn!(%error, "no leader election possible now; it is tried again");
                }
                Err(error) => tracing::debug!(%error, "no leader election possible yet"),
            }
            tokio::select! {
                () = cancel.cancelled() => return false,
                () = sleep(self.pause()) => {}
            }
        }
    }

    /// Keeps the Lease until told to stop, or until it is lost.
    pub async fn hold(&mut self, stop: &CancellationToken) -> LeadershipEnd {
        loop {
            tokio::select! {
                () = stop.cancelled() => return LeadershipEnd::Stopped,
                () = sleep(self.timing.retry_period.min(self.left())) => {}
            }
            let left = self.left();
            if left.is_zero() {
                return self.lost("the lease could not be renewed in time");
            }
            let round = tokio::select! {
                () = stop.cancelled() => return LeadershipEnd::Stopped,
                round = self.round(left.min(self.round_limit())) => round,
            };
            match round {
                Ok(true) => {}
                Ok(false) if self.candidate.leading_until().is_none() => {
                    let holder = self.candidate.holder().unwrap_or("nobody").to_owned();
                    return self.lost(&format!("{holder} holds the lease now"));
                }
                // Lost a race, perhaps against an own write whose answer got lost: the next look tells.
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, left_ms = self.left().as_millis() as u64, "lease not renewed"),
            }
        }
    }

    /// Gives the Lease back, so that another replica need not wait. Call it when no work is left.
    pub async fn release(&mut self) {
        self.permit.revoke();
        let released = timeout(RELEASE.min(self.timing.renew_deadline / 2), async {
            let Some(LeaseObject(mut lease)) = self.lease.get().await? else { return Ok(LeaseWrite::Raced) };
            if LeaseObject(lease.clone()).record().holder != self.candidate.identity() {
                return Ok(LeaseWrite::Raced);
            }
            lease["spec"]["holderIdentity"] = "".into();
            lease["spec"]["renewTime"] = self.now().into();
            self.lease.replace(LeaseObject(lease)).await
        });
        match released.await.unwrap_or_else(|_| Err(Error::unavailable("no answer in time"))) {
            Ok(LeaseWrite::Done(_)) => tracing::info!("lease released"),
            Ok(LeaseWrite::Raced) => tracing::info!("the lease was somebody else's already"),
            Err(error) => tracing::warn!(%error, "lease not released; others wait until it has expired"),
        }
    }

    /// Of two rounds one may get no answer.
    fn round_limit(&self) -> Duration {
        ROUND_MAX.min(self.timing.renew_deadline / 2)
    }

    /// One look, and a write if it is our turn; whether this replica leads after it.
    async fn round(&mut self, limit: Duration) -> Result<bool> {
        match timeout(limit, self.attempt()).await {
            Ok(result) => result,
            Err(_) => Err(Error::unavailable(format!("the API server did not answer within {} ms", limit.as_millis()))),
        }
    }

    async fn attempt(&mut self) -> Result<bool> {
        let found = self.lease.get().await?;
        let step = self.candidate.look(found.as_ref().map(LeaseObject::record), self.clock.steady());
        let LeaseStep::Claim { transitions, renewal } = step else {
            self.permit.revoke();
            return Ok(false);
        };
        let spec = self.spec(transitions);
        let asked = self.clock.steady();
        let written = match found {
            None => self.lease.create(spec).await?,
            Some(LeaseObject(mut lease)) => {
                let acquired = lease["spec"]["acquireTime"].take();
                lease["spec"] = spec;
                if renewal && !acquired.is_null() {
                    lease["spec"]["acquireTime"] = acquired;
                }
                self.lease.replace(LeaseObject(lease)).await?
            }
        };
        let LeaseWrite::Done(stored) = written else { return Ok(false) };
        self.candidate.claimed(stored.record(), asked, self.clock.steady());
        match self.candidate.leading_until() {
            Some(until) if until > self.clock.steady() => self.permit.grant(until),
            Some(_) | None => return Ok(false),
        }
        Ok(true)
    }

    fn spec(&self, transitions: u32) -> Value {
        let now = self.now();
        json!({
            "holderIdentity": self.candidate.identity(),
            "leaseDurationSeconds": self.timing.lease_duration.as_secs(),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        })
    }

    /// Kubernetes' `MicroTime`. Nobody computes with it.
    fn now(&self) -> String {
        let now = jiff::Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or_default();
        now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }

    fn left(&self) -> Duration {
        let until = self.candidate.leading_until();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(self.clock.steady()))
    }

    fn lost(&self, why: &str) -> LeadershipEnd {
        self.permit.revoke();
        LeadershipEnd::Lost(why.to_owned())
    }

    /// Replicas that wait must not all come at once: up to a fifth longer.
    fn pause(&self) -> Duration {
        let share = u32::try_from(self.clock.uuid().as_u128() % 200).unwrap_or(0);
        self.timing.retry_period * (1000 + share) / 1000
    }
}

#[cfg(test)]
mod tests;
