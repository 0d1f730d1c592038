//! Summary keys: those by which writers are known to find their own progress, and those that only describe. Pure.
//!
//! How each writer searches is said in `docs/operations.md`, with sources; a test compares.

use iceberg::spec::Summary;

use super::ProgressWriter;
use crate::table::references::{FLINK_CHECKPOINT_ID, FLINK_JOB_ID, FLINK_OPERATOR_ID};

/// What tells the writers of one kind apart.
enum WriterIdentity {
    /// The value of a key.
    Value(&'static str),
    /// The rest of the progress key, which is a prefix.
    Suffix,
    /// Nothing: a branch has one such writer.
    One,
}

/// A kind of writers, beside Flink's sinks.
struct WriterKind {
    name: &'static str,
    /// The summary key that holds the progress.
    key: &'static str,
    identity: WriterIdentity,
}

/// Summary key whose value is the snapshot up to which equality deletes are converted.
pub(super) const CONVERTED_SNAPSHOT: &str = "equality-convert-staging-snapshot";

const KINDS: &[WriterKind] = &[
    WriterKind {
        name: "Spark streaming query",
        key: "spark.sql.streaming.queryId",
        identity: WriterIdentity::Value("spark.sql.streaming.queryId"),
    },
    WriterKind { name: "Kafka Connect offsets", key: "kafka.connect.offsets", identity: WriterIdentity::Suffix },
    WriterKind { name: "Materialize sink", key: "mz-frontier", identity: WriterIdentity::Value("mz-sink-id") },
    WriterKind { name: "Fluss tiering service", key: "fluss-offsets", identity: WriterIdentity::One },
    WriterKind { name: "Redpanda topic", key: "redpanda.commit-metadata", identity: WriterIdentity::One },
    WriterKind { name: "Flink conversion of equality deletes", key: CONVERTED_SNAPSHOT, identity: WriterIdentity::One },
];

/// Keys that say something of the commit and that nobody reads back to go on from.
const DESCRIPTIONS: &[&str] = &[
    "operation",
    "entries-processed",
    "replace-partitions",
    "partition-summaries-included",
    "source-snapshot-id",
    // Staged commits have a rule of their own.
    "wap.id",
    "published-wap-id",
    "engine-name",
    "engine-version",
    "iceberg-version",
    "environment-context",
    "app-id",
    "app-name",
    "spark.app.id",
    "trino_query_id",
    "trino_version",
    "trino_user",
    // Of a materialized view; read from the current snapshot only.
    "trino-query-start-time",
    "dependsOnTables",
    "dependsOnTableFunctions",
    "dependsOnNonDeterministicFunctions",
    "presto_query_id",
    "presto_version",
    "dremio-job-id",
    "snapshot.producer",
    FLINK_JOB_ID,
    FLINK_OPERATOR_ID,
    FLINK_CHECKPOINT_ID,
    "spark.sql.streaming.epochId",
    "kafka.connect.commit-id",
    "kafka.connect.commitId",
    "kafka.connect.task-id",
    "kafka.connect.vtts",
    "kafka.connect.valid-through-ts",
    "mz-sink-id",
    "mz-sink-version",
    "commit-user",
];

/// How the names of counts and totals begin, those of partitions, and this program's own keys.
const DESCRIPTION_PREFIXES: &[&str] =
    &["added-", "deleted-", "removed-", "total-", "changed-", "manifests-", "partitions.", "icewright."];

impl WriterKind {
    fn writer(&self, key: &str, summary: &Summary) -> Option<ProgressWriter> {
        let id = match self.identity {
            WriterIdentity::Suffix => key.strip_prefix(self.key)?.trim_start_matches('.').to_owned(),
            _ if key != self.key => return None,
            WriterIdentity::Value(of) => summary.additional_properties.get(of).cloned().unwrap_or_default(),
            WriterIdentity::One => String::new(),
        };
        Some(ProgressWriter::Known { kind: self.name, id })
    }
}

/// The writers that find their progress in a snapshot with this summary, in the order of their names.
///
/// A Flink sink passes over a snapshot that names its job and no checkpoint.
pub(in crate::plan) fn writers(summary: &Summary) -> Vec<ProgressWriter> {
    let properties = &summary.additional_properties;
    let job =
        properties.get(FLINK_JOB_ID).filter(|job| !job.is_empty() && properties.contains_key(FLINK_CHECKPOINT_ID));
    let flink =
        job.map(|job| ProgressWriter::Flink { job: job.clone(), operator: properties.get(FLINK_OPERATOR_ID).cloned() });
    let others = properties.keys().flat_map(|key| KINDS.iter().filter_map(move |kind| kind.writer(key, summary)));
    let mut writers: Vec<ProgressWriter> = flink.into_iter().chain(others).collect();
    writers.sort_unstable();
    writers
}

/// Whether nothing is known of who uses a summary key, and for what.
pub(super) fn is_unknown(key: &str) -> bool {
    let progress = |kind: &WriterKind| match kind.identity {
        WriterIdentity::Suffix => key.starts_with(kind.key),
        WriterIdentity::Value(_) | WriterIdentity::One => key == kind.key,
    };
    !DESCRIPTIONS.contains(&key)
        && !DESCRIPTION_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        && !KINDS.iter().any(progress)
}

#[cfg(test)]
pub(super) fn progress_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|kind| (kind.name, kind.key)).chain([("Flink job", FLINK_CHECKPOINT_ID)])
}
