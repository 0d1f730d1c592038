//! Expiry as explicit ids and refs.

use iceberg::{TableRequirement, TableUpdate};

use super::{CommitContext, CommitResult, Committed};
use crate::catalog::CommitOutcome;
use crate::clock::Clock;
use crate::plan::ExpirePlan;
use crate::table::TableHandle;

/// Removes what the plan names, if every ref still stands where the plan saw it.
pub async fn commit_expire(
    table: &TableHandle,
    plan: &ExpirePlan,
    _ctx: &CommitContext,
    _clock: &dyn Clock,
) -> CommitResult {
    let mut requirements = vec![TableRequirement::UuidMatch { uuid: table.loaded.metadata.uuid() }];
    for (name, id) in &plan.refs_seen {
        requirements.push(TableRequirement::RefSnapshotIdMatch { r#ref: name.clone(), snapshot_id: Some(*id) });
    }
    let mut updates: Vec<TableUpdate> =
        plan.remove_refs.iter().map(|r| TableUpdate::RemoveSnapshotRef { ref_name: r.clone() }).collect();
    for &snapshot_id in &plan.remove_snapshots {
        updates.push(TableUpdate::RemoveStatistics { snapshot_id });
        updates.push(TableUpdate::RemovePartitionStatistics { snapshot_id });
    }
    updates.push(TableUpdate::RemoveSnapshots { snapshot_ids: plan.remove_snapshots.clone() });
    match table.catalog.commit_table(&table.ident, requirements, updates).await {
        CommitOutcome::Committed(loaded) => CommitResult::Committed(Box::new(Committed {
            table: TableHandle { loaded: (*loaded).into(), ..table.clone() },
            snapshot_id: None,
            removed_delete_files: 0,
            conflicts: 0,
            unknown_outcomes: 0,
            incomplete: None,
        })),
        CommitOutcome::Conflict(e) | CommitOutcome::Refused(e) => CommitResult::NotCommitted(e),
        CommitOutcome::Unknown(e) => CommitResult::Unknown(e),
    }
}
