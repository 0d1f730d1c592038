//! Every occurrence has one function here, which drives its log line, its metrics, what the API
//! shows and, in the sandbox, its line on the terminal.

mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
pub use records::record_step;
use records::records;

use crate::action::Action;
use crate::cli::print;
use crate::clock::PhaseTimes;
use crate::config::{LoadedConfig, Problems};
use crate::error::{Error, ErrorKind};
use crate::inspect::{PartitionStats, TableStats};
use crate::plan::RewritePlan;
use crate::report::board::view::{self, Doing, QueueStatus};
use crate::report::board::{Board, Look, Ran};
use crate::report::catalogs::{Catalogs, Judged};
use crate::report::health::Health;
use crate::report::kept::kept;
use crate::report::metrics::{self, Backoff, Metrics, Queue, RunCounts, RunRecord};
use crate::report::run_report::outcome_of;
use crate::report::vitals::Vital;
use crate::rewrite::Progress;
use crate::schedule::control::Pause;
use crate::schedule::due::{NextStep, Step};
use crate::schedule::plan_table::{ActionPlan, TablePlan, nothing_to_rewrite, outline};
use crate::schedule::run_table::{Run, StepDone, StepReport, Subject};
use crate::server::{Liveness, Readiness};
use crate::table::TableName;

/// Time passes while nothing happens to a table, so its health is judged anew this often.
const JUDGE_EVERY_MS: i64 = 10_000;

/// A line about a step, with the fields that lines inside the run have from its span.
macro_rules! log_step {
    ($level:ident, $name:expr, $run:expr, $step:expr, $($rest:tt)+) => {
        tracing::$level!(
            catalog = $name.catalog,
            namespace = $name.namespace_text(),
            table = %$name,
            run_id = %$run.run_id,
            step = $step,
            $($rest)+
        )
    };
}

/// What a look at a table found out.
#[derive(Debug, Clone)]
pub struct Collected {
    /// Its numbers.
    pub stats: TableStats,
    /// Size that compaction gives to data files, in bytes.
    pub target_file_size_bytes: u64,
    /// The schedule's period.
    pub period: Duration,
}

/// Tells the world what happens.
pub struct Reporter {
    metrics: Arc<Metrics>,
    board: Arc<Board>,
    readiness: Arc<Readiness>,
    liveness: Arc<Liveness>,
    echo: bool,
    tables: Mutex<Tables>,
    catalogs: Mutex<Catalogs>,
    /// When health was judged last, milliseconds since the epoch.
    judged_ms: AtomicI64,
    /// The whole daemon is paused.
    paused: AtomicBool,
}

