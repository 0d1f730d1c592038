//! All metrics of the process in one place.
//!
//! Tables beyond the configured number share series: `namespace` and `table` are then `_other`, counters add up, and so do
//! gauges whose sum means something; the others, such as a table's step, back-off and last success, have no such series.
//! A table's counters start at 0 as soon as the table is known, and all its series go when the table does.
//!
//! `definitions` names every metric, `tables` and `process` feed them, `series` counts and lists them.

mod definitions;
mod operating_system;
mod process;
mod records;
mod series;
mod sizes;
mod slots;
mod tables;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use definitions::GaugeSample;
pub use definitions::{ALL, Definition, MetricKind};
use operating_system::ProcessMetrics;
use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Registry, TextEncoder};
pub use records::{Backoff, MemoryUse};
pub use series::Cardinality;
use series::extra_labels;
use sizes::SizeCollector;
use slots::{SeriesSlot, Slots};

use crate::error::{Error, Result};
use crate::table::TableName;

/// Every metric of the process. All functions may be called from any thread.
pub struct Metrics {
    registry: Registry,
    /// Gauges of tables and of nothing, by name.
    gauges: BTreeMap<&'static str, GaugeVec>,
    counters: BTreeMap<&'static str, IntCounterVec>,
    histograms: BTreeMap<&'static str, HistogramVec>,
    sizes: SizeCollector,
    slots: Mutex<Slots>,
    /// Tells the memory in use when metrics are asked for.
    memory: OnceLock<Box<dyn Fn() -> MemoryUse + Send + Sync>>,
    process: OnceLock<ProcessMetrics>,
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
        let sizes = SizeCollector::new(&definitions::DATA_FILE_SIZES);
        register(Box::new(sizes.clone()));
        for definition in ALL {
            match definition.kind {
                MetricKind::Gauge => {
                    let vec = GaugeVec::new(definition.opts(), definition.labels).expect(VALID);
                    register(Box::new(vec.clone()));
                    gauges.insert(definition.name, vec);
                }
                MetricKind::Counter => {
                    let vec = IntCounterVec::new(definition.opts(), definition.labels).expect(VALID);
                    register(Box::new(vec.clone()));
                    counters.insert(definition.name, vec);
                }
                MetricKind::Histogram if definition.is_of_table() => {}
                MetricKind::Histogram => {
                    let opts = HistogramOpts::new(definition.name, definition.help).buckets(definition.buckets());
                    let vec = HistogramVec::new(opts, definition.labels).expect(VALID);
                    register(Box::new(vec.clone()));
                    histograms.insert(definition.name, vec);
                }
            }
        }
        let slots = Mutex::new(Slots::new(max_tables));
        let (memory, process) = (OnceLock::new(), OnceLock::new());
        let metrics = Self { registry, gauges, counters, histograms, sizes, slots, memory, process };
        metrics.start_process_series();
        metrics.show_table_counts(&metrics.slots.lock());
        metrics
    }

    /// All metrics in the text format, version 0.0.4.
    pub fn gather(&self) -> Result<String> {
        if let Some(memory) = self.memory.get() {
            self.show_memory(memory());
        }
        if let Some(process) = self.process.get() {
            process.update();
        }
        self.show_other_totals();
        encode(&self.registry.gather())
    }

    /// Makes a table known: its counters start at 0.
    pub fn register_table(&self, table: &TableName) {
        let mut slots = self.slots.lock();
        self.slot(&mut slots, table);
    }

    /// Removes all series of a table that is gone. Counters that it shared with others stay as long as the catalog does.
    pub fn forget_table(&self, table: &TableName) {
        let mut slots = self.slots.lock();
        if slots.remove(table) == Some(SeriesSlot::Own) {
            self.remove_series(&Labels::of(table, SeriesSlot::Own));
        }
        self.forget_totals(&mut slots, &table.catalog);
        self.show_table_counts(&slots);
    }

    fn gauge(&self, definition: &Definition, labels: &[&str]) -> Gauge {
        self.gauges[definition.name].with_label_values(labels)
    }

    fn counter(&self, definition: &Definition, labels: &[&str]) -> prometheus::IntCounter {
        self.counters[definition.name].with_label_values(labels)
    }

    fn histogram(&self, definition: &Definition, labels: &[&str]) -> prometheus::Histogram {
        self.histograms[definition.name].with_label_values(labels)
    }

    /// The table's slot; a table that is new to it gets its zeros.
    fn slot(&self, slots: &mut Slots, table: &TableName) -> SeriesSlot {
        let before = slots.get(table);
        let slot = slots.assign(table);
        if before != Some(slot) {
            self.start_series(table, slot);
            self.show_table_counts(slots);
        }
        slot
    }

    fn start_series(&self, table: &TableName, slot: SeriesSlot) {
        let labels = Labels::of(table, slot);
        for definition in ALL.iter().filter(|d| d.kind == MetricKind::Counter && d.is_of_table()) {
            for extra in extra_labels(definition) {
                self.counter(definition, &labels.with(&extra));
            }
        }
        if slot == SeriesSlot::Own {
            for definition in [&definitions::PAUSED_TABLE, &definitions::REFUSED, &definitions::DELAY_END] {
                for extra in extra_labels(definition) {
                    self.gauge(definition, &labels.with(&extra)).set(0.0);
                }
            }
        }
    }

    /// Removes what the tables of a catalog share, if the catalog is gone and so is the last of these tables.
    fn forget_totals(&self, slots: &mut Slots, catalog: &str) {
        if slots.forget_totals(catalog) {
            self.remove_series(&Labels::of_others(catalog));
        }
    }

    fn remove_series(&self, labels: &Labels<'_>) {
        for definition in ALL.iter().filter(|definition| definition.is_of_table()) {
            for extra in extra_labels(definition) {
                let values = labels.with(&extra);
                // Gauges that were never set have no series to remove.
                let _ = match definition.kind {
                    MetricKind::Gauge => self.gauges[definition.name].remove_label_values(&values),
                    MetricKind::Counter => self.counters[definition.name].remove_label_values(&values),
                    MetricKind::Histogram => {
                        self.sizes.remove(labels);
                        Ok(())
                    }
                };
            }
        }
    }

    /// Removes a gauge of a table that has no other label, if the table has one of its own.
    fn remove(&self, table: &TableName, definition: &Definition) {
        if self.slots.lock().get(table) == Some(SeriesSlot::Own) {
            // One that was never set has no series.
            let _ = self.gauges[definition.name].remove_label_values(&Labels::of(table, SeriesSlot::Own).with(&[]));
        }
    }

    /// Sets gauges of a table. Of a folded one only those that add up are kept.
    fn record(&self, table: &TableName, samples: &[GaugeSample]) {
        let mut slots = self.slots.lock();
        match self.slot(&mut slots, table) {
            SeriesSlot::Own => {
                let labels = Labels::of(table, SeriesSlot::Own);
                for (definition, extra, value) in samples {
                    self.gauge(definition, &labels.with(extra.as_slice())).set(*value);
                }
            }
            SeriesSlot::Other => {
                let folded = series::folded();
                for (definition, extra, value) in samples {
                    let same = |(d, e): &(&Definition, Option<&str>)| d.name == definition.name && e == extra;
                    if let Some(index) = folded.iter().position(same) {
                        slots.set_values(table, index, &[*value]);
                    }
                }
            }
        }
    }

    /// Shows what folded tables add up to. Done only when metrics are asked for, since each of these tables changes it.
    fn show_other_totals(&self) {
        let (slots, folded) = (self.slots.lock(), series::folded());
        for (catalog, totals) in slots.totals() {
            let labels = Labels::of_others(catalog);
            for ((definition, extra), &total) in folded.iter().zip(&totals) {
                self.gauge(definition, &labels.with(extra.as_slice())).set(total);
            }
            if let Some(sizes) = totals.get(folded.len()..).filter(|sizes| !sizes.is_empty()) {
                self.sizes.set(&labels, sizes);
            }
        }
    }

    fn show_table_counts(&self, slots: &Slots) {
        self.gauge(&definitions::TABLES, &["own"]).set(slots.own() as f64);
        self.gauge(&definitions::TABLES, &["other"]).set(slots.other() as f64);
    }
}

fn encode(families: &[MetricFamily]) -> Result<String> {
    TextEncoder::new().encode_to_string(families).map_err(|e| Error::internal(format!("write metrics: {e}")))
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

fn flag(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

/// The labels that name a table, or what it is folded into.
struct Labels<'a> {
    catalog: &'a str,
    namespace: String,
    table: &'a str,
}

impl<'a> Labels<'a> {
    fn of(name: &'a TableName, slot: SeriesSlot) -> Self {
        match slot {
            SeriesSlot::Own => Self { catalog: &name.catalog, namespace: name.namespace_text(), table: &name.table },
            SeriesSlot::Other => Self::of_others(&name.catalog),
        }
    }

    fn of_others(catalog: &'a str) -> Self {
        Self { catalog, namespace: slots::OTHER.to_owned(), table: slots::OTHER }
    }

    fn with<'b>(&'b self, extra: &[&'b str]) -> Vec<&'b str> {
        let mut labels = vec![self.catalog, self.namespace.as_str(), self.table];
        labels.extend_from_slice(extra);
        labels
    }
}

#[cfg(test)]
mod tests;
