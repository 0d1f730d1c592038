//! What the table itself tells about earlier runs: nothing else is kept between starts.

use iceberg::spec::SnapshotRef;

use crate::catalog::LoadedTable;
use crate::run_id::{RunId, SUMMARY_RUN_COMPLETE, SUMMARY_RUN_ID};

/// The newest compaction that this program committed to `main`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRun {
    /// The run.
    pub run_id: RunId,
    /// Its newest snapshot.
    pub snapshot_id: i64,
    /// When that was committed, milliseconds since the epoch.
    pub committed_ms: i64,
    /// Whether it was the run's last batch; a run that was cut short between batches is not complete.
    pub complete: bool,
}

/// Snapshots of `main` from its head backwards, as far as metadata still holds them.
pub fn ancestry(loaded: &LoadedTable) -> impl Iterator<Item = &SnapshotRef> {
    let mut left = loaded.metadata.snapshots().len();
    std::iter::successors(loaded.current_snapshot(), move |snapshot| {
        // A parent chain with a cycle would be invalid metadata; it must not hang us.
        left = left.checked_sub(1)?;
        loaded.metadata.snapshot_by_id(snapshot.parent_snapshot_id()?)
    })
}

/// Finds the newest own compaction in the ancestry of `main`.
pub fn last_own_run(loaded: &LoadedTable) -> Option<OwnRun> {
    ancestry(loaded).find_map(|snapshot| {
        let properties = &snapshot.summary().additional_properties;
        let run_id = properties.get(SUMMARY_RUN_ID)?.parse().ok()?;
        Some(OwnRun {
            run_id,
            snapshot_id: snapshot.snapshot_id(),
            committed_ms: snapshot.timestamp_ms(),
            complete: properties.get(SUMMARY_RUN_COMPLETE).is_some_and(|v| v == "true"),
        })
    })
}
