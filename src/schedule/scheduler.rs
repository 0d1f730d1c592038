//! The one endless loop: finds tables, starts the steps that are due, oldest first, within the limits.
//! A waiting table holds no worker, and a failing one only waits longer.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::RewritePlan;
use crate::policy::TableName;
use crate::report::Action;
use crate::report::events::Reporter;
use crate::rewrite::Progress;
use crate::schedule::due::{self, Ended, Failures, NextStep, Standing, Step};
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::rewrite_data_files::Watcher;
use crate::schedule::run_table::{Run, StepDone, Subject, clean_up_step, rewrite_step};
use crate::table::history::last_own_run;

/// How often the loop looks for due tables.
const TICK: Duration = Duration::from_millis(500);
/// How often a catalog is asked for its tables.
const DISCOVER_EVERY: Duration = Duration::from_secs(30);

/// What the scheduler knows of a table.
#[derive(Debug)]
struct Entry {
    next: NextStep,
    /// Whether `next` was found out from the table; until then it means "look at the table".
    known: bool,
    running: bool,
    /// It left the catalog while a step was running.
    gone: bool,
    failures: Failures,
    /// The run whose delay `next` waits for, or whose step is running.
    run: Option<Run>,
    /// The metadata that was found invalid: until it changes, the table is left alone.
    quarantine: Option<String>,
}

impl Entry {
    fn new(now_ms: i64) -> Self {
        let next = NextStep { step: Step::RewriteDataFiles, at_ms: now_ms, why: "just found" };
        Self {
            next,
            known: false,
            running: false,
            gone: false,
            failures: Failures::default(),
            run: None,
            quarantine: None,
        }
    }
}

/// What a worker hands back.
struct Finished {
    name: TableName,
    run: Run,
    step: Step,
    progress: Progressed,
}

enum Progressed {
    /// The table was looked at.
    Looked(Standing),
    /// The step turned out not to be due yet.
    NotDue(NextStep),
    /// The table is still as invalid as it was.
    Quarantined,
    /// The step was done on this metadata.
    Stepped(Box<StepDone>, String),
    /// The step could not be begun.
    NotBegun(Error),
    /// The step ended in the middle, by a bug of ours.
    Panicked(Error),
}

/// What workers share.
#[derive(Clone)]
struct Shared {
    env: Env,
    fleet: Arc<Fleet>,
    reporter: Arc<Reporter>,
}

/// Runs maintenance until the environment's token is cancelled, then waits for what is under way.
/// Dropping it, or the future of [`Scheduler::run`], stops everything at once.
pub struct Scheduler {
    shared: Shared,
    concurrent_tables: usize,
    tables: HashMap<TableName, Entry>,
    workers: JoinSet<Finished>,
}

impl Scheduler {
    /// A scheduler for the fleet's tables.
    pub fn new(env: Env, fleet: Arc<Fleet>, reporter: Arc<Reporter>, concurrent_tables: usize) -> Self {
        Self {
            shared: Shared { env, fleet, reporter },
            concurrent_tables: concurrent_tables.max(1),
            tables: HashMap::new(),
            workers: JoinSet::new(),
        }
    }

