//! Every occurrence has one function here, which drives its log line, its metrics and, in the sandbox, its line on the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::cli::print;
use crate::error::Error;
use crate::inspect::TableStats;
use crate::policy::TableName;
use crate::report::metrics::Metrics;
use crate::schedule::due::{NextStep, Step};
use crate::schedule::run_table::{Run, StepDone, StepReport};
use crate::server::Readiness;

/// Tells the world what happens.
pub struct Reporter {
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    heartbeat: Arc<AtomicI64>,
    /// Whether to print a line for each step, for people who watch.
    echo: bool,
}

impl Reporter {
    /// Reports to these.
    pub fn new(metrics: Arc<Metrics>, readiness: Arc<Readiness>, echo: bool) -> Self {
        Self { metrics, readiness, heartbeat: Arc::default(), echo }
    }

    /// When the scheduler last went round, milliseconds since the epoch; shared with the server.
    pub fn heartbeat_cell(&self) -> Arc<AtomicI64> {
        self.heartbeat.clone()
    }

    /// The scheduler went round.
    pub fn heartbeat(&self, now_ms: i64) {
        self.heartbeat.store(now_ms, Ordering::Relaxed);
    }

    /// The daemon is up.
    pub fn started(&self, listen: &str, catalogs: usize, policies: usize) {
        self.readiness.config_loaded();
        tracing::info!(listen, catalogs, policies, version = env!("CARGO_PKG_VERSION"), "started");
    }

    /// The daemon was told to stop.
    pub fn stopping(&self, grace: Duration) {
        self.readiness.stopping();
        tracing::info!(grace_seconds = grace.as_secs(), "stopping: no new steps, running ones come to an end");
    }

    /// A catalog answered.
    pub fn catalog_reached(&self, catalog: &str) {
        self.readiness.catalog_reached(catalog);
    }

    /// Numbers of a table were collected.
    pub fn stats(&self, name: &TableName, stats: &TableStats) {
        self.metrics.record_stats(name, stats);
    }

    /// These are all maintained tables of a catalog.
    pub fn tables_found(&self, catalog: &str, names: &[TableName]) {
        self.metrics.keep_only(catalog, names);
    }

    /// A table left the catalog or the policies.
    pub fn table_gone(&self, name: &TableName) {
        tracing::info!(table = %name, "no longer maintained");
        self.metrics.forget_table(name);
    }

    /// A table waits for its next step.
    pub fn table_waits(&self, name: &TableName, next: &NextStep, failures: u32) {
        tracing::debug!(table = %name, step = next.step.as_str(), at_ms = next.at_ms, why = next.why, "waits");
        self.metrics.record_wait(name, next, failures);
    }

    /// A step begins.
    pub fn step_started(&self, name: &TableName, run: Run, step: Step) {
        tracing::info!(table = %name, run_id = %run.run_id, step = step.as_str(), "step started");
        self.metrics.record_step(name, step);
    }

    /// A step ended; its report says how.
    pub fn step_done(&self, name: &TableName, run: Run, done: &StepDone) {
        let (step, outcome) = (done.report.step(), done.report.outcome());
        let summary = print::step_summary(&done.report);
        let report = serde_json::to_string(&done.report).unwrap_or_default();
        if outcome.is_failure() {
            tracing::warn!(table = %name, run_id = %run.run_id, step = step.as_str(), outcome = outcome.as_str(), %report, "step ended");
        } else {
            tracing::info!(table = %name, run_id = %run.run_id, step = step.as_str(), outcome = outcome.as_str(), %report, "step ended");
        }
        match &done.report {
            StepReport::RewriteDataFiles(report) => self.metrics.record_rewrite(name, report),
            StepReport::CleanUp(report) => self.metrics.record_clean_up(name, report),
        }
        if self.echo {
            println!("{name}: {summary}");
        }
    }

    /// A step could not be done at all.
    pub fn step_failed(&self, name: &TableName, run: Run, error: &Error, failures: u32) {
        tracing::warn!(table = %name, run_id = %run.run_id, kind = error.kind().as_str(), %error, failures, "step failed; it is tried again later");
        self.metrics.record_step_failure(name, error.kind());
        if self.echo {
            println!("{name}: failed: {error}");
        }
    }
}

/// A catalog could not be asked for its tables.
pub fn catalog_failed(catalog: &str, error: &Error) {
    tracing::warn!(catalog, %error, "the catalog's tables could not be listed; known tables go on");
}

/// A table's numbers could not be collected.
pub fn collection_failed(name: &TableName, error: &Error) {
    tracing::warn!(table = %name, %error, "numbers not collected");
}
