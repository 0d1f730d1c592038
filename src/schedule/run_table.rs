//! The story of one run of one table, a step at a time. Steps never overlap for a table; the wait between them belongs to the caller.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::clean::{ExpireReport, OrphanReport, expire_snapshots, remove_orphan_files};
use crate::commit::CommitContext;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::expire_snapshots::plan_expire_snapshots;
use crate::policy::{ResolvedPolicy, commit_interval};
use crate::report::Outcome;
use crate::report::run_report::{RewriteReport, outcome_of};
use crate::rewrite::Progress;
use crate::run_id::RunId;
use crate::schedule::due::{self, NextStep, Step};
use crate::schedule::env::Env;
use crate::schedule::fleet::{Fleet, TableName};
use crate::schedule::rewrite_data_files::rewrite_data_files;
use crate::table::TableHandle;
use crate::table::history::last_own_run;

/// A run from its first step to its last.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Identity.
    pub run_id: RunId,
}

impl Run {
    /// A new run, starting now.
    pub fn start(env: &Env) -> Self {
        Self { run_id: RunId(env.clock.uuid()) }
    }
}

/// What a step did.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum StepReport {
    /// Compaction.
    RewriteDataFiles(RewriteReport),
    /// The two clean-ups.
    CleanUp(CleanUpReport),
}

/// What the two clean-ups did; `Err` texts say why one could not begin.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CleanUpReport {
    /// Snapshot expiry.
    pub expire_snapshots: Option<ExpireReport>,
    /// Orphan removal.
    pub remove_orphan_files: Option<OrphanReport>,
    /// Why an action was not done, by action.
    pub skipped: Vec<(String, String)>,
    /// What failed, by action.
    pub errors: Vec<(String, String)>,
}

impl StepReport {
    /// The step's outcome as a whole.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::RewriteDataFiles(report) => report.outcome,
            Self::CleanUp(report) if report.failed() => Outcome::Failed,
            Self::CleanUp(_) => Outcome::Success,
        }
    }
}

/// A step's report, and what the table waits for after it.
#[derive(Debug)]
pub struct StepDone {
    /// What happened.
    pub report: StepReport,
    /// What comes next.
    pub next: NextStep,
}

/// The table with the policy that applies to it, at the time of the step.
pub struct Subject {
    /// The table.
    pub table: TableHandle,
    /// Its policy.
    pub resolved: ResolvedPolicy,
    /// Its commit interval, configured or inferred.
    pub commit_interval: Duration,
}

impl Subject {
    /// Loads the table. [`ErrorKind::NotFound`] if it is gone.
    pub async fn load(fleet: &Fleet, name: &TableName) -> Result<Self> {
        let resolved = fleet
            .policy(name)
            .ok_or_else(|| Error::new(ErrorKind::Config, format!("no policy matches {name}")))?;
        let table = fleet.open(name).await?;
        let commit_interval = commit_interval(&table.loaded, &resolved.policy);
        Ok(Self { table, resolved, commit_interval })
    }

    /// The wait between compaction and the clean-ups.
    pub fn delay(&self) -> Duration {
        self.resolved.policy.delay.resolve(self.commit_interval)
    }

    /// What this table waits for, found out from the table itself.
    pub fn first_step(&self, now_ms: i64) -> Result<NextStep> {
        due::first_step(last_own_run(&self.table.loaded).as_ref(), &self.resolved.policy, self.delay(), now_ms)
    }
}

