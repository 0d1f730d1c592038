//! What the daemon knows, for onlookers. Job: what the [`crate::report::events::Reporter`] tells -> the views of the API.
//! Nothing reads it to decide anything, and nothing in it outlives the process.
//!
//! A table takes some 70 KiB (measured; a test watches it): 500 samples of 56 bytes, and, compressed, 50 reports, 200 snapshots, 100 partitions, the
//! policy and the last plan. Each of these is dropped if its text is longer than 4 MiB.

mod look;
mod pack;
mod table;
pub mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

pub use look::TableLook;
use pack::Packed;
use table::{LookedAt, ShownTable};
use view::{CatalogStatus, ConfigStatus, MemoryStatus, Next, RunEntry, Status};
use view::{TableList, TableView};

use crate::action::Doing;
use crate::actions::report::ActionReport;
use crate::config::{LoadedConfig, Problem, Problems};
use crate::inspect::ManifestCache;
use crate::report::health::{Health, Reason};
use crate::report::kept::kept;
use crate::rewrite::Progress;
use crate::rewrite::memory::MemoryBudget;
use crate::schedule::control::Pause;
use crate::schedule::observer::QueueStatus;
use crate::table::TableName;
use crate::version;

/// What is shown. Everything is packed before the state is locked and unpacked after that: the scheduler waits for the lock.
#[derive(Debug)]
pub struct Board {
    started_at_ms: i64,
    memory: Arc<MemoryBudget>,
    manifests: Arc<ManifestCache>,
    state: Mutex<BoardState>,
}

#[derive(Debug)]
struct BoardState {
    leader: bool,
    paused: Option<Pause>,
    queue: QueueStatus,
    config: ConfigStatus,
    /// By name, what is wrong; `None`: nothing.
    catalogs: BTreeMap<String, Option<String>>,
    tables: BTreeMap<TableName, ShownTable>,
}

/// Where a problem of the configuration is, and what it is.
fn in_a_line(problem: &Problem) -> String {
    let line = problem.place.map(|place| format!("line {}: ", place.line)).unwrap_or_default();
    let key = if problem.key.is_empty() { String::new() } else { format!("{}: ", problem.key) };
    kept(format!("{line}{key}{}", problem.message))
}

/// Which tables are asked for.
#[derive(Debug, Clone, Default)]
pub struct TableSelection {
    pub catalog: Option<String>,
    pub health: Option<Health>,
    /// Those whose name as a text comes after this one.
    pub after: Option<String>,
    /// So many at most.
    pub limit: usize,
}

impl Board {
    /// An empty board of a process that started at `now_ms`.
    pub fn new(now_ms: i64, memory: Arc<MemoryBudget>, manifests: Arc<ManifestCache>) -> Self {
        let state = BoardState {
            leader: true,
            paused: None,
            queue: QueueStatus::default(),
            config: ConfigStatus::default(),
            catalogs: BTreeMap::new(),
            tables: BTreeMap::new(),
        };
        Self { started_at_ms: now_ms, memory, manifests, state: Mutex::new(state) }
    }

    fn change(&self, name: &TableName, change: impl FnOnce(&mut ShownTable)) {
        if let Some(table) = self.state.lock().tables.get_mut(name) {
            change(table);
        }
    }

    /// A configuration is in force from now on.
    pub(super) fn config_loaded(&self, now_ms: i64, loaded: &LoadedConfig) {
        let mut state = self.state.lock();
        let warnings = loaded.warnings.iter().map(in_a_line).collect();
        state.config = ConfigStatus { loaded_at_ms: now_ms, last_load_successful: true, problem: None, warnings };
        let known = std::mem::take(&mut state.catalogs);
        let problem = |name: &String| known.get(name).cloned().unwrap_or_else(|| Some("not reached yet".to_owned()));
        state.catalogs = loaded.config.catalogs.keys().map(|name| (name.clone(), problem(name))).collect();
    }

    /// A configuration cannot be used; what was in force stays so.
    pub(super) fn config_refused(&self, problems: &Problems) {
        let config = &mut self.state.lock().config;
        (config.last_load_successful, config.problem) = (false, problems.0.first().map(in_a_line));
    }

    /// A catalog's tables were listed, or could not be.
    pub(super) fn catalog_asked(&self, catalog: &str, problem: Option<String>) {
        if let Some(known) = self.state.lock().catalogs.get_mut(catalog) {
            *known = problem.map(kept);
        }
    }

    pub(super) fn table_found(&self, name: &TableName) {
        self.state.lock().tables.insert(name.clone(), ShownTable::new());
    }

    pub(super) fn table_gone(&self, name: &TableName) {
        self.state.lock().tables.remove(name);
    }

    pub(super) fn table_waits(&self, name: &TableName, doing: Doing, next: Next, failures: u32, quarantined: bool) {
        self.change(name, |table| table.waits(doing, next, failures, quarantined));
    }

    pub(super) fn table_works(&self, name: &TableName, doing: Doing) {
        self.change(name, |table| (table.doing, table.next, table.progress) = (doing, None, None));
    }