/// The tables that were found and are not gone.
#[derive(Default)]
struct Tables {
    vitals: BTreeMap<TableName, Vital>,
    /// Those of which something was noted since they were judged.
    noted: BTreeSet<TableName>,
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
        let judged_ms = AtomicI64::new(i64::MIN);
        let (tables, catalogs, paused) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self { metrics, board, readiness, liveness, echo, tables, catalogs, judged_ms, paused }
    }

    /// The tables that were found and are not gone.
    pub fn maintained(&self) -> BTreeSet<TableName> {
        self.lock().vitals.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Both are whole after any panic.
        self.tables.lock()
    }

    /// Notes what a maintained table's health depends on; it is judged by the next heartbeat.
    fn note(&self, name: &TableName, change: impl FnOnce(&mut Vital)) {
        let mut tables = self.lock();
        if let Some(vital) = tables.vitals.get_mut(name) {
            change(vital);
            tables.noted.insert(name.clone());
        }
    }

    /// Judges all tables, or those of which something was noted.
    fn judge(&self, all: bool, now_ms: i64) {
        let paused = self.paused.load(Ordering::Relaxed);
        let mut tables = self.lock();
        let noted = std::mem::take(&mut tables.noted);
        let names = if all { tables.vitals.keys().cloned().collect() } else { noted };
        for name in &names {
            let Some(vital) = tables.vitals.get_mut(name) else { continue };
            let reasons = vital.judge(now_ms, paused);
            let kinds: Vec<_> = reasons.iter().map(|reason| reason.kind).collect();
            self.metrics.set_health(name, &kinds, vital.last_healthy_ms);
            self.board.judged(name, Health::of(&vital.view(), &reasons), reasons);
        }
    }

    fn echo(&self, name: &TableName, line: &str) {
        if self.echo {
            print::echo(&format!("{name}: {line}"));
        }
    }

    /// The daemon is up.
    pub fn started(&self, listen: &str, loaded: &LoadedConfig, now_ms: i64) {
        self.readiness.config_loaded();
        self.metrics.record_config_load(now_ms, Some(loaded.warnings.len()));
        self.board.config_loaded(now_ms, loaded);
        let (catalogs, policies) = (loaded.config.catalogs.len(), loaded.config.policies.policies.len());
        tracing::info!(listen, catalogs, policies, version = env!("CARGO_PKG_VERSION"), "started");
    }

    /// The configuration file was read again and is in force; the clients of the catalogs `rebuilt` are new.
    pub fn config_reloaded(&self, loaded: &LoadedConfig, rebuilt: &[String], now_ms: i64) {
        self.metrics.record_config_reload(now_ms, Some(loaded.warnings.len()));
        self.board.config_loaded(now_ms, loaded);
        self.readiness.only_catalogs(|name| loaded.config.catalogs.contains_key(name));
        for warning in &loaded.warnings {
            tracing::warn!(problem = %warning, "odd in the configuration");
        }
        let (catalogs, policies) = (loaded.config.catalogs.len(), loaded.config.policies.policies.len());
        tracing::info!(
            catalogs,
            policies,
            rebuilt = rebuilt.join(","),
            warnings = loaded.warnings.len(),
            "configuration reloaded"
        );
    }

    /// The configuration file was read again and cannot be used; what is in force stays so.
    pub fn config_refused(&self, problems: &Problems, now_ms: i64) {
        self.metrics.record_config_reload(now_ms, None);
        self.board.config_refused(problems);
        for problem in &problems.0 {
            tracing::error!(%problem, "the configuration is not reloaded; the one before stays in force");
        }
    }

    /// A catalog is not configured any more.
    pub fn catalog_gone(&self, catalog: &str) {
        tracing::info!(catalog, "no longer configured");
        self.catalogs().forget(catalog);
        self.metrics.forget_catalog(catalog);
    }

    /// The daemon was told to stop.
    pub fn stopping(&self, grace: Duration) {
        self.readiness.stopping();
        tracing::info!(grace_seconds = grace.as_secs(), "stopping: no new steps, running ones come to an end");
    }

    /// Whether this replica works. One that stands by is ready without having reached a catalog.
    pub fn leading(&self, leads: bool) {
        self.readiness.standing_by(!leads);
        self.metrics.set_leader(leads);
        self.board.leads(leads);
    }

    /// The scheduler went round, or a replica that stands by looked whether it is its turn.
    pub fn heartbeat(&self, now_ms: i64) {
        self.liveness.tick(now_ms);
        // A clock that was set back does not keep the tables waiting until it has caught up.
        let since_ms = now_ms.saturating_sub(self.judged_ms.load(Ordering::Relaxed));
        let all = !(0..JUDGE_EVERY_MS).contains(&since_ms);
        if all {
            self.judged_ms.store(now_ms, Ordering::Relaxed);
        }
        self.judge(all, now_ms);
    }

    /// A catalog listed its tables.
    pub fn catalog_listed(&self, catalog: &str, now_ms: i64) {
        self.readiness.catalog_reached(catalog);
        let mut catalogs = self.catalogs();
        catalogs.unclear(catalog, None);
        let judged = catalogs.listed(catalog, None, now_ms);
        drop(catalogs);
        self.catalog_judged(catalog, judged);
    }

    /// A catalog answered, but it is not known which tables a part of it holds.
    pub fn catalog_unclear(&self, catalog: &str, error: &Error, now_ms: i64) {
        self.readiness.catalog_reached(catalog);
        let problem = error.to_string();
        let (judged, is_news) = {
            let mut catalogs = self.catalogs();
            (catalogs.listed(catalog, None, now_ms), catalogs.unclear(catalog, Some(&problem)))
        };
        self.catalog_judged(catalog, judged);
        if is_news {
            tracing::warn!(catalog, problem, "the catalog does not tell all of its tables; those known are kept");
        }
        self.board.catalog_asked(catalog, Some(problem));
    }

    /// A catalog could not be asked for its tables.
    pub fn catalog_not_listed(&self, catalog: &str, error: &Error, now_ms: i64) {
        self.readiness.catalog_failed(catalog, &kept(error.to_string()));
        let judged = self.catalogs().listed(catalog, Some(error.to_string()), now_ms);
        self.catalog_judged(catalog, judged);
    }

    /// These catalogs, and no others, tell of none of their tables.
    pub fn catalogs_silent(&self, silent: &BTreeSet<String>, now_ms: i64) {
        let judged = self.catalogs().silent(silent, now_ms);
        judged.into_iter().for_each(|(catalog, judged)| self.catalog_judged(&catalog, judged));
    }

    fn catalogs(&self) -> MutexGuard<'_, Catalogs> {
        // Whole after any panic.
        self.catalogs.lock()
    }

    fn catalog_judged(&self, catalog: &str, judged: Judged) {
        match &judged.problem {
            Some(problem) if judged.is_news => {
                tracing::warn!(catalog, problem, "the catalog is down; its known tables are tried again");
            }
            None if judged.is_news => tracing::info!(catalog, "the catalog is up again"),
            Some(_) | None => {}
        }
        self.metrics.set_catalog_up(catalog, judged.problem.is_none());
        self.board.catalog_asked(catalog, judged.problem);
    }

    /// A table was looked at. Numbers of one that is gone meanwhile would bring its series back.
    pub fn looked(
        &self,
        name: &TableName,
        subject: &Subject,
        collected: Collected,
        partitions: Vec<PartitionStats>,
        now_ms: i64,
    ) {
        let stats = Arc::new(collected.stats);
        let look = Look {
            stats: stats.clone(),
            partitions,
            target_file_size_bytes: collected.target_file_size_bytes,
            loaded: &subject.table.loaded,
            policy: &subject.resolved,
        };
        self.board.looked(name, look, now_ms);
        self.note(name, |vital| {
            self.metrics.record_stats(name, &stats);
            self.metrics.set_target_file_size(name, collected.target_file_size_bytes);
            vital.unreadable = None;
            vital.period = Some(collected.period);
            vital.stats = Some(stats);
        });
    }

    /// A table's numbers could not be collected. A warning tells of the first time; after that health does.
    pub fn collection_failed(&self, name: &TableName, error: &Error) {
        let mut again = false;
        self.note(name, |vital| again = vital.unreadable.replace(kept(error.to_string())).is_some());
        if again {
            tracing::debug!(table = %name, %error, "numbers not collected");
        } else {
            tracing::warn!(table = %name, %error, "numbers not collected");
        }
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
        self.lock().vitals.insert(name.clone(), Vital::default());
        self.metrics.register_table(name);
        self.board.table_found(name);
    }

    /// A table left the catalog or the policies.
    pub fn table_gone(&self, name: &TableName) {
        tracing::info!(table = %name, "no longer maintained");
        let mut tables = self.lock();
        tables.vitals.remove(name);
        tables.noted.remove(name);
        self.metrics.forget_table(name);
        self.board.table_gone(name);
    }

    /// A table waits for its next step; `failures` steps in a row have failed before. The next compaction is due at
    /// `next_run_ms`, if that is known.
    pub fn table_waits(
        &self,
        name: &TableName,
        next: &NextStep,
        next_run_ms: Option<i64>,
        failures: u32,
        quarantined: bool,
    ) {
        tracing::debug!(table = %name, step = next.step.as_str(), at_ms = next.at_ms, why = next.why, "waits");
        let (step, doing, delay_end_ms) = match next.step {
            Step::RewriteDataFiles => (metrics::Step::Idle, Doing::Idle, None),
            Step::CleanUp => (metrics::Step::Delay, Doing::Delay, Some(next.at_ms)),
        };
        let shown = view::Next { step: next.step.as_str(), at_ms: next.at_ms, why: next.why };
        self.board.table_waits(name, doing, shown, failures, quarantined);
        self.metrics.set_step(name, step);
        self.metrics.set_next(name, next_run_ms, delay_end_ms);
        self.note(name, |vital| vital.waits(next.at_ms, failures, quarantined));
        let until_ms = next.is_backoff().then_some(next.at_ms);
        self.metrics.set_backoff(name, Backoff { consecutive_failures: failures, until_ms, quarantined });
    }

    /// An operator stopped the table; what runs comes to its end.
    pub fn table_paused(&self, name: &TableName, pause: &Pause) {
        tracing::info!(table = %name, reason = pause.reason, "paused: no step begins until it is resumed");
        self.metrics.set_table_paused(name, true);
        self.board.paused(Some(name), Some(pause.into()));
        self.note(name, |vital| vital.paused = true);
    }

    /// An operator let the table go on.
    pub fn table_resumed(&self, name: &TableName) {
        tracing::info!(table = %name, "resumed");
        self.metrics.set_table_paused(name, false);
        self.board.paused(Some(name), None);
        self.note(name, |vital| vital.paused = false);
    }

    /// An operator stopped everything; what runs comes to its end.
    pub fn daemon_paused(&self, pause: &Pause) {
        tracing::info!(reason = pause.reason, "paused: no step of any table begins until it is resumed");
        self.metrics.set_paused(true);
        self.board.paused(None, Some(pause.into()));
        self.paused.store(true, Ordering::Relaxed);
    }

    /// An operator let everything go on.
    pub fn daemon_resumed(&self) {
        tracing::info!("resumed");
        self.metrics.set_paused(false);
        self.board.paused(None, None);
        self.paused.store(false, Ordering::Relaxed);
    }

    /// An operator wants a table compacted now.
    pub fn run_asked_for(&self, name: &TableName) {
        tracing::info!(table = %name, "compaction asked for");
    }

    /// How many tables run and wait has changed.
    pub fn queue(&self, queue: Queue) {
        let Queue { running, queued, limit, .. } = queue;
        self.board.queue(QueueStatus { running, queued, limit });
        self.metrics.set_queue(queue);
    }

    /// A step begins.
    pub fn step_started(&self, name: &TableName, run: Run, step: Step) {
        log_step!(info, name, run, step.as_str(), "step started");
        self.action_started(name, first_action(step));
    }

    /// A compaction begins, whose progress can be looked at.
    pub fn rewriting(&self, name: &TableName, progress: Arc<Progress>, now_ms: i64) {
        self.board.rewriting(name, progress, now_ms);
    }

    /// An action begins.
    pub fn action_started(&self, name: &TableName, action: Action) {
        self.metrics.set_step(name, metrics::Step::Running(action));
        self.metrics.end_wait(name);
        self.board.table_works(name, action.into());
        self.note(name, |vital| vital.running = true);
    }

    /// A table told of a success before this process began.
    pub fn known_success(&self, name: &TableName, action: Action, finished_ms: i64) {
        self.metrics.set_last_success(name, action, finished_ms);
    }

    /// A step ended; its report says how.
    pub fn step_done(&self, name: &TableName, run: Run, done: &StepDone, finished_ms: i64) {
        let (step, outcome) = (done.report.step().as_str(), done.report.outcome());
        let failed = outcome.is_failure();
        let outcome = outcome.as_str();
        let report = serde_json::to_string(&done.report).unwrap_or_default();
        if failed {
            log_step!(warn, name, run, step, outcome, %report, "step ended");
        } else {
            log_step!(info, name, run, step, outcome, %report, "step ended");
        }
        record_step(&self.metrics, name, &done.report, finished_ms);
        for ran in records(&done.report, finished_ms) {
            self.board.ran(name, &run.run_id.to_string(), ran);
        }
        if failed {
            self.note(name, |vital| vital.last_failure = done.report.problem().map(kept));
        }
        if let StepReport::CleanUp(clean_up) = &done.report {
            let refused = clean_up.refusal().map(|refused| kept(format!("{}: {}", refused.reason, refused.detail)));
            self.note(name, |vital| vital.refused = refused);
        }
        self.echo(name, &print::step_summary(&done.report));
    }

    /// A step could not be done at all.
    pub fn step_failed(&self, name: &TableName, run: Run, step: Step, error: &Error, finished_ms: i64) {
        let (kind, outcome, step_name) = (error.kind().as_str(), outcome_of(error.kind()), step.as_str());
        if outcome.is_failure() {
            log_step!(warn, name, run, step_name, kind, %error, "step failed; it is tried again later");
        } else {
            log_step!(info, name, run, step_name, kind, %error, "step not possible; it is tried again later");
        }
        let record = RunRecord {
            action: first_action(step),
            outcome,
            duration: Duration::ZERO,
            finished_ms,
            counts: RunCounts::default(),
            phases: PhaseTimes::default(),
            refused: error.kind() == ErrorKind::Unsupported,
        };
        self.metrics.record_run(name, &record);
        let ran = Ran { record, reason: Some(error.to_string()), report: None };
        self.board.ran(name, &run.run_id.to_string(), ran);
        self.note(name, |vital| vital.last_failure = Some(kept(error.to_string())));
        self.echo(name, &format!("{step_name} {}: {error}", outcome.as_str()));
    }
}

fn first_action(step: Step) -> Action {
    match step {
        Step::RewriteDataFiles => Action::RewriteDataFiles,
        Step::CleanUp => Action::ExpireSnapshots,
    }
}

impl From<&Pause> for view::Pause {
    fn from(pause: &Pause) -> Self {
        Self { reason: pause.reason.clone(), since_ms: pause.since_ms }
    }
}

#[cfg(test)]
mod tests;
