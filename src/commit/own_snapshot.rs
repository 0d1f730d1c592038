//! The snapshot that a change adds to `main`, and the metadata files that attempts wrote for it.

use std::collections::HashSet;

use iceberg::spec::{FormatVersion, ManifestFile, Operation, Summary};

use super::CommitContext;
use super::engine::{Fate, Request};
use crate::action::Action;
use crate::catalog::TableHandle;
use crate::clock::{Clock, snapshot_id};
use crate::error::Result;
use crate::meta::{SnapshotIdentity, SnapshotWriter, SummaryBuilder, head_requirements, head_updates, new_snapshot};
use crate::run_id::{SUMMARY_ACTION, SUMMARY_RUN_ID};
use crate::storage::delete_files::{Proof, delete_files};
use crate::table::{LoadedTable, Metadata};

/// By what a request to add the snapshot is judged: its sequence number, and where it required `main` to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotMark {
    parent: Option<i64>,
    sequence_number: i64,
}

/// What an attempt refers to among the files written here.
#[derive(Debug)]
struct Written {
    list: String,
    manifests: HashSet<String>,
    removed_delete_files: usize,
}

/// What the snapshot of one attempt holds.
pub(super) struct SnapshotContent<'a> {
    pub(super) operation: Operation,
    pub(super) summary: SummaryBuilder,
    /// Manifests written here.
    pub(super) own: Vec<ManifestFile>,
    /// Manifests that stay as they are.
    pub(super) carried: &'a [ManifestFile],
    /// How many manifests of the head are in neither.
    pub(super) replaced: usize,
    pub(super) removed_delete_files: usize,
}

pub(super) struct OwnSnapshot<'a> {
    /// The same for all attempts: at most one can be in the table, and it is found by this.
    pub(super) id: i64,
    action: Action,
    ctx: &'a CommitContext,
    clock: &'a dyn Clock,
    attempts: Vec<Written>,
    written: Vec<String>,
}

impl<'a> OwnSnapshot<'a> {
    pub(super) fn new(action: Action, ctx: &'a CommitContext, clock: &'a dyn Clock) -> Self {
        Self { id: snapshot_id(clock.uuid()), action, ctx, clock, attempts: Vec::new(), written: Vec::new() }
    }

    pub(super) fn identity(&self, metadata: &Metadata) -> SnapshotIdentity {
        SnapshotIdentity {
            snapshot_id: self.id,
            commit_uuid: self.clock.uuid(),
            token: self.ctx.run_id.table_token(metadata.uuid()),
        }
    }

    /// Files that a writer wrote or began. They are remembered also if the attempt failed.
    pub(super) fn remember(&mut self, writer: &SnapshotWriter<'_>) {
        self.written.extend_from_slice(writer.written());
    }

    /// Writes the manifest list. The request adds the snapshot on top of the head.
    pub(super) async fn request(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        loaded: &LoadedTable,
        attempt: u32,
        content: SnapshotContent<'_>,
    ) -> Result<Request<SnapshotMark>> {
        let parent = loaded.current_snapshot();
        let manifests = content.own.iter().chain(content.carried).cloned().collect();
        let list = writer.write_list(attempt, parent.map(|s| s.snapshot_id()), manifests).await?;
        let mut properties = content.summary.build(parent.map(|s| s.summary()));
        let own = [
            ("manifests-created", content.own.len().to_string()),
            ("manifests-kept", content.carried.len().to_string()),
            ("manifests-replaced", content.replaced.to_string()),
            ("engine-name", "icewright".to_owned()),
            ("engine-version", env!("CARGO_PKG_VERSION").to_owned()),
            (SUMMARY_RUN_ID, self.ctx.run_id.to_string()),
            (SUMMARY_ACTION, self.action.to_string()),
        ];
        properties.extend(own.into_iter().chain(self.ctx.summary.clone()).map(|(k, v)| (k.to_owned(), v)));
        self.attempts.push(Written {
            list: list.clone(),
            manifests: content.own.into_iter().map(|m| m.manifest_path).collect(),
            removed_delete_files: content.removed_delete_files,
        });
        let summary = Summary { operation: content.operation, additional_properties: properties };
        let snapshot = new_snapshot(loaded, self.id, list, summary, self.clock.now_ms());
        let mark =
            SnapshotMark { parent: parent.map(|s| s.snapshot_id()), sequence_number: snapshot.sequence_number() };
        Ok(Request { requirements: head_requirements(loaded), updates: head_updates(loaded, snapshot), mark })
    }

    /// Whether the table has the snapshot, also if it has been expired since.
    pub(super) fn is_in(&self, metadata: &Metadata) -> bool {
        metadata.snapshot_by_id(self.id).is_some() || metadata.history().iter().any(|log| log.snapshot_id == self.id)
    }

    /// The fate of a request to add it.
    ///
    /// A head that merely moved is no proof: it may be rolled back to the parent, and then the requirement holds again. Another
    /// snapshot with the request's sequence number is: numbers only grow and none is given twice, so the request neither was nor
    /// will be applied. If the number is used up but no snapshot has it, the one that had it has expired, and that may have been
    /// this one. Version 1 has no numbers.
    pub(super) fn fate(&self, metadata: &Metadata, mark: SnapshotMark) -> Fate {
        if self.is_in(metadata) {
            return Fate::Applied;
        }
        let moved = metadata.current_snapshot_id() != mark.parent;
        let numbered = metadata.format_version() != FormatVersion::V1;
        let taken = numbered && metadata.snapshots().any(|s| s.sequence_number() == mark.sequence_number);
        if moved && taken { Fate::Lost } else { Fate::Open }
    }

    /// The attempt that is in the table, if the snapshot itself tells.
    fn winner(&self, metadata: &Metadata) -> Option<&Written> {
        let snapshot = metadata.snapshot_by_id(self.id)?;
        self.attempts.iter().find(|attempt| attempt.list == snapshot.manifest_list())
    }

    /// Delete files that left with it.
    pub(super) fn removed_delete_files(&self, metadata: &Metadata) -> usize {
        self.winner(metadata).or(self.attempts.last()).map_or(0, |attempt| attempt.removed_delete_files)
    }

    /// Deletes the files of attempts that lost against the one in the table. Without the snapshot itself it cannot be told which
    /// files it uses: then all stay.
    pub(super) async fn delete_losers(&self, table: &TableHandle) {
        if let Some(winner) = self.winner(&table.loaded.metadata) {
            self.delete(table, |path| winner.list == path || winner.manifests.contains(path)).await;
        }
    }

    /// Deletes all files written here: the snapshot is not in the table and cannot come any more.
    pub(super) async fn delete_all(&self, table: &TableHandle) {
        self.delete(table, |_| false).await;
    }

    async fn delete(&self, table: &TableHandle, is_used: impl Fn(&str) -> bool) {
        let garbage: Vec<_> = self.written.iter().filter(|path| !is_used(path)).cloned().collect();
        let report = delete_files(table.store.as_ref(), &garbage, Proof::OwnUncommittedOutput(self.ctx.run_id)).await;
        for (path, error) in report.failed {
            tracing::warn!(%path, %error, "metadata file of a lost attempt could not be deleted");
        }
    }
}
