//! The only place that reads the wall clock or makes random identifiers. Also the stopwatch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::time::Instant;

/// Where time and identifiers come from, so that tests and simulations can decide both.
pub trait Clock: Send + Sync {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;
    /// A fresh version 7 UUID: its first 48 bits are the time it was made.
    fn uuid(&self) -> uuid::Uuid;
}

/// The machine's own clock and randomness.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl SystemClock {
    /// A shared system clock.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the place that reads the clock")]
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }
}

/// A positive snapshot id made of a UUID's random bits, as the reference implementation makes it.
pub fn snapshot_id(uuid: uuid::Uuid) -> i64 {
    let (high, low) = uuid.as_u64_pair();
    i64::try_from((high ^ low) & (i64::MAX as u64)).unwrap_or(i64::MAX)
}

/// How long the phases of a piece of work took. Serialised as an object: milliseconds by the phase's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PhaseTimes(BTreeMap<&'static str, Duration>);

impl PhaseTimes {
    /// Adds to a phase.
    pub fn add(&mut self, phase: &'static str, time: Duration) {
        let sum = self.0.entry(phase).or_default();
        *sum = sum.saturating_add(time);
    }

    /// The phases that were begun, by name, with their times.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.0.iter().map(|(phase, time)| (*phase, *time))
    }
}

impl Serialize for PhaseTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        serializer.collect_map(self.iter().map(|(phase, time)| (phase, ms(time))))
    }
}

/// Measures phases that follow one another. The wall clock has no say: it may be set meanwhile.
#[derive(Debug)]
pub struct Stopwatch {
    since: Instant,
    times: PhaseTimes,
}

impl Stopwatch {
    /// Starts the first phase.
    pub fn start() -> Self {
        Self { since: Instant::now(), times: PhaseTimes::default() }
    }

    /// Ends a phase, which may have had parts before; the next one begins.
    pub fn end(&mut self, phase: &'static str) {
        let now = Instant::now();
        self.times.add(phase, now.duration_since(self.since));
        self.since = now;
    }

    /// All phases that have ended.
    pub fn times(self) -> PhaseTimes {
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn phases_add_up_to_the_whole() {
        let mut stopwatch = Stopwatch::start();
        for (ms, phase) in [(30, "plan"), (500, "rewrite"), (20, "commit"), (100, "rewrite")] {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            stopwatch.end(phase);
        }
        let times = serde_json::to_value(stopwatch.times()).expect("JSON");
        assert_eq!(times, serde_json::json!({"plan": 30, "rewrite": 600, "commit": 20}));
    }
}
