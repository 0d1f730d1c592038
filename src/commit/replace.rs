//! The `replace` snapshot of a rewrite: refresh, revalidate, write metadata files, ask the catalog, settle.

use std::collections::HashSet;
use std::sync::Arc;

use futures::TryStreamExt;
use iceberg::spec::{DataFile, ManifestContentType, ManifestFile, Operation, Summary};
use iceberg::{TableRequirement, TableUpdate};

use super::change::{Change, plan_change};
use super::revalidate::{Verdict, check_results, revalidate};
use super::settle::{self, Fate, OpenRequest};
use super::{CommitContext, CommitResult, Committed, StartSnapshot, may_send};
use crate::catalog::CommitOutcome;
use crate::catalog::TableHandle;
use crate::clock::{Clock, Deadline, snapshot_id};
use crate::concurrent::concurrent;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::snapshot::{READS, SnapshotReader};
use crate::meta::splice::splice;
use crate::meta::{SnapshotIdentity, SnapshotWriter, SummaryBuilder, head_requirements, head_updates, new_snapshot};
use crate::rewrite::RewriteResult;
use crate::run_id::{SUMMARY_ACTION, SUMMARY_RUN_ID};
use crate::storage::delete_files::{Proof, delete_files};
use crate::table::LoadedTable;
use crate::table::TableState;

/// Commits finished rewrites, made from `start`, as one `replace` snapshot on `main`.
///
/// Before each attempt the table is loaded anew and the results are held against it. New files get the data sequence number of
/// `start`; delete files that provably apply to nothing any more leave with the commit. Version 3 tables are refused. Metadata
/// files of attempts that have provably lost are deleted; data files never are.
pub async fn commit_rewrite(
    table: &TableHandle,
    start: &StartSnapshot,
    results: &[RewriteResult],
    ctx: &CommitContext,
    clock: &dyn Clock,
) -> CommitResult {
    if let Err(error) = check_results(results) {
        return CommitResult::NotCommitted(error);
    }
    Commit::new(table, start, results, ctx, clock).run().await
}

/// Takes delete files that provably apply to nothing out of the table, in one `replace` snapshot on `main` that touches no
/// data file. Which ones is found out anew before each attempt; without any, nothing is committed and no snapshot made.
pub async fn commit_dangling_deletes(
    table: &TableHandle,
    start: &StartSnapshot,
    ctx: &CommitContext,
    clock: &dyn Clock,
) -> CommitResult {
    Commit::new(table, start, &[], ctx, clock).run().await
}

/// How an attempt went on.
enum Step {
    Done(Box<CommitResult>),
    Again(Error),
}

/// What an attempt refers to among the files written here.
struct Attempt {
    list: String,
    manifests: HashSet<String>,
    removed_delete_files: usize,
}

/// Manifests of an earlier attempt, good for a later one that needs the same.
struct Reusable {
    added: Vec<ManifestFile>,
    spliced: Vec<ManifestFile>,
    sources: Vec<String>,
    removed: HashSet<Arc<str>>,
}

struct Request {
    requirements: Vec<TableRequirement>,
    updates: Vec<TableUpdate>,
    open: OpenRequest,
}

struct Commit<'a> {
    table: TableHandle,
    start: &'a StartSnapshot,
    results: &'a [RewriteResult],
    ctx: &'a CommitContext,
    clock: &'a dyn Clock,
    until: Option<Deadline>,
    /// The same for all attempts: at most one can be in the table, and it is found by this.
    snapshot_id: i64,
    reader: SnapshotReader,
    reusable: Option<Reusable>,
    attempts: Vec<Attempt>,
    written: Vec<String>,
    /// Requests that were sent and may have been applied, or may still be, whatever was answered.
    open: Vec<OpenRequest>,
    /// Whether a request was sent since the last look at the table.
    unseen: bool,
    conflicts: u32,
    unknown_outcomes: u32,
}

impl<'a> Commit<'a> {
    fn new(
        table: &TableHandle,
        start: &'a StartSnapshot,
        results: &'a [RewriteResult],
        ctx: &'a CommitContext,
        clock: &'a dyn Clock,
    ) -> Self {
        Self {
            table: table.clone(),
            start,
            results,
            ctx,
            clock,
            until: ctx.until(clock),
            snapshot_id: snapshot_id(clock.uuid()),
            reader: SnapshotReader::default(),
            reusable: None,
            attempts: Vec::new(),
            written: Vec::new(),
            open: Vec::new(),
            unseen: false,
            conflicts: 0,
            unknown_outcomes: 0,
        }
    }

