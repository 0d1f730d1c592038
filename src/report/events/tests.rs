use super::*;
use crate::inspect::ManifestCache;
use crate::report::board::Selection;
use crate::rewrite::memory::MemoryBudget;

const HOUR_MS: i64 = 3_600_000;

fn name(table: &str) -> TableName {
    format!("lake.db.{table}").parse().expect("a name")
}

fn reporter(tables: &[&str]) -> Reporter {
    let memory = Arc::new(MemoryBudget::new(1 << 20));
    let board = Arc::new(Board::new(0, memory, Arc::new(ManifestCache::new(1 << 20))));
    let liveness = Arc::new(Liveness::new(0, Duration::from_secs(60)));
    let reporter = Reporter::new(
        Arc::new(Metrics::new(10)),
        board,
        Arc::new(Readiness::new(["lake".to_owned()])),
        liveness,
        false,
    );
    for table in tables {
        reporter.table_found(&name(table));
        reporter.note(&name(table), |vital| {
            (vital.period, vital.stats) = (Some(Duration::from_secs(3600)), Some(Arc::default()));
        });
    }
    reporter
}

/// The names of the unhealthy tables.
fn unhealthy(reporter: &Reporter) -> Vec<String> {
    let selection = Selection { health: Some(Health::Unhealthy), limit: 10, ..Selection::default() };
    reporter.board.tables(&selection, 0).tables.into_iter().map(|table| table.name).collect()
}

#[test]
fn what_was_noted_is_judged_at_once_and_everything_now_and_then() {
    let reporter = reporter(&["a", "b"]);
    let start_ms = 9 * HOUR_MS;
    reporter.note(&name("b"), |vital| vital.waits(start_ms - HOUR_MS, 0, false));
    reporter.heartbeat(start_ms);
    assert_eq!(unhealthy(&reporter), [""; 0]);
    reporter.note(&name("a"), |vital| vital.unreadable = Some("no answer".into()));
    reporter.heartbeat(start_ms + 1);
    assert_eq!(unhealthy(&reporter), ["a"], "b is overdue meanwhile, but nothing happened to it");
    reporter.heartbeat(start_ms + JUDGE_EVERY_MS - 1);
    assert_eq!(unhealthy(&reporter), ["a"]);
    reporter.heartbeat(start_ms + JUDGE_EVERY_MS);
    assert_eq!(unhealthy(&reporter), ["a", "b"]);
    reporter.heartbeat(start_ms - 1);
    assert_eq!(unhealthy(&reporter), ["a"], "the clock was set back");
}
