//! What runs of this project left behind.

use std::time::Duration;

use icewright::plan::remove_orphan_files::{Garbage, KeepReason};
use icewright::policy::Span;
use icewright::run_id::RunId;
use uuid::Uuid;

use super::orphans::{files, table};
use super::world::{HOUR, MINUTE};

/// A run that started at this time; `n` makes it another one.
fn run(started_ms: i64, n: u128) -> RunId {
    RunId(Uuid::from_u128((u128::try_from(started_ms).unwrap() << 80) | (7 << 76) | (2 << 62) | n))
}

#[tokio::test]
async fn runs_that_are_over_leave_provable_garbage() {
    let mut world = table().await;
    let (over, active, recent) =
        (run(world.now_ms - 9 * HOUR, 1), run(world.now_ms - 9 * HOUR, 2), run(world.now_ms - HOUR, 3));
    let name = |run: RunId| format!("data/00000-1-{}-00001.parquet", run.file_token());
    world.active = vec![active];
    world.file(&name(over), 8 * HOUR);
    world.file(&name(active), 8 * HOUR);
    world.file(&name(recent), 50 * MINUTE);
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.removable, Garbage::RunOver), files(&report.kept, KeepReason::ActiveRun)), (1, 2));
    assert!(!world.exists(&name(over)) && world.exists(&name(active)) && world.exists(&name(recent)));
}

/// Its process had a longer run timeout than this one, and a manifest list is written right before a commit is sent.
#[tokio::test]
async fn a_run_that_has_just_written_a_file_may_have_a_commit_on_its_way_however_old_it_is() {
    for (written_ago, goes) in [(50 * MINUTE, false), (61 * MINUTE, true)] {
        let mut world = table().await;
        world.policy.remove_orphan_files.older_than = Span::Fixed(Duration::from_secs(60));
        let token = run(world.now_ms - 30 * HOUR, 1).file_token();
        let output = format!("data/00000-1-{token}-00001.parquet");
        let list = format!("metadata/snap-77-1-{token}.avro");
        world.file(&output, 29 * HOUR);
        world.file(&list, written_ago);
        let found = world.find_orphans().await;
        let report = world.remove_orphans().await;
        for (garbage, kept) in [(&found.removable, &found.kept), (&report.removable, &report.kept)] {
            let expected = if goes { (2, 0) } else { (0, 2) };
            assert_eq!((files(garbage, Garbage::RunOver), files(kept, KeepReason::ActiveRun)), expected);
        }
        assert_eq!((world.exists(&output), world.exists(&list)), (!goes, !goes));
    }
}
