//! Expiry: snapshots, refs and statistics leave the metadata by name. No file is touched here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use iceberg::spec::MAIN_BRANCH;
use iceberg::{TableRequirement, TableUpdate};

use super::settle;
use super::{CommitContext, CommitResult, Committed};
use crate::catalog::{CommitOutcome, LoadedTable};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::ExpirePlan;
use crate::table::TableHandle;

/// Snapshots removed by one commit at most; each such commit leaves a valid table.
const SNAPSHOTS_PER_COMMIT: usize = 1000;

/// Removes what `plan` names, in commits of up to 1000 snapshots. An empty plan commits nothing.
///
/// Before each commit the table is loaded anew, and its refs must be those that the plan saw; the commit itself asserts every
/// one of them. If a later commit fails, what has been committed counts, and [`Committed::incomplete`] says why the rest is
/// missing.
pub async fn commit_expire(
    table: &TableHandle,
    plan: &ExpirePlan,
    ctx: &CommitContext,
    clock: &dyn Clock,
) -> CommitResult {
    let refs = plan.refs_seen.clone();
    let mut commit =
        Commit { table: table.clone(), plan, ctx, clock, refs, progress: false, conflicts: 0, unknown_outcomes: 0 };
    if plan.remove_refs.iter().any(|name| name == MAIN_BRANCH) {
        return CommitResult::NotCommitted(Error::internal("branch main cannot be removed"));
    }
    if plan.is_empty() {
        return commit.committed(None);
    }
    let mut error = commit.run().await;
    match error.take() {
        None => commit.committed(None),
        Some(stop) if commit.progress => commit.committed(Some(stop.into_error())),
        Some(Stop::Failed(error)) => CommitResult::NotCommitted(error),
        Some(Stop::Unknown(error)) => CommitResult::Unknown(error),
    }
}

enum Stop {
    Failed(Error),
    Unknown(Error),
}

impl Stop {
    fn into_error(self) -> Error {
        match self {
            Self::Failed(error) | Self::Unknown(error) => error,
        }
    }
}

/// One commit's share of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Batch {
    snapshots: Vec<i64>,
    refs: Vec<String>,
}

impl Batch {
    fn is_done(&self, loaded: &LoadedTable) -> bool {
        let metadata = &loaded.metadata;
        self.snapshots.iter().all(|id| metadata.snapshot_by_id(*id).is_none())
            && self.refs.iter().all(|name| !loaded.refs.contains_key(name))
    }
}

struct Commit<'a> {
    table: TableHandle,
    plan: &'a ExpirePlan,
    ctx: &'a CommitContext,
    clock: &'a dyn Clock,
    /// Refs as they must be before the next commit.
    refs: BTreeMap<String, i64>,
    progress: bool,
    conflicts: u32,
    unknown_outcomes: u32,
}

