//! What the table itself tells about earlier runs: nothing else is kept between starts.

use crate::action::Action;
use crate::run_id::{RunId, SUMMARY_ACTION, SUMMARY_RUN_COMPLETE, SUMMARY_RUN_ID};
use crate::table::LoadedTable;

/// The newest run of an action that this program committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRun {
    pub run_id: RunId,
    /// Its newest snapshot.
    pub snapshot_id: i64,
    /// When that was committed, milliseconds since the epoch.
    pub committed_ms: i64,
    /// Whether it was the run's last batch; a run that was cut short between batches is not complete.
    pub complete: bool,
}

/// Finds the newest own run of the action among all snapshots that metadata still holds. It need not be connected with the head any
/// more: what lay between may have expired.
pub fn last_own_run(loaded: &LoadedTable, action: Action) -> Option<OwnRun> {
    let own = loaded.metadata.snapshots().filter_map(|snapshot| {
        let properties = &snapshot.summary().additional_properties;
        let run_id = properties.get(SUMMARY_RUN_ID)?.parse().ok()?;
        // A commit of another action, such as one that only rewrites manifests, says nothing about this one.
        if properties.get(SUMMARY_ACTION).is_some_and(|word| word != action.as_str()) {
            return None;
        }
        let run = OwnRun {
            run_id,
            snapshot_id: snapshot.snapshot_id(),
            committed_ms: snapshot.timestamp_ms(),
            complete: properties.get(SUMMARY_RUN_COMPLETE).is_some_and(|v| v == "true"),
        };
        Some(((snapshot.sequence_number(), snapshot.timestamp_ms()), run))
    });
    own.max_by_key(|(order, _)| *order).map(|(_, run)| run)
}
