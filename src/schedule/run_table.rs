//! The story of one run of one table, a step at a time. Steps never overlap for a table; the wait between them belongs to the caller.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use serde::Serialize;
use tracing::{Instrument, Span};

use crate::action::{Action, Outcome};
use crate::catalog::TableHandle;
use crate::clean::{
    CANDIDATES_PER_RUN, Elsewhere, ExpireOutcome, ExpireReport, OrphanReport, OrphanRequest, Refused,
    clock_apart_from_one, expire_snapshots, remove_orphan_files,
};
use crate::clock::Deadline;
use crate::commit::CommitContext;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::expire_snapshots::plan_expire_snapshots;
use crate::policy::ResolvedPolicy;
use crate::run_id::RunId;
use crate::schedule::due::{self, Ended, NextStep, Standing, Step};
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::neighbours::{Others, Own, Surroundings};
use crate::schedule::rewrite_data_files::{Watcher, rewrite_data_files};
use crate::schedule::run_report::{RewriteReport, outcome_of};
use crate::schedule::run_time;
use crate::table::TableName;
use crate::table::commit_interval::infer_commit_interval;
use crate::table::history::last_own_run;
use crate::telemetry;

const EXPIRE: &str = Action::ExpireSnapshots.as_str();
const ORPHANS: &str = Action::RemoveOrphanFiles.as_str();
/// Longest wait for a catalog to tell of a table, with all attempts.
const LOAD_WITHIN: Duration = Duration::from_secs(120);
const DISABLED: &str = "disabled by the policy";

/// A run from its first step to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Identity.
    pub run_id: RunId,
    /// From when the schedule counts the next run, milliseconds since the epoch.
    pub since_ms: i64,
}

impl Run {
    /// A new run, starting now.
    pub fn start(env: &Env) -> Self {
        let run_id = RunId(env.clock.uuid());
        Self { run_id, since_ms: run_id.started_ms() }
    }

    /// What is logged and traced inside belongs to this run.
    pub fn span(self, name: &TableName) -> Span {
        telemetry::run_span(self.run_id.0, &name.catalog, &name.namespace_text(), &name.to_string())
    }
}

/// What a step did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum StepReport {
    /// Compaction.
    RewriteDataFiles(Box<RewriteReport>),
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
    /// Actions that were not begun since that would not have been safe.
    #[serde(skip)]
    refused: Vec<&'static str>,
    /// Why the other tables' places did not tell which files are this table's alone.
    #[serde(skip)]
    around: Option<Refused>,
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

    /// Whether the table's metadata contradicts the specification, so that it cannot be compacted.
    pub fn is_metadata_invalid(&self) -> bool {
        matches!(self, Self::RewriteDataFiles(report) if report.metadata_invalid)
    }

    /// What went wrong, or why nothing was done; the first thing if there are several.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::RewriteDataFiles(report) => report.reason.clone(),
            Self::CleanUp(report) => {
                let expiry = report.expire_snapshots.as_ref();
                let orphans = report.remove_orphan_files.as_ref();
                let error = expiry.and_then(|r| r.error.as_ref()).or(orphans.and_then(|r| r.error.as_ref()));
                let failures = expiry.map(|r| &r.failures).into_iter().chain(orphans.map(|r| &r.failures)).flatten();
                let mut told = report.errors.values().chain(failures);
                error.map(ToString::to_string).or_else(|| told.next().cloned())
            }
        }
    }

    /// What the step's end means for the next one.
    pub fn ended(&self) -> Ended {
        let outcome = self.outcome();
        match self {
            // Nothing may be deleted while a commit is in the open; the next look at the table settles it.
            Self::RewriteDataFiles(_) if outcome == Outcome::Unknown => Ended::Stuck,
            Self::RewriteDataFiles(_) | Self::CleanUp(_) if outcome.is_failure() => Ended::Failed,
            Self::CleanUp(report) if report.refusal().is_some_and(|refused| refused.passes) => Ended::Refused,
            Self::RewriteDataFiles(_) | Self::CleanUp(_) => Ended::Well,
        }
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
    /// The other step, due as if this one had gone well.
    pub other: NextStep,
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
    /// Loads the table. [`ErrorKind::NotFound`] if it is gone, [`ErrorKind::Unavailable`] also if the catalog is silent for long:
    /// who waits holds a place that tables of other catalogs could use.
    pub async fn load(fleet: &Fleet, name: &TableName) -> Result<Self> {
        let resolved = fleet.policy(name)?;
        let table = tokio::time::timeout(LOAD_WITHIN, fleet.open(name)).await.unwrap_or_else(|_| {
            let (catalog, seconds) = (&name.catalog, LOAD_WITHIN.as_secs());
            Err(Error::unavailable(format!("load table {name}: catalog {catalog} has not answered within {seconds} s")))
        })?;
        let commit_interval = resolved.policy.commit_interval.resolve(infer_commit_interval(&table.loaded));
        Ok(Self { table, resolved, commit_interval })
    }

    /// The wait between compaction and the clean-ups.
    pub fn delay(&self) -> Duration {
        self.resolved.policy.delay.resolve(self.commit_interval)
    }

    /// When a compaction was last completed, as far as the table tells, milliseconds since the epoch.
    pub fn last_success_ms(&self) -> Option<i64> {
        last_own_run(&self.table.loaded).filter(|own| own.complete).map(|own| own.committed_ms)
    }

    /// Where this table stands, found out from the table itself.
    pub fn first_step(&self, now_ms: i64) -> Result<Standing> {
        due::first_step(last_own_run(&self.table.loaded).as_ref(), &self.resolved.policy, self.delay(), now_ms)
    }

    /// When the clean-ups may be done at the earliest, by the newest own commit in the table.
    pub fn clean_up_due(&self, now_ms: i64) -> NextStep {
        due::after_rewrite(last_own_run(&self.table.loaded).map(|own| own.committed_ms), self.delay(), now_ms)
    }
}

