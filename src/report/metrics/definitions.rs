//! Every metric: name, type, labels, unit and help, in the order of the documentation.

use prometheus::Opts;

use crate::error::ErrorKind;
use crate::inspect::{SIZE_BOUNDS, TableStats};

/// A metric family.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    /// Unit of the values.
    pub unit: &'static str,
    pub help: &'static str,
}

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts in buckets.
    Histogram,
}

impl MetricKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Definition {
    pub(super) fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }
}

const TABLE: &[&str] = &["catalog", "namespace", "table"];
const TABLE_CONTENT: &[&str] = &["catalog", "namespace", "table", "content"];
const TABLE_ACTION: &[&str] = &["catalog", "namespace", "table", "action"];
const TABLE_STEP: &[&str] = &["catalog", "namespace", "table", "step"];
const TABLE_REASON: &[&str] = &["catalog", "namespace", "table", "reason"];

/// Declares the definitions as constants and lists them in [`ALL`].
macro_rules! definitions {
    ($($id:ident: $kind:ident $name:literal $labels:expr, $unit:literal, $help:literal;)*) => {
        $(pub(super) const $id: Definition =
            Definition { name: $name, kind: MetricKind::$kind, labels: $labels, unit: $unit, help: $help };)*
        pub const ALL: &[&Definition] = &[$(&$id),*];
    };
}

