//! All metrics of the process in one place.
//!
//! Tables beyond the configured number share series: `namespace` and `table` are then `_other`, counters add up, and so do
//! gauges whose sum means something; the others, and a table's step, back-off and last success, have no such series.
//! A table's counters start at 0 as soon as the table is known, and all its series go when the table does.

mod definitions;
mod slots;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use definitions::STAT_GAUGES;
pub use definitions::{ALL, Definition, Kind};
use prometheus::core::Collector;
use prometheus::{Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Registry, TextEncoder};
use slots::{Slot, Slots};

use super::{Action, Outcome};
use crate::catalog::RequestObserver;
use crate::error::{Error, Result};
use crate::inspect::TableStats;
use crate::policy::TableName;

/// Where a table is in its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing is due.
    Idle,
    /// An action runs.
    Running(Action),
    /// Compacted, and waiting before the clean-ups.
    Delay,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Running(Action::RewriteDataFiles),
        Self::Delay,
        Self::Running(Action::ExpireSnapshots),
        Self::Running(Action::RemoveOrphanFiles),
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running(action) => action.as_str(),
            Self::Delay => "delay",
        }
    }
}

/// A run of an action on a table that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// What ran.
    pub action: Action,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
    /// When it ended, milliseconds since the epoch.
    pub finished_ms: i64,
    /// What it did.
    pub counts: RunCounts,
}

/// What a run did, as far as it is certain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RunCounts {
    /// Data files replaced.
    pub rewritten_data_files: u64,
    /// Their bytes.
    pub rewritten_bytes: u64,
    /// Data files added.
    pub added_data_files: u64,
    /// Their bytes.
    pub added_bytes: u64,
    /// Delete files that left the table.
    pub removed_delete_files: u64,
    /// Snapshots that left the metadata.
    pub expired_snapshots: u64,
    /// Files deleted from storage.
    pub deleted_files: u64,
    /// Their bytes, where known.
    pub deleted_bytes: u64,
    /// Commits refused since the table had changed.
    pub commit_conflicts: u64,
    /// Commits whose answer was lost.
    pub commit_unknown: u64,
}

/// Whether failures keep a table waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Failed runs since the last one that did not fail.
    pub consecutive_failures: u32,
    /// When it is tried again, milliseconds since the epoch; `None`: it is not waiting.
    pub until_ms: Option<i64>,
    /// Left alone until its metadata changes.
    pub quarantined: bool,
}

/// Every metric of the process. All functions may be called from any thread.
pub struct Metrics {
    registry: Registry,
    /// Gauges of tables and of nothing, by name.
    gauges: BTreeMap<&'static str, GaugeVec>,
    counters: BTreeMap<&'static str, IntCounterVec>,
    histograms: BTreeMap<&'static str, HistogramVec>,
    slots: Mutex<Slots>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

const VALID: &str = "definitions are constants, and a test registers them all";

impl Metrics {
    /// Metrics with series of their own for at most `max_tables` tables.
    pub fn new(max_tables: usize) -> Self {
        let registry = Registry::new();
        let register = |collector: Box<dyn Collector>| registry.register(collector).expect(VALID);
        let (mut gauges, mut counters, mut histograms) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for definition in ALL {
            match definition.kind {
                Kind::Gauge => {
                    let vec = GaugeVec::new(definition.opts(), definition.labels).expect(VALID);
                    register(Box::new(vec.clone()));
                    gauges.insert(definition.name, vec);
                }
                Kind::Counter => {
                    let vec = IntCounterVec::new(definition.opts(), definition.labels).expect(VALID);
                    register(Box::new(vec.clone()));
                    counters.insert(definition.name, vec);
                }
                Kind::Histogram => {
                    let opts = HistogramOpts::new(definition.name, definition.help);
                    let opts = opts.buckets(definitions::buckets(definition).to_vec());
                    let vec = HistogramVec::new(opts, definition.labels).expect(VALID);
                    register(Box::new(vec.clone()));
                    histograms.insert(definition.name, vec);
                }
            }
        }
        for action in Action::ALL {
            for outcome in Outcome::ALL {
                histograms[definitions::RUN_DURATION.name].with_label_values(&[action.as_str(), outcome.as_str()]);
            }
        }
        let metrics = Self { registry, gauges, counters, histograms, slots: Mutex::new(Slots::new(max_tables)) };
        metrics.gauge(&definitions::BUILD_INFO, &[env!("CARGO_PKG_VERSION")]).set(1.0);
        metrics.show_table_counts(&metrics.slots());
        metrics
    }

