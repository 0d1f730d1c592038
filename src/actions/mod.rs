//! What is done to a table. Each action has a file that plans it, runs it and reports it, in one shape: [`plan`] gives an
//! [`ActionPlan`], [`run_step`] an [`ActionReport`] of each action of a step. When that happens is decided elsewhere.

pub mod env;
pub mod expire_snapshots;
pub mod remove_orphan_files;
pub mod report;
pub mod rewrite_data_files;
mod run_time;
pub mod subject;
pub mod words;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::Serialize;
use tokio::sync::OnceCell;
use tracing::Instrument;

use crate::action::{Action, Outcome, RunStep};
use crate::fleet::Fleet;
use crate::fleet::neighbours::Surroundings;
use crate::rewrite::Progress;
use crate::run_id::RunId;
use crate::telemetry;
use env::Env;
use report::{ActionDetail, ActionReport, StepReport};
use subject::Subject;
use words::LabelledLines;

const DISABLED: &str = "disabled by the policy";

/// What an action works with.
pub struct ActionContext<'a> {
    /// Clock, memory, caches.
    pub env: &'a Env,
    pub fleet: &'a Fleet,
    /// The table worked on.
    pub subject: &'a Subject,
    around: OnceCell<Surroundings>,
}

impl<'a> ActionContext<'a> {
    /// For work on `subject`.
    pub fn new(env: &'a Env, fleet: &'a Fleet, subject: &'a Subject) -> Self {
        Self { env, fleet, subject, around: OnceCell::new() }
    }

    /// Where other tables lie. Finding that out lists all catalogs, so the actions of a step share it.
    async fn around(&self) -> &Surroundings {
        self.around.get_or_init(|| self.fleet.surroundings(self.subject.own())).await
    }
}

/// Who watches a step.
pub trait Watcher: Sync {
    fn started(&self, _action: Action) {}
    /// It is known what an action is going to do.
    fn planned(&self, _action: Action, _plan: &ActionPlan<Outline>) {}
    /// A compaction begins, whose progress can be looked at.
    fn rewriting(&self, _progress: &Arc<Progress>) {}
}

/// Nobody does.
impl Watcher for () {}

/// A plan, or why there is none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionPlan<P> {
    Would(P),
    /// Why nothing would be done.
    Nothing(String),
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outline {
    pub detail: ActionDetail,
    /// The same for people.
    #[serde(skip)]
    pub lines: LabelledLines,
    /// A picture of it, for a terminal; may be empty.
    #[serde(skip)]
    pub drawing: String,
}

/// What the action would do now. Changes nothing.
pub async fn plan(action: Action, context: &ActionContext<'_>) -> ActionPlan<Outline> {
    match action {
        Action::RewriteDataFiles => rewrite_data_files::plan(context).boxed().await,
        Action::ExpireSnapshots => expire_snapshots::plan(context).boxed().await,
        Action::RemoveOrphanFiles => remove_orphan_files::plan(context).boxed().await,
    }
}

async fn run(action: Action, context: &ActionContext<'_>, run_id: RunId, watcher: &dyn Watcher) -> ActionReport {
    match action {
        Action::RewriteDataFiles => rewrite_data_files::run(context, run_id, watcher).boxed().await,
        Action::ExpireSnapshots => expire_snapshots::run(context, run_id).boxed().await,
        Action::RemoveOrphanFiles => remove_orphan_files::run(context).boxed().await,
    }
}

/// Runs the actions of a step, one after the other.
pub async fn run_step(step: RunStep, context: &ActionContext<'_>, run_id: RunId, watcher: &dyn Watcher) -> StepReport {
    let mut actions: Vec<ActionReport> = Vec::new();
    for &action in step.actions() {
        watcher.started(action);
        let (clock, span) = (&context.env.clock, telemetry::action_span(action.as_str()));
        let begin_ms = clock.now_ms();
        let mut report = if actions.iter().any(|before| before.outcome == Outcome::Unknown) {
            ActionReport::skipped(action, "a commit's outcome is not known yet")
        } else {
            run(action, context, run_id, watcher).instrument(span.clone()).await
        };
        let took_ms = clock.now_ms().saturating_sub(begin_ms).max(0);
        report.duration = Duration::from_millis(took_ms.unsigned_abs());
        telemetry::ended(&span, report.outcome.as_str(), report.outcome.is_failure(), &report.span_counts);
        actions.push(report);
    }
    StepReport { step, actions }
}
