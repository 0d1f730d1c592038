//! The `replace` snapshot of a rewrite, and of the removal of delete files that apply to nothing.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use iceberg::TableRequirement;
use iceberg::spec::{DataFile, ManifestContentType, ManifestFile, Operation};

use super::change::{HeadChange, plan_change};
use super::engine::{Change, Engine, Fate, Request};
use super::own_snapshot::{OwnSnapshot, SnapshotContent, SnapshotMark};
use super::revalidate::{Verdict, check_results, revalidate};
use super::{CommitContext, CommitResult, StartSnapshot};
use crate::action::Action;
use crate::catalog::TableHandle;
use crate::clock::Clock;
use crate::concurrent::concurrent;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::snapshot::{READS, SnapshotReader};
use crate::meta::splice::splice;
use crate::meta::{SnapshotWriter, SummaryBuilder};
use crate::rewrite::RewriteResult;
use crate::table::{LoadedTable, TableState};

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
    match check_results(results) {
        Ok(()) => commit_replace(table, start, results, ctx, clock).await,
        Err(error) => CommitResult::NotCommitted(error),
    }
}

/// Takes delete files that provably apply to nothing out of the table, in one `replace` snapshot on `main` that touches no
/// data file. Which ones is found out anew before each attempt; without any, nothing is committed and no snapshot made.
pub async fn commit_dangling_deletes(
    table: &TableHandle,
    start: &StartSnapshot,
    ctx: &CommitContext,
    clock: &dyn Clock,
) -> CommitResult {
    commit_replace(table, start, &[], ctx, clock).await
}

async fn commit_replace(
    table: &TableHandle,
    start: &StartSnapshot,
    results: &[RewriteResult],
    ctx: &CommitContext,
    clock: &dyn Clock,
) -> CommitResult {
    let mut replace = Replace {
        start,
        results,
        ctx,
        clock,
        snapshot: OwnSnapshot::new(Action::RewriteDataFiles, ctx, clock),
        reader: SnapshotReader::default(),
        reusable: None,
    };
    match Engine::new(table, start.table_uuid, &mut replace, ctx, clock).run().await {
        CommitResult::Committed(mut done) => {
            let metadata = &done.table.loaded.metadata;
            done.removed_delete_files = replace.snapshot.removed_delete_files(metadata);
            done.snapshot_id = replace.snapshot.is_in(metadata).then_some(replace.snapshot.id);
            CommitResult::Committed(done)
        }
        CommitResult::Unknown(error) => {
            CommitResult::Unknown(error.context("commit of the rewrite could not be settled"))
        }
        other => other,
    }
}

/// Manifests of an earlier attempt, good for a later one that needs the same.
struct Reusable {
    added: Vec<ManifestFile>,
    spliced: Vec<ManifestFile>,
    sources: Vec<String>,
    removed: HashSet<Arc<str>>,
}

struct Replace<'a> {
    start: &'a StartSnapshot,
    results: &'a [RewriteResult],
    ctx: &'a CommitContext,
    clock: &'a dyn Clock,
    snapshot: OwnSnapshot<'a>,
    reader: SnapshotReader,
    reusable: Option<Reusable>,
}