    /// All metrics in the text format, version 0.0.4.
    pub fn gather(&self) -> Result<String> {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .map_err(|e| Error::internal(format!("write metrics: {e}")))
    }

    /// Makes a table known: its counters start at 0.
    pub fn register_table(&self, table: &TableName) {
        let mut slots = self.slots();
        self.slot(&mut slots, table);
    }

    /// Removes all series of a table that is gone. Counters that it shared with others stay.
    pub fn forget_table(&self, table: &TableName) {
        let mut slots = self.slots();
        match slots.remove(table) {
            Some(Slot::Own) => self.remove_series(table),
            Some(Slot::Other) => self.show_other_totals(&slots, &table.catalog),
            None => {}
        }
        self.show_table_counts(&slots);
    }

    /// Shows what inspection found.
    pub fn record_stats(&self, table: &TableName, stats: &TableStats) {
        let values: Vec<f64> = STAT_GAUGES.iter().map(|gauge| (gauge.value)(stats)).collect();
        self.record_gauges(table, 0, &values);
    }

    /// Shows what the last listing found that no metadata reaches.
    pub fn record_orphans(&self, table: &TableName, files: u64, bytes: u64) {
        self.record_gauges(table, STAT_GAUGES.len(), &[files as f64, bytes as f64]);
    }

    /// Counts a run that is over.
    pub fn record_run(&self, table: &TableName, run: &RunRecord) {
        let mut slots = self.slots();
        let slot = self.slot(&mut slots, table);
        let labels = Labels::of(table, slot);
        let (action, outcome) = (run.action.as_str(), run.outcome.as_str());
        let add = |definition: &Definition, extra: &[&str], n: u64| {
            if n > 0 {
                self.counter(definition, &labels.with(extra)).inc_by(n);
            }
        };
        let counts = &run.counts;
        add(&definitions::RUNS, &[action, outcome], 1);
        add(&definitions::REWRITTEN_DATA_FILES, &[], counts.rewritten_data_files);
        add(&definitions::REWRITTEN_BYTES, &[], counts.rewritten_bytes);
        add(&definitions::ADDED_DATA_FILES, &[], counts.added_data_files);
        add(&definitions::ADDED_BYTES, &[], counts.added_bytes);
        add(&definitions::REMOVED_DELETE_FILES, &[], counts.removed_delete_files);
        add(&definitions::EXPIRED_SNAPSHOTS, &[], counts.expired_snapshots);
        add(&definitions::DELETED_FILES, &[action], counts.deleted_files);
        add(&definitions::DELETED_BYTES, &[action], counts.deleted_bytes);
        add(&definitions::COMMIT_CONFLICTS, &[], counts.commit_conflicts);
        add(&definitions::COMMIT_UNKNOWN, &[], counts.commit_unknown);
        self.histograms[definitions::RUN_DURATION.name]
            .with_label_values(&[action, outcome])
            .observe(run.duration.as_secs_f64());
        if run.outcome == Outcome::Success && slot == Slot::Own {
            self.gauge(&definitions::LAST_SUCCESS, &labels.with(&[action])).set(seconds(run.finished_ms));
        }
    }

    /// Shows a success that the table itself tells of, such as one from before a restart; milliseconds since the epoch.
    pub fn set_last_success(&self, table: &TableName, action: Action, finished_ms: i64) {
        let mut slots = self.slots();
        if self.slot(&mut slots, table) == Slot::Own {
            let labels = Labels::of(table, Slot::Own);
            self.gauge(&definitions::LAST_SUCCESS, &labels.with(&[action.as_str()])).set(seconds(finished_ms));
        }
    }

