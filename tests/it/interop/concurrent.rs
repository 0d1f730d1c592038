//! Others commit while the daemon works, and answers get lost.

use std::time::Duration;

use super::lake::{ALL, AT_ONCE, Digest, Engine, Lake};
use super::proxy::{Fate, Proxy};

#[test]
fn appends_beside_the_daemon_are_all_kept() {
    let mut lake = Lake::start();
    lake.fixture("file://", "append", "logs.busy", &["deletes=10"]);
    let before = lake.judge.digest("logs.busy", ALL);
    // Each commit of the daemon is slow enough for an append to come first.
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::Late(Duration::from_millis(400))]);
    let appends = ["append", "logs.busy", "--commits", "25", "--rows", "100", "--pause", "0.1"];
    let writer = lake.judge.start(&appends, lake.path("append.log"));
    let mut daemon = lake.config(&proxy.uri, AT_ONCE).run(&[]);

    let answer = writer.finish();
    let appended = Digest::from_json(&serde_json::from_str(answer.trim()).expect("a JSON answer"));
    assert_eq!(appended.rows, 2500);
    let files = lake.wait_maintained("logs.busy");
    daemon.assert_running();
    assert_eq!(daemon.terminate(), Some(0));

    assert!(proxy.conflicts() > 0, "nothing was tested: no commit met another");
    assert_eq!(files.partitions().len(), 4);
    lake.judge.assert_storage_exact("logs.busy", |_| false);
    assert_eq!(lake.judge.digest("logs.busy", ALL), before.plus(appended));
}

#[test]
fn a_lost_answer_is_found_out() {
    let mut lake = Lake::start();
    lake.fixture("", "upsert", "db.lost", &["commits=6"]);
    let before = lake.judge.digest("db.lost", &[Engine::Java]);
    let proxy = Proxy::start(&lake.judge.uri, &[Fate::LoseAnswer, Fate::Pass]);
    let daemon = lake.config(&proxy.uri, AT_ONCE).run(&[]);

    let files = lake.wait_maintained("db.lost");
    assert_eq!(daemon.terminate(), Some(0));

    assert_eq!(proxy.commits(), 2, "one compaction, one expiry");
    assert_eq!(files.partitions().len(), 5);
    lake.judge.assert_storage_exact("db.lost", |_| false);
    assert_eq!(lake.judge.digest("db.lost", ALL), before);
}