#[async_trait]
impl Change for Replace<'_> {
    type Mark = SnapshotMark;

    const WRITES_FILES: bool = true;

    /// Files that have been lying for a while are looked at: another process may have taken them for those of a run that is
    /// over.
    async fn require_files(&self, table: &TableHandle) -> Result<()> {
        let run = self.ctx.limit.and_then(|limit| limit.run);
        if !run.is_some_and(|run| run.trusted_until.left(self.clock).is_zero()) {
            return Ok(());
        }
        let outputs = self.outputs().map(|file| (file.file_path().to_owned(), Some(file.file_size_in_bytes())));
        let manifests = self.reusable.iter().flat_map(|r| r.added.iter().chain(&r.spliced));
        let manifests = manifests.map(|m| (m.manifest_path.clone(), u64::try_from(m.manifest_length).ok()));
        let files = outputs.chain(manifests);
        concurrent(READS, files, |(path, bytes)| require_file(table, path, bytes)).try_collect().await
    }

    async fn prepare(&mut self, table: &TableHandle, attempt: u32) -> Result<Option<Request<SnapshotMark>>> {
        let (loaded, store) = (&table.loaded, &table.store);
        let head = loaded.current_snapshot().cloned();
        let head = head.ok_or_else(|| Error::new(ErrorKind::Conflict, "the table has no current snapshot any more"))?;
        let state = self.reader.state(store, loaded, head).await?;
        let start_deletes = match loaded.metadata.snapshot_by_id(self.start.snapshot_id) {
            Some(start) => self.reader.delete_files(store, loaded, start).await?,
            None => Vec::new(),
        };
        if revalidate(&state, self.start, &start_deletes, self.results)? == Verdict::AlreadyCommitted {
            return Ok(None);
        }
        let change = plan_change(&state, self.start, self.results)?;
        if change.removed.is_empty() {
            return Ok(None);
        }
        let metadata = loaded.typed()?;
        let mut writer = SnapshotWriter::new(store.as_ref(), metadata, self.snapshot.identity(&loaded.metadata))?;
        let request = self.write(&mut writer, &state, &change, attempt).await;
        self.snapshot.remember(&writer);
        request.map(Some)
    }

    fn fate(&self, loaded: &LoadedTable, mark: &SnapshotMark) -> Fate {
        self.snapshot.fate(&loaded.metadata, *mark)
    }

    async fn applied(&mut self, table: &TableHandle, _: &SnapshotMark) -> bool {
        self.snapshot.delete_losers(table).await;
        false
    }

    fn is_in_use(&self) -> bool {
        let outputs: HashSet<_> = self.outputs().map(DataFile::file_path).collect();
        self.reader.all_files().any(|file| outputs.contains(file.file_path.as_ref()))
    }

    async fn abandon(&self, table: &TableHandle) {
        self.snapshot.delete_all(table).await;
    }
}

async fn require_file(table: &TableHandle, path: String, bytes: Option<u64>) -> Result<()> {
    match table.store.stat(&path).await? {
        Some(found) if Some(found.size) == bytes => Ok(()),
        found => {
            let what = if found.is_some() { "has another size than was written" } else { "is gone" };
            let message = format!("{path}, written by this run, {what}: nothing was committed");
            Err(Error::new(ErrorKind::Conflict, message))
        }
    }
}

impl Replace<'_> {
    fn outputs(&self) -> impl Iterator<Item = &DataFile> {
        self.results.iter().flat_map(|r| &r.added)
    }

    async fn write(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        state: &TableState,
        change: &HeadChange,
        attempt: u32,
    ) -> Result<Request<SnapshotMark>> {
        let own = self.write_manifests(writer, state, change).await?;
        let mut summary = SummaryBuilder::default();
        self.outputs().for_each(|file| summary.add(self.start.default_spec_id, file));
        change.removed_data.iter().chain(&change.removed_deletes).for_each(|file| summary.remove(file));
        let content = SnapshotContent {
            operation: Operation::Replace,
            summary,
            own,
            carried: &change.carried,
            replaced: change.spliced.len() + change.dropped,
            removed_delete_files: change.removed_deletes.len(),
        };
        let mut request = self.snapshot.request(writer, &state.loaded, attempt, content).await?;
        let (current_schema_id, default_spec_id) = (self.start.schema_id, self.start.default_spec_id);
        request.requirements.push(TableRequirement::CurrentSchemaIdMatch { current_schema_id });
        request.requirements.push(TableRequirement::DefaultSpecIdMatch { default_spec_id });
        Ok(request)
    }

    /// New files first, then rewritten manifests; those of an earlier attempt if they would be the same.
    async fn write_manifests(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        state: &TableState,
        change: &HeadChange,
    ) -> Result<Vec<ManifestFile>> {
        let sources: Vec<_> = change.spliced.iter().map(|m| m.manifest_path.clone()).collect();
        let (added, spliced) = match self.reusable.take() {
            Some(r) if r.sources == sources && r.removed == change.removed => (r.added, Some(r.spliced)),
            Some(r) => (r.added, None),
            None => {
                let files: Vec<DataFile> = self.outputs().cloned().collect();
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
        let own = added.iter().chain(&spliced).cloned().collect();
        self.reusable = Some(Reusable { added, spliced, sources, removed: change.removed.clone() });
        Ok(own)
    }
}
