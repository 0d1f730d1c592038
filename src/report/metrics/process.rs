//! The metrics of the process as a whole.

use super::definitions::{self, MetricKind};
use super::operating_system::ProcessMetrics;
use super::records::MemoryUse;
use super::series::extra_labels;
use super::{ALL, Metrics, flag, seconds};
use crate::http_client::RequestObserver;
use crate::schedule::observer::QueueStatus;
use crate::version;

impl Metrics {
    /// What is known before anything has happened: zeros, and what runs here.
    pub(super) fn start_process_series(&self) {
        for definition in [&definitions::RUN_DURATION, &definitions::RUN_PHASE_DURATION] {
            for labels in extra_labels(definition) {
                self.histogram(definition, &labels);
            }
        }
        for definition in ALL.iter().filter(|d| d.kind == MetricKind::Gauge && d.labels.is_empty()) {
            let said_later = definition.name.starts_with("icewright_config_");
            if !said_later {
                self.gauge(definition, &[]).set(0.0);
            }
        }
        for labels in extra_labels(&definitions::CONFIG_RELOADS) {
            self.counter(&definitions::CONFIG_RELOADS, &labels);
        }
        self.gauge(&definitions::BUILD_INFO, &[version::VERSION, version::REVISION, version::RUSTC]).set(1.0);
        // A process on its own; one that stands by for another says so.
        self.set_leader(true);
    }

    /// Adds the metrics of the operating system about this process, named as everywhere: `process_...`.
    pub fn watch_process(&self) {
        if cfg!(target_os = "linux") {
            self.process.get_or_init(|| ProcessMetrics::register(&self.registry));
        }
    }

    /// Asks `read` for the memory in use whenever metrics are asked for. The first call counts.
    pub fn watch_memory(&self, read: impl Fn() -> MemoryUse + Send + Sync + 'static) {
        let _ = self.memory.set(Box::new(read));
    }

    pub(super) fn show_memory(&self, memory: MemoryUse) {
        self.gauge(&definitions::MEMORY_BUDGET, &[]).set(memory.budget as f64);
        self.gauge(&definitions::MEMORY_RESERVED, &[]).set(memory.reserved as f64);
        self.gauge(&definitions::MANIFEST_CACHE, &[]).set(memory.manifest_cache as f64);
    }

    /// Shows tables at work and waiting.
    pub fn set_queue(&self, queue: QueueStatus) {
        self.gauge(&definitions::RUNNING_TABLES, &[]).set(queue.running as f64);
        self.gauge(&definitions::QUEUED_TABLES, &[]).set(queue.queued as f64);
        self.gauge(&definitions::CONCURRENT_TABLES_LIMIT, &[]).set(queue.limit as f64);
        self.gauge(&definitions::OLDEST_QUEUED, &[]).set(queue.oldest.as_secs_f64());
    }

    /// Shows whether an operator has paused the whole daemon.
    pub fn set_paused(&self, paused: bool) {
        self.gauge(&definitions::PAUSED, &[]).set(flag(paused));
    }

    /// Shows whether this process maintains tables.
    pub fn set_leader(&self, leader: bool) {
        self.gauge(&definitions::LEADER, &[]).set(flag(leader));
    }

    /// Shows whether a catalog's tables could be listed.
    pub fn set_catalog_up(&self, catalog: &str, up: bool) {
        self.gauge(&definitions::CATALOG_UP, &[catalog]).set(flag(up));
        self.slots.lock().catalog_stays(catalog);
    }

    /// Removes the series of a catalog that is no longer configured. Those of its tables go with [`Metrics::forget_table`],
    /// and what tables beyond the limit share with the last of them.
    pub fn forget_catalog(&self, catalog: &str) {
        let mut slots = self.slots.lock();
        slots.catalog_goes(catalog);
        self.forget_totals(&mut slots, catalog);
        // One that was never asked has no series.
        let _ = self.gauges[definitions::CATALOG_UP.name].remove_label_values(&[catalog]);
    }

    /// Shows that the configuration was read at the start: the number of its warnings, or `None` if it could not be used.
    pub fn record_config_load(&self, now_ms: i64, warnings: Option<usize>) {
        self.gauge(&definitions::CONFIG_LOAD_SUCCESSFUL, &[]).set(flag(warnings.is_some()));
        if let Some(warnings) = warnings {
            self.gauge(&definitions::CONFIG_LOAD_TIMESTAMP, &[]).set(seconds(now_ms));
            self.gauge(&definitions::CONFIG_WARNINGS, &[]).set(warnings as f64);
        }
    }

    /// Shows that the configuration was read again, as [`Metrics::record_config_load`] does.
    pub fn record_config_reload(&self, now_ms: i64, warnings: Option<usize>) {
        let outcome = if warnings.is_some() { "success" } else { "failed" };
        self.counter(&definitions::CONFIG_RELOADS, &[outcome]).inc();
        self.record_config_load(now_ms, warnings);
    }
}

impl RequestObserver for Metrics {
    fn observe(&self, operation: &'static str, outcome: &'static str, seconds: f64) {
        self.counter(&definitions::REQUESTS, &[operation, outcome]).inc();
        self.histogram(&definitions::REQUEST_DURATION, &[operation]).observe(seconds);
    }

    fn retried(&self, operation: &'static str) {
        self.counter(&definitions::REQUEST_RETRIES, &[operation]).inc();
    }

    fn bytes_read(&self, bytes: u64) {
        self.counter(&definitions::STORAGE_READ_BYTES, &[]).inc_by(bytes);
    }

    fn bytes_written(&self, bytes: u64) {
        self.counter(&definitions::STORAGE_WRITTEN_BYTES, &[]).inc_by(bytes);
    }
}
