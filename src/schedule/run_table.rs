//! The story of one run of one table, a step at a time. Steps never overlap for a table; the wait between them belongs to the caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::Serialize;

use crate::clean::{
    CANDIDATES_PER_RUN, ExpireOutcome, ExpireReport, OrphanReport, OrphanRequest, expire_snapshots, remove_orphan_files,
};
use crate::commit::CommitContext;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::plan::expire_snapshots::plan_expire_snapshots;
use crate::policy::{ResolvedPolicy, TableName, commit_interval};
use crate::report::run_report::{RewriteReport, outcome_of};
use crate::report::{Action, Outcome};
use crate::rewrite::Progress;
use crate::run_id::RunId;
use crate::schedule::due::{self, NextStep, Step};
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::rewrite_data_files::rewrite_data_files;
use crate::table::TableHandle;
use crate::table::history::last_own_run;

const EXPIRE: &str = Action::ExpireSnapshots.as_str();
const ORPHANS: &str = Action::RemoveOrphanFiles.as_str();
const DISABLED: &str = "disabled by the policy";

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
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum StepReport {
    /// Compaction.
    RewriteDataFiles(RewriteReport),
    /// The two clean-ups.
    CleanUp(Box<CleanUpReport>),
}

/// What the two clean-ups did. An action that is `None` was not begun; `skipped` and `errors` say why.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CleanUpReport {
    /// Snapshot expiry.
    pub expire_snapshots: Option<ExpireReport>,
    /// Orphan removal.
    pub remove_orphan_files: Option<OrphanReport>,
    /// Why an action was not begun although nothing is wrong.
    pub skipped: BTreeMap<&'static str, String>,
    /// Why an action could not begin.
    pub errors: BTreeMap<&'static str, String>,
    /// How long expiry took.
    #[serde(skip)]
    pub expire_duration: Duration,
    /// How long orphan removal took.
    #[serde(skip)]
    pub orphan_duration: Duration,
}

impl StepReport {
    /// Which step it was.
    pub fn step(&self) -> Step {
        match self {
            Self::RewriteDataFiles(_) => Step::RewriteDataFiles,
            Self::CleanUp(_) => Step::CleanUp,
        }
    }

    /// Whether the table contradicts the specification.
    pub fn is_data_invalid(&self) -> bool {
        matches!(self, Self::RewriteDataFiles(report) if report.data_invalid)
    }

    /// The step's outcome as a whole.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::RewriteDataFiles(report) => report.outcome,
            Self::CleanUp(report) => {
                let (expired, removed) = (report.expire_outcome(), report.orphan_outcome());
                if expired.is_failure() || removed == Outcome::Skipped { expired } else { removed }
            }
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
        let resolved =
            fleet.policy(name)?.ok_or_else(|| Error::new(ErrorKind::Config, format!("no policy matches {name}")))?;
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
    let rewriting = rewrite_data_files(
        &limited,
        &subject.table,
        &subject.resolved.policy,
        subject.commit_interval,
        run.run_id,
        progress,
    );
    let mut rewriting = rewriting.boxed();
    let report = tokio::select! {
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
        Outcome::Success | Outcome::Skipped | Outcome::Conflict | Outcome::Failed | Outcome::Cancelled => {
            due::after_rewrite(last_commit, subject.delay(), now)
        }
    };
    StepDone { report: StepReport::RewriteDataFiles(report), next }
}

/// Expires snapshots, then removes orphans, and says when the next compaction is due.
/// `started` learns of each action as it begins.
pub async fn clean_up_step(
    env: &Env,
    fleet: &Fleet,
    name: &TableName,
    subject: Subject,
    run: Run,
    started: &(dyn Fn(Action) + Sync),
) -> Result<StepDone> {
    let _active = env.active.enter(run.run_id);
    let mut report = CleanUpReport::default();
    let begin = env.clock.now_ms();
    started(Action::ExpireSnapshots);
    expire(env, &subject, run, &mut report).await;
    let expired = env.clock.now_ms();
    started(Action::RemoveOrphanFiles);
    if report.is_unsettled() {
        report.skipped.insert(ORPHANS, "a commit's outcome is not known yet".into());
    } else if env.cancel.is_cancelled() {
        report.skipped.insert(ORPHANS, "the process is stopping".into());
    } else if let Err(error) = orphans(env, fleet, name, &subject, &mut report).await {
        report.refuse(ORPHANS, &error);
    }
    let now = env.clock.now_ms();
    let between = |from: i64, to: i64| Duration::from_millis((to - from).max(0).unsigned_abs());
    (report.expire_duration, report.orphan_duration) = (between(begin, expired), between(expired, now));
    let next = due::after_clean_up(run.run_id.started_ms(), &subject.resolved.policy, now)?;
    Ok(StepDone { report: StepReport::CleanUp(Box::new(report)), next })
}