/// Compacts, and says when the clean-ups are due.
///
/// The run stops when nine tenths of the run timeout are over; the rest is left to the last commit. How its time is divided
/// stands in `run_time.rs`.
pub async fn rewrite_step(env: &Env, subject: &Subject, run: Run, watcher: &Watcher<'_>) -> StepDone {
    // Others tell by the run's id when the run began, and with it when its files are garbage.
    if let Some(detail) = clock_apart_from_one(&subject.table, env.clock.now_ms()).await {
        let report = RewriteReport::failed(&Error::unsupported(format!("refused (clock_skew): {detail}")));
        let other = subject.clean_up_due(env.clock.now_ms());
        return StepDone { report: StepReport::RewriteDataFiles(Box::new(report)), other };
    }
    let _active = env.active.enter(run.run_id);
    let limited = Env { cancel: env.cancel.child_token(), ..env.clone() };
    let works_for = run_time::works_for(env.run_timeout);
    let over = Deadline::new(env.clock.as_ref(), run.run_id.started_ms(), works_for);
    let policy = &subject.resolved.policy;
    let rewriting = rewrite_data_files(&limited, &subject.table, policy, subject.commit_interval, run.run_id, watcher);
    let span = telemetry::action_span(Action::RewriteDataFiles.as_str());
    let mut rewriting = rewriting.instrument(span.clone()).boxed();
    let report = tokio::select! {
        report = &mut rewriting => report,
        () = run_time::until(over, env.clock.as_ref()) => {
            limited.cancel.cancel();
            let mut report = rewriting.await;
            report.time_is_up(env.run_timeout);
            report
        }
    };
    trace_rewrite(&span, &report);
    let now = env.clock.now_ms();
    let other = match report.last_commit_ms {
        Some(committed) => due::after_rewrite(Some(committed), subject.delay(), now),
        None => subject.clean_up_due(now),
    };
    StepDone { report: StepReport::RewriteDataFiles(Box::new(report)), other }
}

fn trace_rewrite(span: &Span, report: &RewriteReport) {
    let counts = [
        ("rewritten_data_files", report.rewritten_data_files as u64),
        ("rewritten_bytes", report.rewritten_bytes),
        ("added_data_files", report.added_data_files as u64),
        ("added_bytes", report.added_bytes),
        ("commits", report.commits as u64),
        ("conflicts", u64::from(report.conflicts)),
    ];
    telemetry::ended(span, report.outcome.as_str(), report.outcome.is_failure(), &counts);
}

