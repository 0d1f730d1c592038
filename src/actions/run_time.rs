//! How the time of a run is divided.
//!
//! ```text
//! |--------------- run-timeout ---------------|---- grace: half of it, an hour at most ----|
//! |---- the run works: nine tenths ----|                                                    files of the run are garbage
//!               commit requests are sent up to here |---- one is waited for: half the grace
//! ```
//! The rest of the grace is for what the clocks of two processes may differ, and for a catalog that applies a request late.

use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::commit::{CommitLimit, RunLimit};
use crate::run_id::RunId;

/// Files that the run itself wrote are looked at again before a commit once the run is so old.
const TRUSTED_MAX: Duration = Duration::from_secs(10 * 60);
/// Longest grace.
const GRACE_MAX: Duration = Duration::from_secs(60 * 60);

/// Longest sleep between two looks at the clocks: a sleep does not count the time of suspension.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// A run stops working this long after its start; the rest is left to its last commit.
pub(super) fn works_for(run_timeout: Duration) -> Duration {
    run_timeout / 10 * 9
}

/// Waits until the deadline has passed by either clock.
pub(super) async fn until(deadline: Deadline, clock: &dyn Clock) {
    loop {
        let left = deadline.left(clock);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK_EVERY)).await;
    }
}

/// Its own files are trusted to be where they were written this long after its start.
fn trusted(run_timeout: Duration) -> Duration {
    TRUSTED_MAX.min(run_timeout / 10)
}

/// What a run allows its commits.
pub(super) fn run_limit(clock: &dyn Clock, run_id: RunId, run_timeout: Duration) -> RunLimit {
    let after = |time| Deadline::new(clock, run_id.started_ms(), time);
    RunLimit { until: after(run_timeout), trusted_until: after(trusted(run_timeout)) }
}

/// The time between the last commit request of a run and the moment when its files count as garbage.
fn grace(run_timeout: Duration) -> Duration {
    GRACE_MAX.min(run_timeout / 2)
}

/// What a run left behind is garbage this long after its start, on whatever machine it ran.
pub(super) fn over_after(run_timeout: Duration) -> Duration {
    run_timeout.saturating_add(grace(run_timeout))
}

/// The limit of a commit; `run` is that of a run which wrote files for it.
pub(super) fn commit_limit(run_timeout: Duration, run: Option<RunLimit>) -> CommitLimit {
    let grace = grace(run_timeout);
    CommitLimit { time: grace, request: grace / 2, run }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SetClock;

    #[tokio::test(start_paused = true)]
    async fn a_suspension_counts_as_soon_as_it_is_over() {
        let clock = SetClock::new(0);
        let deadline = Deadline::new(&clock, 0, 10 * LOOK_EVERY);
        let began = tokio::time::Instant::now();
        let suspended = async {
            tokio::time::sleep(2 * LOOK_EVERY).await;
            clock.suspend(8 * LOOK_EVERY);
        };
        tokio::join!(until(deadline, &clock), suspended);
        assert!(began.elapsed() <= 3 * LOOK_EVERY, "{:?}", began.elapsed());
    }

    #[test]
    fn a_request_ends_well_before_its_files_are_garbage() {
        for seconds in [1, 10, 60, 3_600, 7_200, 21_600, 864_000] {
            let timeout = Duration::from_secs(seconds);
            let request = grace(timeout) / 2;
            assert!(works_for(timeout) < timeout);
            assert!(trusted(timeout) <= timeout / 10);
            let left = over_after(timeout) - timeout - request;
            assert!(
                left >= request && left >= (timeout / 4).min(Duration::from_secs(30 * 60)),
                "{timeout:?}: {left:?}"
            );
        }
    }
}
