//! The one endless loop: finds tables, starts the steps that are due, oldest first, within the limits.
//! A waiting table holds no worker, and a failing one only waits longer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::ErrorKind;
use crate::policy::TableName;
use crate::report::Action;
use crate::report::events::Reporter;
use crate::rewrite::Progress;
use crate::schedule::due::{self, NextStep, Step};
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::run_table::{Run, StepDone, Subject, clean_up_step, rewrite_step};
use crate::table::history::last_own_run;

/// How often the loop looks for due tables.
const TICK: Duration = Duration::from_millis(500);
/// How often catalogs are asked for their tables.
const DISCOVER_EVERY: Duration = Duration::from_secs(30);

/// What the scheduler knows of a table.
#[derive(Debug)]
struct Entry {
    next: NextStep,
    /// Whether `next` was found out from the table; until then it means "look at the table".
    known: bool,
    running: bool,
    failures: u32,
    run: Option<Run>,
    /// The metadata that was found invalid: until it changes, the table is left alone.
    quarantine: Option<String>,
}

/// What a worker sends back.
struct Finished {
    name: TableName,
    run: Run,
    result: Result<Progressed, crate::error::Error>,
}

enum Progressed {
    /// The table was looked at: it waits for this.
    Waits(NextStep),
    /// The table is still as invalid as it was.
    Quarantined,
    /// A step was done on this metadata.
    Stepped(Box<StepDone>, String),
}

/// Runs maintenance until the environment's token is cancelled, then waits for what is under way.
pub struct Scheduler {
    env: Env,
    fleet: Arc<Fleet>,
    reporter: Arc<Reporter>,
    concurrent_tables: usize,
    tables: HashMap<TableName, Entry>,
    workers: JoinSet<()>,
    results: (mpsc::UnboundedSender<Finished>, mpsc::UnboundedReceiver<Finished>),
}

impl Scheduler {
    /// A scheduler for the fleet's tables.
    pub fn new(env: Env, fleet: Arc<Fleet>, reporter: Arc<Reporter>, concurrent_tables: usize) -> Self {
        Self {
            env,
            fleet,
            reporter,
            concurrent_tables: concurrent_tables.max(1),
            tables: HashMap::new(),
            workers: JoinSet::new(),
            results: mpsc::unbounded_channel(),
        }
    }

