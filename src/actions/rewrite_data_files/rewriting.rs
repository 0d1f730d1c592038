//! A compaction under way.
//!
//! ```text
//! groups --(at most max-concurrent-file-group-rewrites)--> results --(batches)--> commits, one at a time
//! ```
//! A group that cannot be rewritten is left out, and the others are committed: each of them leaves the table's rows as they
//! were, so no reader can tell. Outputs are deleted only if their commit was never sent, or can provably not be in the table,
//! now or later. An unknown commit ends the run.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::{NO_GROUP, RewriteReport};
use crate::action::{Outcome, Phase};
use crate::actions::env::Env;
use crate::actions::run_time;
use crate::actions::subject::Subject;
use crate::catalog::TableHandle;
use crate::clock::Stopwatch;
use crate::commit::{
    CommitContext, CommitResult, Committed, RunLimit, StartSnapshot, commit_dangling_deletes, commit_rewrite,
};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{FileGroup, RewritePlan};
use crate::policy::TablePolicy;
use crate::rewrite::{Progress, RewriteContext, RewriteResult, rewrite_file_group};
use crate::run_id::{RunId, SUMMARY_PLANNED_SNAPSHOT, SUMMARY_RUN_COMPLETE};
use crate::storage::delete_files::{Proof, delete_files};
use crate::telemetry::{self, phase_span};

/// Rewrites a group, and lets the span around tell how that ended.
async fn rewrite_traced(context: &RewriteContext, group: &FileGroup) -> Result<RewriteResult> {
    let result = rewrite_file_group(context, group).await;
    let outcome = result.as_ref().map_or_else(|error| Outcome::of(error.kind()), |_| Outcome::Success);
    let of = |count: fn(&RewriteResult) -> u64| result.as_ref().map_or(0, count);
    let counts = [
        ("rewritten_data_files", of(|r| r.rewritten.len() as u64)),
        ("rewritten_bytes", of(|r| r.input_bytes)),
        ("added_data_files", of(|r| r.added.len() as u64)),
        ("added_bytes", of(|r| r.output_bytes)),
    ];
    telemetry::ended(&Span::current(), outcome.as_str(), outcome.is_failure(), &counts);
    result
}

/// A compaction under way.
pub(super) struct Rewriting<'a> {
    env: &'a Env,
    table: TableHandle,
    policy: &'a TablePolicy,
    run_id: RunId,
    start: StartSnapshot,
    progress: Arc<Progress>,
    /// Stops the groups: cancelled with the process, or when the run is given up.
    cancel: CancellationToken,
    limit: RunLimit,
    /// Whether no further commit is to be tried.
    given_up: bool,
    /// Results waiting for the next commit.
    batch: Vec<RewriteResult>,
    groups_per_commit: usize,
    failed_commits: usize,
    /// Groups that go on during a commit are not waited for, so that time counts as the commit's.
    stopwatch: Stopwatch,
    report: RewriteReport,
}

impl<'a> Rewriting<'a> {
    pub(super) fn new(
        env: &'a Env,
        subject: &'a Subject,
        run_id: RunId,
        start: StartSnapshot,
        plan: &RewritePlan,
        progress: Arc<Progress>,
        stopwatch: Stopwatch,
    ) -> Self {
        let policy = &subject.resolved.policy;
        let total = plan.groups.len();
        let partial = policy.rewrite_data_files.partial_progress;
        let groups_per_commit = if partial.enabled { total.div_ceil(partial.max_commits.max(1)) } else { total };
        let report = RewriteReport {
            considered_data_files: plan.considered_data_files,
            planned_groups: total,
            skipped: plan.skipped.clone(),
            ..RewriteReport::default()
        };
        Self {
            env,
            table: subject.table.clone(),
            policy,
            run_id,
            start,
            progress,
            cancel: env.cancel.child_token(),
            limit: run_time::run_limit(env.clock.as_ref(), run_id, env.run_timeout),
            given_up: false,
            batch: Vec::new(),
            groups_per_commit: groups_per_commit.max(1),
            failed_commits: 0,
            stopwatch,
            report,
        }
    }

