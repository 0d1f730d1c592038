//! The candidate's rules against a store that compares versions, in every order of events.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::record::{Candidate, LeaseStep, Record, Timing};

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn record(holder: &str, version: u64) -> Record {
    Record { holder: holder.into(), lease_duration: seconds(15), transitions: 3, version: version.to_string() }
}

#[test]
fn a_holder_counts_as_gone_when_its_record_stood_still_here() {
    let start = Instant::now();
    let mut b = Candidate::new("b".into(), TIMING);
    assert_eq!(b.look(Some(record("a", 1)), start), LeaseStep::Wait);
    assert_eq!(b.look(Some(record("a", 1)), start + seconds(14)), LeaseStep::Wait);
    assert_eq!(b.look(Some(record("a", 2)), start + seconds(15)), LeaseStep::Wait, "it was renewed");
    assert_eq!(b.look(Some(record("a", 2)), start + seconds(29)), LeaseStep::Wait);
    let claim = LeaseStep::Claim { transitions: 4, renewal: false };
    assert_eq!(b.look(Some(record("a", 2)), start + seconds(30)), claim);
}

#[test]
fn a_released_or_missing_lease_is_taken_at_once_and_the_longer_wait_holds() {
    let start = Instant::now();
    let mut b = Candidate::new("b".into(), TIMING);
    assert_eq!(b.look(None, start), LeaseStep::Claim { transitions: 0, renewal: false });
    assert_eq!(b.look(Some(record("", 1)), start), LeaseStep::Claim { transitions: 4, renewal: false });
    let patient = Record { lease_duration: seconds(60), ..record("a", 2) };
    assert_eq!(b.look(Some(patient.clone()), start), LeaseStep::Wait);
    assert_eq!(b.look(Some(patient.clone()), start + seconds(59)), LeaseStep::Wait);
    assert_ne!(b.look(Some(patient), start + seconds(60)), LeaseStep::Wait);
    let hasty = Record { lease_duration: seconds(1), ..record("a", 3) };
    assert_eq!(b.look(Some(hasty.clone()), start), LeaseStep::Wait);
    assert_eq!(b.look(Some(hasty), start + seconds(14)), LeaseStep::Wait, "this replica's own settings ask for 15 s");
}

#[test]
fn leading_counts_from_when_the_claim_was_sent_and_ends_when_somebody_else_holds_it() {
    let start = Instant::now();
    let mut a = Candidate::new("a".into(), TIMING);
    a.claimed(record("a", 1), start, start + seconds(4));
    assert_eq!(a.leading_until(), Some(start + seconds(10)));
    assert_eq!(a.look(Some(record("a", 1)), start + seconds(5)), LeaseStep::Claim { transitions: 3, renewal: true });
    assert_eq!(a.leading_until(), Some(start + seconds(10)), "a look alone renews nothing");
    assert_eq!(a.look(Some(record("b", 2)), start + seconds(6)), LeaseStep::Wait);
    assert_eq!(a.leading_until(), None);
}

/// What happens next in the model. Requests and answers are under way for as long as time passes meanwhile.
#[derive(Debug, Clone)]
enum Event {
    /// Time passes, milliseconds.
    Pass(u64),
    /// The server reads the Lease for a candidate.
    Read(usize),
    /// The candidate hears what was read.
    Hear(usize),
    /// The candidate sends the claim that what it heard calls for.
    Send(usize),
    /// The claim arrives, perhaps long after the candidate has given it up.
    Arrive(usize),
    /// The candidate hears that its claim was stored.
    Told(usize),
    /// The holder gives it back, and its process begins anew.
    Release(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let who = || 0usize..2;
    let event = prop_oneof![
        // Most of the time little, sometimes as much as decides.
        5 => (1u64..300).prop_map(Event::Pass),
        1 => (2_000u64..12_000).prop_map(Event::Pass),
        3 => who().prop_map(Event::Read),
        4 => who().prop_map(Event::Hear),
        4 => who().prop_map(Event::Send),
        4 => who().prop_map(Event::Arrive),
        4 => who().prop_map(Event::Told),
        1 => who().prop_map(Event::Release),
    ];
    proptest::collection::vec(event, 1..400)
}

/// The API server: one record, changed only by whoever saw its present version.
#[derive(Default)]
struct Server {
    record: Option<Record>,
    version: u64,
}

impl Server {
    fn write(&mut self, seen: Option<&Record>, holder: &str, transitions: u32) -> Option<Record> {
        if self.record.as_ref() != seen {
            return None;
        }
        self.version += 1;
        self.record = Some(Record { transitions, ..record(holder, self.version) });
        self.record.clone()
    }
}

struct Replica {
    candidate: Candidate,
    /// What was read, on its way back.
    read: Option<Option<Record>>,
    /// The claim to make: on which record, with how many transitions.
    wish: Option<(Option<Record>, u32)>,
    /// A claim on its way: when it was sent, and whether somebody still waits for its answer.
    sent: Option<(Instant, Option<Record>, u32, bool)>,
    /// The answer to it on its way back.
    stored: Option<(Instant, Record)>,
}

impl Replica {
    fn new(name: &str) -> Self {
        let candidate = Candidate::new(name.into(), TIMING);
        Self { candidate, read: None, wish: None, sent: None, stored: None }
    }

    fn take(&mut self, event: &Event, server: &mut Server, now: Instant) {
        match event {
            Event::Pass(_) => {}
            Event::Read(_) => {
                self.read = Some(server.record.clone());
                self.stored = None;
                if let Some((.., awaited)) = &mut self.sent {
                    *awaited = false;
                }
            }
            Event::Hear(_) => {
                let Some(found) = self.read.take() else { return };
                self.wish = match self.candidate.look(found.clone(), now) {
                    LeaseStep::Claim { transitions, .. } => Some((found, transitions)),
                    LeaseStep::Wait => None,
                };
            }
            Event::Send(_) => {
                let Some((seen, transitions)) = self.wish.take() else { return };
                self.sent = Some((now, seen, transitions, true));
            }
            Event::Arrive(_) => {
                let Some((asked, seen, transitions, awaited)) = self.sent.take() else { return };
                let stored = server.write(seen.as_ref(), self.candidate.identity(), transitions);
                self.stored = stored.filter(|_| awaited).map(|record| (asked, record));
            }
            Event::Told(_) => {
                let Some((asked, record)) = self.stored.take() else { return };
                self.candidate.claimed(record, asked, now);
            }
            Event::Release(_) => {
                let held = server.record.clone().filter(|record| record.holder == self.candidate.identity());
                let Some(held) = held else { return };
                // As `Election::release` does it: first the end of leading, then the write.
                *self = Self::new(&format!("{}'", held.holder));
                server.write(Some(&held), "", held.transitions);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_two_candidates_lead_at_once(events in events()) {
        let mut now = Instant::now();
        let mut server = Server::default();
        let mut replicas = ["a", "b"].map(Replica::new);
        for event in &events {
            match event {
                Event::Pass(ms) => now += Duration::from_millis(*ms),
                Event::Read(who) | Event::Hear(who) | Event::Send(who) | Event::Arrive(who) | Event::Told(who)
                | Event::Release(who) => replicas[*who].take(event, &mut server, now),
            }
            let leads = |r: &&Replica| r.candidate.leading_until().is_some_and(|until| now < until);
            let leading: Vec<_> = replicas.iter().filter(leads).map(|r| r.candidate.identity()).collect();
            prop_assert!(leading.len() <= 1, "{leading:?}");
        }
    }
}