    /// The loop.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (sender, mut found) = mpsc::channel(1);
        // A catalog that is slow to answer does not hold up the others. All end when the set is dropped.
        let mut discovery = JoinSet::new();
        for catalog in self.shared.fleet.catalog_names() {
            discovery.spawn(discover(self.shared.clone(), catalog, sender.clone()));
        }
        let cancel = self.shared.env.cancel.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                Some((catalog, names)) = found.recv() => self.take_in(&catalog, names),
                Some(finished) = self.workers.join_next() => self.finish(finished),
                _ = tick.tick() => {}
            }
            self.heartbeat();
            self.start_due();
        }
        drop(discovery);
        while !self.workers.is_empty() {
            tokio::select! {
                Some(finished) = self.workers.join_next() => self.finish(finished),
                _ = tick.tick() => self.heartbeat(),
            }
        }
    }

    fn heartbeat(&self) {
        self.shared.reporter.heartbeat(self.shared.env.clock.now_ms());
    }

    /// Adds new tables of a catalog and forgets those that are gone.
    fn take_in(&mut self, catalog: &str, names: Vec<TableName>) {
        let now = self.shared.env.clock.now_ms();
        let names: HashSet<TableName> = names.into_iter().collect();
        let mut gone = Vec::new();
        for (name, entry) in self.tables.iter_mut().filter(|(name, _)| name.catalog == catalog) {
            entry.gone = !names.contains(name);
            if entry.gone && !entry.running {
                gone.push(name.clone());
            }
        }
        for name in gone {
            self.forget(&name);
        }
        for name in names {
            if !self.tables.contains_key(&name) {
                self.shared.reporter.table_found(&name);
                self.tables.insert(name, Entry::new(now));
            }
        }
    }

    fn forget(&mut self, name: &TableName) {
        self.tables.remove(name);
        self.shared.fleet.forget(name);
        self.shared.reporter.table_gone(name);
    }

    /// Starts due tables, the longest overdue first.
    fn start_due(&mut self) {
        let free = self.concurrent_tables.saturating_sub(self.workers.len());
        if free == 0 {
            return;
        }
        let now = self.shared.env.clock.now_ms();
        let waiting = self.tables.iter().filter(|(_, entry)| !entry.running && entry.next.at_ms <= now);
        let mut due: Vec<(i64, TableName)> = waiting.map(|(name, entry)| (entry.next.at_ms, name.clone())).collect();
        due.sort_unstable();
        for (_, name) in due.into_iter().take(free) {
            self.start(name);
        }
    }

    fn start(&mut self, name: TableName) {
        let Some(entry) = self.tables.get_mut(&name) else { return };
        entry.running = true;
        let step = entry.next.step;
        // The clean-ups belong to the run whose delay they waited for.
        let run = match (step, entry.run) {
            (Step::CleanUp, Some(run)) => run,
            _ => Run::start(&self.shared.env),
        };
        entry.run = Some(run);
        let wanted = entry.known.then_some(step);
        let (shared, quarantine) = (self.shared.clone(), entry.quarantine.clone());
        self.workers.spawn(async move {
            // What a panic leaves behind is dropped or lies behind locks that bear it.
            let work = AssertUnwindSafe(advance(&shared, &name, run, wanted, quarantine)).catch_unwind();
            let progress = match work.await {
                Ok(Ok(progress)) => progress,
                Ok(Err(error)) => Progressed::NotBegun(error),
                Err(panic) => {
                    Progressed::Panicked(Error::internal(format!("panicked: {}", panic_text(panic.as_ref()))))
                }
            };
            Finished { name, run, step, progress }
        });
    }

    fn finish(&mut self, finished: Result<Finished, tokio::task::JoinError>) {
        // Workers catch their panics and are aborted only with the scheduler itself.
        let Ok(Finished { name, run, step, progress }) = finished else { return };
        let Some(entry) = self.tables.get_mut(&name) else { return };
        entry.running = false;
        let vanished = matches!(&progress, Progressed::NotBegun(error) if error.kind() == ErrorKind::NotFound);
        if entry.gone || vanished {
            self.forget(&name);
            return;
        }
        self.shared.settle(entry, &name, run, step, progress);
        let (failures, quarantined) = (entry.failures.most(), entry.quarantine.is_some());
        self.shared.reporter.table_waits(&name, &entry.next, failures, quarantined);
    }
}

