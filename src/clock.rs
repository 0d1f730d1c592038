//! The only place that reads the wall clock or makes random identifiers. Also the stopwatch.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::time::Instant;

use crate::action::Phase;

/// Where time and identifiers come from, so that tests and simulations can decide both.
pub trait Clock: Send + Sync {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;
    /// How long the machine has been suspended since this process began. Tokio's clock stands still meanwhile.
    fn suspended(&self) -> Duration;
    /// A moment of the steady clock that goes on while the machine is suspended: compare it with others of this clock only.
    fn steady(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.suspended()).unwrap_or(now)
    }
    /// A fresh version 7 UUID: its first 48 bits are the time it was made.
    fn uuid(&self) -> uuid::Uuid;
}

/// The machine's own clock and randomness.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl SystemClock {
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the place that reads the clock")]
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    fn suspended(&self) -> Duration {
        static BEFORE: OnceLock<Duration> = OnceLock::new();
        let ever = suspended_since_boot();
        ever.saturating_sub(*BEFORE.get_or_init(|| ever))
    }

    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }
}

/// Linux has two steady clocks, of which one counts the time of suspension.
#[cfg(target_os = "linux")]
fn suspended_since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let awake = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(awake)
}

/// Elsewhere only the wall clock tells of a suspension.
#[cfg(not(target_os = "linux"))]
fn suspended_since_boot() -> Duration {
    Duration::ZERO
}

/// A moment after which something must not be begun any more: by the wall clock, which other processes judge by, or by the
/// steady clock, which no setting moves and no suspension stops; by whichever it comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    wall_ms: i64,
    steady: Instant,
}

impl Deadline {
    /// `limit` after `began_ms` by the wall clock.
    pub fn new(clock: &dyn Clock, began_ms: i64, limit: Duration) -> Self {
        let limit_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        let wall_ms = began_ms.saturating_add(limit_ms);
        let left_ms = wall_ms.saturating_sub(clock.now_ms()).clamp(0, limit_ms);
        let steady = clock.steady();
        let steady = steady.checked_add(Duration::from_millis(left_ms.unsigned_abs())).unwrap_or(steady);
        Self { wall_ms, steady }
    }

    /// What comes first of two.
    #[must_use]
    pub fn earliest(self, other: Self) -> Self {
        Self { wall_ms: self.wall_ms.min(other.wall_ms), steady: self.steady.min(other.steady) }
    }

    /// The time left; zero once it has passed.
    pub fn left(&self, clock: &dyn Clock) -> Duration {
        let wall_ms = self.wall_ms.saturating_sub(clock.now_ms()).max(0);
        let steady = self.steady.saturating_duration_since(clock.steady());
        steady.min(Duration::from_millis(wall_ms.unsigned_abs()))
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
    pub fn add(&mut self, phase: Phase, time: Duration) {
        let sum = self.0.entry(phase.as_str()).or_default();
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
    pub fn end(&mut self, phase: Phase) {
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
    use crate::testing::SetClock;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_passes_by_either_clock() {
        let limit = Duration::from_secs(100);
        let world = || {
            let clock = SetClock::new(1_000_000);
            let deadline = Deadline::new(&clock, 1_000_000 - 30_000, limit);
            assert_eq!(deadline.left(&clock), Duration::from_secs(70));
            (clock, deadline)
        };
        let (clock, deadline) = world();
        clock.advance(70_000);
        assert_eq!(deadline.left(&clock), Duration::ZERO, "the wall clock");
        let (clock, deadline) = world();
        clock.suspend(Duration::from_secs(69));
        assert_eq!(deadline.left(&clock), Duration::from_secs(1), "suspended, and the wall clock was set back");
        clock.suspend(Duration::from_secs(1));
        assert_eq!(deadline.left(&clock), Duration::ZERO);
        let (clock, deadline) = world();
        clock.set(0);
        tokio::time::advance(Duration::from_secs(70)).await;
        assert_eq!(deadline.left(&clock), Duration::ZERO, "the steady clock");
        // A start in the future gives no more than the limit.
        let ahead = Deadline::new(&clock, 3_600_000, limit);
        assert_eq!(ahead.left(&clock), limit);
        assert_eq!(ahead.earliest(deadline).left(&clock), Duration::ZERO);
    }

    #[test]
    fn the_systems_steady_clock_does_not_stand_still_or_go_back() {
        let times: Vec<_> = (0..1000).map(|_| SystemClock.steady()).collect();
        let back = times.windows(2).map(|pair| pair[0].saturating_duration_since(pair[1])).max();
        assert!(back.is_some_and(|back| back < Duration::from_millis(1)), "{back:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn phases_add_up_to_the_whole() {
        let mut stopwatch = Stopwatch::start();
        for (ms, phase) in [(30, Phase::Plan), (500, Phase::Rewrite), (20, Phase::Commit), (100, Phase::Rewrite)] {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            stopwatch.end(phase);
        }
        let times = serde_json::to_value(stopwatch.times()).expect("JSON");
        assert_eq!(times, serde_json::json!({"plan": 30, "rewrite": 600, "commit": 20}));
    }
}
