//! Whether a table changed since icewright compacted it, from snapshot summaries alone: no manifest is read.
//!
//! This only saves planning. The plan itself is a fixed point (`already_compacted`), so every doubt is answered with "yes".

use iceberg::spec::Operation;

use crate::action::Action;
use crate::run_id::{SUMMARY_ACTION, SUMMARY_PLANNED_SNAPSHOT, SUMMARY_RUN_COMPLETE};
use crate::table::LoadedTable;

const ACTION: &str = Action::RewriteDataFiles.as_str();

/// Whether `main` may hold changes that no compaction of ours has seen.
///
/// `false` needs proof: the newest compaction on `main` was complete, and every snapshot between the head and the one it was
/// planned from is a `replace`. An expired snapshot in between, or a summary without our keys, is no proof. With partitions
/// selected by time, or a policy changed meanwhile, an unchanged table can have work nevertheless.
pub fn changed_since_last_rewrite(loaded: &LoadedTable) -> bool {
    let Some(mut snapshot) = loaded.current_snapshot() else {
        return false;
    };
    let mut planned_from: Option<i64> = None;
    // Ancestry of valid metadata is finite; a cycle would not be, so no more steps than snapshots.
    for _ in 0..loaded.metadata.snapshots().len() {
        if planned_from == Some(snapshot.snapshot_id()) {
            return false;
        }
        let summary = snapshot.summary();
        if summary.operation != Operation::Replace {
            return true;
        }
        let properties = &summary.additional_properties;
        if planned_from.is_none() && properties.get(SUMMARY_ACTION).is_some_and(|action| action == ACTION) {
            if properties.get(SUMMARY_RUN_COMPLETE).map(String::as_str) != Some("true") {
                return true;
            }
            planned_from = properties.get(SUMMARY_PLANNED_SNAPSHOT).and_then(|id| id.parse().ok());
            if planned_from.is_none() {
                return true;
            }
        }
        let parent = snapshot.parent_snapshot_id();
        if parent.is_some() && parent == planned_from {
            return false;
        }
        match parent.and_then(|id| loaded.metadata.snapshot_by_id(id)) {
            Some(ancestor) => snapshot = ancestor,
            None => return true,
        }
    }
    true
}
