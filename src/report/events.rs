//! Every occurrence has one function here, which drives its log line, its metrics, what the API shows and, in the sandbox, its line on the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::clean::{ExpireReport, OrphanReport};
use crate::cli::print;
use crate::config::Loaded;
use crate::error::Error;
use crate::plan::RewritePlan;
use crate::policy::TableName;
use crate::report::Action;
use crate::report::board::view::{self, Doing, Next, QueueStatus, RunEntry};
use crate::report::board::{Board, Look};
use crate::report::metrics::{self, Backoff, Metrics, RunCounts, RunRecord};
use crate::report::run_report::{RewriteReport, outcome_of};
use crate::rewrite::Progress;
use crate::schedule::control::Pause;
use crate::schedule::due::{NextStep, Step};
use crate::schedule::plan_table::{ActionPlan, TablePlan, nothing_to_rewrite, outline};
use crate::schedule::run_table::{CleanUpReport, Run, StepDone, StepReport};
use crate::schedule::scheduler::Queue;
use crate::server::{Liveness, Readiness};

/// Tells the world what happens.
pub struct Reporter {
    metrics: Arc<Metrics>,
    board: Arc<Board>,
    readiness: Arc<Readiness>,
    liveness: Arc<Liveness>,
    echo: bool,
    maintained: Mutex<BTreeSet<TableName>>,
}

impl Reporter {
    /// Tells metrics, board and health, and, if `echo` is set, people who watch: a line on standard output for each step.
    pub fn new(
        metrics: Arc<Metrics>,
        board: Arc<Board>,
        readiness: Arc<Readiness>,
        liveness: Arc<Liveness>,
        echo: bool,
    ) -> Self {
        Self { metrics, board, readiness, liveness, echo, maintained: Mutex::default() }
    }