    /// Rewrites the groups; without any it takes out delete files that apply to nothing.
    pub(super) async fn carry_out(mut self, groups: Vec<FileGroup>) -> (RewriteReport, Stopwatch) {
        if groups.is_empty() {
            self.remove_dangling_deletes().await;
        } else {
            self.execute(groups).await;
            self.stopwatch.end(Phase::Rewrite);
        }
        (self.report, self.stopwatch)
    }

    async fn execute(&mut self, groups: Vec<FileGroup>) {
        let concurrency = self.policy.rewrite_data_files.max_concurrent_file_group_rewrites.max(1);
        let context = Arc::new(RewriteContext {
            store: self.table.store.clone(),
            loaded: self.table.loaded.clone(),
            run_id: self.run_id,
            memory: self.env.memory.clone(),
            cancel: self.cancel.clone(),
            // Groups share the cores: each asks for the memory of its share only.
            threads: self.env.threads.div_ceil(concurrency.min(groups.len()).max(1)),
            progress: self.progress.clone(),
        });
        self.progress.enter(Phase::Rewrite);
        let mut waiting = groups.into_iter();
        let mut running = JoinSet::new();
        loop {
            while running.len() < concurrency && !self.cancel.is_cancelled() {
                let Some(group) = waiting.next() else { break };
                let context = context.clone();
                let span = phase_span!("file-group", group = group.index);
                running.spawn(async move { rewrite_traced(&context, &group).await }.instrument(span));
            }
            let Some(joined) = running.join_next().await else { break };
            let result = joined.unwrap_or_else(|e| Err(Error::internal(format!("file group panicked: {e}"))));
            self.progress.finish_group();
            self.finish_group(result).await;
        }
        self.report.abandoned_groups += waiting.len();
        self.close().await;
        self.report.conclude();
    }

    async fn finish_group(&mut self, result: Result<RewriteResult>) {
        match result {
            Ok(result) => {
                self.batch.push(result);
                let enough = self.batch.len() >= self.groups_per_commit;
                if enough && self.partial() && !self.cancel.is_cancelled() {
                    self.commit_batch().await;
                }
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => self.report.abandoned_groups += 1,
            Err(error) => {
                tracing::warn!(table = %self.table.name(), %error, "file group failed");
                self.report.note(&error);
                self.report.failed_groups += 1;
            }
        }
    }

    /// Stops the groups; nothing more is committed.
    fn give_up(&mut self) {
        self.given_up = true;
        self.cancel.cancel();
    }

    fn partial(&self) -> bool {
        self.policy.rewrite_data_files.partial_progress.enabled
    }

    /// Commits what is left, or gives it up if the run ended early.
    async fn close(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        // With partial progress finished groups are worth committing even when the process is told to stop.
        if self.given_up || (self.cancel.is_cancelled() && !self.partial()) {
            let batch = std::mem::take(&mut self.batch);
            self.report.abandoned_groups += batch.len();
            self.discard(&batch).await;
            return;
        }
        self.commit_batch().await;
    }

    async fn commit_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let start = self.start;
        let complete = self.report.committed_groups + batch.len() == self.report.planned_groups;
        let context = self.commit_context(complete);
        self.stopwatch.end(Phase::Rewrite);
        self.progress.enter(Phase::Commit);
        let committing = commit_rewrite(&self.table, &start, &batch, &context, self.env.clock.as_ref());
        let result = committing.instrument(phase_span!("commit")).await;
        self.progress.enter(Phase::Rewrite);
        self.stopwatch.end(Phase::Commit);
        match result {
            CommitResult::Committed(done) => {
                self.count_committed(&batch);
                self.take_over(*done);
            }
            CommitResult::NotCommitted(error) => {
                tracing::warn!(table = %self.table.name(), %error, "commit refused; its new files are deleted");
                self.count_refused(&batch, &error);
                self.discard(&batch).await;
            }
            CommitResult::Denied(error) => {
                tracing::warn!(table = %self.table.name(), %error, "commit refused; its new files stay until the run counts as over");
                self.count_refused(&batch, &error);
            }
            CommitResult::Unknown(error) => {
                tracing::error!(table = %self.table.name(), %error, "commit outcome unknown; nothing is deleted");
                self.report.note(&error);
                self.report.unknown_commits += 1;
                self.report.unsettled_commits += 1;
                self.report.failed_groups += batch.len();
                self.give_up();
            }
        }
    }