/// Compacts, and says when the clean-ups are due.
pub async fn rewrite_step(env: &Env, subject: &Subject, run: Run, progress: Arc<Progress>) -> StepDone {
    let _active = env.active.enter(run.run_id);
    let limited = Env { cancel: env.cancel.child_token(), ..env.clone() };
    let rewriting =
        rewrite_data_files(&limited, &subject.table, &subject.resolved.policy, subject.commit_interval, run.run_id, progress);
    tokio::pin!(rewriting);
    let mut report = tokio::select! {
        report = &mut rewriting => report,
        () = tokio::time::sleep(env.run_timeout) => {
            limited.cancel.cancel();
            let mut report = rewriting.await;
            report.reason = Some(format!("given up after the run timeout of {} s", env.run_timeout.as_secs()));
            report
        }
    };
    let now = env.clock.now_ms();
    let last_commit = report.last_commit_ms.or_else(|| last_own_run(&subject.table.loaded).map(|own| own.committed_ms));
    let next = match report.outcome {
        // Nothing may be deleted while a commit is in the open; the next look at the table settles it.
        Outcome::Unknown => due::after_failure(Step::RewriteDataFiles, 1, now),
        Outcome::Success
        | Outcome::Skipped
        | Outcome::Conflict
        | Outcome::Failed
        | Outcome::Cancelled => due::after_rewrite(last_commit, subject.delay(), now),
    };
    report.skipped.shrink_to_fit();
    StepDone { report: StepReport::RewriteDataFiles(report), next }
}

/// Expires snapshots, then removes orphans, and says when the next compaction is due.
pub async fn clean_up_step(env: &Env, fleet: &Fleet, name: &TableName, subject: Subject, run: Run) -> Result<StepDone> {
    let _active = env.active.enter(run.run_id);
    let mut report = CleanUpReport::default();
    let table = expire(env, &subject, run, &mut report).await;
    if env.cancel.is_cancelled() {
        report.skipped.push(("remove-orphan-files".into(), "the process is stopping".into()));
    } else {
        orphans(env, fleet, name, &subject, &table, &mut report).await;
    }
    let now = env.clock.now_ms();
    let next = due::after_clean_up(run.run_id.started_ms(), &subject.resolved.policy, now)?;
    Ok(StepDone { report: StepReport::CleanUp(report), next })
}

async fn expire(env: &Env, subject: &Subject, run: Run, report: &mut CleanUpReport) -> TableHandle {
    const ACTION: &str = "expire-snapshots";
    let policy = &subject.resolved.policy;
    if !policy.expire_snapshots.enabled {
        report.skipped.push((ACTION.into(), "disabled by the policy".into()));
        return subject.table.clone();
    }
    let plan = plan_expire_snapshots(&subject.table.loaded, policy, subject.commit_interval, env.clock.now_ms(), &[]);
    match plan {
        Ok(plan) => {
            let context = CommitContext::new(run.run_id);
            let (expired, table) = expire_snapshots(&subject.table, &plan, &context, env.clock.as_ref()).await;
            report.expire_snapshots = Some(expired);
            table
        }
        Err(error) => {
            report.refuse(ACTION, &error);
            subject.table.clone()
        }
    }
}

async fn orphans(
    env: &Env,
    fleet: &Fleet,
    name: &TableName,
    subject: &Subject,
    table: &TableHandle,
    report: &mut CleanUpReport,
) {
    const ACTION: &str = "remove-orphan-files";
    let policy = &subject.resolved.policy;
    if !policy.remove_orphan_files.enabled {
        report.skipped.push((ACTION.into(), "disabled by the policy".into()));
        return;
    }
    let neighbours = match fleet.neighbours(name).await {
        Ok(neighbours) => neighbours,
        Err(error) => {
            report.errors.push((ACTION.into(), error.context("find the locations of the catalog's other tables").to_string()));
            return;
        }
    };
    match remove_orphan_files(table, policy, subject.commit_interval, env, &neighbours).await {
        Ok(removed) => report.remove_orphan_files = Some(removed),
        Err(error) => report.refuse(ACTION, &error),
    }
}

impl CleanUpReport {
    fn refuse(&mut self, action: &str, error: &Error) {
        let entry = (action.to_owned(), error.to_string());
        if outcome_of(error.kind()) == Outcome::Skipped { self.skipped.push(entry) } else { self.errors.push(entry) }
    }

    /// Whether anything failed.
    pub fn failed(&self) -> bool {
        !self.errors.is_empty()
    }
}