    /// The tables that were found and are not gone.
    pub fn maintained(&self) -> BTreeSet<TableName> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<TableName>> {
        // A set is whole after any panic.
        self.maintained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn echo(&self, name: &TableName, line: &str) {
        if self.echo {
            print::out(&format!("{name}: {line}\n"));
        }
    }

    /// The daemon is up.
    pub fn started(&self, listen: &str, loaded: &Loaded, now_ms: i64) {
        self.readiness.config_loaded();
        self.metrics.record_config_load(now_ms, Some(loaded.warnings.len()));
        let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
        self.board.config_loaded(now_ms, loaded.config.catalogs.keys(), warnings);
        let (catalogs, policies) = (loaded.config.catalogs.len(), loaded.config.policies.policies.len());
        tracing::info!(listen, catalogs, policies, version = env!("CARGO_PKG_VERSION"), "started");
    }

    /// The daemon was told to stop.
    pub fn stopping(&self, grace: Duration) {
        self.readiness.stopping();
        tracing::info!(grace_seconds = grace.as_secs(), "stopping: no new steps, running ones come to an end");
    }

    /// The scheduler went round.
    pub fn heartbeat(&self, now_ms: i64) {
        self.liveness.tick(now_ms);
    }

    /// A catalog answered.
    pub fn catalog_reached(&self, catalog: &str) {
        self.readiness.catalog_reached(catalog);
        self.board.catalog_asked(catalog, None);
    }

    /// A table was looked at. Numbers of one that is gone meanwhile would bring its series back.
    pub fn looked(&self, name: &TableName, look: Look<'_>, now_ms: i64) {
        let maintained = self.lock();
        if maintained.contains(name) {
            self.metrics.record_stats(name, look.stats);
        }
        self.board.looked(name, look, now_ms);
    }

    /// A table's numbers could not be collected.
    pub fn collection_failed(&self, name: &TableName, error: &Error) {
        tracing::warn!(table = %name, %error, "numbers not collected");
        self.board.unreadable(name, error.to_string());
    }

    /// A compaction was planned.
    pub fn rewrite_planned(&self, name: &TableName, plan: &RewritePlan, now_ms: i64) {
        let outline = if plan.groups.is_empty() {
            ActionPlan::Nothing(nothing_to_rewrite(plan))
        } else {
            ActionPlan::Would(outline(plan))
        };
        self.board.planned(name, &BTreeMap::from([(Action::RewriteDataFiles, outline)]), now_ms);
    }

    /// Everything was planned for a table, since somebody asked.
    pub fn table_planned(&self, name: &TableName, plan: &TablePlan, now_ms: i64) {
        self.board.planned(name, plan, now_ms);
    }

    /// A table is maintained from now on.
    pub fn table_found(&self, name: &TableName) {
        tracing::info!(table = %name, "maintained from now on");
        self.lock().insert(name.clone());
        self.board.table_found(name);
        self.metrics.register_table(name);
    }

    /// A table left the catalog or the policies.
    pub fn table_gone(&self, name: &TableName) {
        tracing::info!(table = %name, "no longer maintained");
        let mut maintained = self.lock();
        maintained.remove(name);
        self.board.table_gone(name);
        self.metrics.forget_table(name);
    }

    /// A table waits for its next step; `failures` steps in a row have failed before.
    pub fn table_waits(&self, name: &TableName, next: &NextStep, failures: u32, quarantined: bool) {
        tracing::debug!(table = %name, step = next.step.as_str(), at_ms = next.at_ms, why = next.why, "waits");
        let (step, doing) = match next.step {
            Step::RewriteDataFiles => (metrics::Step::Idle, Doing::Idle),
            Step::CleanUp => (metrics::Step::Delay, Doing::Delay),
        };
        let shown = Next { step: next.step.as_str(), at_ms: next.at_ms, why: next.why };
        self.board.table_waits(name, doing, shown, failures, quarantined);
        self.metrics.set_step(name, step);
        let until_ms = (failures > 0).then_some(next.at_ms);
        self.metrics.set_backoff(name, Backoff { consecutive_failures: failures, until_ms, quarantined });
    }

    /// An operator stopped the table; what runs comes to its end.
    pub fn table_paused(&self, name: &TableName, pause: &Pause) {
        tracing::info!(table = %name, reason = pause.reason, "paused: no step begins until it is resumed");
        self.board.paused(Some(name), Some(pause.into()));
    }

    /// An operator let the table go on.
    pub fn table_resumed(&self, name: &TableName) {
        tracing::info!(table = %name, "resumed");
        self.board.paused(Some(name), None);
    }

    /// An operator stopped everything; what runs comes to its end.
    pub fn daemon_paused(&self, pause: &Pause) {
        tracing::info!(reason = pause.reason, "paused: no step of any table begins until it is resumed");
        self.board.paused(None, Some(pause.into()));
    }

    /// An operator let everything go on.
    pub fn daemon_resumed(&self) {
        tracing::info!("resumed");
        self.board.paused(None, None);
    }

    /// An operator wants a table compacted now.
    pub fn run_asked_for(&self, name: &TableName) {
        tracing::info!(table = %name, "compaction asked for");
    }

    /// How many tables run and wait has changed.
    pub fn queue(&self, queue: Queue) {
        let Queue { running, queued, limit, oldest_queued_s } = queue;
        tracing::trace!(running, queued, limit, oldest_queued_s, "queue");
        self.board.queue(QueueStatus { running, queued, limit });
    }

    /// A step begins.
    pub fn step_started(&self, name: &TableName, run: Run, step: Step) {
        tracing::info!(table = %name, run_id = %run.run_id, step = step.as_str(), "step started");
        self.action_started(name, first_action(step));
    }

    /// A compaction begins, whose progress can be looked at.
    pub fn rewriting(&self, name: &TableName, progress: Arc<Progress>, now_ms: i64) {
        self.board.rewriting(name, progress, now_ms);
    }

    /// An action begins.
    pub fn action_started(&self, name: &TableName, action: Action) {
        self.metrics.set_step(name, metrics::Step::Running(action));
        self.board.table_works(name, action.into());
    }

    /// A table told of a success before this process began.
    pub fn known_success(&self, name: &TableName, action: Action, finished_ms: i64) {
        self.metrics.set_last_success(name, action, finished_ms);
    }

    /// A step ended; its report says how.
    pub fn step_done(&self, name: &TableName, run: Run, done: &StepDone, finished_ms: i64) {
        let (step, outcome) = (done.report.step().as_str(), done.report.outcome());
        let (run_id, failed) = (run.run_id, outcome.is_failure());
        let outcome = outcome.as_str();
        let report = serde_json::to_string(&done.report).unwrap_or_default();
        if failed {
            tracing::warn!(table = %name, %run_id, step, outcome, %report, "step ended");
        } else {
            tracing::info!(table = %name, %run_id, step, outcome, %report, "step ended");
        }
        match &done.report {
            StepReport::RewriteDataFiles(report) => {
                self.ran(name, run, rewrite_record(report, finished_ms), report.reason.clone(), Some(report));
            }
            StepReport::CleanUp(report) => self.clean_up_done(name, run, report, finished_ms),
        }
        self.echo(name, &print::step_summary(&done.report));
    }

    /// Takes in one action of a run.
    fn ran<R: Serialize>(
        &self,
        name: &TableName,
        run: Run,
        record: RunRecord,
        why: Option<String>,
        report: Option<&R>,
    ) {
        self.metrics.record_run(name, &record);
        let duration_ms = i64::try_from(record.duration.as_millis()).unwrap_or(i64::MAX);
        let entry = RunEntry {
            run_id: run.run_id.to_string(),
            action: record.action,
            outcome: record.outcome,
            started_at_ms: record.finished_ms.saturating_sub(duration_ms),
            finished_at_ms: record.finished_ms,
            duration_ms,
            reason: why,
            counts: record.counts,
            report: report.and_then(|report| serde_json::value::to_raw_value(report).ok()),
        };
        self.board.ran(name, entry);
    }

    fn clean_up_done(&self, name: &TableName, run: Run, report: &CleanUpReport, finished_ms: i64) {
        let record = |action, outcome, duration, counts| RunRecord { action, outcome, duration, finished_ms, counts };
        let not_begun =
            |action: Action| report.errors.get(action.as_str()).or(report.skipped.get(action.as_str())).cloned();
        let (action, expire) = (Action::ExpireSnapshots, report.expire_snapshots.as_ref());
        let counts = expire.map(expire_counts).unwrap_or_default();
        let why = expire.and_then(|r| r.error.as_ref()).map(ToString::to_string).or_else(|| not_begun(action));
        let expired = record(action, report.expire_outcome(), report.expire_duration, counts);
        self.ran(name, run, expired, why, expire);
        let (action, orphans) = (Action::RemoveOrphanFiles, report.remove_orphan_files.as_ref());
        let removed = orphans.map(orphan_counts).unwrap_or_default();
        let refused = orphans.and_then(|r| r.refused.as_ref()).map(|refused| refused.detail.clone());
        let why = orphans.and_then(|r| r.error.as_ref()).map(ToString::to_string).or(refused);
        let orphaned = record(action, report.orphan_outcome(), report.orphan_duration, removed);
        self.ran(name, run, orphaned, why.or_else(|| not_begun(action)), orphans);
        if let Some(found) = report.remove_orphan_files.as_ref().filter(|r| r.error.is_none() && r.refused.is_none()) {
            let left = |all: u64, deleted: u64| all.saturating_sub(deleted);
            let files = left(found.orphans.files, removed.deleted_files);
            self.metrics.record_orphans(name, files, left(found.orphans.bytes, removed.deleted_bytes));
        }
    }

    /// A step could not be done at all.
    pub fn step_failed(&self, name: &TableName, run: Run, step: Step, error: &Error, finished_ms: i64) {
        let (kind, outcome, step_name) = (error.kind().as_str(), outcome_of(error.kind()), step.as_str());
        if outcome.is_failure() {
            tracing::warn!(table = %name, run_id = %run.run_id, step = step_name, kind, %error, "step failed; it is tried again later");
        } else {
            tracing::info!(table = %name, run_id = %run.run_id, step = step_name, kind, %error, "step not possible; it is tried again later");
        }
        let (action, duration, counts) = (first_action(step), Duration::ZERO, RunCounts::default());
        let record = RunRecord { action, outcome, duration, finished_ms, counts };
        self.ran(name, run, record, Some(error.to_string()), None::<&()>);
        self.echo(name, &format!("{step_name} {}: {error}", outcome.as_str()));
    }

    /// A catalog could not be asked for its tables.
    pub fn catalog_failed(&self, catalog: &str, error: &Error) {
        tracing::warn!(catalog, %error, "the catalog's tables could not be listed; known tables go on");
        self.readiness.catalog_failed(catalog, &error.to_string());
        self.board.catalog_asked(catalog, Some(error.to_string()));
    }
}

impl From<&Pause> for view::Pause {
    fn from(pause: &Pause) -> Self {
        Self { reason: pause.reason.clone(), since_ms: pause.since_ms }
    }
}

fn first_action(step: Step) -> Action {
    match step {
        Step::RewriteDataFiles => Action::RewriteDataFiles,
        Step::CleanUp => Action::ExpireSnapshots,
    }
}

fn rewrite_record(report: &RewriteReport, finished_ms: i64) -> RunRecord {
    RunRecord {
        action: Action::RewriteDataFiles,
        outcome: report.outcome,
        duration: Duration::from_millis(report.duration_ms.max(0).unsigned_abs()),
        finished_ms,
        counts: RunCounts {
            rewritten_data_files: report.rewritten_data_files as u64,
            rewritten_bytes: report.rewritten_bytes,
            added_data_files: report.added_data_files as u64,
            added_bytes: report.added_bytes,
            removed_delete_files: report.removed_delete_files as u64,
            commit_conflicts: u64::from(report.conflicts),
            commit_unknown: u64::from(report.unknown_commits),
            ..RunCounts::default()
        },
    }
}

fn expire_counts(report: &ExpireReport) -> RunCounts {
    let deleted = print::total(&report.deleted);
    RunCounts {
        expired_snapshots: report.expired_snapshots as u64,
        deleted_files: deleted.files,
        deleted_bytes: deleted.bytes,
        commit_conflicts: u64::from(report.conflicts),
        commit_unknown: u64::from(report.unknown_outcomes),
        ..RunCounts::default()
    }
}

fn orphan_counts(report: &OrphanReport) -> RunCounts {
    let deleted = print::total(&report.deleted);
    RunCounts { deleted_files: deleted.files, deleted_bytes: deleted.bytes, ..RunCounts::default() }
}
