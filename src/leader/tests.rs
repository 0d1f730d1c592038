//! The candidate's rules against a store that compares versions, in every order of events.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::record::{Candidate, Record, Step, Timing};

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
    assert_eq!(b.look(Some(record("a", 1)), start), Step::Wait);
    assert_eq!(b.look(Some(record("a", 1)), start + seconds(14)), Step::Wait);
    assert_eq!(b.look(Some(record("a", 2)), start + seconds(15)), Step::Wait, "it was renewed");
    assert_eq!(b.look(Some(record("a", 2)), start + seconds(29)), Step::Wait);
    let claim = Step::Claim { transitions: 4, renewal: false };
    assert_eq!(b.look(Some(record("a", 2)), start + seconds(30)), claim);
}

#[test]
fn a_released_or_missing_lease_is_taken_at_once_and_the_longer_wait_holds() {
    let start = Instant::now();
    let mut b = Candidate::new("b".into(), TIMING);
    assert_eq!(b.look(None, start), Step::Claim { transitions: 0, renewal: false });
    assert_eq!(b.look(Some(record("", 1)), start), Step::Claim { transitions: 4, renewal: false });
    let patient = Record { lease_duration: seconds(60), ..record("a", 2) };
    assert_eq!(b.look(Some(patient.clone()), start), Step::Wait);
    assert_eq!(b.look(Some(patient.clone()), start + seconds(59)), Step::Wait);
    assert_ne!(b.look(Some(patient), start + seconds(60)), Step::Wait);
    let hasty = Record { lease_duration: seconds(1), ..record("a", 3) };
    assert_eq!(b.look(Some(hasty.clone()), start), Step::Wait);
    assert_eq!(b.look(Some(hasty), start + seconds(14)), Step::Wait, "this replica's own settings ask for 15 s");
}

#[test]
fn leading_counts_from_when_the_claim_was_sent_and_ends_when_somebody_else_holds_it() {
    let start = Instant::now();
    let mut a = Candidate::new("a".into(), TIMING);
    a.claimed(record("a", 1), start, start + seconds(4));
    assert_eq!(a.leading_until(), Some(start + seconds(10)));
    assert_eq!(a.look(Some(record("a", 1)), start + seconds(5)), Step::Claim { transitions: 3, renewal: true });
    assert_eq!(a.leading_until(), Some(start + seconds(10)), "a look alone renews nothing");
    assert_eq!(a.look(Some(record("b", 2)), start + seconds(6)), Step::Wait);
    assert_eq!(a.leading_until(), None);
}

/// What one candidate does next, in the model.
#[derive(Debug, Clone)]
enum Event {
    /// Time passes, milliseconds.
    Pass(u64),
    /// A look; its answer arrives this much later.
    Look(usize, u64),
    /// The write that the last look asked for; sent now, arrives after the first time, answered after the second. Whether
    /// the answer arrives at all.
    Write(usize, u64, u64, bool),
    /// The holder gives it back.
    Release(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let who = 0usize..3;
    let event = prop_oneof![
        3 => (1u64..9_000).prop_map(Event::Pass),
        4 => (who.clone(), 0u64..3_000).prop_map(|(who, late)| Event::Look(who, late)),
        4 => (who.clone(), 0u64..3_000, 0u64..3_000, any::<bool>())
            .prop_map(|(who, there, back, told)| Event::Write(who, there, back, told)),
        1 => who.prop_map(Event::Release),
    ];
    proptest::collection::vec(event, 1..120)
}

/// The API server: one record, changed only by whoever saw its present version.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Delays make time pass for everybody while one candidate's request is under way.
    #[test]
    fn no_two_candidates_lead_at_once(events in events()) {
        let mut now = Instant::now();
        let mut server = Server { record: None, version: 0 };
        let mut candidates: Vec<_> = ["a", "b", "c"].map(|name| Candidate::new(name.into(), TIMING)).into();
        let mut wants: Vec<Option<(Option<Record>, u32)>> = vec![None; 3];
        for event in events {
            match event {
                Event::Pass(ms) => now += Duration::from_millis(ms),
                Event::Look(who, late) => {
                    let found = server.record.clone();
                    now += Duration::from_millis(late);
                    wants[who] = match candidates[who].look(found.clone(), now) {
                        Step::Claim { transitions, .. } => Some((found, transitions)),
                        Step::Wait => None,
                    };
                }
                Event::Write(who, there, back, told) => {
                    let Some((seen, transitions)) = wants[who].take() else { continue };
                    let asked = now;
                    now += Duration::from_millis(there);
                    let name = candidates[who].identity().to_owned();
                    let written = server.write(seen.as_ref(), &name, transitions);
                    now += Duration::from_millis(back);
                    if let Some(record) = written.filter(|_| told) {
                        candidates[who].claimed(record, asked, now);
                    }
                }
                Event::Release(who) => {
                    let held = server.record.clone().filter(|record| record.holder == candidates[who].identity());
                    if let Some(record) = held {
                        // As `Election::release` does: first it stops leading, and then it ends for good.
                        let identity = format!("{}'", candidates[who].identity());
                        candidates[who] = Candidate::new(identity, TIMING);
                        wants[who] = None;
                        server.write(Some(&record), "", record.transitions);
                    }
                }
            }
            let leading = candidates.iter().filter(|c| c.leading_until().is_some_and(|until| now < until)).count();
            prop_assert!(leading <= 1, "{candidates:?}");
        }
    }
}
