//! Expiry: snapshots, refs and statistics leave the metadata by name. No file is touched here.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use iceberg::spec::MAIN_BRANCH;
use iceberg::{TableRequirement, TableUpdate};

use super::engine::{Change, Engine, Fate, Request};
use super::{CommitContext, CommitResult};
use crate::catalog::TableHandle;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::plan::ExpirePlan;
use crate::plan::expire_snapshots::rebase;
use crate::table::LoadedTable;
use crate::table::references::require_gc;

/// Snapshots removed by one commit at most; each such commit leaves a valid table.
const SNAPSHOTS_PER_COMMIT: usize = 1000;

/// Removes what `plan` names, in commits of up to 1000 snapshots. An empty plan commits nothing.
///
/// Before each commit the table is loaded anew and the plan held against it: branches may have grown since, for a busy writer
/// does not wait. The commit itself asserts every ref. If a later commit fails, what has been committed counts, and
/// [`super::Committed::incomplete`] says why the rest is missing.
pub async fn commit_expire(
    table: &TableHandle,
    plan: &ExpirePlan,
    ctx: &CommitContext,
    clock: &dyn Clock,
) -> CommitResult {
    if plan.remove_refs.iter().any(|name| name == MAIN_BRANCH) {
        return CommitResult::NotCommitted(Error::internal("branch main cannot be removed"));
    }
    let mut expire = Expire { rest: plan.clone(), expired_snapshots: 0, removed_refs: Vec::new() };
    let engine = Engine::new(table, table.loaded.metadata.uuid(), &mut expire, ctx, clock);
    if plan.is_empty() {
        return engine.committed(None);
    }
    let mut result = engine.run().await;
    if let CommitResult::Committed(done) = &mut result {
        done.expired_snapshots = expire.expired_snapshots;
        done.removed_refs = expire.removed_refs;
    }
    result
}

/// One commit's share of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Batch {
    snapshots: Vec<i64>,
    refs: Vec<String>,
}

struct Expire {
    /// The plan without what is in. It only shrinks, so that the number of commits is limited whatever the catalog shows.
    rest: ExpirePlan,
    expired_snapshots: usize,
    removed_refs: Vec<String>,
}

#[async_trait]
impl Change for Expire {
    type Mark = Batch;

    const WRITES_FILES: bool = false;

    async fn require_files(&self, _: &TableHandle) -> Result<()> {
        Ok(())
    }

    async fn prepare(&mut self, table: &TableHandle, _: u32) -> Result<Option<Request<Batch>>> {
        require_gc(&table.loaded)?;
        let Some(batch) = next_batch(&table.loaded, &self.rest) else { return Ok(None) };
        let refs = rebase(&self.rest, &table.loaded)?.refs_seen;
        require_unnamed(&table.loaded, &batch, &refs)?;
        let (requirements, updates) = request(&table.loaded, &batch, &refs);
        Ok(Some(Request { requirements, updates, mark: batch }))
    }

    /// Applied if all of the batch has left. Nobody can tell when a request cannot come any more: it only says what must go.
    fn fate(&self, loaded: &LoadedTable, batch: &Batch) -> Fate {
        let gone = batch.snapshots.iter().all(|id| loaded.metadata.snapshot_by_id(*id).is_none())
            && batch.refs.iter().all(|name| !loaded.refs.contains_key(name));
        if gone { Fate::Applied } else { Fate::Open }
    }

    async fn applied(&mut self, _: &TableHandle, batch: &Batch) -> bool {
        let expired: HashSet<i64> = batch.snapshots.iter().copied().collect();
        self.rest.remove_snapshots.retain(|id| !expired.contains(id));
        self.rest.remove_refs.retain(|name| !batch.refs.contains(name));
        self.rest.refs_seen.retain(|name, _| !batch.refs.contains(name));
        self.expired_snapshots += batch.snapshots.len();
        self.removed_refs.extend(batch.refs.iter().cloned());
        true
    }

    fn is_in_use(&self) -> bool {
        false
    }

    async fn abandon(&self, _: &TableHandle) {}
}

/// What the next commit removes from the table as it is now. `None`: nothing is left.
fn next_batch(loaded: &LoadedTable, plan: &ExpirePlan) -> Option<Batch> {
    let metadata = &loaded.metadata;
    let refs: Vec<_> = plan.remove_refs.iter().filter(|name| loaded.refs.contains_key(*name)).cloned().collect();
    let unique: BTreeSet<i64> = plan.remove_snapshots.iter().copied().collect();
    let mut snapshots: Vec<i64> = unique.into_iter().filter(|id| metadata.snapshot_by_id(*id).is_some()).collect();
    snapshots.sort_by_key(|id| metadata.snapshot_by_id(*id).map(|s| (s.timestamp_ms(), *id)));
    snapshots.truncate(SNAPSHOTS_PER_COMMIT);
    (!snapshots.is_empty() || !refs.is_empty()).then_some(Batch { snapshots, refs })
}

/// An error if a ref that stays names what would go.
fn require_unnamed(loaded: &LoadedTable, batch: &Batch, refs: &BTreeMap<String, i64>) -> Result<()> {
    let named = refs.iter().filter(|(name, _)| !batch.refs.contains(name)).map(|(_, id)| *id);
    let protected: HashSet<i64> = named.chain(loaded.metadata.current_snapshot_id()).collect();
    match batch.snapshots.iter().find(|id| protected.contains(id)) {
        Some(id) => Err(Error::internal(format!("snapshot {id} cannot expire: a remaining ref names it"))),
        None => Ok(()),
    }
}

fn request(
    loaded: &LoadedTable,
    batch: &Batch,
    refs: &BTreeMap<String, i64>,
) -> (Vec<TableRequirement>, Vec<TableUpdate>) {
    let metadata = &loaded.metadata;
    let mut requirements = vec![TableRequirement::UuidMatch { uuid: metadata.uuid() }];
    requirements.extend(
        refs.iter()
            .map(|(name, id)| TableRequirement::RefSnapshotIdMatch { r#ref: name.clone(), snapshot_id: Some(*id) }),
    );
    let remove_ref = |ref_name: &String| TableUpdate::RemoveSnapshotRef { ref_name: ref_name.clone() };
    let mut updates: Vec<_> = batch.refs.iter().map(remove_ref).collect();
    for snapshot_id in &batch.snapshots {
        if metadata.statistics_for_snapshot(*snapshot_id).is_some() {
            updates.push(TableUpdate::RemoveStatistics { snapshot_id: *snapshot_id });
        }
        if metadata.partition_statistics_for_snapshot(*snapshot_id).is_some() {
            updates.push(TableUpdate::RemovePartitionStatistics { snapshot_id: *snapshot_id });
        }
    }
    if !batch.snapshots.is_empty() {
        updates.push(TableUpdate::RemoveSnapshots { snapshot_ids: batch.snapshots.clone() });
    }
    (requirements, updates)
}