fn between(from_ms: i64, to_ms: i64) -> Duration {
    Duration::from_millis(to_ms.saturating_sub(from_ms).max(0).unsigned_abs())
}

/// Expires snapshots, then removes orphans, and says when the next compaction is due.
/// `started` learns of each action as it begins.
pub async fn clean_up_step(
    env: &Env,
    fleet: &Fleet,
    name: &TableName,
    subject: &Subject,
    run: Run,
    started: &(dyn Fn(Action) + Sync),
) -> Result<StepDone> {
    let mut report = CleanUpReport::default();
    let begin = env.clock.now_ms();
    started(Action::ExpireSnapshots);
    let policy = &subject.resolved.policy;
    // Finding them lists all catalogs.
    let wanted = policy.expire_snapshots.enabled || policy.remove_orphan_files.enabled;
    let around = if wanted { fleet.surroundings(subject.own(name)).await } else { Surroundings::default() };
    let span = telemetry::action_span(EXPIRE);
    expire(env, subject, run, &around, &mut report).instrument(span.clone()).await;
    report.trace_expiry(&span);
    drop(span);
    let expired = env.clock.now_ms();
    started(Action::RemoveOrphanFiles);
    let span = telemetry::action_span(ORPHANS);
    if report.is_unsettled() {
        report.skipped.insert(ORPHANS, "a commit's outcome is not known yet".into());
    } else if !policy.remove_orphan_files.enabled {
        report.skipped.insert(ORPHANS, DISABLED.into());
    } else {
        // Deleting may stop between any two files; what is left is found again.
        let removed = tokio::select! {
            biased;
            () = env.cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled, "the process is stopping")),
            removed = orphans(env, fleet, name, subject, &around).instrument(span.clone()) => Ok(removed),
        };
        match removed {
            Ok(removed) => report.remove_orphan_files = Some(removed),
            Err(error) => report.refuse(ORPHANS, &error),
        }
    }
    report.around = around.unclear;
    report.trace_orphans(&span);
    let now = env.clock.now_ms();
    (report.expire_duration, report.orphan_duration) = (between(begin, expired), between(expired, now));
    let other = due::after_clean_up(run.since_ms, policy, now)?;
    Ok(StepDone { report: StepReport::CleanUp(Box::new(report)), other })
}

async fn expire(env: &Env, subject: &Subject, run: Run, around: &Surroundings, report: &mut CleanUpReport) {
    let policy = &subject.resolved.policy;
    if !policy.expire_snapshots.enabled {
        report.skipped.insert(EXPIRE, DISABLED.into());
        return;
    }
    let now = env.clock.now_ms();
    match plan_expire_snapshots(&subject.table.loaded, policy, subject.commit_interval, now, &[]) {
        Ok(plan) => {
            let mut context = CommitContext::of_table(run.run_id, &subject.table.loaded.metadata);
            context.limit = Some(run_time::commit_limit(env.run_timeout, None));
            let expiry = expire_snapshots(&subject.table, &plan, &context, env.clock.as_ref(), around.for_expiry());
            report.expire_snapshots = Some(expiry.boxed().await);
        }
        Err(error) => report.refuse(EXPIRE, &error),
    }
}

async fn orphans(env: &Env, fleet: &Fleet, name: &TableName, subject: &Subject, around: &Surroundings) -> OrphanReport {
    if let Some(refused) = around.shared() {
        return OrphanReport { refused: Some(refused.clone()), ..OrphanReport::default() };
    }
    let is_active = |run_id| env.active.contains(run_id);
    let others = Others { fleet, own: subject.own(name), plan: false };
    let request = subject.orphan_request(env, &is_active, &around.directories, &others);
    remove_orphan_files(&subject.table, &request).boxed().await
}