    /// A compaction begins, whose progress can be looked at.
    pub(super) fn rewriting(&self, name: &TableName, progress: Arc<Progress>, now_ms: i64) {
        self.change(name, |table| table.progress = Some((progress, now_ms)));
    }

    pub(super) fn looked(&self, name: &TableName, look: TableLook<'_>, now_ms: i64) {
        let looked = LookedAt::of(look, now_ms);
        self.change(name, |table| table.looked(looked));
    }

    /// A table's health was judged.
    pub(super) fn judged(&self, name: &TableName, health: Health, reasons: Vec<Reason>) {
        self.change(name, |table| (table.health, table.reasons) = (health, reasons));
    }

    /// A table, or with `None` everything, is paused, or goes on.
    pub(super) fn paused(&self, name: Option<&TableName>, pause: Option<Pause>) {
        match name {
            Some(name) => self.change(name, |table| table.paused = pause),
            None => self.state.lock().paused = pause,
        }
    }

    /// How many tables run and wait has changed.
    pub(super) fn queue(&self, queue: QueueStatus) {
        self.state.lock().queue = queue;
    }

    /// Whether this process maintains tables from now on.
    pub(super) fn leads(&self, leader: bool) {
        self.state.lock().leader = leader;
    }

    /// An action of a run ended.
    pub(super) fn ran(&self, name: &TableName, run_id: &str, report: &ActionReport, finished_ms: i64) {
        let duration_ms = i64::try_from(report.duration.as_millis()).unwrap_or(i64::MAX);
        let run = RunEntry {
            run_id: run_id.to_owned(),
            action: report.action,
            outcome: report.outcome,
            started_at_ms: finished_ms.saturating_sub(duration_ms),
            finished_at_ms: finished_ms,
            duration_ms,
            reason: report.reason.clone().map(kept),
            counts: report.counts,
            report: None,
        };
        let report = report.detail.as_ref().map_or_else(Packed::default, Packed::new);
        self.change(name, |table| table.ran(run, report));
    }

    pub(super) fn planned(&self, name: &TableName, plan: &impl Serialize, now_ms: i64) {
        let packed = Packed::new(plan);
        self.change(name, |table| table.planned(packed, now_ms));
    }

    /// The whole process as it is now. `admin`: whether an admin token is configured.
    pub fn status(&self, now_ms: i64, admin: bool) -> Status {
        let state = self.state.lock();
        let tables_of = |catalog: &str| state.tables.keys().filter(|name| name.catalog == catalog).count();
        let catalog = |(name, problem): (&String, &Option<String>)| CatalogStatus {
            name: name.clone(),
            up: problem.is_none(),
            problem: problem.clone(),
            tables: tables_of(name),
        };
        Status {
            version: version::VERSION,
            revision: version::REVISION,
            started_at_ms: self.started_at_ms,
            now_ms,
            leader: state.leader,
            paused: state.paused.clone(),
            admin,
            catalogs: state.catalogs.iter().map(catalog).collect(),
            memory: MemoryStatus {
                budget_bytes: self.memory.total(),
                reserved_bytes: self.memory.used(),
                manifest_cache_bytes: self.manifests.bytes() as u64,
            },
            queue: state.queue,
            config: state.config.clone(),
        }
    }

    /// The selected tables, in the order of their names as texts.
    pub fn tables(&self, selection: &TableSelection, now_ms: i64) -> TableList {
        let state = self.state.lock();
        let mut wanted: Vec<(String, &TableName, &ShownTable)> = state
            .tables
            .iter()
            .filter(|(name, table)| {
                selection.catalog.as_ref().is_none_or(|catalog| *catalog == name.catalog)
                    && selection.health.is_none_or(|health| table.health == health)
            })
            .map(|(name, table)| (name.to_string(), name, table))
            .filter(|(text, ..)| selection.after.as_ref().is_none_or(|after| text > after))
            .collect();
        wanted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let more = wanted.len() > selection.limit;
        wanted.truncate(selection.limit);
        let next = wanted.last().filter(|_| more).map(|(text, ..)| text.clone());
        let tables = wanted.into_iter().map(|(_, name, table)| table.summary(name)).collect();
        TableList { now_ms, tables, next }
    }

    /// Everything about a table; `None` if it is not maintained.
    pub fn table(&self, name: &TableName, now_ms: i64) -> Option<TableView> {
        // Unpacking takes time, in which nobody else has to wait.
        let table = self.state.lock().tables.get(name).cloned();
        table.map(|table| table.view(name, now_ms))
    }

    /// Whether a table is maintained.
    pub fn knows(&self, name: &TableName) -> bool {
        self.state.lock().tables.contains_key(name)
    }

    /// The pause of a table, or of everything.
    pub fn pause_of(&self, name: Option<&TableName>) -> Option<Pause> {
        let state = self.state.lock();
        name.map_or(state.paused.clone(), |name| state.tables.get(name).and_then(|table| table.paused.clone()))
    }
}

#[cfg(test)]
mod tests;
