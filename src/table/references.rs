//! What table metadata says by itself about files: which directories are the table's own, which files it names
//! directly, whether files may be deleted at all, and which writers keep state in it. Pure.

use std::collections::BTreeSet;

use crate::error::{Error, ErrorKind, Result};
use crate::table::path::CanonicalPath;
use crate::table::{DeclaredPaths, LoadedTable};

/// Summary key of the Flink job that made a snapshot.
pub const FLINK_JOB_ID: &str = "flink.job-id";
/// Summary key of the Flink operator that made a snapshot.
pub const FLINK_OPERATOR_ID: &str = "flink.operator-id";
/// Summary key of the newest Flink checkpoint whose files a snapshot and its ancestors hold.
pub const FLINK_CHECKPOINT_ID: &str = "flink.max-committed-checkpoint-id";

/// How far the table's own timestamps may be ahead of this machine's clock before ages cannot be trusted.
pub const CLOCK_SKEW_LIMIT_MS: i64 = 10 * 60 * 1000;

/// What to say of a table with such a property.
pub const GC_DISABLED: &str =
    "the table's property gc.enabled = false forbids deleting its files: they may belong to others";

/// Whether files of the table may be deleted: `gc.enabled`, true unless set. As in the reference implementation,
/// any value but `true` (in any case) means no.
pub fn gc_enabled(loaded: &LoadedTable) -> bool {
    loaded.metadata.properties().get("gc.enabled").is_none_or(|v| v.trim().eq_ignore_ascii_case("true"))
}

/// [`ErrorKind::Conflict`] if the table's files must not be deleted, whatever refers to them.
pub fn require_gc(loaded: &LoadedTable) -> Result<()> {
    if gc_enabled(loaded) { Ok(()) } else { Err(Error::new(ErrorKind::Conflict, GC_DISABLED)) }
}

/// Milliseconds by which the table's metadata is from the future, if that is more than [`CLOCK_SKEW_LIMIT_MS`].
/// Then either this machine's clock or a writer's is wrong, and no age means anything.
pub fn clock_skew_ms(loaded: &LoadedTable, now_ms: i64) -> Option<i64> {
    let newest_snapshot = loaded.metadata.snapshots().map(|s| s.timestamp_ms()).max();
    let newest = newest_snapshot.unwrap_or(i64::MIN).max(loaded.metadata.last_updated_ms());
    Some(newest.saturating_sub(now_ms)).filter(|skew| *skew > CLOCK_SKEW_LIMIT_MS)
}

/// The directories that hold the table's files: its location, then `write.data.path` and `write.metadata.path` where
/// they lie outside of it. Only the location belongs to the table alone by convention; the others may be shared.
pub fn own_directories(loaded: &LoadedTable) -> Result<Vec<String>> {
    directories(&DeclaredPaths::of(&loaded.metadata))
}

/// The same from what a table declares.
pub fn directories(declared: &DeclaredPaths) -> Result<Vec<String>> {
    let mut directories = vec![declared.location.clone()];
    let mut canonical = vec![CanonicalPath::parse(&declared.location)?];
    for path in &declared.further {
        let parsed = CanonicalPath::parse(path)?;
        if !canonical.iter().any(|known| parsed == *known || parsed.is_inside(known)) {
            directories.push(path.clone());
            canonical.push(parsed);
        }
    }
    Ok(directories)
}

/// The current metadata file and the earlier ones in its log, newest first.
/// [`crate::error::ErrorKind::DataInvalid`] if the catalog did not say where the metadata lies.
pub fn metadata_files(loaded: &LoadedTable) -> Result<Vec<&str>> {
    if loaded.metadata_location.is_empty() {
        return Err(Error::invalid("the catalog does not say where the table's metadata file lies"));
    }
    let log = loaded.metadata.metadata_log().iter().rev().map(|entry| entry.metadata_file.as_str());
    Ok(std::iter::once(loaded.metadata_location.as_str()).chain(log).collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatisticsRef {
    pub snapshot_id: i64,
    pub path: String,
    pub size_bytes: u64,
}

/// Every file of table or partition statistics that the metadata names.
pub fn statistics_files(loaded: &LoadedTable) -> Vec<StatisticsRef> {
    let to_ref = |snapshot_id, path: &str, size: i64| StatisticsRef {
        snapshot_id,
        path: path.to_owned(),
        size_bytes: u64::try_from(size).unwrap_or(0),
    };
    let tables = loaded.metadata.statistics_iter();
    let partitions = loaded.metadata.partition_statistics_iter();
    tables
        .map(|s| to_ref(s.snapshot_id, &s.statistics_path, s.file_size_in_bytes))
        .chain(partitions.map(|s| to_ref(s.snapshot_id, &s.statistics_path, s.file_size_in_bytes)))
        .collect()
}

/// Flink jobs that made any retained snapshot. Their uncommitted manifests carry the job id at the start of the name.
pub fn flink_job_ids(loaded: &LoadedTable) -> BTreeSet<String> {
    let summaries = loaded.metadata.snapshots().map(|s| s.summary());
    summaries.filter_map(|s| s.additional_properties.get(FLINK_JOB_ID)).filter(|id| !id.is_empty()).cloned().collect()
}
