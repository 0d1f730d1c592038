//! Being told to stop: no new steps, no outputs left, and a commit under way comes to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use icewright::testing::{CommitFault, Operation, StoreFault};

use super::scheduler::{Daemon, until};
use super::world::{HOUR, Lake, MINUTE};

async fn lake() -> Lake {
    let lake = Lake::new();
    lake.create("t");
    lake.append("t", 0..4).await;
    lake.append("t", 0..4).await;
    lake
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_a_rewrite_leaves_no_outputs() {
    let lake = lake().await;
    let before = lake.rows("t").await;
    let daemon = Daemon::start(&lake, 1);
    let cancel = daemon.cancel.clone();
    let stop = move || {
        cancel.cancel();
        async {}.boxed()
    };
    lake.faulty.inject_on("/data/", Operation::Create, 1..2, StoreFault::After(Arc::new(stop)));
    tokio::time::timeout(MINUTE, daemon.scheduler).await.expect("the loop ends").expect("no panic");
    tokio::time::timeout(MINUTE, daemon.collector).await.expect("the collector ends").expect("no panic");
    assert!(daemon.cancel.is_cancelled(), "the stop came");
    assert_eq!(lake.left_outputs("t").await, [""; 0]);
    assert_eq!((lake.snapshots("t").await, lake.rows("t").await), (2, before));
}

#[tokio::test(start_paused = true)]
async fn a_commit_under_way_comes_to_its_end() {
    let lake = lake().await;
    let before = lake.rows("t").await;
    let daemon = Daemon::start(&lake, 1);
    let cancel = daemon.cancel.clone();
    let stop = move || {
        cancel.cancel();
        tokio::time::sleep(Duration::from_secs(5)).boxed()
    };
    lake.catalog.script([CommitFault::After(Arc::new(stop))]);
    daemon.scheduler.await.expect("no panic");
    assert_eq!((lake.files("t").await.len(), lake.rows("t").await), (4, before));
    assert_eq!(lake.left_outputs("t").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_on_once_the_scheduler_is_dropped() {
    let lake = lake().await;
    let reached = Arc::new(AtomicBool::new(false));
    let hang = {
        let reached = reached.clone();
        move || {
            reached.store(true, Ordering::Relaxed);
            tokio::time::sleep(HOUR).boxed()
        }
    };
    lake.catalog.script([CommitFault::After(Arc::new(hang))]);
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "the commit hangs", || async { reached.load(Ordering::Relaxed) }).await;
    daemon.cancel.cancel();
    let mut scheduler = daemon.scheduler;
    let grace = tokio::time::timeout(Duration::from_secs(30), &mut scheduler).await;
    assert!(grace.is_err(), "it waits for the commit");
    scheduler.abort();
    assert!(scheduler.await.expect_err("aborted").is_cancelled());
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!(lake.snapshots("t").await, 2, "the worker went with it");
}
