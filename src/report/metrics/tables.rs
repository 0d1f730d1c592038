//! The metrics of tables: each function shows one thing about one table.

use super::definitions::{self, Definition};
use super::records::Backoff;
use super::slots::SeriesSlot;
use super::{Labels, Metrics, encode, flag, seconds, series};
use crate::action::{Action, Doing, Outcome};
use crate::actions::report::{ActionReport, StoredFiles};
use crate::error::Result;
use crate::inspect::TableStats;
use crate::report::health::ReasonKind;
use crate::table::TableName;

impl Metrics {
    /// Shows what inspection found.
    pub fn record_stats(&self, table: &TableName, stats: &TableStats) {
        self.record(table, &definitions::of_stats(stats));
        let (files, bytes): (Vec<f64>, Vec<f64>) =
            stats.size_histogram.buckets().map(|bucket| (bucket.files as f64, bucket.bytes as f64)).unzip();
        // The buckets, and the sum behind them.
        let values = [files, vec![bytes.iter().sum()]].concat();
        let mut slots = self.slots.lock();
        match self.slot(&mut slots, table) {
            SeriesSlot::Own => self.sizes.set(&Labels::of(table, SeriesSlot::Own), &values),
            SeriesSlot::Other => slots.set_values(table, series::folded().len(), &values),
        }
    }

    /// Shows the size that compaction gives to data files, in bytes.
    pub fn set_target_file_size(&self, table: &TableName, bytes: u64) {
        self.record(table, &[(&definitions::TARGET_FILE_SIZE, None, bytes as f64)]);
    }

    /// Shows what the last listing found.
    pub(super) fn record_stored(&self, table: &TableName, stored: StoredFiles) {
        let samples = [
            (&definitions::STORED_FILES, None, stored.files as f64),
            (&definitions::STORED_FILE_BYTES, None, stored.bytes as f64),
            (&definitions::ORPHAN_FILES, None, stored.orphan_files as f64),
            (&definitions::ORPHAN_FILE_BYTES, None, stored.orphan_bytes as f64),
        ];
        self.record(table, &samples);
    }

    /// Shows which reasons hold against a table, and when it was last seen without any, milliseconds since the epoch.
    pub fn set_health(&self, table: &TableName, reasons: &[ReasonKind], last_healthy_ms: Option<i64>) {
        let sample = |kind: ReasonKind| {
            (&definitions::UNHEALTHY as &Definition, Some(kind.as_str()), flag(reasons.contains(&kind)))
        };
        self.record(table, &ReasonKind::ALL.map(sample));
        if let Some(ms) = last_healthy_ms {
            self.record(table, &[(&definitions::LAST_HEALTHY, None, seconds(ms))]);
        }
    }

    /// Counts a run of an action that ended at `finished_ms`, milliseconds since the epoch.
    pub fn record_run(&self, table: &TableName, run: &ActionReport, finished_ms: i64) {
        let (action, outcome) = (run.action.as_str(), run.outcome.as_str());
        self.histogram(&definitions::RUN_DURATION, &[action, outcome]).observe(run.duration.as_secs_f64());
        for (phase, duration) in run.phases.iter() {
            self.histogram(&definitions::RUN_PHASE_DURATION, &[action, phase]).observe(duration.as_secs_f64());
        }
        self.count_run(table, run);
        self.record(table, &[(&definitions::REFUSED, Some(action), flag(run.refused))]);
        if run.outcome == Outcome::Success {
            self.set_last_success(table, run.action, finished_ms);
        }
        if let Some(stored) = run.stored {
            self.record_stored(table, stored);
        }
    }

    fn count_run(&self, table: &TableName, run: &ActionReport) {
        let mut slots = self.slots.lock();
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
    }

    /// Shows a success that the table itself tells of, such as one from before a restart; milliseconds since the epoch.
    pub fn set_last_success(&self, table: &TableName, action: Action, finished_ms: i64) {
        self.record(table, &[(&definitions::LAST_SUCCESS, Some(action.as_str()), seconds(finished_ms))]);
    }

    /// Shows the step that a table is in.
    pub fn set_step(&self, table: &TableName, doing: Doing) {
        let sample = |each: Doing| (&definitions::STEP as &Definition, Some(each.as_str()), flag(each == doing));
        self.record(table, &Doing::all().into_iter().map(sample).collect::<Vec<_>>());
    }

    /// Shows when the next compaction is due and when the delay before the clean-ups ends, milliseconds since the epoch;
    /// `None`: not known, and not in a delay.
    pub fn set_next(&self, table: &TableName, next_run_ms: Option<i64>, delay_end_ms: Option<i64>) {
        self.record(table, &[(&definitions::DELAY_END, None, delay_end_ms.map_or(0.0, seconds))]);
        match next_run_ms {
            Some(ms) => self.record(table, &[(&definitions::NEXT_RUN, None, seconds(ms))]),
            None => self.remove(table, &definitions::NEXT_RUN),
        }
    }

    /// Shows that a table does not wait any more, neither in the delay nor after failures, and that it is not known when it is
    /// compacted next.
    pub fn end_wait(&self, table: &TableName) {
        self.set_next(table, None, None);
        self.record(table, &[(&definitions::BACKOFF_UNTIL, None, 0.0)]);
    }

    /// Shows whether an operator has paused a table.
    pub fn set_table_paused(&self, table: &TableName, paused: bool) {
        self.record(table, &[(&definitions::PAUSED_TABLE, None, flag(paused))]);
    }

    /// Shows whether failures keep a table waiting.
    pub fn set_backoff(&self, table: &TableName, backoff: Backoff) {
        let samples = [
            (&definitions::CONSECUTIVE_FAILURES, None, f64::from(backoff.consecutive_failures)),
            (&definitions::BACKOFF_UNTIL, None, backoff.until_ms.map_or(0.0, seconds)),
            (&definitions::QUARANTINED, None, flag(backoff.quarantined)),
        ];
        self.record(table, &samples);
    }

    /// The series that tables have of their own or share, without the labels `catalog` and `table`, in the text format: for
    /// one table's metrics under a name that holds these two.
    pub fn gather_tables(&self) -> Result<String> {
        self.show_other_totals();
        let mut families = self.registry.gather();
        families.retain(|family| definitions::ALL.iter().any(|d| d.name == family.name() && d.is_of_table()));
        for metric in families.iter_mut().flat_map(|family| family.mut_metric()) {
            let mut labels = metric.take_label();
            labels.retain(|label| !matches!(label.name(), "catalog" | "table"));
            metric.set_label(labels);
        }
        encode(&families)
    }
}
