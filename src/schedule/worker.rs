//! What is done for a table apart from the loop: a look at it, or a step; and the listing of a catalog.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use super::due::{self, NextStep, Standing};
use super::observer::{Event, Observer, TableEvent};
use super::run_table::{StepDone, TableRun, clean_up_due, first_step, run_step};
use crate::action::{Action, RunStep};
use crate::actions::env::Env;
use crate::actions::subject::Subject;
use crate::actions::{ActionPlan, Outline, Watcher};
use crate::error::{Error, Result};
use crate::fleet::{Discovered, Fleet};
use crate::rewrite::Progress;
use crate::table::TableName;
use crate::telemetry;

/// How often a catalog is asked for its tables.
const DISCOVER_EVERY: Duration = Duration::from_secs(30);

/// What a worker needs, as it was when it began.
#[derive(Clone)]
pub(super) struct WorkerContext {
    pub(super) env: Env,
    pub(super) fleet: Arc<Fleet>,
    pub(super) observer: Arc<dyn Observer>,
}

/// What there is to do for a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Task {
    /// Find out where it stands; if only its policy has changed, from what it waited for.
    Look(Option<WaitedStep>),
    Do(RunStep),
}

/// What a table waited for when its policy changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitedStep {
    pub(super) next: NextStep,
    /// The step has failed before.
    pub(super) failing: bool,
}

pub(super) struct Finished {
    pub(super) name: TableName,
    pub(super) run: TableRun,
    /// The step done, or the one that a look came before.
    pub(super) step: RunStep,
    pub(super) progress: Progressed,
}

pub(super) enum Progressed {
    /// The table was looked at.
    Looked(Standing),
    /// The step turned out not to be due yet.
    NotDue(NextStep),
    /// The table is still as invalid as it was and cannot be compacted; the clean-ups follow, which look for themselves.
    Quarantined(NextStep),
    /// The step was done on this metadata.
    Stepped(Box<StepDone>, String),
    /// The step could not be begun.
    NotBegun(Error),
    /// The step ended in the middle, by a bug of ours.
    Panicked(Error),
}

impl WorkerContext {
    pub(super) fn tell(&self, event: Event<'_>) {
        self.observer.observe(event, self.env.clock.now_ms());
    }

    pub(super) fn tell_of(&self, name: &TableName, event: TableEvent<'_>) {
        self.tell(Event::Table(name, event));
    }

    /// Does the task; panics end here. `loaded` is raised once the catalog has told of the table.
    pub(super) async fn work(
        self,
        name: TableName,
        run: TableRun,
        task: Task,
        step: RunStep,
        quarantine: Option<String>,
        loaded: Arc<AtomicBool>,
    ) -> Finished {
        // What a panic leaves behind is dropped or lies behind locks that bear it.
        let work = AssertUnwindSafe(self.advance(&name, run, task.clone(), quarantine, &loaded)).catch_unwind();
        // A look at a table is no run yet.
        let span = if matches!(task, Task::Do(_)) { run.span(&name) } else { Span::none() };
        let progress = match work.instrument(span.clone()).await {
            Ok(Ok(progress)) => progress,
            Ok(Err(error)) => Progressed::NotBegun(error),
            Err(panic) => Progressed::Panicked(panicked(panic.as_ref())),
        };
        if let Progressed::Stepped(done, _) = &progress {
            let outcome = done.report.outcome();
            telemetry::ended(&span, outcome.as_str(), outcome.is_failure(), &[]);
        }
        Finished { name, run, step, progress }
    }

    async fn advance(
        &self,
        name: &TableName,
        run: TableRun,
        task: Task,
        quarantine: Option<String>,
        loaded: &AtomicBool,
    ) -> Result<Progressed> {
        let Self { env, fleet, .. } = self;
        let subject = Subject::load(fleet, name).await?;
        loaded.store(true, Ordering::Relaxed);
        let metadata_location = subject.table.loaded.metadata_location.clone();
        let step = match task {
            Task::Look(waiting) => return self.look(name, run, &subject, waiting.as_ref()).map(Progressed::Looked),
            Task::Do(step) => step,
        };
        let now = env.clock.now_ms();
        let due = clean_up_due(&subject, now);
        if step == RunStep::FIRST && quarantine.as_ref() == Some(&metadata_location) {
            return Ok(Progressed::Quarantined(due));
        }
        // Somebody else has compacted meanwhile, or the step before ended without telling when it had committed.
        if step == RunStep::LAST && due.at_ms > now {
            return Ok(Progressed::NotDue(due));
        }
        self.tell_of(name, TableEvent::StepStarted(run, step));
        let done = run_step(env, fleet, &subject, run, step, &Told { shared: self, name }).await?;
        Ok(Progressed::Stepped(Box::new(done), metadata_location))
    }

    fn look(
        &self,
        name: &TableName,
        run: TableRun,
        subject: &Subject,
        waiting: Option<&WaitedStep>,
    ) -> Result<Standing> {
        let now = self.env.clock.now_ms();
        let last = subject.last_run();
        if let Some(run) = last.as_ref().filter(|run| run.complete) {
            self.tell_of(name, TableEvent::KnownSuccess(Action::RewriteDataFiles, run.committed_ms));
        }
        let Some(WaitedStep { next, failing }) = waiting else { return first_step(subject, now) };
        let policy = &subject.resolved.policy;
        let committed = last.map(|own| own.committed_ms);
        let next = due::after_change(next, *failing, run.since_ms, committed, policy, subject.delay(), now)?;
        Ok(Standing { next, since_ms: run.since_ms })
    }

    /// Asks a catalog for its tables, again and again. Each answer comes with the fleet that was asked.
    pub(super) async fn discover(self, catalog: String, found: mpsc::Sender<CatalogListing>) {
        let mut after_failure = false;
        loop {
            // One bad answer must not end the listing for good.
            let asked = AssertUnwindSafe(self.fleet.discover(&catalog)).catch_unwind().await;
            match asked.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
                Ok(Discovered { names, unclear }) => {
                    self.tell(match &unclear {
                        None => Event::CatalogListed(&catalog),
                        Some(error) => Event::CatalogUnclear(&catalog, error),
                    });
                    let after_failure = std::mem::take(&mut after_failure);
                    let listing =
                        CatalogListing { fleet: self.fleet.clone(), catalog: catalog.clone(), names, after_failure };
                    if found.send(listing).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    after_failure = true;
                    self.tell(Event::CatalogNotListed(&catalog, &error));
                }
            }
            tokio::time::sleep(DISCOVER_EVERY).await;
        }
    }
}

/// Tells on what becomes of a step.
struct Told<'a> {
    shared: &'a WorkerContext,
    name: &'a TableName,
}

impl Watcher for Told<'_> {
    fn started(&self, action: Action) {
        self.shared.tell_of(self.name, TableEvent::ActionStarted(action));
    }

    fn planned(&self, action: Action, plan: &ActionPlan<Outline>) {
        self.shared.tell_of(self.name, TableEvent::ActionPlanned(action, plan));
    }

    fn rewriting(&self, progress: &Arc<Progress>) {
        self.shared.tell_of(self.name, TableEvent::Rewriting(progress));
    }
}

/// The tables of a catalog.
pub(super) struct CatalogListing {
    pub(super) fleet: Arc<Fleet>,
    pub(super) catalog: String,
    pub(super) names: Vec<TableName>,
    /// The listing before this one failed.
    pub(super) after_failure: bool,
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Error::internal(format!("panicked: {}", text.unwrap_or("without a message")))
}
