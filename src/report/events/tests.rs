use std::collections::BTreeSet;
use std::time::Duration;

use super::health::JUDGE_EVERY_MS;
use super::*;
use crate::action::Action;
use crate::action::RunStep;
use crate::config::{Problem, Problems};
use crate::error::Error;
use crate::inspect::ManifestCache;
use crate::report::board::TableSelection;
use crate::report::health::Health;
use crate::rewrite::memory::MemoryBudget;
use crate::run_id::RunId;
use crate::schedule::due::{Failures, NextStep, StepEnd, after_rewrite};
use crate::schedule::observer::TableEvent;
use crate::schedule::run_table::TableRun;
use crate::table::TableName;

const HOUR_MS: i64 = 3_600_000;

fn name(table: &str) -> TableName {
    format!("lake.db.{table}").parse().expect("a name")
}

fn reporter(tables: &[&str]) -> Reporter {
    let memory = Arc::new(MemoryBudget::new(1 << 20));
    let board = Arc::new(Board::new(0, memory, Arc::new(ManifestCache::new(1 << 20))));
    let probes = Arc::new(Probes::new(0, Duration::from_secs(60), ["lake".to_owned()]));
    let reporter = Reporter::new(Arc::new(Metrics::new(10)), board, probes, false);
    for table in tables {
        reporter.observe(Event::Table(&name(table), TableEvent::Found), 0);
        reporter.health.note(&name(table), |vital| {
            (vital.period, vital.stats) = (Some(Duration::from_secs(3600)), Some(Arc::default()));
        });
    }
    reporter
}

/// The names of the unhealthy tables.
fn unhealthy(reporter: &Reporter) -> Vec<String> {
    let selection = TableSelection { health: Some(Health::Unhealthy), limit: 10, ..TableSelection::default() };
    reporter.board.tables(&selection, 0).tables.into_iter().map(|table| table.name).collect()
}

#[test]
fn what_was_noted_is_judged_at_once_and_everything_now_and_then() {
    let reporter = reporter(&["a", "b"]);
    let start_ms = 9 * HOUR_MS;
    reporter.health.note(&name("b"), |vital| vital.waits(start_ms - HOUR_MS, 0, false));
    reporter.observe(Event::Heartbeat, start_ms);
    assert_eq!(unhealthy(&reporter), [""; 0]);
    reporter.health.note(&name("a"), |vital| vital.unreadable = Some("no answer".into()));
    reporter.observe(Event::Heartbeat, start_ms + 1);
    assert_eq!(unhealthy(&reporter), ["a"], "b is overdue meanwhile, but nothing happened to it");
    reporter.observe(Event::Heartbeat, start_ms + JUDGE_EVERY_MS - 1);
    assert_eq!(unhealthy(&reporter), ["a"]);
    reporter.observe(Event::Heartbeat, start_ms + JUDGE_EVERY_MS);
    assert_eq!(unhealthy(&reporter), ["a", "b"]);
    reporter.observe(Event::Heartbeat, start_ms - 1);
    assert_eq!(unhealthy(&reporter), ["a"], "the clock was set back");
}

#[test]
fn only_what_is_tried_again_is_in_backoff() {
    let reporter = reporter(&["a"]);
    let backoff = || {
        let page = reporter.metrics.gather().expect("text");
        let mut values =
            page.lines().filter(|line| line.starts_with("icewright_table_backoff_until_timestamp_seconds{"));
        values.next().and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    let waits = |next: &NextStep, failures| {
        let waits = TableEvent::Waits { next, next_run_ms: None, failures, quarantined: false };
        reporter.observe(Event::Table(&name("a"), waits), 0);
    };
    let (mut failures, clean_up) = (Failures::default(), after_rewrite(None, Duration::ZERO, 7_000));
    let next = failures.after(RunStep::FIRST, StepEnd::Failed, clean_up, 7_000);
    waits(&next, failures.most());
    assert_eq!(backoff(), Some(0.0), "the clean-up does not wait for the failed compaction");
    let rewrite = NextStep::asked_for(9_000);
    let next = failures.after(RunStep::LAST, StepEnd::Well, rewrite, 8_000);
    waits(&next, failures.most());
    assert_eq!(backoff(), Some(68.0));
    let started = TableEvent::ActionStarted(Action::RewriteDataFiles);
    reporter.observe(Event::Table(&name("a"), started), 0);
    assert_eq!(backoff(), Some(0.0), "it is being tried");
}

#[test]
fn only_the_beginning_of_a_long_error_is_kept() {
    let reporter = reporter(&["a"]);
    let error = Error::unavailable("<html>".repeat(1000));
    let fits = |what: &str, text: &str| assert!(text.ends_with('…') && text.len() <= 1024, "{what}: {}", text.len());
    let run = TableRun { run_id: RunId(uuid::Uuid::nil()), since_ms: 0 };
    reporter.observe(Event::Table(&name("a"), TableEvent::StepFailed(run, RunStep::LAST, &error)), 0);
    reporter.observe(Event::Table(&name("a"), TableEvent::CollectionFailed(&error)), 0);
    reporter.health.note(&name("a"), |vital| vital.waits(0, 1, false));
    reporter.observe(Event::Heartbeat, 0);
    let tables = reporter.health.tables.lock();
    let vital = &tables.vitals[&name("a")];
    for text in [&vital.last_failure, &vital.unreadable] {
        fits("vital", text.as_ref().expect("known"));
    }
    let table = reporter.board.table(&name("a"), 0).expect("known");
    fits("run", table.runs[0].reason.as_ref().expect("why"));
    assert_eq!(table.summary.reasons.len(), 2);
    table.summary.reasons.iter().for_each(|reason| fits(reason.kind.as_str(), &reason.detail));
    let problem = Problem::of_file("icewright.toml".as_ref(), "", "x".repeat(2000), "");
    let problems = Problems(vec![problem]);
    reporter.observe(Event::ConfigRefused(&problems), 0);
    fits("configuration", reporter.board.status(0, false).config.problem.as_ref().expect("why"));
}

#[test]
fn a_listing_of_a_catalog_that_tells_of_no_table_is_no_news() {
    let reporter = reporter(&[]);
    let silent = BTreeSet::from(["lake".to_owned()]);
    let news = |at_ms| reporter.health.catalogs.lock().silent(&silent, at_ms)[0].1.is_news;
    let start_ms = 1_000 * HOUR_MS;
    assert!(news(start_ms));
    reporter.observe(Event::CatalogListed("lake"), start_ms + 30_000);
    assert!(!news(start_ms + 30_500), "it was told of less than ten minutes ago");
    let error = Error::unavailable("HTTP 500");
    reporter.observe(Event::CatalogUnclear("lake", &error), start_ms + 60_000);
    assert!(!news(start_ms + 60_500));
}