    /// Shows the step that a table is in.
    pub fn set_step(&self, table: &TableName, step: Step) {
        let mut slots = self.slots();
        if self.slot(&mut slots, table) == Slot::Own {
            let labels = Labels::of(table, Slot::Own);
            for each in Step::ALL {
                let value = if each == step { 1.0 } else { 0.0 };
                self.gauge(&definitions::STEP, &labels.with(&[each.as_str()])).set(value);
            }
        }
    }

    /// Shows whether failures keep a table waiting.
    pub fn set_backoff(&self, table: &TableName, backoff: Backoff) {
        let mut slots = self.slots();
        if self.slot(&mut slots, table) == Slot::Own {
            let labels = Labels::of(table, Slot::Own);
            let set = |definition: &Definition, value: f64| self.gauge(definition, &labels.with(&[])).set(value);
            set(&definitions::CONSECUTIVE_FAILURES, f64::from(backoff.consecutive_failures));
            set(&definitions::BACKOFF_UNTIL, backoff.until_ms.map_or(0.0, seconds));
            set(&definitions::QUARANTINED, if backoff.quarantined { 1.0 } else { 0.0 });
        }
    }

    /// Shows that the configuration was read: the number of its warnings, or `None` if it could not be used.
    pub fn record_config_load(&self, now_ms: i64, warnings: Option<usize>) {
        let successful = if warnings.is_some() { 1.0 } else { 0.0 };
        self.gauge(&definitions::CONFIG_LOAD_SUCCESSFUL, &[]).set(successful);
        if let Some(warnings) = warnings {
            self.gauge(&definitions::CONFIG_LOAD_TIMESTAMP, &[]).set(seconds(now_ms));
            self.gauge(&definitions::CONFIG_WARNINGS, &[]).set(warnings as f64);
        }
    }

    /// All metrics as a table for the documentation.
    pub fn markdown_table() -> String {
        let mut table = "| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n".to_owned();
        for Definition { name, kind, labels, unit, help } in ALL {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(table, "| `{name}` | {} | {} | {unit} | {help} |", kind.as_str(), labels.join(", "));
        }
        table
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // The numbers are still the best there are.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gauge(&self, definition: &Definition, labels: &[&str]) -> Gauge {
        self.gauges[definition.name].with_label_values(labels)
    }

    fn counter(&self, definition: &Definition, labels: &[&str]) -> prometheus::IntCounter {
        self.counters[definition.name].with_label_values(labels)
    }

    /// The table's slot; a table that is new to it gets its zeros.
    fn slot(&self, slots: &mut Slots, table: &TableName) -> Slot {
        let before = slots.get(table);
        let slot = slots.assign(table);
        if before != Some(slot) {
            if before == Some(Slot::Other) {
                self.show_other_totals(slots, &table.catalog);
            }
            self.start_series(table, slot);
            self.show_table_counts(slots);
        }
        slot
    }

    fn start_series(&self, table: &TableName, slot: Slot) {
        let labels = Labels::of(table, slot);
        for definition in ALL.iter().filter(|d| d.kind == Kind::Counter && d.labels.contains(&"table")) {
            for extra in extra_labels(definition) {
                self.counter(definition, &labels.with(&extra));
            }
        }
    }

    fn remove_series(&self, table: &TableName) {
        let labels = Labels::of(table, Slot::Own);
        for definition in ALL.iter().filter(|definition| definition.labels.contains(&"table")) {
            for extra in extra_labels(definition) {
                let values = labels.with(&extra);
                // Gauges that were never set have no series to remove.
                let _ = match definition.kind {
                    Kind::Gauge => self.gauges[definition.name].remove_label_values(&values),
                    Kind::Counter => self.counters[definition.name].remove_label_values(&values),
                    Kind::Histogram => self.histograms[definition.name].remove_label_values(&values),
                };
            }
        }
    }

    /// Sets gauges from `first` on, in the order of [`STAT_GAUGES`] and then orphans.
    fn record_gauges(&self, table: &TableName, first: usize, values: &[f64]) {
        let mut slots = self.slots();
        match self.slot(&mut slots, table) {
            Slot::Own => {
                let labels = Labels::of(table, Slot::Own);
                for (i, value) in values.iter().enumerate() {
                    let (definition, content, _) = table_gauge(first + i);
                    self.gauge(definition, &labels.with(content.as_slice())).set(*value);
                }
            }
            Slot::Other => {
                slots.set_values(table, first, values);
                self.show_other_totals(&slots, &table.catalog);
            }
        }
    }

