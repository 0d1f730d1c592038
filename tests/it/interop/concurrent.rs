//! Others commit while the daemon works, and answers get lost.

use std::time::Duration;

use super::lake::{ALL, AT_ONCE, Digest, Engine, Lake, careful};
use super::proxy::{Fate, Proxy};

/// Now that no one else writes, whatever the writers gave up may go as well.
fn assert_nothing_else_is_left(lake: &Lake, table: &str) {
    lake.config(&lake.judge.uri, AT_ONCE).once(&format!("lake.{table}"), &[]);
    lake.judge.assert_storage_exact(table);
}

#[test]
fn appends_beside_the_daemon_are_all_kept() {
    let mut lake = Lake::start();
    lake.fixture("file://", "append", "logs.busy", &["deletes=10"]);
    let before = lake.judge.digest("logs.busy", ALL);
    // Each commit of the daemon is slow enough for an append to come first.
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::Late(Duration::from_millis(400))]);
    let appends = ["append", "logs.busy", "--commits", "25", "--rows", "100", "--pause", "0.1"];
    let writer = lake.judge.start(&appends, lake.path("append.log"));
    let mut daemon = lake.config(&proxy.uri, &careful()).run();

    let appended = Digest::from_json(&writer.finish());
    assert_eq!(appended.rows, 2500);
    let files = lake.wait_maintained_beside_others("logs.busy");
    daemon.assert_running();
    assert_eq!(daemon.terminate(), Some(0));

    assert!(proxy.conflicts() > 0, "nothing was tested: no commit met another");
    assert_eq!(files.partitions().len(), 4);
    assert_nothing_else_is_left(&lake, "logs.busy");
    assert_eq!(lake.judge.digest("logs.busy", ALL), before.plus(appended));
}

#[test]
fn upserts_beside_the_daemon_end_as_without_it() {
    let mut lake = Lake::start();
    lake.remote_fixture("upsert", "db.stream", &["commits=6"]);
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::Late(Duration::from_millis(200))]);
    let daemon = lake.config(&proxy.uri, &careful()).run();
    lake.remote_fixture("upsert", "db.stream", &["from=6", "commits=18", "pause=200"]);
    assert_eq!(lake.wait_maintained_beside_others("db.stream").partitions().len(), 5);
    assert_eq!(daemon.terminate(), Some(0));

    assert!(proxy.conflicts() > 0, "nothing was tested: no commit met another");
    assert_nothing_else_is_left(&lake, "db.stream");
    lake.remote_fixture("upsert", "db.twin", &["commits=18"]);
    let expected = lake.judge.digest("db.twin", &[Engine::Java, Engine::DuckDb]);
    assert_eq!(lake.judge.digest("db.stream", ALL), expected);
}

/// Equality deletes that arrive between a compaction's plan and its commit must still find the rows that it moved.
#[test]
fn an_upsert_between_plan_and_commit_applies_to_the_compacted_rows() {
    let mut lake = Lake::start();
    lake.remote_fixture("upsert", "db.between", &["commits=6"]);
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::Gate, Fate::Pass]);
    let daemon = lake.patient_config(&proxy.uri, AT_ONCE).run();
    proxy.wait_held();
    lake.remote_fixture("upsert", "db.between", &["from=6", "commits=8"]);
    let expected = lake.judge.digest("db.between", &[Engine::Java, Engine::DuckDb]);
    proxy.release();

    lake.wait_maintained("db.between");
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(proxy.conflicts(), 1);
    assert_eq!(lake.judge.digest("db.between", ALL), expected);
    lake.judge.assert_storage_exact("db.between");
}

/// Position deletes of files that a compaction is about to replace: the compaction has to start again.
#[test]
fn a_position_delete_between_plan_and_commit_is_not_undone() {
    let mut lake = Lake::start();
    lake.fixture("file://", "append", "logs.between", &["files=8"]);
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::Gate, Fate::Pass]);
    let daemon = lake.patient_config(&proxy.uri, AT_ONCE).run();
    proxy.wait_held();
    lake.remote_fixture("delete", "logs.between", &["every=4"]);
    let expected = lake.judge.digest("logs.between", ALL);
    assert_eq!(expected.rows, 3000);
    proxy.release();

    lake.wait_maintained("logs.between");
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(proxy.conflicts(), 1);
    assert_eq!(lake.judge.digest("logs.between", ALL), expected);
    lake.judge.assert_storage_exact("logs.between");
}

#[test]
fn a_lost_answer_is_found_out() {
    let mut lake = Lake::start();
    lake.fixture("", "upsert", "db.lost", &["commits=6"]);
    let before = lake.judge.digest("db.lost", &[Engine::Java]);
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::LoseAnswer, Fate::Pass]);
    let daemon = lake.config(&proxy.uri, AT_ONCE).run();

    let files = lake.wait_maintained("db.lost");
    assert_eq!(daemon.terminate(), Some(0));

    assert_eq!(proxy.commits(), 2, "one compaction, one expiry");
    assert_eq!(files.partitions().len(), 5);
    lake.judge.assert_storage_exact("db.lost");
    assert_eq!(lake.judge.digest("db.lost", ALL), before);
}
