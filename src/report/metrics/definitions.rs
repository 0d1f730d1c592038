//! Every metric: name, type, labels, unit and help, in the order of the documentation.

use prometheus::Opts;

use crate::inspect::TableStats;

/// A metric family.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Full name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Label names.
    pub labels: &'static [&'static str],
    /// Unit of the values.
    pub unit: &'static str,
    /// What it tells.
    pub help: &'static str,
}

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts in buckets.
    Histogram,
}

impl Kind {
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

/// Declares the definitions as constants and lists them in [`ALL`].
macro_rules! definitions {
    ($($id:ident: $kind:ident $name:literal $labels:expr, $unit:literal, $help:literal;)*) => {
        $(pub(super) const $id: Definition =
            Definition { name: $name, kind: Kind::$kind, labels: $labels, unit: $unit, help: $help };)*
        /// All metrics.
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
    DELETE_FILES: Gauge "icewright_table_delete_files" TABLE_CONTENT, "files",
        "Live delete files of the current snapshot; content is position, equality or deletion_vector.";
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
    STEP: Gauge "icewright_table_step" TABLE_STEP, "0 or 1",
        "1 for the step that the table is in: idle, rewrite-data-files, delay, expire-snapshots or remove-orphan-files.";
    CONSECUTIVE_FAILURES: Gauge "icewright_table_consecutive_failures" TABLE, "runs",
        "Failed runs since the last one that did not fail.";
    BACKOFF_UNTIL: Gauge "icewright_table_backoff_until_timestamp_seconds" TABLE, "seconds since the epoch",
        "When the table is tried again after failures; 0 if it is not waiting.";
    QUARANTINED: Gauge "icewright_table_quarantined" TABLE, "0 or 1",
        "1 if the table is left alone until its metadata changes.";
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
    REQUESTS: Counter "icewright_requests_total" &["operation", "outcome"], "requests",
        "Requests to catalogs and stores; outcome is ok, or what went wrong.";
    REQUEST_DURATION: Histogram "icewright_request_duration_seconds" &["operation"], "seconds",
        "Time until a catalog or store had answered, over all of them.";
    STORAGE_READ_BYTES: Counter "icewright_storage_read_bytes_total" &[], "bytes", "Bytes read from stores.";
    STORAGE_WRITTEN_BYTES: Counter "icewright_storage_written_bytes_total" &[], "bytes", "Bytes written to stores.";
    TABLES: Gauge "icewright_tables" &["series"], "tables",
        "Maintained tables; series is own, or other for those folded into table=\"_other\".";
    CONFIG_LOAD_SUCCESSFUL: Gauge "icewright_config_last_load_successful" &[], "0 or 1",
        "1 if the configuration was usable when it was last read.";
    CONFIG_LOAD_TIMESTAMP: Gauge "icewright_config_last_load_success_timestamp_seconds" &[], "seconds since the epoch",
        "When a usable configuration was last read.";
    CONFIG_WARNINGS: Gauge "icewright_config_warnings" &[], "warnings", "Warnings about the configuration in use.";
    BUILD_INFO: Gauge "icewright_build_info" &["version"], "always 1", "The version that is running.";
}

/// A gauge fed from [`TableStats`].
pub(super) struct StatGauge {
    pub(super) definition: &'static Definition,
    /// The value of the `content` label, where there is one.
    pub(super) content: Option<&'static str>,
    pub(super) value: fn(&TableStats) -> f64,
    /// Whether the sum over tables means something.
    pub(super) additive: bool,
}

const fn plain(definition: &'static Definition, value: fn(&TableStats) -> f64) -> StatGauge {
    StatGauge { definition, content: None, value, additive: true }
}

const fn with_content(
    definition: &'static Definition,
    content: &'static str,
    value: fn(&TableStats) -> f64,
) -> StatGauge {
    StatGauge { definition, content: Some(content), value, additive: true }
}

const fn lone(definition: &'static Definition, value: fn(&TableStats) -> f64) -> StatGauge {
    StatGauge { definition, content: None, value, additive: false }
}

/// Every gauge fed from [`TableStats`].
pub(super) const STAT_GAUGES: &[StatGauge] = &[
    plain(&DATA_FILES, |s| s.data_files as f64),
    plain(&DATA_FILE_BYTES, |s| s.data_file_bytes as f64),
    plain(&DATA_RECORDS, |s| s.data_records as f64),
    plain(&SMALL_DATA_FILES, |s| s.small_data_files as f64),
    with_content(&DELETE_FILES, "position", |s| s.position_delete_files as f64),
    with_content(&DELETE_FILES, "equality", |s| s.equality_delete_files as f64),
    with_content(&DELETE_FILES, "deletion_vector", |s| s.deletion_vectors as f64),
    with_content(&MANIFESTS, "data", |s| s.data_manifests as f64),
    with_content(&MANIFESTS, "deletes", |s| s.delete_manifests as f64),
    plain(&MANIFEST_BYTES, |s| s.manifest_bytes as f64),
    plain(&SNAPSHOTS, |s| s.snapshots as f64),
    plain(&PARTITIONS, |s| s.partitions as f64),
    lone(&PARTITION_RECORDS_RSD, |s| s.partition_records_rsd_ratio),
    lone(&PARTITION_BYTES_RSD, |s| s.partition_bytes_rsd_ratio),
    lone(&PARTITION_BYTES_MEAN, |s| s.partition_bytes_mean),
    plain(&ALL_FILES, |s| s.all_files as f64),
    plain(&ALL_FILE_BYTES, |s| s.all_file_bytes as f64),
];

/// A run of compaction of a large table takes hours; one with nothing to do, well under a second.
pub(super) fn buckets(definition: &Definition) -> &'static [f64] {
    if definition.name == REQUEST_DURATION.name { &REQUEST_BUCKETS } else { &RUN_BUCKETS }
}

const REQUEST_BUCKETS: [f64; 9] = [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
const RUN_BUCKETS: [f64; 12] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0];
