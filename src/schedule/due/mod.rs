//! Which step of a table's maintenance comes next, and when. Pure.
//!
//! A run is `rewrite-data-files -> delay -> expire-snapshots -> remove-orphan-files`: two steps, of which the schedule starts the
//! first and the delay the last. A table is always waiting for exactly one of them. Where it stands follows from its own snapshots,
//! so a restart goes on where the last process stopped, also in the middle of a delay.

use std::time::Duration;

use crate::action::{Action, RunStep};
use crate::backoff::doubled;
use crate::error::Result;
use crate::policy::{Schedule, TablePolicy, human_duration};
use crate::table::history::OwnRun;
use crate::table::references::CLOCK_SKEW_LIMIT_MS;

/// A cron time missed by less than this (a restart, a deployment) is made up for at a start; an older one is left to the next.
const CATCH_UP: Duration = Duration::from_secs(60 * 60);
/// First and longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60 * 60));
/// Why a step waits that is tried again.
const BACKOFF_WHY: &str = "back-off after a failure";
/// First and longest wait after a clean-up that was refused since others gave no answer.
const REFUSED: (Duration, Duration) = (Duration::from_secs(15 * 60), Duration::from_secs(4 * 60 * 60));
const REFUSED_WHY: &str = "other tables could not be asked";

/// What a table waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    pub step: RunStep,
    /// When it is due, milliseconds since the epoch.
    pub at_ms: i64,
    pub why: &'static str,
}

impl NextStep {
    fn new(step: RunStep, at_ms: i64, why: &'static str) -> Self {
        Self { step, at_ms, why }
    }

    /// Whether the step waits since it has failed: not for its time in the schedule, nor in the delay.
    pub fn is_backoff(&self) -> bool {
        self.why == BACKOFF_WHY
    }

    /// Compaction now, as an operator wants it.
    pub fn asked_for(now_ms: i64) -> Self {
        Self::new(RunStep::FIRST, now_ms, "asked for")
    }
}

/// Where a table stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub next: NextStep,
    /// From when the schedule counts the table's next run, milliseconds since the epoch.
    pub since_ms: i64,
}

/// Where a table just met stands: after a start, or when it appears.
pub fn first_step(own: Option<&OwnRun>, policy: &TablePolicy, delay: Duration, now_ms: i64) -> Result<Standing> {
    let Some(own) = own else {
        return first_rewrite(policy, now_ms);
    };
    // A run from the future was made by a clock that has been set back since.
    let started_ms = own.run_id.started_ms().min(now_ms);
    let since_ms = match policy.schedule {
        Schedule::Every(_) => started_ms,
        Schedule::Cron(_) => started_ms.max(catch_up_from(now_ms)),
    };
    if !own.complete {
        let next = NextStep::new(RunStep::FIRST, now_ms, "the last run was cut short");
        return Ok(Standing { next, since_ms });
    }
    // Whether the clean-up was done cannot be seen in the table. It is idempotent, so it is done, even if the schedule's next
    // time has come as well: with a delay longer than the schedule's period, a process that is restarted now and then would
    // otherwise compact again each time and never clean up.
    let at_ms = after_commit(own.committed_ms, delay, now_ms);
    let next = NextStep::new(RunStep::LAST, at_ms, "delay after the last commit of the last run");
    Ok(Standing { next, since_ms })
}

fn first_rewrite(policy: &TablePolicy, now_ms: i64) -> Result<Standing> {
    let (at_ms, since_ms, why) = match &policy.schedule {
        Schedule::Every(_) => (now_ms, now_ms, "no earlier run is in the table's history"),
        Schedule::Cron(_) => {
            let since_ms = catch_up_from(now_ms);
            let at_ms = policy.schedule.next_after(since_ms, &policy.zone()?)?;
            if at_ms <= now_ms {
                (now_ms, since_ms, "the schedule's time has just passed")
            } else {
                (at_ms, since_ms, "schedule")
            }
        }
    };
    Ok(Standing { next: NextStep::new(RunStep::FIRST, at_ms, why), since_ms })
}

/// After compaction, whether or not it found work: the clean-ups, once the newest own commit is old enough.
pub fn after_rewrite(last_own_commit_ms: Option<i64>, delay: Duration, now_ms: i64) -> NextStep {
    let at_ms = last_own_commit_ms.map_or(now_ms, |committed| after_commit(committed, delay, now_ms));
    NextStep::new(RunStep::LAST, at_ms, "delay after the last commit")
}

/// After the clean-ups: the schedule's next time after `since_ms`, at once if that has passed.
pub fn after_clean_up(since_ms: i64, policy: &TablePolicy, now_ms: i64) -> Result<NextStep> {
    let at_ms = policy.schedule.next_after(since_ms.min(now_ms), &policy.zone()?)?;
    Ok(NextStep::new(RunStep::FIRST, at_ms.max(now_ms), "schedule"))
}