    /// The loop.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (found_sender, mut found) = mpsc::channel(1);
        let discovery = tokio::spawn(discover(self.fleet.clone(), self.reporter.clone(), found_sender));
        let cancel = self.env.cancel.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                Some((catalog, names)) = found.recv() => self.take_in(&catalog, names),
                Some(finished) = self.results.1.recv() => self.finish(finished),
                _ = tick.tick() => {}
            }
            self.reporter.heartbeat(self.env.clock.now_ms());
            while self.workers.try_join_next().is_some() {}
            self.start_due();
        }
        discovery.abort();
        while self.workers.join_next().await.is_some() {}
        while let Ok(finished) = self.results.1.try_recv() {
            self.finish(finished);
        }
    }

    /// Adds new tables of a catalog and forgets those that are gone.
    fn take_in(&mut self, catalog: &str, names: Vec<TableName>) {
        let now = self.env.clock.now_ms();
        let gone: Vec<TableName> = self
            .tables
            .iter()
            .filter(|(name, entry)| name.catalog == catalog && !entry.running && !names.contains(name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.forget(&name);
        }
        for name in names {
            if self.tables.contains_key(&name) {
                continue;
            }
            self.reporter.table_found(&name);
            let next = NextStep { step: Step::RewriteDataFiles, at_ms: now, why: "just found" };
            let entry = Entry { next, known: false, running: false, failures: 0, run: None, quarantine: None };
            self.tables.insert(name, entry);
        }
    }

    fn forget(&mut self, name: &TableName) {
        self.tables.remove(name);
        self.fleet.forget(name);
        self.reporter.table_gone(name);
    }

    /// Starts due tables, the longest overdue first.
    fn start_due(&mut self) {
        let now = self.env.clock.now_ms();
        let running = self.tables.values().filter(|entry| entry.running).count();
        let mut free = self.concurrent_tables.saturating_sub(running);
        if free == 0 {
            return;
        }
        let mut due: BTreeMap<(i64, TableName), ()> = BTreeMap::new();
        for (name, entry) in &self.tables {
            if !entry.running && entry.next.at_ms <= now {
                due.insert((entry.next.at_ms, name.clone()), ());
            }
        }
        for ((_, name), ()) in due {
            if free == 0 {
                break;
            }
            free -= 1;
            self.start(name);
        }
    }

    fn start(&mut self, name: TableName) {
        let Some(entry) = self.tables.get_mut(&name) else { return };
        entry.running = true;
        let (known, step) = (entry.known, entry.next.step);
        // The clean-ups belong to the run whose delay they waited for.
        let run = match (step, entry.run) {
            (Step::CleanUp, Some(run)) => run,
            _ => Run::start(&self.env),
        };
        entry.run = Some(run);
        let quarantine = entry.quarantine.clone();
        let (env, fleet, reporter) = (self.env.clone(), self.fleet.clone(), self.reporter.clone());
        let sender = self.results.0.clone();
        self.workers.spawn(async move {
            let work = {
                let name = name.clone();
                tokio::spawn(async move {
                    advance(&env, &fleet, &reporter, &name, run, known.then_some(step), quarantine).await
                })
            };
            let result =
                work.await.unwrap_or_else(|e| Err(crate::error::Error::internal(format!("run panicked: {e}"))));
            // The receiver lives as long as the scheduler, which outlives its workers.
            let _ = sender.send(Finished { name, run, result });
        });
    }

    fn finish(&mut self, finished: Finished) {
        let now = self.env.clock.now_ms();
        let Finished { name, run, result } = finished;
        let Some(entry) = self.tables.get_mut(&name) else { return };
        entry.running = false;
        match result {
            Ok(Progressed::Waits(next)) => {
                entry.known = true;
                entry.failures = 0;
                entry.next = next;
            }
            Ok(Progressed::Quarantined) => {
                entry.failures += 1;
                entry.next = due::after_failure(entry.next.step, entry.failures, now);
            }
            Ok(Progressed::Stepped(done, metadata_location)) => {
                entry.quarantine = done.report.is_data_invalid().then_some(metadata_location);
                let failed = done.report.outcome().is_failure();
                entry.failures = if failed { entry.failures + 1 } else { 0 };
                entry.next = done.next.clone();
                if entry.quarantine.is_some() {
                    entry.next = due::after_failure(Step::RewriteDataFiles, entry.failures, now);
                }
                self.reporter.step_done(&name, run, &done, now);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.forget(&name);
                return;
            }
            Err(error) => {
                entry.failures += 1;
                entry.next = due::after_failure(entry.next.step, entry.failures, now);
                self.reporter.step_failed(&name, run, entry.next.step, &error, now);
            }
        }
        if let Some(entry) = self.tables.get(&name) {
            self.reporter.table_waits(&name, &entry.next, entry.failures, entry.quarantine.is_some());
        }
    }
}

/// Looks at the table, or does the step that is due.
async fn advance(
    env: &Env,
    fleet: &Fleet,
    reporter: &Reporter,
    name: &TableName,
    run: Run,
    step: Option<Step>,
    quarantine: Option<String>,
) -> Result<Progressed, crate::error::Error> {
    let subject = Subject::load(fleet, name).await?;
    let metadata_location = subject.table.loaded.metadata_location.clone();
    let Some(step) = step else {
        if let Some(own) = last_own_run(&subject.table.loaded).filter(|own| own.complete) {
            reporter.known_success(name, Action::RewriteDataFiles, own.committed_ms);
        }
        return Ok(Progressed::Waits(subject.first_step(env.clock.now_ms())?));
    };
    if quarantine.as_ref() == Some(&metadata_location) {
        return Ok(Progressed::Quarantined);
    }
    reporter.step_started(name, run, step);
    let done = match step {
        Step::RewriteDataFiles => rewrite_step(env, &subject, run, Arc::new(Progress::default())).await,
        Step::CleanUp => {
            let started = |action| reporter.action_started(name, action);
            clean_up_step(env, fleet, name, subject, run, &started).await?
        }
    };
    Ok(Progressed::Stepped(Box::new(done), metadata_location))
}

/// Asks every catalog for its tables, again and again.
async fn discover(fleet: Arc<Fleet>, reporter: Arc<Reporter>, found: mpsc::Sender<(String, Vec<TableName>)>) {
    loop {
        for catalog in fleet.catalog_names() {
            match fleet.discover(&catalog).await {
                Ok(names) => {
                    reporter.catalog_reached(&catalog);
                    if found.send((catalog, names)).await.is_err() {
                        return;
                    }
                }
                Err(error) => reporter.catalog_failed(&catalog, &error),
            }
        }
        tokio::time::sleep(DISCOVER_EVERY).await;
    }
}
