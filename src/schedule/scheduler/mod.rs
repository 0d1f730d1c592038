//! The one endless loop: finds tables, starts the steps that are due, oldest first, within the limits; takes orders, and new
//! settings. A waiting table holds no worker, and a failing one only waits longer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use crate::action::RunStep;
use crate::actions::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::fleet::FleetChange;
use crate::schedule::collector::{CollectedNumbers, Collector};
use crate::schedule::control::{Order, OrderKind, Orders, Pause};
use crate::schedule::due::{self, NextStep, StepEnd};
use crate::schedule::entry::TableEntry;
use crate::schedule::observer::{Event, Observer, QueueStatus, TableEvent};
use crate::schedule::run_table::TableRun;
use crate::schedule::settings::LiveSettings;
use crate::schedule::silence::Silence;
use crate::schedule::wall_clock::WallClock;
use crate::schedule::worker::{CatalogListing, Finished, Progressed, WorkerContext};
use crate::table::TableName;

/// How often the loop looks for due tables.
const TICK: Duration = Duration::from_millis(500);
/// Pauses kept of tables that are gone.
const LEFT_PAUSED_MAX: usize = 10_000;
/// Numbers of the collector that may wait.
const NUMBERS_MAX: usize = 64;

/// Runs maintenance until the environment's token is cancelled, then waits for what is under way.
/// Dropping it, or the future of [`Scheduler::run`], stops everything at once.
pub struct Scheduler {
    shared: WorkerContext,
    settings: watch::Receiver<LiveSettings>,
    orders: Orders,
    concurrent_tables: usize,
    paused: Option<Pause>,
    /// Pauses of tables that are gone. A table that is dropped and registered again, or missing from one listing, stays paused.
    left_paused: HashMap<TableName, Pause>,
    tables: HashMap<TableName, TableEntry>,
    /// The names of `tables`, for others.
    maintained: watch::Sender<BTreeSet<TableName>>,
    /// What the collector finds out, and its way in.
    numbers: (mpsc::Sender<CollectedNumbers>, mpsc::Receiver<CollectedNumbers>),
    silence: Silence,
    wall_clock: WallClock,
    workers: JoinSet<Finished>,
    /// Workers that wait for what other tables need.
    asking: watch::Receiver<usize>,
    /// As it was told last.
    queue: QueueStatus,
}

impl Scheduler {
    /// A scheduler for the tables of the settings' fleet. The settings' run timeout takes the place of the environment's.
    pub fn new(env: Env, settings: watch::Receiver<LiveSettings>, observer: Arc<dyn Observer>, orders: Orders) -> Self {
        let current = settings.borrow().clone();
        let wall_clock = WallClock::look(env.clock.as_ref());
        let mut scheduler = Self {
            shared: WorkerContext { env, fleet: current.fleet.clone(), observer },
            settings,
            orders,
            concurrent_tables: 1,
            paused: None,
            left_paused: HashMap::new(),
            silence: Silence::default(),
            wall_clock,
            tables: HashMap::new(),
            maintained: watch::Sender::default(),
            numbers: mpsc::channel(NUMBERS_MAX),
            workers: JoinSet::new(),
            asking: current.fleet.waiting(),
            queue: QueueStatus::default(),
        };
        scheduler.use_settings(current);
        scheduler
    }

    /// The tables that were found and are not gone.
    pub fn maintained(&self) -> watch::Receiver<BTreeSet<TableName>> {
        self.maintained.subscribe()
    }