    /// After too many refusals nothing more is committed.
    fn count_refused(&mut self, batch: &[RewriteResult], error: &Error) {
        self.report.note(error);
        if error.kind() == ErrorKind::Conflict {
            self.report.conflicts += 1;
            self.report.conflicted_groups += batch.len();
        } else {
            self.report.failed_groups += batch.len();
        }
        self.failed_commits += 1;
        let allowed = self.policy.rewrite_data_files.partial_progress;
        if self.failed_commits > allowed.max_failed_commits.unwrap_or(allowed.max_commits) {
            self.give_up();
        }
    }

    /// Takes delete files that apply to nothing out of the table, though there is no group to rewrite: readers open them
    /// each time.
    async fn remove_dangling_deletes(&mut self) {
        if self.cancel.is_cancelled() {
            self.report.outcome = Outcome::Cancelled;
            return;
        }
        self.progress.enter(Phase::Commit);
        let context = self.commit_context(true);
        let committing = commit_dangling_deletes(&self.table, &self.start, &context, self.env.clock.as_ref());
        let result = committing.instrument(phase_span!("commit")).await;
        self.stopwatch.end(Phase::Commit);
        let error = match result {
            CommitResult::Committed(done) if done.snapshot_id.is_none() && done.removed_delete_files == 0 => {
                self.report.reason = Some(NO_GROUP.into());
                return;
            }
            CommitResult::Committed(done) => {
                self.take_over(*done);
                self.report.commits += 1;
                self.report.outcome = Outcome::Success;
                return;
            }
            CommitResult::NotCommitted(error) | CommitResult::Denied(error) => {
                self.report.conflicts += u32::from(error.kind() == ErrorKind::Conflict);
                error
            }
            CommitResult::Unknown(error) => {
                self.report.unknown_commits += 1;
                self.report.unsettled_commits += 1;
                error
            }
        };
        tracing::warn!(table = %self.table.name(), %error, "delete files that apply to nothing could not be removed");
        self.report.note(&error);
        self.report.outcome = Outcome::of(error.kind());
        self.report.reason = Some(error.to_string());
    }

    fn commit_context(&self, complete: bool) -> CommitContext {
        let summary = vec![
            (SUMMARY_RUN_COMPLETE, complete.to_string()),
            (SUMMARY_PLANNED_SNAPSHOT, self.start.snapshot_id.to_string()),
        ];
        let limit = Some(run_time::commit_limit(self.env.run_timeout, Some(self.limit)));
        CommitContext { summary, limit, ..CommitContext::of_table(self.run_id, &self.table.loaded.metadata) }
    }

    /// Goes on from the table as it is after a commit.
    fn take_over(&mut self, done: Committed) {
        self.report.conflicts += done.conflicts;
        self.report.unknown_commits += done.unknown_outcomes;
        self.report.removed_delete_files += done.removed_delete_files;
        let metadata = &done.table.loaded.metadata;
        let made = done.snapshot_id.and_then(|id| metadata.snapshot_by_id(id)).or(metadata.current_snapshot());
        self.report.last_commit_ms = made.map(|s| s.timestamp_ms());
        self.table = done.table;
    }

    fn count_committed(&mut self, batch: &[RewriteResult]) {
        self.report.commits += 1;
        self.report.committed_groups += batch.len();
        for result in batch {
            self.report.rewritten_data_files += result.rewritten.len();
            self.report.added_data_files += result.added.len();
            self.report.rewritten_bytes += result.input_bytes;
            self.report.added_bytes += result.output_bytes;
            self.report.input_rows += result.input_rows;
            self.report.deleted_rows += result.deleted_rows;
            self.report.output_rows += result.output_rows;
        }
    }

    /// Deletes outputs that are in no snapshot and will be in none.
    async fn discard(&self, batch: &[RewriteResult]) {
        let paths: Vec<String> = batch.iter().flat_map(|r| &r.added).map(|file| file.file_path().to_owned()).collect();
        let report = delete_files(self.table.store.as_ref(), &paths, Proof::OwnUncommittedOutput(self.run_id)).await;
        if let Some((path, error)) = report.failed.first() {
            tracing::warn!(failed = report.failed.len(), %path, %error, "left behind for orphan removal");
        }
    }
}