/// What comes next, for people: which step, when and why. A step of which the policy wants nothing gives way to the other,
/// as it does when it is due.
pub fn describe(next: &NextStep, policy: &TablePolicy, now_ms: i64) -> String {
    let wanted = |step: RunStep| step.actions().iter().any(|action| policy.is_enabled(*action));
    let wait_ms = next.at_ms.saturating_sub(now_ms).max(0).unsigned_abs();
    let when = if wait_ms == 0 { "now".to_owned() } else { format!("in {}", human_duration(whole_seconds(wait_ms))) };
    let (step, other) = (next.step, next.step.next());
    let (name, other_name) = (step.as_str(), other.as_str());
    match (wanted(step), wanted(other)) {
        (false, false) => format!("nothing: the policy disables all {} actions", in_words(Action::ALL.len())),
        (false, true) => format!("{other_name} {when} ({name} is disabled by the policy)"),
        (true, _) => format!("{name} {when} ({})", next.why),
    }
}

fn in_words(count: usize) -> String {
    let words = ["two", "three", "four", "five", "six", "seven", "eight", "nine"];
    count.checked_sub(2).and_then(|place| words.get(place)).map_or(count.to_string(), |word| (*word).to_owned())
}

/// Rounded up, so that what is said to be due is due.
fn whole_seconds(ms: u64) -> Duration {
    Duration::from_secs(ms.div_ceil(1000))
}

/// What a table waits for after its policy has changed. What is due, and a wait after a failure, stay as they are.
///
/// `failing`: the step `waiting` has failed before. `since_ms`: from when the schedule counts.
pub fn after_change(
    waiting: &NextStep,
    failing: bool,
    since_ms: i64,
    last_own_commit_ms: Option<i64>,
    policy: &TablePolicy,
    delay: Duration,
    now_ms: i64,
) -> Result<NextStep> {
    match waiting.step {
        _ if failing || waiting.at_ms <= now_ms => Ok(waiting.clone()),
        RunStep::FIRST => after_clean_up(since_ms, policy, now_ms),
        _ => Ok(after_rewrite(last_own_commit_ms, delay, now_ms)),
    }
}

/// How a step ended, as far as the next one is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// As it should, or there was a reason that is no failure not to do it.
    Well,
    /// It failed, which is no reason not to do the other step.
    Failed,
    /// Others had to be asked first, and gave no answer.
    Refused,
    /// Nothing else may be done to the table before the same has been tried again.
    Stuck,
}

/// Failures in a row, by step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    of: [u32; RunStep::COUNT],
    /// Clean-ups in a row that were refused since others gave no answer. These are no failures.
    refused: u32,
}

impl Failures {
    /// The larger number.
    pub fn most(self) -> u32 {
        self.of.into_iter().max().unwrap_or(0)
    }

    /// How often this step has failed since it has gone well.
    pub fn of(self, step: RunStep) -> u32 {
        self.of[step.index()]
    }

    /// Counts how `step` ended and says what follows it. `other` is the other step, due as if all had gone well.
    ///
    /// A failed compaction does not keep the clean-ups from being done, and is tried again after them, whatever the schedule
    /// says; a failing or refused clean-up is tried again until the next compaction is due.
    pub fn after(&mut self, step: RunStep, ended: StepEnd, other: NextStep, now_ms: i64) -> NextStep {
        let count = &mut self.of[step.index()];
        *count = if matches!(ended, StepEnd::Well | StepEnd::Refused) { 0 } else { count.saturating_add(1) };
        if step == RunStep::LAST {
            self.refused = if ended == StepEnd::Refused { self.refused.saturating_add(1) } else { 0 };
        }
        if ended == StepEnd::Stuck {
            return self.again(step, now_ms);
        }
        if step != RunStep::LAST {
            return other;
        }
        let first = if self.of(RunStep::FIRST) > 0 { self.again(RunStep::FIRST, now_ms) } else { other };
        let again = match ended {
            StepEnd::Failed => Some(self.again(step, now_ms)),
            StepEnd::Refused => Some(self.asked_again(now_ms)),
            StepEnd::Well | StepEnd::Stuck => None,
        };
        again.filter(|again| again.at_ms < first.at_ms).unwrap_or(first)
    }

    /// 15 min, 30 min, 1 h ... 4 h: each attempt lists the table's files.
    fn asked_again(self, now_ms: i64) -> NextStep {
        let wait = doubled(REFUSED.0, REFUSED.1, self.refused.saturating_sub(1));
        NextStep::new(RunStep::LAST, now_ms.saturating_add(millis(wait)), REFUSED_WHY)
    }

    /// The same step again, later each time.
    fn again(self, step: RunStep, now_ms: i64) -> NextStep {
        let wait = backoff(self.of(step));
        NextStep::new(step, now_ms.saturating_add(millis(wait)), BACKOFF_WHY)
    }
}

/// 1 min, 2 min, 4 min ... 1 h.
pub fn backoff(failures: u32) -> Duration {
    doubled(BACKOFF.0, BACKOFF.1, failures.saturating_sub(1))
}

fn catch_up_from(now_ms: i64) -> i64 {
    now_ms.saturating_sub(millis(CATCH_UP))
}

/// When the delay after a commit is over, at the earliest now. A commit from the future, by more than clocks may differ, was
/// dated by a clock that has been set back since. Nobody knows how old it is, and to wait for that time might take days: the
/// clean-ups are due, and they refuse a table from the future themselves.
fn after_commit(committed_ms: i64, delay: Duration, now_ms: i64) -> i64 {
    if committed_ms.saturating_sub(now_ms) > CLOCK_SKEW_LIMIT_MS {
        return now_ms;
    }
    committed_ms.saturating_add(millis(delay)).max(now_ms)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