impl Commit<'_> {
    fn committed(self, incomplete: Option<Error>) -> CommitResult {
        CommitResult::Committed(Box::new(Committed {
            table: self.table,
            snapshot_id: None,
            removed_delete_files: 0,
            conflicts: self.conflicts,
            unknown_outcomes: self.unknown_outcomes,
            incomplete,
        }))
    }

    async fn run(&mut self) -> Option<Stop> {
        loop {
            match self.one().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(stop) => return Some(stop),
            }
        }
    }

    /// Brings one batch in, with retries. `false`: nothing was left to do.
    async fn one(&mut self) -> Result<bool, Stop> {
        let mut last = Error::internal("no attempt was made");
        let mut open: Option<Batch> = None;
        for attempt in 0..=self.ctx.retries {
            if attempt > 0 {
                tokio::time::sleep(settle::backoff(self.ctx, attempt, self.clock.uuid())).await;
            }
            match self.table.refresh().await {
                Ok(table) => self.table = table,
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    last = error;
                    continue;
                }
                Err(error) => return Err(stop(open.as_ref(), error)),
            }
            if let Some(batch) = &open
                && batch.is_done(&self.table.loaded)
            {
                return Ok(self.advance(&batch.clone()));
            }
            let batch =
                next_batch(&self.table.loaded, self.plan, &self.refs).map_err(|error| stop(open.as_ref(), error))?;
            let Some(batch) = batch else { return Ok(false) };
            let (requirements, updates) = request(&self.table.loaded, &batch, &self.refs);
            match self.table.catalog.commit_table(&self.table.ident, requirements, updates).await {
                CommitOutcome::Committed(loaded) if batch.is_done(&loaded) => {
                    self.table.loaded = Arc::new(*loaded);
                    return Ok(self.advance(&batch));
                }
                CommitOutcome::Conflict(error) => {
                    self.conflicts += 1;
                    last = error;
                }
                CommitOutcome::Refused(error) => return Err(stop(open.as_ref(), error)),
                CommitOutcome::Unknown(error) => {
                    self.unknown_outcomes += 1;
                    open = Some(batch);
                    last = error;
                }
                CommitOutcome::Committed(_) => {
                    self.unknown_outcomes += 1;
                    open = Some(batch);
                    last = Error::new(ErrorKind::CommitUnknown, "the catalog's answer still holds what was removed");
                }
            }
        }
        // The last answer may have been lost: one more look.
        if let Some(batch) = &open
            && let Ok(table) = self.table.refresh().await
        {
            self.table = table;
            if batch.is_done(&self.table.loaded) {
                return Ok(self.advance(batch));
            }
        }
        Err(stop(open.as_ref(), last))
    }

    /// A batch is in: the refs it removed are gone from now on.
    fn advance(&mut self, batch: &Batch) -> bool {
        self.progress = true;
        self.refs.retain(|name, _| !batch.refs.contains(name));
        true
    }
}

fn stop(open: Option<&Batch>, error: Error) -> Stop {
    match open {
        None => Stop::Failed(error),
        Some(_) => Stop::Unknown(Error::new(ErrorKind::CommitUnknown, error.to_string())),
    }
}

/// What the next commit removes from the table as it is now. `None`: nothing is left.
///
/// Errors: [`ErrorKind::Conflict`] if the refs are not those expected: somebody may have tagged what would go;
/// [`ErrorKind::Internal`] if the plan removes what a remaining ref names.
fn next_batch(loaded: &LoadedTable, plan: &ExpirePlan, refs: &BTreeMap<String, i64>) -> Result<Option<Batch>> {
    let metadata = &loaded.metadata;
    let now: BTreeMap<String, i64> = loaded.refs.iter().map(|(name, r)| (name.clone(), r.snapshot_id)).collect();
    let gone: Vec<_> = plan.remove_refs.iter().filter(|name| now.contains_key(*name)).cloned().collect();
    let unique: BTreeSet<i64> = plan.remove_snapshots.iter().copied().collect();
    let mut snapshots: Vec<i64> = unique.into_iter().filter(|id| metadata.snapshot_by_id(*id).is_some()).collect();
    snapshots.sort_by_key(|id| metadata.snapshot_by_id(*id).map(|s| (s.timestamp_ms(), *id)));
    snapshots.truncate(SNAPSHOTS_PER_COMMIT);
    if snapshots.is_empty() && gone.is_empty() {
        return Ok(None);
    }
    if now != *refs {
        let changed = refs.iter().find(|(name, id)| now.get(*name) != Some(id)).map(|(name, _)| name);
        let changed = changed.or_else(|| now.keys().find(|name| !refs.contains_key(*name)));
        let name = changed.map_or("?", String::as_str);
        return Err(Error::new(ErrorKind::Conflict, format!("ref {name} changed since the expiry was planned")));
    }
    let named = now.iter().filter(|(name, _)| !gone.contains(name)).map(|(_, id)| *id);
    let protected: HashSet<i64> = named.chain(metadata.current_snapshot_id()).collect();
    match snapshots.iter().find(|id| protected.contains(id)) {
        Some(id) => Err(Error::internal(format!("snapshot {id} cannot expire: a remaining ref names it"))),
        None => Ok(Some(Batch { snapshots, refs: gone })),
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
