//! Expiry: snapshots, refs and statistics leave the metadata by name. No file is touched here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use iceberg::spec::MAIN_BRANCH;
use iceberg::{TableRequirement, TableUpdate};

use super::settle;
use super::{CommitContext, CommitResult, Committed, may_send};
use crate::catalog::CommitOutcome;
use crate::catalog::TableHandle;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::ExpirePlan;
use crate::table::LoadedTable;

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
    let mut commit = Commit {
        table: table.clone(),
        plan,
        ctx,
        clock,
        until: ctx.until(clock),
        refs: plan.refs_seen.clone(),
        sent: Vec::new(),
        unseen: false,
        gone: false,
        expired_snapshots: 0,
        removed_refs: Vec::new(),
        conflicts: 0,
        unknown_outcomes: 0,
    };
    if plan.remove_refs.iter().any(|name| name == MAIN_BRANCH) {
        return CommitResult::NotCommitted(Error::internal("branch main cannot be removed"));
    }
    if plan.is_empty() {
        return commit.committed(None);
    }
    let stopped = commit.run().await;
    match stopped {
        None => commit.committed(None),
        Some(stop) if commit.progress() => commit.committed(Some(stop.into_error())),
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

/// A request that was sent.
struct Sent {
    batch: Batch,
    /// Whether the answer said that it was not applied, rather than nothing.
    denied: bool,
}

struct Commit<'a> {
    table: TableHandle,
    plan: &'a ExpirePlan,
    ctx: &'a CommitContext,
    clock: &'a dyn Clock,
    until: Option<Deadline>,
    /// Refs as they must be before the next commit.
    refs: BTreeMap<String, i64>,
    /// Requests of the batch under way: any of them may have been applied, whatever was answered.
    sent: Vec<Sent>,
    /// Whether a request was sent since the last look at the table.
    unseen: bool,
    /// Whether the last look found no such table, or another one.
    gone: bool,
    expired_snapshots: usize,
    removed_refs: Vec<String>,
    conflicts: u32,
    unknown_outcomes: u32,
}

/// How an attempt went on.
enum Step {
    /// A batch is in.
    Applied,
    /// Nothing was left to do.
    Nothing,
    Again(Error),
    Stop(Error),
}

impl Commit<'_> {
    fn committed(self, incomplete: Option<Error>) -> CommitResult {
        CommitResult::Committed(Box::new(Committed {
            table: self.table,
            snapshot_id: None,
            removed_delete_files: 0,
            expired_snapshots: self.expired_snapshots,
            removed_refs: self.removed_refs,
            conflicts: self.conflicts,
            unknown_outcomes: self.unknown_outcomes,
            incomplete,
        }))
    }

    fn progress(&self) -> bool {
        self.expired_snapshots > 0 || !self.removed_refs.is_empty()
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
        for attempt in 0..=self.ctx.retries {
            if attempt > 0 {
                tokio::time::sleep(settle::backoff(self.ctx, attempt, self.clock.uuid())).await;
            }
            match self.attempt().await {
                Step::Applied => return Ok(true),
                Step::Nothing => return Ok(false),
                Step::Again(error) => last = error,
                Step::Stop(error) => {
                    last = error;
                    break;
                }
            }
        }
        if self.unseen && self.look_last().await {
            return Ok(true);
        }
        Err(self.stop(last))
    }

    async fn attempt(&mut self) -> Step {
        if let Err(error) = may_send(self.until, self.clock) {
            return Step::Stop(error);
        }
        match self.look().await {
            Ok(true) => return Step::Applied,
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::Unavailable => return Step::Again(error),
            Err(error) => return Step::Stop(error),
        }
        let batch = match next_batch(&self.table.loaded, self.plan, &self.refs) {
            Ok(Some(batch)) => batch,
            Ok(None) => return Step::Nothing,
            Err(error) => return Step::Stop(error),
        };
        let (requirements, updates) = request(&self.table.loaded, &batch, &self.refs);
        let outcome = self.ctx.send(&self.table, self.until, self.clock, requirements, updates).await;
        let denied = match &outcome {
            CommitOutcome::NotSent(_) => None,
            CommitOutcome::Conflict(_) | CommitOutcome::Refused(_) => Some(true),
            CommitOutcome::Committed(_) | CommitOutcome::Unknown(_) => Some(false),
        };
        if let Some(denied) = denied {
            self.unseen = true;
            self.sent.push(Sent { batch: batch.clone(), denied });
        }
        match outcome {
            CommitOutcome::Committed(loaded) if self.is_done(&batch, &loaded) => {
                self.table.loaded = Arc::new(*loaded);
                self.advance(&batch);
                Step::Applied
            }
            CommitOutcome::Conflict(error) => {
                self.conflicts += 1;
                Step::Again(error)
            }
            CommitOutcome::Refused(error) | CommitOutcome::NotSent(error) => Step::Stop(error),
            CommitOutcome::Unknown(error) => {
                self.unknown_outcomes += 1;
                Step::Again(error)
            }
            CommitOutcome::Committed(_) => {
                self.unknown_outcomes += 1;
                let message = "the catalog's answer still holds what was removed";
                Step::Again(Error::new(ErrorKind::CommitUnknown, message))
            }
        }
    }

    /// Looks at the table; whether a request that was sent has been applied. Another table of the name says nothing.
    async fn look(&mut self) -> Result<bool> {
        let table_uuid = self.table.loaded.metadata.uuid();
        match settle::look(&self.table, table_uuid).await {
            Ok(table) => self.table = table,
            Err(error) => {
                self.gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict);
                return Err(error);
            }
        }
        self.unseen = false;
        let applied = self.sent.iter().find(|sent| self.is_done(&sent.batch, &self.table.loaded));
        let Some(batch) = applied.map(|sent| sent.batch.clone()) else { return Ok(false) };
        self.advance(&batch);
        Ok(true)
    }

    /// The look that must follow the last request; whether that was applied. A catalog that is down for a moment is asked again.
    async fn look_last(&mut self) -> bool {
        for attempt in 1..=settle::LAST_LOOKS {
            match self.look().await {
                Ok(applied) => return applied,
                Err(error) if error.kind() == ErrorKind::Unavailable && attempt < settle::LAST_LOOKS => {
                    tokio::time::sleep(settle::backoff(self.ctx, attempt, self.clock.uuid())).await;
                }
                Err(_) => break,
            }
        }
        false
    }

    /// Whether all of a batch has left this table.
    fn is_done(&self, batch: &Batch, loaded: &LoadedTable) -> bool {
        let metadata = &loaded.metadata;
        metadata.uuid() == self.table.loaded.metadata.uuid()
            && batch.snapshots.iter().all(|id| metadata.snapshot_by_id(*id).is_none())
            && batch.refs.iter().all(|name| !loaded.refs.contains_key(name))
    }

    /// A batch is in: the refs it removed are gone from now on.
    fn advance(&mut self, batch: &Batch) {
        self.refs.retain(|name, _| !batch.refs.contains(name));
        self.expired_snapshots += batch.snapshots.len();
        self.removed_refs.extend(batch.refs.iter().cloned());
        self.sent.clear();
        self.unseen = false;
    }

    /// The end in the middle of a batch. It is unknown unless each request was denied and a look came after the last one, or
    /// the table is gone, so that nothing of it can expire any more.
    fn stop(&self, error: Error) -> Stop {
        let lost = self.sent.iter().any(|sent| !sent.denied);
        if lost || (self.unseen && !self.gone) {
            return Stop::Unknown(Error::new(ErrorKind::CommitUnknown, error.to_string()));
        }
        Stop::Failed(error)
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