    fn show_other_totals(&self, slots: &Slots, catalog: &str) {
        let labels = Labels { catalog, namespace: slots::OTHER.to_owned(), table: slots::OTHER };
        for (i, total) in slots.totals(catalog).iter().enumerate() {
            let (definition, content, additive) = table_gauge(i);
            if additive {
                self.gauge(definition, &labels.with(content.as_slice())).set(*total);
            }
        }
    }

    fn show_table_counts(&self, slots: &Slots) {
        self.gauge(&definitions::TABLES, &["own"]).set(slots.own() as f64);
        self.gauge(&definitions::TABLES, &["other"]).set(slots.other() as f64);
    }
}

impl RequestObserver for Metrics {
    fn observe(&self, operation: &'static str, outcome: &'static str, seconds: f64) {
        self.counter(&definitions::REQUESTS, &[operation, outcome]).inc();
        self.histograms[definitions::REQUEST_DURATION.name].with_label_values(&[operation]).observe(seconds);
    }

    fn bytes_read(&self, bytes: u64) {
        self.counter(&definitions::STORAGE_READ_BYTES, &[]).inc_by(bytes);
    }

    fn bytes_written(&self, bytes: u64) {
        self.counter(&definitions::STORAGE_WRITTEN_BYTES, &[]).inc_by(bytes);
    }
}

/// Gauges whose values are kept per table, in order: definition, content label, whether they add up.
fn table_gauge(index: usize) -> (&'static Definition, Option<&'static str>, bool) {
    match STAT_GAUGES.get(index) {
        Some(gauge) => (gauge.definition, gauge.content, gauge.additive),
        None if index == STAT_GAUGES.len() => (&definitions::ORPHAN_FILES, None, true),
        None => (&definitions::ORPHAN_FILE_BYTES, None, true),
    }
}

/// Every combination of the labels that follow the table's.
fn extra_labels(definition: &Definition) -> Vec<Vec<&'static str>> {
    let values_of = |label: &str| -> Vec<&'static str> {
        match label {
            "action"
                if matches!(definition.name, "icewright_deleted_files_total" | "icewright_deleted_bytes_total") =>
            {
                vec![Action::ExpireSnapshots.as_str(), Action::RemoveOrphanFiles.as_str()]
            }
            "action" => Action::ALL.iter().map(|action| action.as_str()).collect(),
            "outcome" => Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect(),
            "step" => Step::ALL.iter().map(|step| step.as_str()).collect(),
            "content" => {
                let of_this = STAT_GAUGES.iter().filter(|gauge| gauge.definition.name == definition.name);
                of_this.filter_map(|gauge| gauge.content).collect()
            }
            _ => Vec::new(),
        }
    };
    let mut combinations = vec![Vec::new()];
    for label in definition.labels.iter().filter(|label| !matches!(**label, "catalog" | "namespace" | "table")) {
        combinations = combinations
            .iter()
            .flat_map(|start: &Vec<&'static str>| {
                values_of(label).into_iter().map(|value| start.iter().copied().chain([value]).collect())
            })
            .collect();
    }
    combinations
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// The labels that name a table, or what it is folded into.
struct Labels<'a> {
    catalog: &'a str,
    namespace: String,
    table: &'a str,
}

impl<'a> Labels<'a> {
    fn of(name: &'a TableName, slot: Slot) -> Self {
        match slot {
            Slot::Own => Self { catalog: &name.catalog, namespace: name.namespace_text(), table: &name.table },
            Slot::Other => Self { catalog: &name.catalog, namespace: slots::OTHER.to_owned(), table: slots::OTHER },
        }
    }

    fn with<'b>(&'b self, extra: &[&'b str]) -> Vec<&'b str> {
        let mut labels = vec![self.catalog, self.namespace.as_str(), self.table];
        labels.extend_from_slice(extra);
        labels
    }
}

#[cfg(test)]
mod tests;
