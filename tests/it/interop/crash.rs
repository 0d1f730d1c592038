//! kill -9 of the daemon at every stage of a run: the next start finishes it.

use std::path::Path;

use super::lake::{ALL, AT_ONCE, Engine, Files, Lake, delayed};
use super::process::{Process, wait_for};
use super::proxy::{Fate, Proxy};

/// Whether a file made by a run of the daemon lies anywhere below a folder.
fn has_output(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() { has_output(&path) } else { path.to_string_lossy().contains("icewright-") }
    })
}

/// Starts the daemon on a table large enough to be caught writing, and waits for its first file.
fn caught_writing(lake: &Lake, table: &str) -> Process {
    lake.fixture("", "append", table, &["rows=8000"]);
    let slow = AT_ONCE.replace("rewrite-all = true", "rewrite-all = true\nmax-concurrent-file-group-rewrites = 1");
    let daemon = lake.config(&lake.judge.uri, &slow).run_unready();
    let data = lake.table_dir(table).join("data");
    wait_for("an output file", || if has_output(&data) { Ok(()) } else { Err("none".into()) });
    daemon
}

/// A new daemon on the catalog itself brings the table to its final state; what it looks like then.
fn next_start_finishes(lake: &mut Lake, table: &str) -> Files {
    let daemon = lake.config(&lake.judge.uri, AT_ONCE).run();
    let files = lake.wait_maintained(table);
    assert_eq!(daemon.terminate(), Some(0));
    lake.judge.assert_storage_exact(table);
    assert_eq!(files.delete_manifests(), 0);
    files
}

#[test]
fn killed_while_writing() {
    let mut lake = Lake::start();
    caught_writing(&lake, "logs.written").kill();
    let before = lake.judge.digest("logs.written", ALL);
    assert_eq!(before.rows, 320_000);
    assert!(lake.judge.files("logs.written").runs().iter().all(Option::is_none), "it had committed already");
    assert!(has_output(&lake.table_dir("logs.written").join("data")));

    assert_eq!(next_start_finishes(&mut lake, "logs.written").partitions().len(), 4);
    assert_eq!(lake.judge.digest("logs.written", ALL), before);
}

#[test]
fn asked_to_stop_while_writing() {
    let mut lake = Lake::start();
    let code = caught_writing(&lake, "logs.stopped").terminate();
    assert_eq!(code, Some(0));
    let before = lake.judge.digest("logs.stopped", ALL);
    assert_eq!(before.rows, 320_000);

    assert_eq!(next_start_finishes(&mut lake, "logs.stopped").partitions().len(), 4);
    assert_eq!(lake.judge.digest("logs.stopped", ALL), before);
}

#[test]
fn killed_before_the_catalog_saw_the_commit() {
    let mut lake = Lake::start();
    lake.fixture("file://", "upsert", "db.unsent", &["commits=8"]);
    let before = lake.judge.digest("db.unsent", &[Engine::Java]);
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::HoldBefore]);
    let daemon = lake.config(&proxy.uri, AT_ONCE).run();
    proxy.wait_held();
    daemon.kill();
    assert!(lake.judge.files("db.unsent").runs().iter().all(Option::is_none));

    next_start_finishes(&mut lake, "db.unsent");
    assert_eq!(lake.judge.digest("db.unsent", ALL), before);
}

#[test]
fn killed_before_the_answer_to_the_commit() {
    let mut lake = Lake::start();
    lake.fixture("", "upsert", "db.unheard", &["commits=8"]);
    let before = lake.judge.digest("db.unheard", &[Engine::Java]);
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::HoldAfter]);
    let daemon = lake.config(&proxy.uri, AT_ONCE).run();
    proxy.wait_held();
    daemon.kill();
    let committed = lake.judge.files("db.unheard");
    let ours = *committed.snapshot_ids().last().expect("a snapshot");
    assert!(committed.runs().last().expect("a snapshot").is_some());

    let files = next_start_finishes(&mut lake, "db.unheard");
    assert_eq!(files.snapshot_ids(), [ours], "what was committed needed no second compaction");
    assert_eq!(lake.judge.digest("db.unheard", ALL), before);
}

#[test]
fn killed_between_two_commits_of_partial_progress() {
    let mut lake = Lake::start();
    lake.fixture("", "upsert", "db.partial", &["commits=8"]);
    let before = lake.judge.digest("db.partial", &[Engine::Java]);
    let partial = AT_ONCE.replace(
        "rewrite-all = true",
        "rewrite-all = true\npartial-progress = { enabled = true, max-commits = 5 }\nmax-concurrent-file-group-rewrites = 1",
    );
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::Pass, Fate::HoldBefore]);
    let daemon = lake.config(&proxy.uri, &partial).run();
    proxy.wait_held();
    daemon.kill();
    let halfway = lake.judge.files("db.partial");
    assert_eq!(halfway.runs().iter().flatten().count(), 1);
    assert!(halfway.delete_files() > 0 && halfway.partitions().iter().any(|(_, n)| *n == 1), "{halfway:?}");

    next_start_finishes(&mut lake, "db.partial");
    assert_eq!(lake.judge.digest("db.partial", ALL), before);
}

#[test]
fn killed_in_the_delay() {
    let mut lake = Lake::start();
    lake.fixture("file://", "upsert", "db.delayed", &["commits=8"]);
    let before = lake.judge.digest("db.delayed", &[Engine::Java]);
    let daemon = lake.config(&lake.judge.uri, &delayed()).run();
    let compacted = wait_for("the compaction", || {
        let files = lake.judge.files("db.delayed");
        if files.runs().last().expect("a snapshot").is_some() { Ok(files) } else { Err(format!("{files:?}")) }
    });
    daemon.kill();
    assert_eq!(compacted.snapshot_ids().len(), 9, "nothing has expired yet");

    let files = next_start_finishes(&mut lake, "db.delayed");
    assert_eq!(files.snapshot_ids(), compacted.snapshot_ids()[8..], "no second compaction");
    assert_eq!(lake.judge.digest("db.delayed", ALL), before);
}

#[test]
fn killed_at_the_expiry() {
    let mut lake = Lake::start();
    lake.fixture("", "upsert", "db.expired", &["commits=8"]);
    let before = lake.judge.digest("db.expired", &[Engine::Java]);
    // The expiry is in the table, but none of the files that it freed has been deleted.
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::Pass, Fate::HoldAfter]);
    let daemon = lake.config(&proxy.uri, AT_ONCE).run();
    proxy.wait_held();
    daemon.kill();
    let expired = lake.judge.files("db.expired");
    assert!(expired.maintained(), "{:?}", expired.runs());

    let files = next_start_finishes(&mut lake, "db.expired");
    assert_eq!(files.snapshot_ids(), expired.snapshot_ids());
    assert_eq!(lake.judge.digest("db.expired", ALL), before);
}