impl Subject {
    /// The table as it stands among others.
    pub fn own<'a>(&'a self, name: &'a TableName) -> Own<'a> {
        let ignore_unreadable = &self.resolved.policy.remove_orphan_files.ignore_unreadable.0;
        Own { name, uuid: self.table.loaded.metadata.uuid(), ignore_unreadable }
    }

    /// What orphan removal is asked for on this table.
    pub fn orphan_request<'a>(
        &'a self,
        env: &Env,
        is_active: &'a (dyn Fn(RunId) -> bool + Sync),
        neighbours: &'a [(String, String)],
        elsewhere: &'a dyn Elsewhere,
    ) -> OrphanRequest<'a> {
        OrphanRequest {
            policy: &self.resolved.policy,
            commit_interval: self.commit_interval,
            run_timeout: run_time::over_after(env.run_over_after.get()),
            now_ms: env.clock.now_ms(),
            is_active,
            neighbours,
            elsewhere,
            candidates_max: CANDIDATES_PER_RUN,
        }
    }
}

impl CleanUpReport {
    /// Why an action was not begun.
    pub fn not_begun(&self, action: Action) -> Option<String> {
        self.errors.get(action.as_str()).or(self.skipped.get(action.as_str())).cloned()
    }

    fn refuse(&mut self, action: &'static str, error: &Error) {
        if error.kind() == ErrorKind::Unsupported {
            self.refused.push(action);
        }
        let group = match outcome_of(error.kind()) {
            Outcome::Skipped | Outcome::Cancelled => &mut self.skipped,
            Outcome::Success | Outcome::Failed | Outcome::Conflict | Outcome::Unknown => &mut self.errors,
        };
        group.insert(action, error.to_string());
    }

    fn trace_expiry(&self, span: &Span) {
        let report = self.expire_snapshots.as_ref();
        let deleted = report.map(|r| r.deleted.values().map(|tally| tally.files).sum());
        let counts = [
            ("expired_snapshots", report.map_or(0, |r| r.expired_snapshots as u64)),
            ("deleted_files", deleted.unwrap_or(0)),
        ];
        let outcome = self.expire_outcome();
        telemetry::ended(span, outcome.as_str(), outcome.is_failure(), &counts);
    }

    fn trace_orphans(&self, span: &Span) {
        let report = self.remove_orphan_files.as_ref();
        let deleted = report.map(|r| r.deleted.values().map(|tally| tally.files).sum());
        let counts = [("orphan_files", report.map_or(0, |r| r.orphans.files)), ("deleted_files", deleted.unwrap_or(0))];
        let outcome = self.orphan_outcome();
        telemetry::ended(span, outcome.as_str(), outcome.is_failure(), &counts);
    }

    fn is_unsettled(&self) -> bool {
        self.expire_snapshots.as_ref().is_some_and(|report| report.outcome == ExpireOutcome::Unknown)
    }

    /// Whether the action did not touch the table, or not its files, since that would not have been safe.
    pub fn is_refused(&self, action: Action) -> bool {
        let inside = match action {
            Action::ExpireSnapshots => {
                self.expire_snapshots.as_ref().is_some_and(|report| report.refused) || self.left_files().is_some()
            }
            Action::RemoveOrphanFiles => self.remove_orphan_files.as_ref().is_some_and(|r| r.refused.is_some()),
            Action::RewriteDataFiles => false,
        };
        inside || self.refused.contains(&action.as_str())
    }

    /// Why files of expired snapshots were left where they are, for fear that something needs them.
    pub fn left_files(&self) -> Option<&Refused> {
        let report = self.expire_snapshots.as_ref()?;
        let around = ["neighbours-unknown", "registered-twice"].iter().any(|reason| report.kept.contains_key(reason));
        report.files_stay.as_ref().or_else(|| self.around.as_ref().filter(|_| around))
    }

    /// Why a clean-up was refused although the table itself wants it: somebody has to look.
    pub fn refusal(&self) -> Option<&Refused> {
        let orphans = self.remove_orphan_files.as_ref().and_then(|report| report.refused.as_ref());
        let wanted = orphans.filter(|refused| !matches!(refused.reason, "disabled" | "gc_disabled"));
        wanted.or_else(|| self.left_files())
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