definitions! {
    DATA_FILES: Gauge "icewright_table_data_files" TABLE, "files", "Live data files of the current snapshot.";
    DATA_FILE_BYTES: Gauge "icewright_table_data_file_bytes" TABLE, "bytes",
        "Size of the live data files of the current snapshot.";
    DATA_RECORDS: Gauge "icewright_table_data_records" TABLE, "rows",
        "Rows in the live data files of the current snapshot, before deletes.";
    SMALL_DATA_FILES: Gauge "icewright_table_small_data_files" TABLE, "files",
        "Live data files below the policy's minimum file size.";
    DATA_FILE_SIZES: Histogram "icewright_table_data_file_size_bytes" TABLE, "bytes",
        "Sizes of the live data files of the current snapshot. A picture of now, not a count over time: no rate() is needed.";
    TARGET_FILE_SIZE: Gauge "icewright_table_target_file_size_bytes" TABLE, "bytes",
        "Size that compaction gives to data files.";
    DELETE_FILES: Gauge "icewright_table_delete_files" TABLE_CONTENT, "files",
        "Live delete files of the current snapshot; content is position, equality or deletion_vector.";
    DELETES_PER_DATA_FILE: Gauge "icewright_table_delete_files_per_data_file" TABLE, "ratio (1 = one each)",
        "Live delete files over live data files of the current snapshot; 0 without data files.";
    MANIFESTS: Gauge "icewright_table_manifests" TABLE_CONTENT, "files",
        "Manifests of the current snapshot; content is data or deletes.";
    MANIFEST_BYTES: Gauge "icewright_table_manifest_bytes" TABLE, "bytes", "Size of the manifests of the current snapshot.";
    SNAPSHOTS: Gauge "icewright_table_snapshots" TABLE, "snapshots", "Retained snapshots.";
    PARTITIONS: Gauge "icewright_table_partitions" TABLE, "partitions", "Partitions with live data files.";
    PARTITION_RECORDS_RSD: Gauge "icewright_table_partition_records_rsd_ratio" TABLE, "ratio (1 = 100 %)",
        "Population standard deviation over mean of the rows per partition.";
    PARTITION_BYTES_RSD: Gauge "icewright_table_partition_bytes_rsd_ratio" TABLE, "ratio (1 = 100 %)",
        "Population standard deviation over mean of the bytes per partition.";
    PARTITION_BYTES_MEAN: Gauge "icewright_table_partition_bytes_mean" TABLE, "bytes", "Mean size of a partition.";
    ALL_FILES: Gauge "icewright_table_all_files" TABLE, "files",
        "Data and delete files that any retained snapshot reaches.";
    ALL_FILE_BYTES: Gauge "icewright_table_all_file_bytes" TABLE, "bytes",
        "Size of the data and delete files that any retained snapshot reaches.";
    ORPHAN_FILES: Gauge "icewright_table_orphan_files" TABLE, "files",
        "Files that the last listing found and no metadata reaches, whatever their age.";
    ORPHAN_FILE_BYTES: Gauge "icewright_table_orphan_file_bytes" TABLE, "bytes",
        "Size of the files that the last listing found and no metadata reaches.";
    STORED_FILES: Gauge "icewright_table_stored_files" TABLE, "files",
        "Files under the table's directories that the last listing found, without those deleted after it.";
    STORED_FILE_BYTES: Gauge "icewright_table_stored_file_bytes" TABLE, "bytes",
        "Size of the files under the table's directories that the last listing found, without those deleted after it.";
    UNHEALTHY: Gauge "icewright_table_unhealthy" TABLE_REASON, "0 or 1",
        "1 if the reason holds: quarantined, failing, refused, unreadable, overdue, small_files or delete_files.";
    LAST_HEALTHY: Gauge "icewright_table_last_healthy_timestamp_seconds" TABLE, "seconds since the epoch",
        "When the table was last seen without any reason to be unhealthy; absent while it never was.";
    STEP: Gauge "icewright_table_step" TABLE_STEP, "0 or 1",
        "1 for the step that the table is in: idle, rewrite-data-files, delay, expire-snapshots or remove-orphan-files.";
    NEXT_RUN: Gauge "icewright_table_next_run_timestamp_seconds" TABLE, "seconds since the epoch",
        "When the next compaction is due; absent while that is not known.";
    DELAY_END: Gauge "icewright_table_delay_end_timestamp_seconds" TABLE, "seconds since the epoch",
        "When the delay between compaction and clean-ups ends; 0 outside of one.";
    PAUSED_TABLE: Gauge "icewright_table_paused" TABLE, "0 or 1",
        "1 if an operator has paused the table.";
    CONSECUTIVE_FAILURES: Gauge "icewright_table_consecutive_failures" TABLE, "runs",
        "Failed runs since the last one that did not fail.";
    BACKOFF_UNTIL: Gauge "icewright_table_backoff_until_timestamp_seconds" TABLE, "seconds since the epoch",
        "When the table is tried again after failures; 0 if it is not waiting.";
    QUARANTINED: Gauge "icewright_table_quarantined" TABLE, "0 or 1",
        "1 if the table is not compacted until its metadata changes.";
    REFUSED: Gauge "icewright_table_refused" TABLE_ACTION, "0 or 1",
        "1 if the action did not touch the table, or a part of it, when it was last tried, since that would not have been safe.";
    LAST_SUCCESS: Gauge "icewright_last_success_timestamp_seconds" TABLE_ACTION, "seconds since the epoch",
        "When the action last succeeded on the table; absent while that is not known.";
    RUNS: Counter "icewright_runs_total" &["catalog", "namespace", "table", "action", "outcome"], "runs",
        "Runs of an action; outcome is success, failed, conflict, unknown, skipped or cancelled.";
    REWRITTEN_DATA_FILES: Counter "icewright_rewritten_data_files_total" TABLE, "files",
        "Data files replaced by committed rewrites.";
    REWRITTEN_BYTES: Counter "icewright_rewritten_bytes_total" TABLE, "bytes",
        "Size of the data files replaced by committed rewrites.";
    ADDED_DATA_FILES: Counter "icewright_added_data_files_total" TABLE, "files",
        "Data files added by committed rewrites.";
    ADDED_BYTES: Counter "icewright_added_bytes_total" TABLE, "bytes",
        "Size of the data files added by committed rewrites.";
    REMOVED_DELETE_FILES: Counter "icewright_removed_delete_files_total" TABLE, "files",
        "Delete files that left the table with committed rewrites.";
    EXPIRED_SNAPSHOTS: Counter "icewright_expired_snapshots_total" TABLE, "snapshots",
        "Snapshots that left the metadata.";
    DELETED_FILES: Counter "icewright_deleted_files_total" TABLE_ACTION, "files",
        "Files deleted from storage by expire-snapshots and remove-orphan-files.";
    DELETED_BYTES: Counter "icewright_deleted_bytes_total" TABLE_ACTION, "bytes",
        "Size of the files deleted from storage, where it was known.";
    COMMIT_CONFLICTS: Counter "icewright_commit_conflicts_total" TABLE, "conflicts",
        "Commits refused since the table had changed, including those that went through on a later attempt.";
    COMMIT_UNKNOWN: Counter "icewright_commit_unknown_total" TABLE, "commits",
        "Commits whose answer was lost, including those settled since.";
    RUN_DURATION: Histogram "icewright_run_duration_seconds" &["action", "outcome"], "seconds",
        "Time that runs of an action took, over all tables.";
    RUN_PHASE_DURATION: Histogram "icewright_run_phase_duration_seconds" &["action", "phase"], "seconds",
        "Time that the phases of runs took, over all tables; phase is inspect, plan, rewrite, commit, delete, list or check.";
    REQUESTS: Counter "icewright_requests_total" &["operation", "outcome"], "requests",
        "Requests to catalogs and stores; outcome is ok, or what went wrong.";
    REQUEST_DURATION: Histogram "icewright_request_duration_seconds" &["operation"], "seconds",
        "Time until a catalog or store had answered, over all of them.";
    REQUEST_RETRIES: Counter "icewright_request_retries_total" &["operation"], "requests",
        "Requests to catalogs and stores that were sent again, since an attempt before had failed.";
    STORAGE_READ_BYTES: Counter "icewright_storage_read_bytes_total" &[], "bytes", "Bytes read from stores.";
    STORAGE_WRITTEN_BYTES: Counter "icewright_storage_written_bytes_total" &[], "bytes", "Bytes written to stores.";
    TABLES: Gauge "icewright_tables" &["series"], "tables",
        "Maintained tables; series is own, or other for those folded into table=\"_other\".";
    RUNNING_TABLES: Gauge "icewright_running_tables" &[], "tables", "Tables that a worker is busy with.";
    QUEUED_TABLES: Gauge "icewright_queued_tables" &[], "tables", "Tables with a due step that waits for a worker.";
    CONCURRENT_TABLES_LIMIT: Gauge "icewright_concurrent_tables_limit" &[], "tables",
        "Tables that workers may be busy with at the same time.";
    OLDEST_QUEUED: Gauge "icewright_oldest_queued_seconds" &[], "seconds",
        "How long the step that has waited longest for a worker has been due; 0 if none waits.";
    PAUSED: Gauge "icewright_paused" &[], "0 or 1", "1 if an operator has paused the whole daemon.";
    LEADER: Gauge "icewright_leader" &[], "0 or 1",
        "1 if this process maintains tables; 0 while another one does, which this one stands by for.";
    CATALOG_UP: Gauge "icewright_catalog_up" &["catalog"], "0 or 1",
        "0 if the catalog did not list its tables when it was last asked, or tells of none of several tables; absent before the first try.";
    MEMORY_BUDGET: Gauge "icewright_memory_budget_bytes" &[], "bytes", "Memory that rewrites may take together.";
    MEMORY_RESERVED: Gauge "icewright_memory_reserved_bytes" &[], "bytes", "Memory that running rewrites have reserved.";
    MANIFEST_CACHE: Gauge "icewright_manifest_cache_bytes" &[], "bytes", "Memory that summaries of manifests take.";
    CONFIG_LOAD_SUCCESSFUL: Gauge "icewright_config_last_load_successful" &[], "0 or 1",
        "1 if the configuration was usable when it was last read.";
    CONFIG_LOAD_TIMESTAMP: Gauge "icewright_config_last_load_success_timestamp_seconds" &[], "seconds since the epoch",
        "When a usable configuration was last read.";
    CONFIG_RELOADS: Counter "icewright_config_reloads_total" &["outcome"], "reloads",
        "Times the configuration was read again; outcome is success, or failed if the one before stays in use.";
    CONFIG_WARNINGS: Gauge "icewright_config_warnings" &[], "warnings", "Warnings about the configuration in use.";
    BUILD_INFO: Gauge "icewright_build_info" &["version", "revision", "rustc"], "always 1",
        "The version that is running, the commit it was built from, and the compiler.";
}