impl Shared {
    /// Tells what came of a step, and decides what the table waits for.
    fn settle(&self, entry: &mut Entry, name: &TableName, run: Run, step: Step, progress: Progressed) {
        let now = self.env.clock.now_ms();
        let same_again =
            |failures: &mut Failures, next: &NextStep| failures.after(step, Ended::Stuck, next.clone(), now);
        match progress {
            Progressed::Looked(standing) => {
                entry.known = true;
                entry.failures = Failures::default();
                entry.run = Some(Run { since_ms: standing.since_ms, ..run });
                entry.next = standing.next;
            }
            Progressed::NotDue(next) => entry.next = next,
            Progressed::Quarantined => entry.next = same_again(&mut entry.failures, &entry.next),
            Progressed::Stepped(done, metadata_location) => {
                entry.quarantine = done.report.is_metadata_invalid().then_some(metadata_location);
                entry.next = entry.failures.after(step, done.report.ended(), done.other.clone(), now);
                self.reporter.step_done(name, run, &done, now);
            }
            Progressed::NotBegun(error) => {
                entry.next = same_again(&mut entry.failures, &entry.next);
                self.reporter.step_failed(name, run, step, &error, now);
            }
            Progressed::Panicked(error) => {
                let other = self.other_step(name, run, step, now).unwrap_or_else(|| entry.next.clone());
                entry.next = entry.failures.after(step, Ended::Failed, other, now);
                self.reporter.step_failed(name, run, step, &error, now);
            }
        }
    }

    /// The step after one that told nothing. Whether the delay is over will be seen in the table.
    fn other_step(&self, name: &TableName, run: Run, step: Step, now_ms: i64) -> Option<NextStep> {
        match step {
            Step::RewriteDataFiles => Some(due::after_rewrite(None, Duration::ZERO, now_ms)),
            Step::CleanUp => {
                let policy = self.fleet.policy(name).ok()?.policy;
                due::after_clean_up(run.since_ms, &policy, now_ms).ok()
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message")
}

/// Looks at the table, or does the step that is due.
async fn advance(
    Shared { env, fleet, reporter }: &Shared,
    name: &TableName,
    run: Run,
    step: Option<Step>,
    quarantine: Option<String>,
) -> Result<Progressed> {
    let subject = Subject::load(fleet, name).await?;
    let metadata_location = subject.table.loaded.metadata_location.clone();
    let Some(step) = step else {
        if let Some(own) = last_own_run(&subject.table.loaded).filter(|own| own.complete) {
            reporter.known_success(name, Action::RewriteDataFiles, own.committed_ms);
        }
        return Ok(Progressed::Looked(subject.first_step(env.clock.now_ms())?));
    };
    if quarantine.as_ref() == Some(&metadata_location) {
        return Ok(Progressed::Quarantined);
    }
    let done = match step {
        Step::RewriteDataFiles => {
            reporter.step_started(name, run, step);
            let progress = Arc::new(Progress::default());
            reporter.rewriting(name, progress.clone(), env.clock.now_ms());
            let planned = |plan: &RewritePlan| reporter.rewrite_planned(name, plan, env.clock.now_ms());
            rewrite_step(env, &subject, run, &Watcher { progress, planned: &planned }).await
        }
        Step::CleanUp => {
            let now = env.clock.now_ms();
            let due = subject.clean_up_due(now);
            // Somebody else has compacted meanwhile, or the step before ended without telling when it had committed.
            if due.at_ms > now {
                return Ok(Progressed::NotDue(due));
            }
            reporter.step_started(name, run, step);
            let started = |action| reporter.action_started(name, action);
            clean_up_step(env, fleet, name, &subject, run, &started).await?
        }
    };
    Ok(Progressed::Stepped(Box::new(done), metadata_location))
}

/// Asks a catalog for its tables, again and again.
async fn discover(
    Shared { fleet, reporter, .. }: Shared,
    catalog: String,
    found: mpsc::Sender<(String, Vec<TableName>)>,
) {
    loop {
        match fleet.discover(&catalog).await {
            Ok(names) => {
                reporter.catalog_reached(&catalog);
                if found.send((catalog.clone(), names)).await.is_err() {
                    return;
                }
            }
            Err(error) => reporter.catalog_failed(&catalog, &error),
        }
        tokio::time::sleep(DISCOVER_EVERY).await;
    }
}
