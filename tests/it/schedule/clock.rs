//! A wall clock that is wrong, and is set right.

use std::sync::atomic::Ordering;

use icewright::action::Outcome;
use icewright::testing::CommitFault;

use super::scheduler::{Daemon, grown, until};
use super::world::{HOUR, Lake, MINUTE, POLICY};

const TWO_DAYS_MS: i64 = 2 * 24 * 3_600_000;

#[tokio::test(start_paused = true)]
async fn steps_go_on_after_the_clock_is_set_back() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    lake.ahead_ms.store(TWO_DAYS_MS, Ordering::Relaxed);
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "compacted", || async { daemon.runs("t", "rewrite-data-files", "success") == 1.0 }).await;
    // In the delay, and with a commit in the table that is dated two days ahead.
    lake.ahead_ms.store(0, Ordering::Relaxed);
    until(MINUTE, "nothing to wait for", || async { daemon.runs("t", "remove-orphan-files", "skipped") == 1.0 }).await;
    assert_eq!(daemon.value("icewright_table_refused", "action=\"remove-orphan-files\""), 1.0, "the table is ahead");
    lake.append("t", 0..2).await;
    until(7 * HOUR, "the schedule goes on", || async { daemon.runs("t", "rewrite-data-files", "success") == 2.0 })
        .await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_after_a_failure_is_no_longer_when_the_clock_is_set_back() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    lake.catalog.script(vec![CommitFault::UnknownNotApplied; 5]);
    lake.ahead_ms.store(TWO_DAYS_MS, Ordering::Relaxed);
    let daemon = Daemon::start(&lake, 1);
    until(HOUR, "failed", || async { daemon.runs("t", "rewrite-data-files", "unknown") == 1.0 }).await;
    lake.ahead_ms.store(0, Ordering::Relaxed);
    until(2 * MINUTE, "tried again", || async { daemon.runs("t", "rewrite-data-files", "success") == 1.0 }).await;
    daemon.stop().await;
}

/// The run's id tells others when it began, and so when its files are garbage. Not every catalog dates its answers.
#[tokio::test(start_paused = true)]
async fn no_compaction_begins_by_a_clock_far_from_the_catalogs_or_the_stores() {
    for (beside, catalog_tells) in [(-25, true), (25, true), (-25, false), (25, false)] {
        let lake = Lake::new();
        grown(&lake, "t").await;
        let tell = |time_ms| match catalog_tells {
            true => lake.catalog.tell_time_ms(Some(time_ms)),
            false => lake.store.tell_time_ms(Some(time_ms)),
        };
        tell(lake.clock.now_ms() + beside * 3_600_000);
        let commits = lake.catalog.commits();
        let report = lake.compact(&lake.env(), "t", POLICY).await;
        assert!(report.refused && report.outcome == Outcome::Skipped, "{report:?}");
        assert!(report.reason.is_some_and(|reason| reason.contains("clock_skew")));
        assert_eq!(lake.catalog.commits(), commits);
        tell(lake.clock.now_ms());
        assert_eq!(lake.compact(&lake.env(), "t", POLICY).await.outcome, Outcome::Success);
    }
}

/// Otherwise the table would wait for its next run, perhaps for a day.
#[tokio::test(start_paused = true)]
async fn what_was_refused_by_a_wrong_clock_is_done_once_it_is_set_right() {
    let policy = POLICY.replace("every = \"6h\"", "every = \"1d\"").replace("delay = \"3x\"", "delay = \"2m\"");
    for wrong_by in [TWO_DAYS_MS, -TWO_DAYS_MS] {
        let lake = Lake::new();
        grown(&lake, "t").await;
        let daemon = Daemon::with_fleet(&lake, lake.fleet(&policy), 1);
        let done = |outcome: &'static str| {
            let daemon = &daemon;
            move || async move { daemon.runs("t", "remove-orphan-files", outcome) >= 1.0 }
        };
        until(MINUTE, "compacted", || async { daemon.runs("t", "rewrite-data-files", "success") == 1.0 }).await;
        // In the delay.
        lake.catalog.tell_time_ms(Some(lake.clock.now_ms()));
        lake.ahead_ms.store(wrong_by, Ordering::Relaxed);
        until(MINUTE, "refused", done("skipped")).await;
        lake.ahead_ms.store(0, Ordering::Relaxed);
        until(4 * MINUTE, "done when the delay is over", done("success")).await;
        assert_eq!(daemon.runs("t", "rewrite-data-files", "success"), 1.0);
        daemon.stop().await;
    }
}
