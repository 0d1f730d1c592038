//! Whether the wall clock was set.

use tokio::time::Instant;

use crate::clock::Clock;

/// The wall clock beside the steady one.
pub(super) struct WallClock {
    wall_ms: i64,
    steady: Instant,
}

impl WallClock {
    /// Longest step that changes nothing.
    const BORNE_MS: i64 = 60_000;

    pub(super) fn look(clock: &dyn Clock) -> Self {
        Self { wall_ms: clock.now_ms(), steady: clock.steady() }
    }

    /// By how much the wall clock has been set since, below zero if back, if that is more than is borne. Then counting begins anew.
    pub(super) fn set_by(&mut self, clock: &dyn Clock) -> Option<i64> {
        let now = Self::look(clock);
        let passed = now.steady.saturating_duration_since(self.steady).as_millis();
        let expected_ms = self.wall_ms.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
        let by_ms = now.wall_ms.saturating_sub(expected_ms);
        if by_ms.saturating_abs() <= Self::BORNE_MS {
            return None;
        }
        *self = now;
        Some(by_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::SetClock;

    #[tokio::test(start_paused = true)]
    async fn only_a_wall_clock_that_leaves_the_steady_one_by_more_than_a_minute_counts_as_set() {
        let clock = SetClock::new(1_000_000_000);
        let mut wall = WallClock::look(&clock);
        let mut step = async |wall_ms: i64, steady_s: u64| {
            clock.advance(wall_ms);
            tokio::time::advance(Duration::from_secs(steady_s)).await;
            wall.set_by(&clock)
        };
        assert_eq!(step(3_600_000, 3600).await, None, "time passes");
        assert_eq!(step(-30_000, 0).await, None);
        assert_eq!(step(31_000, 0).await, None);
        assert_eq!(step(-62_000, 0).await, Some(-61_000), "small steps make a large one");
        assert_eq!(step(0, 0).await, None, "told once");
        assert_eq!(step(172_800_000, 0).await, Some(172_800_000), "forward");
        assert_eq!(step(-172_800_000 + 5_000, 5).await, Some(-172_800_000), "and back");
        clock.suspend(Duration::from_secs(86_400));
        assert_eq!(step(86_400_000, 0).await, None, "suspended");
    }
}
