//! What operators ask of a running scheduler.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use icewright::catalog::Catalog;
use icewright::error::ErrorKind;
use icewright::table::TableName;
use icewright::testing::{CommitFault, Operation, StoreFault};

use super::scheduler::{Daemon, grown, until};
use super::world::{HOUR, Lake, MINUTE, ident};

fn name(table: &str) -> TableName {
    format!("lake.db.{table}").parse().expect("a name")
}

/// Until the table is maintained.
async fn found(daemon: &Daemon, table: &str) {
    until(MINUTE, "found", || async { daemon.maintained.borrow().contains(&name(table)) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_table_begins_nothing_and_others_go_on() {
    let lake = Lake::new();
    grown(&lake, "a").await;
    grown(&lake, "b").await;
    let daemon = Daemon::start(&lake, 2);
    until(MINUTE, "compacted", || async { (lake.files("a").await.len(), lake.files("b").await.len()) == (2, 2) }).await;
    daemon.control.pause(Some(&name("a")), "incident 7".into()).await.expect("paused");
    until(HOUR, "b is cleaned", || async { lake.snapshots("b").await == 1 }).await;
    tokio::time::sleep(7 * HOUR).await;
    assert_eq!(lake.snapshots("a").await, 3, "its clean-up waits");
    let error = daemon.control.run_now(&name("a")).await.expect_err("paused");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.to_string(), "lake.db.a is paused (incident 7): resume it first");

    daemon.control.resume(Some(&name("a"))).await.expect("resumed");
    until(MINUTE, "a is cleaned", || async { lake.snapshots("a").await == 1 }).await;
    daemon.control.resume(Some(&name("a"))).await.expect("nothing to resume is fine");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_that_comes_back_is_still_paused() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "compacted", || async { lake.files("t").await.len() == 2 }).await;
    daemon.control.pause(Some(&name("t")), "repair".into()).await.expect("paused");
    let loaded = lake.catalog.load_table(&ident("t")).await.expect("the table");
    let file = lake.store.content(&loaded.metadata_location).expect("its metadata file");
    let document: serde_json::Value = serde_json::from_slice(&file).expect("a document");
    lake.catalog.drop_table(&ident("t"));
    until(MINUTE, "forgotten", || async { daemon.maintained.borrow().is_empty() }).await;
    lake.catalog.register_json(&ident("t"), loaded.metadata_location.clone(), document.clone()).expect("registered");
    until(MINUTE, "found", || async { daemon.maintained.borrow().len() == 1 }).await;
    tokio::time::sleep(7 * HOUR).await;
    assert_eq!(lake.snapshots("t").await, 3, "its clean-up waits");
    assert_eq!(daemon.value("icewright_table_paused", "table=\"t\""), 1.0);
    // A pause of a table that is not there can be ended as well.
    lake.catalog.drop_table(&ident("t"));
    until(MINUTE, "forgotten", || async { daemon.maintained.borrow().is_empty() }).await;
    daemon.control.resume(Some(&name("t"))).await.expect("resumed");
    lake.catalog.register_json(&ident("t"), loaded.metadata_location.clone(), document).expect("registered");
    until(HOUR, "cleaned", || async { lake.snapshots("t").await == 1 }).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_daemon_ends_what_runs_and_begins_nothing() {
    let lake = Lake::new();
    grown(&lake, "a").await;
    grown(&lake, "b").await;
    let slow = || tokio::time::sleep(10 * MINUTE).boxed();
    let appended = lake.catalog.commits();
    lake.catalog.script([CommitFault::After(Arc::new(slow))]);
    let daemon = Daemon::start(&lake, 1);
    found(&daemon, "a").await;
    until(MINUTE, "one commits", || async { lake.catalog.commits() > appended }).await;
    daemon.control.pause(None, "quiet hours".into()).await.expect("paused");
    daemon.control.pause(Some(&name("a")), "also".into()).await.expect("paused");
    until(HOUR, "the running one ends", || async {
        daemon.runs("a", "rewrite-data-files", "success") + daemon.runs("b", "rewrite-data-files", "success") == 1.0
    })
    .await;
    tokio::time::sleep(7 * HOUR).await;
    assert_eq!(lake.snapshots("a").await + lake.snapshots("b").await, 5);
    let error = daemon.control.run_now(&name("b")).await.expect_err("paused");
    assert_eq!(error.to_string(), "everything is paused (quiet hours): resume it first");
    daemon.control.pause(None, String::new()).await.expect("paused");
    let error = daemon.control.run_now(&name("b")).await.expect_err("paused");
    assert_eq!(error.to_string(), "everything is paused: resume it first");

    daemon.control.resume(None).await.expect("resumed");
    until(2 * HOUR, "b is done", || async { lake.snapshots("b").await == 1 }).await;
    assert_ne!(lake.snapshots("a").await, 1, "the table's own pause is another");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn run_now_compacts_before_the_schedule_and_leaves_the_delay() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    until(HOUR, "a whole run", || async { lake.snapshots("t").await == 1 }).await;
    lake.append("t", 0..2).await;
    let litter = lake.litter("t");
    daemon.control.run_now(&name("t")).await.expect("taken");
    until(MINUTE, "compacted", || async { lake.files("t").await.len() == 2 }).await;
    let committed = lake.newest_ms("t").await;
    // Once more, in the middle of the delay: it begins anew if there was work.
    tokio::time::sleep(20 * MINUTE).await;
    daemon.control.run_now(&name("t")).await.expect("taken");
    let runs =
        || ["success", "skipped"].map(|outcome| daemon.runs("t", "rewrite-data-files", outcome)).iter().sum::<f64>();
    until(MINUTE, "ran", || async { runs() >= 3.0 }).await;
    assert!(lake.has(&litter), "the clean-up keeps its delay");
    let last = lake.newest_ms("t").await.max(committed);
    until(HOUR, "cleaned", || async { !lake.has(&litter) }).await;
    assert!(lake.clock.now_ms() - last >= 30 * 60_000);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn run_now_leaves_a_back_off_and_comes_before_others_within_the_limit() {
    let lake = Lake::new();
    grown(&lake, "bad").await;
    for operation in [Operation::Read, Operation::ReadRange] {
        lake.faulty.inject_on("/db/bad/data/", operation, 0..usize::MAX, StoreFault::fail());
    }
    let daemon = Daemon::start(&lake, 1);
    let failed = || daemon.runs("bad", "rewrite-data-files", "failed");
    // The next attempt is due in eight minutes.
    until(HOUR, "backs off for long", || async { failed() == 4.0 }).await;
    // Others are due and hold the only worker.
    for other in ["u", "v", "w"] {
        grown(&lake, other).await;
    }
    let slow = || tokio::time::sleep(2 * MINUTE).boxed();
    lake.catalog.script([(); 3].map(|()| CommitFault::After(Arc::new(slow))));
    let appended = lake.catalog.commits();
    until(MINUTE, "another commits", || async { lake.catalog.commits() > appended }).await;
    daemon.control.run_now(&name("bad")).await.expect("taken");
    daemon.control.run_now(&name("bad")).await.expect("queued already");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(failed(), 4.0, "no worker is free");
    let others = || async { lake.files("u").await.len() + lake.files("v").await.len() + lake.files("w").await.len() };
    until(3 * MINUTE, "tried", || async { failed() == 5.0 }).await;
    assert_eq!(others().await, 10, "the others come after it");
    until(5 * MINUTE, "compacted", || async { others().await == 6 }).await;
    assert_eq!(failed(), 5.0, "it waits longer than ever");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn orders_about_unknown_tables_and_to_a_stopped_scheduler_are_refused() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    found(&daemon, "t").await;
    for result in [
        daemon.control.run_now(&name("nobody")).await,
        daemon.control.pause(Some(&name("nobody")), String::new()).await,
        daemon.control.resume(Some(&name("nobody"))).await,
    ] {
        assert_eq!(result.expect_err("not maintained").kind(), ErrorKind::NotFound);
    }
    lake.catalog.drop_table(&ident("t"));
    until(MINUTE, "gone", || async { daemon.maintained.borrow().is_empty() }).await;
    assert_eq!(daemon.control.run_now(&name("t")).await.expect_err("gone").kind(), ErrorKind::NotFound);
    let control = daemon.control.clone();
    daemon.stop().await;
    let start = tokio::time::Instant::now();
    assert_eq!(control.resume(None).await.expect_err("stopped").kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(1), "at once");
}