/// A value of a table's gauge: the gauge, the value of its label beyond the table's, if it has one, and the number.
pub(super) type GaugeSample = (&'static Definition, Option<&'static str>, f64);

/// The values that follow from statistics.
pub(super) fn of_stats(s: &TableStats) -> Vec<GaugeSample> {
    let deletes_per_data_file = if s.data_files == 0 { 0.0 } else { s.delete_files() as f64 / s.data_files as f64 };
    vec![
        (&DATA_FILES, None, s.data_files as f64),
        (&DATA_FILE_BYTES, None, s.data_file_bytes as f64),
        (&DATA_RECORDS, None, s.data_records as f64),
        (&SMALL_DATA_FILES, None, s.small_data_files as f64),
        (&DELETE_FILES, Some("position"), s.position_delete_files as f64),
        (&DELETE_FILES, Some("equality"), s.equality_delete_files as f64),
        (&DELETE_FILES, Some("deletion_vector"), s.deletion_vectors as f64),
        (&DELETES_PER_DATA_FILE, None, deletes_per_data_file),
        (&MANIFESTS, Some("data"), s.data_manifests as f64),
        (&MANIFESTS, Some("deletes"), s.delete_manifests as f64),
        (&MANIFEST_BYTES, None, s.manifest_bytes as f64),
        (&SNAPSHOTS, None, s.snapshots as f64),
        (&PARTITIONS, None, s.partitions as f64),
        (&PARTITION_RECORDS_RSD, None, s.partition_records_rsd_ratio),
        (&PARTITION_BYTES_RSD, None, s.partition_bytes_rsd_ratio),
        (&PARTITION_BYTES_MEAN, None, s.partition_bytes_mean),
        (&ALL_FILES, None, s.all_files as f64),
        (&ALL_FILE_BYTES, None, s.all_file_bytes as f64),
    ]
}