    /// Who looks at these tables, and hands the numbers to this scheduler.
    pub fn collector(&self) -> Collector {
        Collector {
            env: self.shared.env.clone(),
            settings: self.settings.clone(),
            maintained: self.maintained(),
            numbers: self.numbers.0.clone(),
            observer: self.shared.observer.clone(),
        }
    }

    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (sender, mut found) = mpsc::channel(1);
        let mut discovery = self.start_discovery(&sender);
        let cancel = self.shared.env.cancel.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                Some(listing) = found.recv() => self.take_in(listing),
                Some(finished) = self.workers.join_next() => self.finish(finished),
                Some(order) = self.orders.next() => self.obey(order),
                Some(numbers) = self.numbers.1.recv() => {
                    // Nothing falls due by them.
                    self.take_numbers(numbers);
                    continue;
                }
                // Nobody publishes settings any more while the process stops; that is no reason to stop here.
                Ok(()) = self.settings.changed() => {
                    // None of them tells of a catalog that is gone.
                    discovery.shutdown().await;
                    let settings = self.settings.borrow_and_update().clone();
                    self.use_settings(settings);
                    discovery = self.start_discovery(&sender);
                }
                Ok(()) = self.asking.changed() => {}
                _ = tick.tick() => {}
            }
            self.shared.tell(Event::Heartbeat);
            self.watch_clock();
            self.start_due();
        }
        drop((discovery, found));
        self.orders.close();
        while !self.workers.is_empty() {
            tokio::select! {
                Some(finished) = self.workers.join_next() => self.finish(finished),
                _ = tick.tick() => self.shared.tell(Event::Heartbeat),
            }
        }
    }

    /// Waits are for times of the wall clock. If that is set back, they lie too far ahead, perhaps by days; and whichever way it is
    /// set, steps may have been refused before, since it was wrong.
    fn watch_clock(&mut self) {
        let Some(by_ms) = self.wall_clock.set_by(self.shared.env.clock.as_ref()) else { return };
        tracing::warn!(by_ms, "the clock was set; all due times are found anew");
        self.silence.clock_set(by_ms);
        let now = self.now_ms();
        let mut changed = Vec::new();
        for (name, entry) in &mut self.tables {
            entry.clock_set(by_ms, now);
            changed.push(name.clone());
        }
        changed.iter().for_each(|name| self.tell_wait(name));
    }

    fn now_ms(&self) -> i64 {
        self.shared.env.clock.now_ms()
    }

    /// A catalog that is slow to answer does not hold up the others. All end when the set is dropped.
    fn start_discovery(&self, found: &mpsc::Sender<CatalogListing>) -> JoinSet<()> {
        let catalogs = self.shared.fleet.catalog_names().into_iter();
        catalogs.map(|catalog| self.shared.clone().discover(catalog, found.clone())).collect()
    }

    /// What runs goes on as it began. Tables that are not maintained any more go, others learn what changed for them.
    fn use_settings(&mut self, settings: LiveSettings) {
        let now = self.now_ms();
        self.concurrent_tables = settings.concurrent_tables.max(1);
        let env = &mut self.shared.env;
        env.run_timeout = settings.run_timeout;
        env.run_over_after.tell(settings.run_timeout);
        self.asking = settings.fleet.waiting();
        let before = std::mem::replace(&mut self.shared.fleet, settings.fleet);
        for catalog in before.catalog_names().iter().filter(|name| !self.shared.fleet.has_catalog(name)) {
            self.silence.forget(catalog);
            self.shared.tell(Event::CatalogGone(catalog));
        }
        let mut changed = Vec::new();
        for (name, entry) in &mut self.tables {
            let Some(change) = self.shared.fleet.change_since(&before, name) else { continue };
            entry.gone |= change == FleetChange::Left;
            entry.reconsider(change, now);
            if !entry.running {
                changed.push((name.clone(), entry.gone));
            }
        }
        for (name, gone) in changed {
            if gone { self.forget(&name) } else { self.tell_wait(&name) }
        }
    }

    /// Adds new tables of a catalog and forgets those that are gone.
    fn take_in(&mut self, CatalogListing { fleet, catalog, names, after_failure }: CatalogListing) {
        // It was on its way when the settings changed, and says nothing about the present policies and catalogs.
        if !Arc::ptr_eq(&fleet, &self.shared.fleet) {
            return;
        }
        let now = self.now_ms();
        // It was away and is back. Otherwise a listing says nothing about loads.
        if after_failure {
            self.silence.told(&catalog, now);
        }
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
                self.shared.tell_of(&name, TableEvent::Found);
                let mut entry = TableEntry::new(now);
                entry.paused = self.left_paused.remove(&name);
                if let Some(pause) = &entry.paused {
                    self.shared.tell_of(&name, TableEvent::Paused(pause));
                }
                self.maintained.send_modify(|names| _ = names.insert(name.clone()));
                self.tables.insert(name, entry);
            }
        }
    }

    /// Numbers of a table that is gone are dropped.
    fn take_numbers(&mut self, CollectedNumbers { name, stats, at_ms }: CollectedNumbers) {
        if let Some(entry) = self.tables.get_mut(&name) {
            entry.numbers = Some((stats, at_ms));
        }
    }

    fn forget(&mut self, name: &TableName) {
        let pause = self.tables.remove(name).and_then(|entry| entry.paused);
        if let Some(pause) = pause.filter(|_| self.left_paused.len() < LEFT_PAUSED_MAX) {
            self.left_paused.insert(name.clone(), pause);
        }
        self.silence.table_gone(name);
        self.maintained.send_modify(|names| _ = names.remove(name));
        self.shared.tell_of(name, TableEvent::Gone);
    }

    fn obey(&mut self, order: Order) {
        let result = match &order.kind {
            OrderKind::RunNow(name) => self.run_now(name),
            OrderKind::Pause(None, reason) => {
                let pause =
                    self.paused.insert(Pause { reason: reason.clone(), since_ms: self.shared.env.clock.now_ms() });
                self.shared.tell(Event::Paused(pause));
                Ok(())
            }
            OrderKind::Pause(Some(name), reason) => self.pause(name, reason),
            OrderKind::Resume(None) => {
                if self.paused.take().is_some() {
                    self.shared.tell(Event::Resumed);
                }
                Ok(())
            }
            OrderKind::Resume(Some(name)) => self.resume(name),
        };
        order.answer(result);
    }

    fn run_now(&mut self, name: &TableName) -> Result<()> {
        let now = self.now_ms();
        let all = self.paused.clone().map(|pause| ("everything".to_owned(), pause));
        let entry = known(&mut self.tables, name)?;
        if let Some((what, Pause { reason, .. })) = all.or(entry.paused.clone().map(|pause| (name.to_string(), pause)))
        {
            let why = if reason.is_empty() { reason } else { format!(" ({reason})") };
            return Err(Error::new(ErrorKind::Conflict, format!("{what} is paused{why}: resume it first")));
        }
        entry.run_now(now);
        self.shared.tell_of(name, TableEvent::AskedFor);
        self.tell_wait(name);
        Ok(())
    }

    fn pause(&mut self, name: &TableName, reason: &str) -> Result<()> {
        let since_ms = self.now_ms();
        let pause = known(&mut self.tables, name)?.paused.insert(Pause { reason: reason.to_owned(), since_ms });
        self.shared.tell_of(name, TableEvent::Paused(pause));
        Ok(())
    }

    fn resume(&mut self, name: &TableName) -> Result<()> {
        if self.left_paused.remove(name).is_some() {
            return Ok(());
        }
        if known(&mut self.tables, name)?.paused.take().is_some() {
            self.shared.tell_of(name, TableEvent::Resumed);
        }
        Ok(())
    }

    /// Starts due tables, those asked for first, then the longest overdue.
    fn start_due(&mut self) {
        let now = self.now_ms();
        let mut due: Vec<((bool, i64), TableName)> = Vec::new();
        if self.paused.is_none() {
            let waiting = self.tables.iter().filter(|(_, entry)| entry.is_due(now));
            due.extend(waiting.map(|(name, entry)| (entry.turn(), name.clone())));
        }
        due.sort_unstable();
        let waiting = self.silence.waiting(now);
        self.tell_silence();
        // A clean-up that waits for what other tables need does no work meanwhile.
        let asking = *self.asking.borrow_and_update();
        let mut left = Vec::new();
        for (turn, name) in due {
            if self.workers.len() < self.concurrent_tables + waiting + asking && self.silence.admits(&name) {
                self.start(name);
            } else {
                left.push((turn, name));
            }
        }
        let oldest = left.iter().map(|((_, at_ms), _)| now.saturating_sub(*at_ms)).max().unwrap_or(0);
        let queue = QueueStatus {
            running: self.workers.len(),
            queued: left.len(),
            limit: self.concurrent_tables,
            oldest: Duration::from_secs(oldest.unsigned_abs() / 1000),
        };
        if queue != self.queue {
            self.queue = queue;
            self.shared.tell(Event::Queue(queue));
        }
    }

    fn tell_silence(&mut self) {
        let tables = &self.tables;
        let silent =
            self.silence.silent_catalogs(|catalog| tables.keys().filter(|name| name.catalog == catalog).count());
        self.shared.tell(Event::CatalogsSilent(&silent));
    }

    fn start(&mut self, name: TableName) {
        let Some(entry) = self.tables.get_mut(&name) else { return };
        let (step, quarantine) = (entry.next.step, entry.quarantine.clone());
        let (run, task) = entry.begin(|| TableRun::start(&self.shared.env));
        let loaded = self.silence.begin(&name, self.shared.env.clock.now_ms());
        self.workers.spawn(self.shared.clone().work(name, run, task, step, quarantine, loaded));
    }

    fn finish(&mut self, finished: Result<Finished, JoinError>) {
        // Workers catch their panics and are aborted only with the scheduler itself.
        let Ok(Finished { name, run, step, progress }) = finished else { return };
        let now = self.now_ms();
        let unavailable = matches!(&progress, Progressed::NotBegun(error) if error.kind() == ErrorKind::Unavailable);
        self.silence.end(&name, unavailable, now);
        let Some(entry) = self.tables.get_mut(&name) else { return };
        if matches!(&progress, Progressed::NotBegun(error) if error.kind() == ErrorKind::NotFound) {
            self.forget(&name);
            return;
        }
        self.shared.settle(entry, &name, run, step, progress);
        entry.end(now);
        if entry.gone {
            self.forget(&name);
        } else {
            self.tell_wait(&name);
        }
    }

    fn tell_wait(&self, name: &TableName) {
        if let Some(entry) = self.tables.get(name).filter(|entry| !entry.running) {
            let (failures, quarantined) = (entry.failures.most(), entry.quarantine.is_some());
            let next_run_ms = self.shared.next_run_ms(name, entry);
            let waits = TableEvent::Waits { next: &entry.next, next_run_ms, failures, quarantined };
            self.shared.tell_of(name, waits);
        }
    }
}

