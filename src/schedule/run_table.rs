//! One run of one table, a step at a time: when a step may begin, and what comes after it. What a step does stands in
//! [`crate::actions`]. Steps never overlap for a table; the wait between them belongs to the caller.

use tracing::Span;

use super::due::{self, NextStep, Standing, StepEnd};
use crate::action::{Outcome, RunStep};
use crate::actions::env::Env;
use crate::actions::report::StepReport;
use crate::actions::subject::Subject;
use crate::actions::{self, ActionContext, Watcher};
use crate::error::Result;
use crate::fleet::Fleet;
use crate::run_id::RunId;
use crate::table::TableName;
use crate::telemetry;

/// A run of a table from its first step to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRun {
    pub run_id: RunId,
    /// From when the schedule counts the next run, milliseconds since the epoch.
    pub since_ms: i64,
}

impl TableRun {
    /// A new run, starting now.
    pub fn start(env: &Env) -> Self {
        let run_id = RunId(env.clock.uuid());
        Self { run_id, since_ms: run_id.started_ms() }
    }

    /// What is logged and traced inside belongs to this run.
    pub fn span(self, name: &TableName) -> Span {
        telemetry::run_span(self.run_id.0, &name.catalog, &name.namespace_text(), &name.to_string())
    }
}

/// A step's report, and what the table waits for after it.
#[derive(Debug)]
pub struct StepDone {
    pub report: StepReport,
    /// The other step, due as if this one had gone well.
    pub other: NextStep,
}

impl StepDone {
    /// What the step's end means for the next one.
    pub fn ended(&self) -> StepEnd {
        let in_the_open = self.report.actions.iter().any(|action| action.outcome == Outcome::Unknown);
        match self.report.outcome() {
            // Nothing may be deleted while a commit is in the open, whichever action of the step sent it and however the others
            // ended; the next look at the table settles it.
            _ if in_the_open && self.report.step != RunStep::LAST => StepEnd::Stuck,
            outcome if outcome.is_failure() => StepEnd::Failed,
            _ if self.report.refusal().is_some_and(|refused| refused.passes) => StepEnd::Refused,
            _ => StepEnd::Well,
        }
    }
}

/// Where the table stands, found out from the table itself.
pub fn first_step(subject: &Subject, now_ms: i64) -> Result<Standing> {
    due::first_step(subject.last_run().as_ref(), &subject.resolved.policy, subject.delay(), now_ms)
}

/// When the last step may be done at the earliest, by the newest own commit in the table.
pub fn clean_up_due(subject: &Subject, now_ms: i64) -> NextStep {
    due::after_rewrite(subject.last_run().map(|own| own.committed_ms), subject.delay(), now_ms)
}

/// Does a step, and says when the other one is due.
pub async fn run_step(
    env: &Env,
    fleet: &Fleet,
    subject: &Subject,
    run: TableRun,
    step: RunStep,
    watcher: &dyn Watcher,
) -> Result<StepDone> {
    let report = actions::run_step(step, &ActionContext::new(env, fleet, subject), run.run_id, watcher).await;
    let now = env.clock.now_ms();
    let other = match report.last_commit_ms() {
        _ if step == RunStep::LAST => due::after_clean_up(run.since_ms, &subject.resolved.policy, now)?,
        Some(committed) => due::after_rewrite(Some(committed), subject.delay(), now),
        None => clean_up_due(subject, now),
    };
    Ok(StepDone { report, other })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::actions::report::ActionReport;

    #[test]
    fn a_commit_in_the_open_keeps_a_step_stuck_whatever_failed_before_it() {
        let action = |outcome| ActionReport { outcome, ..ActionReport::new(Action::RewriteDataFiles) };
        let ended = |step, outcomes: &[Outcome]| {
            let report = StepReport { step, actions: outcomes.iter().map(|outcome| action(*outcome)).collect() };
            StepDone { report, other: NextStep { step, at_ms: 0, why: "" } }.ended()
        };
        assert_eq!(ended(RunStep::FIRST, &[Outcome::Unknown]), StepEnd::Stuck);
        assert_eq!(ended(RunStep::FIRST, &[Outcome::Failed, Outcome::Unknown]), StepEnd::Stuck);
        assert_eq!(ended(RunStep::FIRST, &[Outcome::Failed, Outcome::Success]), StepEnd::Failed);
        assert_eq!(ended(RunStep::LAST, &[Outcome::Unknown, Outcome::Skipped]), StepEnd::Failed);
    }
}