/// Gauges of which a sum over tables means nothing; for the others it is a total, or a number of tables.
const NOT_ADDITIVE: [&Definition; 12] = [
    &TARGET_FILE_SIZE,
    &DELETES_PER_DATA_FILE,
    &PARTITION_RECORDS_RSD,
    &PARTITION_BYTES_RSD,
    &PARTITION_BYTES_MEAN,
    &LAST_HEALTHY,
    &CONSECUTIVE_FAILURES,
    &STEP,
    &NEXT_RUN,
    &DELAY_END,
    &BACKOFF_UNTIL,
    &LAST_SUCCESS,
];

impl Definition {
    /// Whether it has a series for each table.
    pub(super) fn is_of_table(&self) -> bool {
        self.labels.contains(&"table")
    }

    /// Whether folded tables share a series of it.
    pub(super) fn adds_up(&self) -> bool {
        !NOT_ADDITIVE.iter().any(|other| other.name == self.name)
    }

    /// Series for each combination of label values.
    pub(super) fn series(&self) -> usize {
        match self.kind {
            MetricKind::Counter | MetricKind::Gauge => 1,
            // One more bucket for the rest, the sum, and the count.
            MetricKind::Histogram => self.buckets().len() + 3,
        }
    }

    /// Upper bounds of a histogram's buckets.
    pub(super) fn buckets(&self) -> Vec<f64> {
        match self.name {
            name if name == DATA_FILE_SIZES.name => SIZE_BOUNDS.iter().map(|bytes| *bytes as f64).collect(),
            name if name == REQUEST_DURATION.name => REQUEST_BUCKETS.to_vec(),
            _ => RUN_BUCKETS.to_vec(),
        }
    }
}

/// A run of compaction of a large table takes hours; one with nothing to do, well under a second.
const RUN_BUCKETS: [f64; 12] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0];
const REQUEST_BUCKETS: [f64; 9] = [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// What is asked of catalogs and stores.
pub(super) const OPERATIONS: [&str; 15] = [
    "config",
    "token",
    "list_namespaces",
    "list_tables",
    "load_table",
    "load_credentials",
    "commit_table",
    "read",
    "stat",
    "create",
    "write",
    "close",
    "abort",
    "list",
    "delete",
];

/// How requests end: well, with an error, or as only commits do.
pub(super) fn request_outcomes() -> Vec<&'static str> {
    let kinds = ErrorKind::ALL.iter().map(|kind| kind.as_str());
    ["ok", "refused", "unknown"].into_iter().chain(kinds).collect()
}
