//! Which step of a table's maintenance comes next, and when. Pure.
//!
//! A run is `rewrite-data-files -> delay -> expire-snapshots -> remove-orphan-files`. The two clean-ups form one step, so a table
//! is always waiting for exactly one of two steps. Where it stands follows from its own snapshots, so a restart goes on where the
//! last process stopped, also in the middle of a delay.

use std::time::Duration;

use crate::error::Result;
use crate::policy::TablePolicy;
use crate::table::history::OwnRun;

/// A cron time missed by less than this (a restart, a deployment) is made up for; an older one is left to the next.
const CATCH_UP: Duration = Duration::from_secs(60 * 60);
/// First and longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60 * 60));

/// A step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Compaction.
    RewriteDataFiles,
    /// Snapshot expiry, then orphan removal.
    CleanUp,
}

/// What a table waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    /// The step.
    pub step: Step,
    /// When it is due, milliseconds since the epoch.
    pub at_ms: i64,
    /// Why then.
    pub why: &'static str,
}

impl NextStep {
    fn new(step: Step, at_ms: i64, why: &'static str) -> Self {
        Self { step, at_ms, why }
    }
}

/// The step of a table just met: after a start, or when it appears.
pub fn first_step(own: Option<&OwnRun>, policy: &TablePolicy, delay: Duration, now_ms: i64) -> Result<NextStep> {
    let Some(own) = own else {
        return first_rewrite(policy, now_ms);
    };
    if !own.complete {
        return Ok(NextStep::new(Step::RewriteDataFiles, now_ms, "the last run was cut short"));
    }
    let next_rewrite = policy.schedule.next_after(own.run_id.started_ms(), &policy.zone()?)?;
    let clean_up = after_commit(own.committed_ms, delay);
    if clean_up <= now_ms && next_rewrite <= now_ms {
        return Ok(NextStep::new(Step::RewriteDataFiles, now_ms, "the schedule's time has passed"));
    }
    // Whether the clean-up was done cannot be seen in the table. It is idempotent, so do it.
    Ok(NextStep::new(Step::CleanUp, clean_up.max(now_ms), "delay after the last commit of the last run"))
}

fn first_rewrite(policy: &TablePolicy, now_ms: i64) -> Result<NextStep> {
    use crate::policy::Schedule;
    match &policy.schedule {
        Schedule::Every(_) => {
            Ok(NextStep::new(Step::RewriteDataFiles, now_ms, "no earlier run is in the table's history"))
        }
        Schedule::Cron(_) => {
            let missed = policy.schedule.previous_before(now_ms, &policy.zone()?)?;
            if missed.is_some_and(|at| now_ms - at <= millis(CATCH_UP)) {
                return Ok(NextStep::new(Step::RewriteDataFiles, now_ms, "the schedule's time has just passed"));
            }
            let at = policy.schedule.next_after(now_ms, &policy.zone()?)?;
            Ok(NextStep::new(Step::RewriteDataFiles, at, "schedule"))
        }
    }
}

/// After compaction, whether or not it found work: the clean-ups, once the newest own commit is old enough.
pub fn after_rewrite(last_own_commit_ms: Option<i64>, delay: Duration, now_ms: i64) -> NextStep {
    let at = last_own_commit_ms.map_or(now_ms, |committed| after_commit(committed, delay).max(now_ms));
    NextStep::new(Step::CleanUp, at, "delay after the last commit")
}

/// After the clean-ups: the schedule's next time after the run's start.
pub fn after_clean_up(run_started_ms: i64, policy: &TablePolicy, now_ms: i64) -> Result<NextStep> {
    let at = policy.schedule.next_after(run_started_ms, &policy.zone()?)?;
    Ok(NextStep::new(Step::RewriteDataFiles, at.max(now_ms), "schedule"))
}

/// After a step failed: the same step again, later each time.
pub fn after_failure(step: Step, failures: u32, now_ms: i64) -> NextStep {
    NextStep::new(step, now_ms + millis(backoff(failures)), "back-off after a failure")
}

/// 1 min, 2 min, 4 min ... 1 h.
pub fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    BACKOFF.0.saturating_mul(1 << doublings).min(BACKOFF.1)
}

fn after_commit(committed_ms: i64, delay: Duration) -> i64 {
    committed_ms.saturating_add(millis(delay))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Step {
    /// A stable name for labels and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RewriteDataFiles => "rewrite-data-files",
            Self::CleanUp => "clean-up",
        }
    }
}