fn known<'t>(tables: &'t mut HashMap<TableName, TableEntry>, name: &TableName) -> Result<&'t mut TableEntry> {
    tables.get_mut(name).filter(|entry| !entry.gone).ok_or_else(|| {
        let message = format!("{name} is not maintained: no catalog lists it, or no policy matches it");
        Error::new(ErrorKind::NotFound, message)
    })
}

impl WorkerContext {
    /// Tells what came of a step, and decides what the table waits for.
    fn settle(&self, entry: &mut TableEntry, name: &TableName, run: TableRun, step: RunStep, progress: Progressed) {
        let now = self.env.clock.now_ms();
        match progress {
            Progressed::Looked(standing) => entry.looked(run, standing),
            Progressed::NotDue(next) => entry.next = next,
            Progressed::Quarantined(other) => entry.next = entry.failures.after(step, StepEnd::Failed, other, now),
            Progressed::Stepped(done, metadata_location) => {
                if step == RunStep::FIRST {
                    entry.quarantine =
                        done.report.actions.iter().any(|action| action.metadata_invalid).then_some(metadata_location);
                }
                entry.next = entry.failures.after(step, done.ended(), done.other.clone(), now);
                self.tell_of(name, TableEvent::StepDone(run, &done));
            }
            Progressed::NotBegun(error) => {
                entry.stuck(step, now);
                self.tell_of(name, TableEvent::StepFailed(run, step, &error));
            }
            Progressed::Panicked(error) => {
                let other = self.other_step(name, run, step, now).unwrap_or_else(|| entry.next.clone());
                entry.next = entry.failures.after(step, StepEnd::Failed, other, now);
                self.tell_of(name, TableEvent::StepFailed(run, step, &error));
            }
        }
    }

    /// When the table is compacted next; in a delay that follows from the schedule.
    fn next_run_ms(&self, name: &TableName, entry: &TableEntry) -> Option<i64> {
        match entry.next.step {
            RunStep::FIRST => Some(entry.next.at_ms),
            _ => {
                let policy = self.fleet.policy(name).ok()?.policy;
                Some(due::after_clean_up(entry.run?.since_ms, &policy, entry.next.at_ms).ok()?.at_ms)
            }
        }
    }

    /// The step after one that told nothing. Whether the delay is over will be seen in the table.
    fn other_step(&self, name: &TableName, run: TableRun, step: RunStep, now_ms: i64) -> Option<NextStep> {
        match step {
            RunStep::FIRST => Some(due::after_rewrite(None, Duration::ZERO, now_ms)),
            _ => {
                let policy = self.fleet.policy(name).ok()?.policy;
                due::after_clean_up(run.since_ms, &policy, now_ms).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests;