async fn expire(env: &Env, subject: &Subject, run: Run, report: &mut CleanUpReport) {
    let policy = &subject.resolved.policy;
    if !policy.expire_snapshots.enabled {
        report.skipped.insert(EXPIRE, DISABLED.into());
        return;
    }
    let now = env.clock.now_ms();
    match plan_expire_snapshots(&subject.table.loaded, policy, subject.commit_interval, now, &[]) {
        Ok(plan) => {
            let context = CommitContext::new(run.run_id);
            report.expire_snapshots =
                Some(expire_snapshots(&subject.table, &plan, &context, env.clock.as_ref()).boxed().await);
        }
        Err(error) => report.refuse(EXPIRE, &error),
    }
}

async fn orphans(
    env: &Env,
    fleet: &Fleet,
    name: &TableName,
    subject: &Subject,
    report: &mut CleanUpReport,
) -> Result<()> {
    if !subject.resolved.policy.remove_orphan_files.enabled {
        report.skipped.insert(ORPHANS, DISABLED.into());
        return Ok(());
    }
    let neighbours = fleet.neighbours(name).await.context(|| "find the directories of the catalog's other tables")?;
    let table = subject.table.refresh().await?;
    let is_active = |run_id| env.active.contains(run_id);
    let request = subject.orphan_request(env, &is_active, &neighbours);
    report.remove_orphan_files = Some(remove_orphan_files(&table, &request).boxed().await);
    Ok(())
}

impl Subject {
    /// What orphan removal is asked for on this table.
    pub fn orphan_request<'a>(
        &'a self,
        env: &Env,
        is_active: &'a (dyn Fn(RunId) -> bool + Sync),
        neighbours: &'a [(String, String)],
    ) -> OrphanRequest<'a> {
        OrphanRequest {
            policy: &self.resolved.policy,
            commit_interval: self.commit_interval,
            run_timeout: env.run_timeout,
            now_ms: env.clock.now_ms(),
            is_active,
            neighbours,
            candidates_max: CANDIDATES_PER_RUN,
        }
    }
}

impl CleanUpReport {
    fn refuse(&mut self, action: &'static str, error: &Error) {
        let group = if outcome_of(error.kind()) == Outcome::Skipped { &mut self.skipped } else { &mut self.errors };
        group.insert(action, error.to_string());
    }

    fn is_unsettled(&self) -> bool {
        self.expire_snapshots.as_ref().is_some_and(|report| report.outcome == ExpireOutcome::Unknown)
    }

    /// How expiry ended.
    pub fn expire_outcome(&self) -> Outcome {
        match &self.expire_snapshots {
            Some(report) if report.outcome == ExpireOutcome::Unknown => Outcome::Unknown,
            Some(report) => action_outcome(report.error.as_ref(), report.failed.is_empty(), false),
            None if self.errors.contains_key(EXPIRE) => Outcome::Failed,
            None => Outcome::Skipped,
        }
    }

    /// How orphan removal ended.
    pub fn orphan_outcome(&self) -> Outcome {
        match &self.remove_orphan_files {
            Some(report) => action_outcome(report.error.as_ref(), report.failed.is_empty(), report.refused.is_some()),
            None if self.errors.contains_key(ORPHANS) => Outcome::Failed,
            None => Outcome::Skipped,
        }
    }
}

fn action_outcome(error: Option<&Error>, all_deleted: bool, refused: bool) -> Outcome {
    match error {
        Some(error) => outcome_of(error.kind()),
        None if !all_deleted => Outcome::Failed,
        None if refused => Outcome::Skipped,
        None => Outcome::Success,
    }
}
