use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::action::{Action, Outcome};
use crate::actions::report::ActionDetail;
use crate::actions::rewrite_data_files::RewriteReport;
use crate::inspect::{PartitionStats, TableStats};
use crate::policy::{PolicySet, ResolvedPolicy};
use crate::run_id::SUMMARY_RUN_ID;
use crate::table::LoadedTable;
use crate::testing::builder::{loaded, main_at, snapshot};

const FIRST_ID: i64 = 7_000_000_000_000_000_000;
const RUN: &str = "01a22a6e-4273-75e4-99f9-618e653259d5";

/// A table with so many snapshots, each with the summary of a streaming writer; every tenth is ours.
fn table(snapshots: i64) -> LoadedTable {
    let snapshot = |n: i64| {
        let ours = n % 10 == 0;
        let mut summary = json!({
            "operation": if ours { "replace" } else { "overwrite" },
            "added-data-files": "2", "added-delete-files": "4", "added-equality-delete-files": "2",
            "added-files-size": format!("{}", 120_000 + n), "added-position-delete-files": "2", "added-records": "1800",
            "changed-partition-count": "3", "flink.job-id": "a2c1b5b1f0b94d0f8a2c9c6d7e1f3b42",
            "flink.max-committed-checkpoint-id": n.to_string(), "flink.operator-id": "cbc357ccb763df2852fee8c4fc7d55f2",
            "total-data-files": (n * 2).to_string(), "total-delete-files": (n * 4).to_string(),
            "total-records": (n * 1800).to_string(), "long": "x".repeat(1000),
        });
        if ours {
            summary[SUMMARY_RUN_ID] = json!(RUN);
        }
        let changes =
            json!({"sequence-number": n, "timestamp-ms": 1_700_000_000_000 + n * 600_000, "summary": summary});
        snapshot(FIRST_ID + n, (n > 1).then(|| FIRST_ID + n - 1), changes)
    };
    loaded(json!({
        "table-uuid": RUN, "last-sequence-number": snapshots, "last-updated-ms": 1_700_000_000_000 + snapshots * 600_000,
        "current-snapshot-id": FIRST_ID + snapshots, "refs": main_at(FIRST_ID + snapshots),
        "snapshots": (1..=snapshots).map(snapshot).collect::<Vec<_>>(),
    }))
}

fn board() -> Board {
    Board::new(1_000, Arc::new(MemoryBudget::new(1 << 20)), Arc::new(ManifestCache::new(1 << 20)))
}

fn name(n: usize) -> TableName {
    format!("lake.db.table_{n}").parse().expect("a name")
}

fn look<'a>(stats: &TableStats, loaded: &'a LoadedTable, policy: &'a ResolvedPolicy) -> TableLook<'a> {
    let partition = |n: u64| PartitionStats {
        partition: format!("hour=2026-11-{:02}-{:02}/region=eu-{}", n % 30, n % 24, n % 3),
        spec_id: 0,
        data_files: 17 + n,
        data_file_bytes: 1_234_567_890 + n * 7919,
        data_records: 55_555 + n * 31,
    };
    let stats = Arc::new(stats.clone());
    TableLook { stats, partitions: (0..100).map(partition).collect(), target_file_size_bytes: 1 << 29, loaded, policy }
}

fn ran(n: i64) -> ActionReport {
    let report = RewriteReport {
        considered_data_files: 100,
        errors: vec![format!("file group {n} failed: {}", "e".repeat(200))],
        ..RewriteReport::default()
    };
    ActionReport {
        outcome: Outcome::Failed,
        duration: Duration::from_secs(60),
        reason: Some("the store was away".into()),
        detail: Some(ActionDetail::RewriteReport(Box::new(report))),
        ..ActionReport::new(Action::RewriteDataFiles)
    }
}

/// Everything that a table can have.
fn fill(board: &Board, name: &TableName, loaded: &LoadedTable, policy: &ResolvedPolicy) {
    board.table_found(name);
    for n in 0..600 {
        let stats = TableStats { data_files: n, ..TableStats::default() };
        // Packing everything each time would only take time.
        let whole = n == 599;
        board.change(name, |table| {
            if whole {
                table.looked(LookedAt::of(look(&stats, loaded, policy), 599_000))
            } else {
                table.sample(&stats, n as i64 * 1000)
            }
        });
    }
    (0..60).for_each(|n| board.ran(name, RUN, &ran(n), n * 3_600_000));
    board.planned(name, &json!({"table": name.to_string()}), 1);
}

fn view(board: &Board, name: &TableName) -> Value {
    serde_json::to_value(board.table(name, 2_000).expect("known")).expect("JSON")
}

