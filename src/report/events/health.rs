//! Judges tables and catalogs by what happens to them, and tells metrics, board and log of what it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::action::RunStep;
use crate::clean::Refused;
use crate::report::board::Board;
use crate::report::catalogs::{CatalogHealth, Judged};
use crate::report::health::Health;
use crate::report::kept::kept;
use crate::report::metrics::Metrics;
use crate::report::vitals::Vital;
use crate::schedule::observer::{Event, Observer, TableEvent};
use crate::schedule::run_table::StepDone;
use crate::table::TableName;

/// Time passes while nothing happens to a table, so its health is judged anew this often.
pub(super) const JUDGE_EVERY_MS: i64 = 10_000;

pub(super) struct HealthJudge {
    metrics: Arc<Metrics>,
    board: Arc<Board>,
    pub(super) tables: Mutex<Tables>,
    pub(super) catalogs: Mutex<CatalogHealth>,
    /// When health was judged last, milliseconds since the epoch.
    judged_ms: AtomicI64,
    /// The whole daemon is paused.
    paused: AtomicBool,
}

/// The tables that were found and are not gone.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) vitals: BTreeMap<TableName, Vital>,
    /// Those of which something was noted since they were judged.
    noted: BTreeSet<TableName>,
}

impl Observer for HealthJudge {
    fn observe(&self, event: Event<'_>, now_ms: i64) {
        match event {
            Event::Heartbeat => self.heartbeat(now_ms),
            Event::CatalogListed(catalog) => self.catalog_listed(catalog, None, now_ms),
            Event::CatalogUnclear(catalog, error) => {
                self.catalog_listed(catalog, Some(error.to_string()), now_ms);
            }
            Event::CatalogNotListed(catalog, error) => {
                let judged = self.catalogs.lock().listed(catalog, Some(error.to_string()), now_ms);
                self.catalog_judged(catalog, judged);
            }
            Event::CatalogsSilent(silent) => {
                let judged = self.catalogs.lock().silent(silent, now_ms);
                judged.into_iter().for_each(|(catalog, judged)| self.catalog_judged(&catalog, judged));
            }
            Event::CatalogGone(catalog) => self.catalogs.lock().forget(catalog),
            Event::Paused(_) => self.paused.store(true, Ordering::Relaxed),
            Event::Resumed => self.paused.store(false, Ordering::Relaxed),
            Event::Table(name, event) => self.of_table(name, event),
            _ => {}
        }
    }
}

impl HealthJudge {
    pub(super) fn new(metrics: Arc<Metrics>, board: Arc<Board>) -> Self {
        let (judged_ms, paused) = (AtomicI64::new(i64::MIN), AtomicBool::new(false));
        Self { metrics, board, tables: Mutex::default(), catalogs: Mutex::default(), judged_ms, paused }
    }

    /// Notes what a maintained table's health depends on; it is judged by the next heartbeat.
    pub(super) fn note(&self, name: &TableName, change: impl FnOnce(&mut Vital)) {
        let mut tables = self.tables.lock();
        if let Some(vital) = tables.vitals.get_mut(name) {
            change(vital);
            tables.noted.insert(name.clone());
        }
    }

    /// Judges all tables now and then, and otherwise those of which something was noted.
    fn heartbeat(&self, now_ms: i64) {
        // A clock that was set back does not keep the tables waiting until it has caught up.
        let since_ms = now_ms.saturating_sub(self.judged_ms.load(Ordering::Relaxed));
        let all = !(0..JUDGE_EVERY_MS).contains(&since_ms);
        if all {
            self.judged_ms.store(now_ms, Ordering::Relaxed);
        }
        let paused = self.paused.load(Ordering::Relaxed);
        let mut tables = self.tables.lock();
        let noted = std::mem::take(&mut tables.noted);
        let names = if all { tables.vitals.keys().cloned().collect() } else { noted };
        for name in &names {
            let Some(vital) = tables.vitals.get_mut(name) else { continue };
            let reasons = vital.judge(now_ms, paused);
            let kinds: Vec<_> = reasons.iter().map(|reason| reason.kind).collect();
            self.metrics.set_health(name, &kinds, vital.last_healthy_ms);
            self.board.judged(name, Health::of(vital, &reasons), reasons);
        }
    }

    /// A catalog answered; `unclear`: it is not known which tables a part of it holds, and why.
    fn catalog_listed(&self, catalog: &str, unclear: Option<String>, now_ms: i64) {
        let (judged, is_news) = {
            let mut catalogs = self.catalogs.lock();
            (catalogs.listed(catalog, None, now_ms), catalogs.unclear(catalog, unclear.as_deref()))
        };
        self.catalog_judged(catalog, judged);
        if let Some(problem) = unclear {
            if is_news {
                tracing::warn!(catalog, problem, "the catalog does not tell all of its tables; those known are kept");
            }
            self.board.catalog_asked(catalog, Some(problem));
        }
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

    fn of_table(&self, name: &TableName, event: TableEvent<'_>) {
        match event {
            TableEvent::Found => drop(self.tables.lock().vitals.insert(name.clone(), Vital::default())),
            TableEvent::Gone => {
                let mut tables = self.tables.lock();
                tables.vitals.remove(name);
                tables.noted.remove(name);
            }
            TableEvent::Waits { next, failures, quarantined, .. } => {
                self.note(name, |vital| vital.waits(next.at_ms, failures, quarantined));
            }
            TableEvent::Paused(_) => self.note(name, |vital| vital.paused = true),
            TableEvent::Resumed => self.note(name, |vital| vital.paused = false),
            TableEvent::ActionStarted(_) => self.note(name, |vital| vital.running = true),
            TableEvent::StepDone(_, done) => self.step_done(name, done),
            TableEvent::StepFailed(_, _, error) => {
                self.note(name, |vital| vital.last_failure = Some(kept(error.to_string())));
            }
            // Numbers of a table that is gone meanwhile would bring its series back.
            TableEvent::Looked { collected, .. } => self.note(name, |vital| {
                self.metrics.record_stats(name, &collected.stats);
                self.metrics.set_target_file_size(name, collected.target_file_size_bytes);
                vital.unreadable = None;
                vital.period = Some(collected.period);
                vital.stats = Some(collected.stats.clone());
            }),
            TableEvent::CollectionFailed(error) => {
                // A warning tells of the first time; after that health does.
                let mut again = false;
                self.note(name, |vital| again = vital.unreadable.replace(kept(error.to_string())).is_some());
                if again {
                    tracing::debug!(table = %name, %error, "numbers not collected");
                } else {
                    tracing::warn!(table = %name, %error, "numbers not collected");
                }
            }
            _ => {}
        }
    }

    fn step_done(&self, name: &TableName, done: &StepDone) {
        self.note(name, |vital| {
            if done.report.outcome().is_failure() {
                vital.last_failure = done.report.problem().map(kept);
            }
            if done.report.step == RunStep::LAST {
                let refused = |refused: &Refused| kept(format!("{}: {}", refused.reason, refused.detail));
                vital.refused = done.report.refusal().map(refused);
            }
        });
    }
}