    async fn run(mut self) -> CommitResult {
        let mut last = Error::internal("no attempt was made");
        for attempt in 0..=self.ctx.retries {
            if attempt > 0 {
                tokio::time::sleep(settle::backoff(self.ctx, attempt, self.clock.uuid())).await;
            }
            match self.attempt(attempt + 1).await {
                Step::Done(result) => return *result,
                Step::Again(error) => last = error,
            }
        }
        self.give_up(last).await
    }

    async fn attempt(&mut self, number: u32) -> Step {
        if let Err(error) = may_send(self.until, self.clock) {
            return self.done(error).await;
        }
        // Before the look at the table, so that the head is fresh when the request is sent.
        match self.require_files().await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Unavailable => return Step::Again(error),
            Err(error) => return self.done(error).await,
        }
        match self.look().await {
            Ok(Some(result)) => return Step::Done(Box::new(result)),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Unavailable => return Step::Again(error),
            Err(error) => return self.done(error).await,
        }
        let request = match self.prepare(number).await {
            Ok(Some(request)) => request,
            Ok(None) => return Step::Done(Box::new(self.committed(self.table.clone(), None).await)),
            Err(error) if error.kind() == ErrorKind::Unavailable => return Step::Again(error),
            Err(error) => return self.done(error).await,
        };
        let (ctx, clock, mut open) = (self.ctx, self.clock, request.open);
        let outcome = ctx.send(&self.table, self.until, clock, request.requirements, request.updates).await;
        self.unseen |= !matches!(outcome, CommitOutcome::NotSent(_));
        match outcome {
            CommitOutcome::Committed(loaded) if self.is_ours(&loaded) => {
                let table = TableHandle { loaded: Arc::new(*loaded), ..self.table.clone() };
                Step::Done(Box::new(self.committed(table, Some(self.snapshot_id)).await))
            }
            CommitOutcome::Conflict(error) => {
                self.conflicts += 1;
                open.denied = true;
                self.open.push(open);
                Step::Again(error)
            }
            CommitOutcome::Refused(error) => {
                open.denied = true;
                self.open.push(open);
                self.done(error).await
            }
            CommitOutcome::NotSent(error) => self.done(error).await,
            CommitOutcome::Committed(_) => {
                let error = Error::new(ErrorKind::CommitUnknown, "the catalog's answer lacks the snapshot committed");
                self.settle(open, error).await
            }
            CommitOutcome::Unknown(error) => self.settle(open, error).await,
        }
    }

    /// Whether this is the table that was planned for, with the snapshot made here.
    fn is_ours(&self, loaded: &LoadedTable) -> bool {
        loaded.metadata.uuid() == self.start.table_uuid && settle::has_snapshot(&loaded.metadata, self.snapshot_id)
    }

    /// Waits for the table to tell what became of a request whose answer was lost.
    ///
    /// If that stays open, another attempt is still safe: both add the same snapshot id onto the same head, so that the one
    /// that comes first makes the other fail.
    async fn settle(&mut self, request: OpenRequest, error: Error) -> Step {
        self.unknown_outcomes += 1;
        self.open.push(request);
        for check in 1..=settle::CHECKS {
            tokio::time::sleep(settle::backoff(self.ctx, check, self.clock.uuid())).await;
            match self.look().await {
                Ok(Some(result)) => return Step::Done(Box::new(result)),
                Ok(None) if self.open.is_empty() => break,
                Ok(None) | Err(_) => {}
            }
        }
        Step::Again(error)
    }

    /// Looks at the table, and settles open requests by what it says; a result if one of them has been applied.
    async fn look(&mut self) -> Result<Option<CommitResult>> {
        self.table = settle::look(&self.table, self.start.table_uuid).await?;
        self.unseen = false;
        let metadata = self.table.loaded.metadata.clone();
        if settle::has_snapshot(&metadata, self.snapshot_id) {
            return Ok(Some(self.committed(self.table.clone(), Some(self.snapshot_id)).await));
        }
        self.open.retain(|request| settle::judge(&metadata, self.snapshot_id, *request) == Fate::Open);
        Ok(None)
    }

    /// The look that must follow the last request. A catalog that is down for a moment is asked again.
    async fn look_last(&mut self) -> Option<CommitResult> {
        for attempt in 1..=settle::LAST_LOOKS {
            match self.look().await {
                Ok(result) => return result,
                Err(error) if error.kind() == ErrorKind::Unavailable && attempt < settle::LAST_LOOKS => {
                    tokio::time::sleep(settle::backoff(self.ctx, attempt, self.clock.uuid())).await;
                }
                Err(error) => {
                    tracing::warn!(table = %self.table.name(), %error, "no look at the table after a commit request");
                    break;
                }
            }
        }
        None
    }

    /// Revalidates and writes the files of an attempt. `None`: the rewrite turned out to be in the table, or nothing is to be
    /// changed.
    async fn prepare(&mut self, number: u32) -> Result<Option<Request>> {
        let loaded = self.table.loaded.clone();
        let head = loaded.current_snapshot().cloned();
        let head = head.ok_or_else(|| Error::new(ErrorKind::Conflict, "the table has no current snapshot any more"))?;
        let state = self.reader.state(&self.table.store, &loaded, head).await?;
        let start_deletes = match loaded.metadata.snapshot_by_id(self.start.snapshot_id) {
            Some(start) => self.reader.delete_files(&self.table.store, &loaded, start).await?,
            None => Vec::new(),
        };
        if revalidate(&state, self.start, &start_deletes, self.results)? == Verdict::AlreadyCommitted {
            return Ok(None);
        }
        let change = plan_change(&state, self.start, self.results)?;
        if change.removed.is_empty() {
            return Ok(None);
        }
        let metadata = loaded.typed()?.clone();
        let identity = SnapshotIdentity {
            snapshot_id: self.snapshot_id,
            commit_uuid: self.clock.uuid(),
            token: self.ctx.run_id.table_token(metadata.uuid()),
        };
        let store = self.table.store.clone();
        let mut writer = SnapshotWriter::new(store.as_ref(), &metadata, identity)?;
        let request = self.write(&mut writer, &state, &change, number).await;
        self.written.extend_from_slice(writer.written());
        request.map(Some)
    }

    /// Looks whether the files that the commit will add are still there, if they have been lying for a while: another process
    /// may have taken them for those of a run that is over.
    async fn require_files(&self) -> Result<()> {
        let run = self.ctx.limit.and_then(|limit| limit.run);
        if !run.is_some_and(|run| run.trusted_until.left(self.clock).is_zero()) {
            return Ok(());
        }
        let outputs = self.results.iter().flat_map(|r| &r.added);
        let outputs = outputs.map(|file| (file.file_path().to_owned(), Some(file.file_size_in_bytes())));
        let manifests = self.reusable.iter().flat_map(|r| r.added.iter().chain(&r.spliced));
        let manifests = manifests.map(|m| (m.manifest_path.clone(), u64::try_from(m.manifest_length).ok()));
        concurrent(READS, outputs.chain(manifests), |(path, bytes)| self.require_file(path, bytes)).try_collect().await
    }

    async fn require_file(&self, path: String, bytes: Option<u64>) -> Result<()> {
        match self.table.store.stat(&path).await? {
            Some(found) if Some(found.size) == bytes => Ok(()),
            found => {
                let what = if found.is_some() { "has another size than was written" } else { "is gone" };
                Err(Error::new(
                    ErrorKind::Conflict,
                    format!("{path}, written by this run, {what}: nothing was committed"),
                ))
            }
        }
    }

    async fn write(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        state: &TableState,
        change: &Change,
        number: u32,
    ) -> Result<Request> {
        self.write_manifests(writer, state, change).await?;
        let Some(Reusable { added, spliced, .. }) = &self.reusable else {
            return Err(Error::internal("manifests were not written"));
        };
        let own: Vec<_> = added.iter().chain(spliced).cloned().collect();
        let mut manifests = own.clone();
        manifests.extend(change.carried.iter().cloned());
        let loaded = &state.loaded;
        let parent = loaded.current_snapshot().map(|s| s.snapshot_id());
        let list = writer.write_list(number, parent, manifests).await?;
        self.attempts.push(Attempt {
            list: list.clone(),
            manifests: own.iter().map(|m| m.manifest_path.clone()).collect(),
            removed_delete_files: change.removed_deletes.len(),
        });
        let summary = self.summary(state, change, own.len());
        let snapshot = new_snapshot(loaded, self.snapshot_id, list, summary, self.clock.now_ms());
        let mut requirements = head_requirements(loaded);
        requirements.push(TableRequirement::CurrentSchemaIdMatch { current_schema_id: self.start.schema_id });
        requirements.push(TableRequirement::DefaultSpecIdMatch { default_spec_id: self.start.default_spec_id });
        let open = OpenRequest { parent, sequence_number: snapshot.sequence_number(), denied: false };
        Ok(Request { requirements, updates: head_updates(loaded, snapshot), open })
    }

    /// New files first, then rewritten manifests; those of an earlier attempt if they would be the same.
    async fn write_manifests(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        state: &TableState,
        change: &Change,
    ) -> Result<()> {
        let sources: Vec<_> = change.spliced.iter().map(|m| m.manifest_path.clone()).collect();
        let earlier = self.reusable.take();
        let (added, spliced) = match earlier {
            Some(r) if r.sources == sources && r.removed == change.removed => (r.added, Some(r.spliced)),
            Some(r) => (r.added, None),
            None => {
                let files: Vec<DataFile> = self.results.iter().flat_map(|r| r.added.iter().cloned()).collect();
                let (spec_id, sequence) = (self.start.default_spec_id, self.start.sequence_number);
                (writer.write_added(ManifestContentType::Data, spec_id, &files, Some(sequence)).await?, None)
            }
        };
        let spliced = match spliced {
            Some(spliced) => spliced,
            None => {
                let spliced = splice(writer, &state.loaded, &change.spliced, &change.removed).await?;
                if spliced.deleted != change.removed.len() {
                    let (is, should) = (spliced.deleted, change.removed.len());
                    return Err(Error::internal(format!(
                        "{is} entries were removed from manifests instead of {should}"
                    )));
                }
                spliced.manifests
            }
        };
        self.reusable = Some(Reusable { added, spliced, sources, removed: change.removed.clone() });
        Ok(())
    }

    fn summary(&self, state: &TableState, change: &Change, created: usize) -> Summary {
        let mut summary = SummaryBuilder::default();
        self.results.iter().flat_map(|r| &r.added).for_each(|f| summary.add(self.start.default_spec_id, f));
        change.removed_data.iter().chain(&change.removed_deletes).for_each(|f| summary.remove(f));
        let mut properties = summary.build(state.snapshot.as_ref().map(|s| s.summary()));
        let own = [
            ("manifests-created", created.to_string()),
            ("manifests-kept", change.carried.len().to_string()),
            ("manifests-replaced", (change.spliced.len() + change.dropped).to_string()),
            ("engine-name", "icewright".to_owned()),
            ("engine-version", env!("CARGO_PKG_VERSION").to_owned()),
            (SUMMARY_RUN_ID, self.ctx.run_id.to_string()),
            (SUMMARY_ACTION, "rewrite-data-files".to_owned()),
        ];
        properties.extend(own.into_iter().chain(self.ctx.summary.clone()).map(|(k, v)| (k.to_owned(), v)));
        Summary { operation: Operation::Replace, additional_properties: properties }
    }

    async fn done(&mut self, error: Error) -> Step {
        Step::Done(Box::new(self.give_up(error).await))
    }

    /// The end without a commit that is known of. Files go only if each request that was sent has provably lost.
    async fn give_up(&mut self, error: Error) -> CommitResult {
        if self.unseen
            && let Some(result) = self.look_last().await
        {
            return result;
        }
        if self.unseen || self.open.iter().any(|request| !request.denied) || self.outputs_live() {
            let error = Error::new(ErrorKind::CommitUnknown, error.to_string());
            return CommitResult::Unknown(error.context("commit of the rewrite could not be settled"));
        }
        if !self.open.is_empty() {
            return CommitResult::Denied(error);
        }
        self.clean(&HashSet::new()).await;
        // A lost answer is no riddle any more: another commit has taken the place of this one.
        let lost = error.kind() == ErrorKind::CommitUnknown;
        CommitResult::NotCommitted(if lost { Error::new(ErrorKind::Conflict, error.to_string()) } else { error })
    }

    fn outputs_live(&self) -> bool {
        let outputs: HashSet<_> = self.results.iter().flat_map(|r| &r.added).map(DataFile::file_path).collect();
        self.reader.all_files().any(|file| outputs.contains(file.file_path.as_ref()))
    }

    async fn committed(&mut self, table: TableHandle, snapshot_id: Option<i64>) -> CommitResult {
        let list = table.loaded.metadata.snapshot_by_id(self.snapshot_id).map(|s| s.manifest_list().to_owned());
        let winner = self.attempts.iter().find(|a| Some(&a.list) == list.as_ref());
        let removed_delete_files = winner.or(self.attempts.last()).map_or(0, |a| a.removed_delete_files);
        // Without the snapshot itself it cannot be told which files it uses.
        if let Some(winner) = winner {
            let used: HashSet<_> = winner.manifests.iter().chain([&winner.list]).cloned().collect();
            self.clean(&used).await;
        }
        let (conflicts, unknown_outcomes) = (self.conflicts, self.unknown_outcomes);
        CommitResult::Committed(Box::new(Committed {
            table,
            snapshot_id,
            removed_delete_files,
            expired_snapshots: 0,
            removed_refs: Vec::new(),
            conflicts,
            unknown_outcomes,
            incomplete: None,
        }))
    }

    /// Deletes the metadata files written here, but for those in use.
    async fn clean(&self, used: &HashSet<String>) {
        let garbage: Vec<_> = self.written.iter().filter(|path| !used.contains(*path)).cloned().collect();
        let report =
            delete_files(self.table.store.as_ref(), &garbage, Proof::OwnUncommittedOutput(self.ctx.run_id)).await;
        for (path, error) in report.failed {
            tracing::warn!(%path, %error, "metadata file of a lost attempt could not be deleted");
        }
    }
}