#[test]
fn what_is_kept_of_a_table_is_bounded_and_the_newest() {
    let (board, loaded, policy) = (board(), table(250), PolicySet::default().merge(&[]));
    fill(&board, &name(1), &loaded, &policy);
    let view = view(&board, &name(1));
    let list = |key: &str| view[key].as_array().unwrap_or_else(|| panic!("{key}")).clone();
    let samples = list("samples");
    assert_eq!(
        (samples.len(), &samples[0]["data-files"], &samples[499]["data-files"]),
        (500, &json!(100), &json!(599))
    );
    let runs = list("runs");
    assert_eq!((runs.len(), &runs[0]["finished-at-ms"]), (50, &json!(59 * 3_600_000_i64)), "newest first");
    assert_eq!(runs[49]["finished-at-ms"], 10 * 3_600_000_i64);
    assert_eq!(runs[0]["started-at-ms"], 59 * 3_600_000_i64 - 60_000);
    assert!(runs[0]["report"]["errors"][0].as_str().is_some_and(|error| error.starts_with("file group 59 failed")));
    let snapshots = list("snapshots");
    assert_eq!((snapshots.len(), &snapshots[0]["snapshot-id"]), (200, &json!("7000000000000000250")));
    assert_eq!((&snapshots[0]["run-id"], &snapshots[1]["run-id"]), (&json!(RUN), &Value::Null));
    assert_eq!((&snapshots[0]["current"], &snapshots[0]["refs"]), (&json!(true), &json!(["main"])));
    assert_eq!((&snapshots[0]["total-data-files"], &snapshots[0]["total-delete-files"]), (&json!(500), &json!(1000)));
    assert_eq!(snapshots[0]["summary"]["long"].as_str().map(str::len), Some(256), "cut off");
    assert_eq!(list("partitions").len(), 100);
    assert_eq!(list("policy").len(), crate::policy::Setting::KEYS.len());
    assert_eq!(view["plan"], json!({"planned-at-ms": 1, "plan": {"table": "lake.db.table_1"}}));
    // What is not known leaves nothing behind.
    board.ran(&name(2), RUN, &ran(1), 3_600_000);
    assert!(board.table(&name(2), 0).is_none());
    board.table_gone(&name(1));
    assert!(board.table(&name(1), 0).is_none() && !board.knows(&name(1)));
}

#[test]
fn five_hundred_tables_take_little_memory() {
    // Measured in a process of its own: tests that run beside this one take memory too.
    const ALONE: &str = "ICEWRIGHT_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = "report::board::tests::five_hundred_tables_take_little_memory";
        let mut command = std::process::Command::new(std::env::current_exe().expect("a program"));
        let done = command.args(["--exact", test]).env(ALONE, "1").output().expect("started");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (board, loaded, policy) = (board(), table(250), PolicySet::default().merge(&[]));
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
    };
    let before = resident();
    (0..500).for_each(|n| fill(&board, &name(n), &loaded, &policy));
    let each = resident().saturating_sub(before) / 500;
    eprintln!("{each} bytes for each of 500 tables");
    // Far from what uncompressed text would take.
    assert!(each < 256 << 10, "{each} bytes a table");
}

#[test]
fn progress_is_read_when_it_is_asked_for() {
    let board = board();
    board.table_found(&name(1));
    let progress = Arc::new(Progress::default());
    board.table_works(&name(1), Doing::Running(Action::RewriteDataFiles));
    board.rewriting(&name(1), progress.clone(), 1_500);
    assert_eq!(view(&board, &name(1))["progress"]["phase"], "inspect");
    progress.enter(crate::action::Phase::Rewrite);
    progress.finish_group();
    let shown = view(&board, &name(1));
    assert_eq!((&shown["step"], &shown["next-step"]), (&json!("rewrite-data-files"), &Value::Null));
    assert_eq!(
        shown["progress"],
        json!({"phase": "rewrite", "planned-groups": 0, "finished-groups": 1, "planned-bytes": 0,
        "rows": 0, "read-bytes": 0, "written-bytes": 0, "started-at-ms": 1_500})
    );
    board.table_waits(&name(1), Doing::Delay, Next { step: "clean-up", at_ms: 9_000, why: "delay" }, 0, false);
    let shown = view(&board, &name(1));
    assert_eq!((&shown["progress"], &shown["step"]), (&Value::Null, &json!("delay")));
    assert_eq!(shown["next-step"], json!({"step": "clean-up", "at-ms": 9_000, "why": "delay"}));
}
