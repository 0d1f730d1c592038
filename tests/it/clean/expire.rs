//! Expiry and what it deletes.

use std::sync::Arc;

use futures::FutureExt;
use icewright::clean::{ExpireOutcome, FileKind, Tally};
use icewright::error::{Error, ErrorKind};
use icewright::testing::{CommitFault, Operation, StoreFault};
use serde_json::json;

use super::world::{DAY, HOUR, LOCATION, World};

/// Three appends and a compaction of the first two files, hours apart.
async fn compacted() -> World {
    let mut world = World::new().await;
    world.commit(1, None, 8 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, Some(1), 7 * HOUR, &["data/b.parquet"], &[]).await;
    world.commit(3, Some(2), 6 * HOUR, &["data/ab.parquet"], &["data/a.parquet", "data/b.parquet"]).await;
    world.commit(4, Some(3), 5 * HOUR, &["data/c.parquet"], &[]).await;
    world
}

fn tally(files: u64, bytes: u64) -> Tally {
    Tally { files, bytes }
}

#[tokio::test]
async fn what_only_expired_snapshots_reached_is_deleted() {
    let world = compacted().await;
    let report = world.expire().await;
    assert_eq!((report.outcome, report.expired_snapshots), (ExpireOutcome::Committed, 3));
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!(report.deleted.get(&FileKind::DataFile), Some(&tally(2, 20)));
    assert_eq!(report.deleted.get(&FileKind::Manifest).map(|t| t.files), Some(2));
    let lists = report.deleted.get(&FileKind::ManifestList).expect("lists of expired snapshots");
    assert!(lists.files == 3 && lists.bytes > 3 * 100, "with their bytes: {lists:?}");
    assert!(report.failed.is_empty() && report.kept.is_empty(), "{report:?}");
    world.assert_readable(4);
    let lists = world.left().iter().filter(|p| p.contains("snap-")).count();
    assert_eq!((lists, world.exists("data/a.parquet"), world.exists("data/b.parquet")), (1, false, false));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["deleted"]["data-file"]["files"], 2);
}

#[tokio::test]
async fn nothing_to_expire_sends_nothing() {
    let mut world = World::new().await;
    world.commit(1, None, HOUR, &["data/a.parquet"], &[]).await;
    let report = world.expire().await;
    assert_eq!((report.outcome, world.catalog.commits()), (ExpireOutcome::Nothing, 0));
    assert!(
        report.reason.as_deref().is_some_and(|why| why.contains("1 kept: among the last 1 of branch main")),
        "{report:?}"
    );
}

#[tokio::test]
async fn nothing_expires_without_gc_and_the_report_says_why() {
    let mut world = compacted().await;
    world.metadata["properties"] = json!({"gc.enabled": "false"});
    world.publish(0);
    let report = world.expire().await;
    assert_eq!((report.outcome, world.catalog.commits()), (ExpireOutcome::Nothing, 0));
    assert!(report.reason.as_deref().is_some_and(|why| why.contains("gc.enabled = false")), "{report:?}");
}

#[tokio::test]
async fn history_with_a_tag_a_branch_and_a_cherry_pick_keeps_every_needed_file() {
    let mut world = World::new().await;
    world.commit(1, None, 20 * DAY, &["data/1.parquet"], &[]).await;
    world.commit(2, Some(1), 19 * DAY, &["data/2.parquet"], &["data/1.parquet"]).await;
    world.commit(3, Some(2), 18 * DAY, &["data/3.parquet"], &[]).await;
    world.commit(4, Some(3), 17 * DAY, &["data/4.parquet"], &["data/2.parquet"]).await;
    // Staged on 4, then picked: snapshot 6 adds the same file to main.
    world.snapshot(5, Some(4), 16 * DAY, &["data/5.parquet"], &[]).await;
    world.commit(6, Some(4), 15 * DAY, &["data/5.parquet"], &["data/3.parquet"]).await;
    world.metadata["refs"]["audit"] = json!({"snapshot-id": 2, "type": "tag"});
    world.metadata["refs"]["side"] = json!({"snapshot-id": 3, "type": "branch"});
    world.metadata["refs"]["aged"] = json!({"snapshot-id": 1, "type": "tag", "max-ref-age-ms": DAY});
    world.publish(DAY);
    let report = world.expire().await;
    assert_eq!(report.removed_refs, ["aged"]);
    assert_eq!(report.expired_snapshots, 3, "1, 4 and the staged 5");
    for id in [2, 3, 6] {
        world.assert_readable(id);
    }
    assert!(!world.exists("data/1.parquet"), "only 1 had it live");
    assert!(world.exists("data/5.parquet"), "the staged snapshot's file is live in the pick");
    assert!(
        world.exists("data/2.parquet") && world.exists("data/3.parquet"),
        "removed on main, live on tag and branch"
    );
}

#[tokio::test]
async fn a_rolled_back_snapshot_takes_its_own_files_only() {
    let mut world = World::new().await;
    world.commit(1, None, 3 * DAY, &["data/1.parquet"], &[]).await;
    world.commit(2, Some(1), 2 * DAY, &["data/2.parquet"], &["data/1.parquet"]).await;
    world.commit(3, Some(1), DAY, &["data/3.parquet"], &[]).await;
    world.expire().await;
    world.assert_readable(3);
    assert!(world.exists("data/1.parquet"), "2 had removed it, 3 has it");
    assert!(!world.exists("data/2.parquet"));
}

#[tokio::test]
async fn statistics_leave_with_their_snapshot_unless_reused() {
    let mut world = compacted().await;
    world.statistics(1, "metadata/1.stats", "metadata/1.parquet", 8 * HOUR);
    world.statistics(2, "metadata/2.stats", "metadata/2.parquet", 7 * HOUR);
    world.statistics(4, "metadata/4.stats", "metadata/2.parquet", 5 * HOUR);
    world.publish(5 * HOUR);
    let report = world.expire().await;
    assert_eq!(report.deleted.get(&FileKind::StatisticsFile).map(|t| t.files), Some(3));
    for (path, left) in
        [("1.stats", false), ("1.parquet", false), ("2.stats", false), ("2.parquet", true), ("4.stats", true)]
    {
        assert_eq!(world.exists(&format!("metadata/{path}")), left, "{path}");
    }
}

#[tokio::test]
async fn an_unreadable_retained_manifest_or_list_stops_everything() {
    for part in ["metadata/snap-4-", "000000000003-m0.avro", "000000000004-m0.avro"] {
        let world = compacted().await;
        let before = world.store.paths();
        world.faulty.inject_on(part, Operation::Read, 0..99, StoreFault::fail());
        let report = world.expire().await;
        assert_eq!(report.outcome, ExpireOutcome::NotCommitted, "{part}");
        assert!(report.error.is_some(), "{part}");
        assert_eq!(world.store.paths(), before, "{part}");
    }
}

#[tokio::test]
async fn a_missing_retained_manifest_stops_everything_too() {
    let world = compacted().await;
    let fault = StoreFault::Fail(Error::new(ErrorKind::NotFound, "gone"));
    world.faulty.inject_on("000000000003-m0.avro", Operation::Read, 0..99, fault);
    let report = world.expire().await;
    assert_eq!((report.outcome, world.catalog.commits()), (ExpireOutcome::NotCommitted, 0));
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_snapshot_that_is_broken_already_can_still_expire() {
    let world = compacted().await;
    let fault = StoreFault::Fail(Error::new(ErrorKind::NotFound, "gone"));
    world.faulty.inject_on("metadata/snap-1-", Operation::Read, 0..99, fault);
    let report = world.expire().await;
    assert_eq!((report.outcome, report.expired_snapshots), (ExpireOutcome::Committed, 3));
    assert_eq!(report.kept.get("not-followed").map(|t| t.files), Some(1));
    assert!(world.exists("metadata/snap-2-1-0b9a9e3c-5d0f-4e5c-9d5e-000000000002.avro"), "lists stay as proof");
    world.assert_readable(4);
}

#[tokio::test]
async fn an_unknown_outcome_deletes_nothing() {
    for fault in [CommitFault::UnknownApplied, CommitFault::UnknownNotApplied] {
        let world = compacted().await;
        world.catalog.script(vec![fault; 20]);
        let report = world.expire().await;
        if report.outcome != ExpireOutcome::Committed {
            assert_eq!(report.outcome, ExpireOutcome::Unknown);
            assert!(report.error.is_some() && report.deleted.is_empty());
            assert!(world.store.deleted().is_empty());
        }
        world.assert_readable(4);
    }
}

#[tokio::test]
async fn a_refused_commit_deletes_nothing() {
    let world = compacted().await;
    world.catalog.script(vec![CommitFault::Refused; 20]);
    let report = world.expire().await;
    assert_eq!(report.outcome, ExpireOutcome::NotCommitted);
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_catalog_that_is_down_after_the_commit_deletes_nothing() {
    let world = compacted().await;
    let plan = world.plan().await;
    let catalog = world.catalog.clone();
    let goes_down = move || {
        catalog.fail_loads(99);
        async {}.boxed()
    };
    world.catalog.script([CommitFault::After(Arc::new(goes_down))]);
    let report = world.carry_out(&plan).await;
    assert_eq!((report.outcome, report.expired_snapshots), (ExpireOutcome::Committed, 3));
    assert!(report.error.is_some() && report.deleted.is_empty());
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_snapshot_committed_during_the_expiry_keeps_its_files() {
    let mut world = compacted().await;
    let plan = world.plan().await;
    // Meanwhile another writer brings the compacted file back.
    world.commit(5, Some(4), 0, &["data/a.parquet"], &[]).await;
    let report = world.carry_out(&plan).await;
    assert!(report.error.is_none(), "{:?}", report.error);
    assert!(world.exists("data/a.parquet"), "live in 5");
    world.assert_readable(5);
}

/// Runs `change` on the table just before the next commit arrives.
fn before_commit(world: &World, change: impl Fn(&mut World) + Send + Sync + 'static) -> CommitFault {
    let world = Arc::new(tokio::sync::Mutex::new(world.clone()));
    let change = Arc::new(change);
    CommitFault::After(Arc::new(move || {
        let (world, change) = (world.clone(), change.clone());
        async move {
            let mut world = world.lock().await;
            change(&mut world);
            world.publish(0);
        }
        .boxed()
    }))
}

#[tokio::test]
async fn a_branch_that_grows_during_the_expiry_does_not_stop_it() {
    let mut world = compacted().await;
    let plan = world.plan().await;
    world.snapshot(5, Some(4), 0, &["data/d.parquet", "data/a.parquet"], &[]).await;
    world.metadata["snapshots"].as_array_mut().unwrap().pop();
    let snapshot = world.last_snapshot.clone();
    let grow = before_commit(&world, move |world| {
        world.metadata["snapshots"].as_array_mut().unwrap().push(snapshot.clone());
        world.metadata["refs"]["main"]["snapshot-id"] = 5.into();
        world.metadata["current-snapshot-id"] = 5.into();
    });
    world.catalog.script([grow]);
    let report = world.carry_out(&plan).await;
    assert_eq!((report.outcome, report.expired_snapshots), (ExpireOutcome::Committed, 3), "{:?}", report.error);
    world.assert_readable(5);
    assert!(world.exists("data/a.parquet") && !world.exists("data/b.parquet"), "5 brought a back");
}

#[tokio::test]
async fn a_ref_set_while_files_are_read_stops_the_expiry() {
    for kind in ["tag", "branch"] {
        let mut world = compacted().await;
        let plan = world.plan().await;
        let table = world.table().await;
        world.metadata["refs"]["saved"] = json!({"snapshot-id": 2, "type": kind});
        world.publish(0);
        let report = world.carry_out_on(&table, &plan).await;
        assert_eq!((report.outcome, world.catalog.commits()), (ExpireOutcome::NotCommitted, 0));
        assert!(report.error.unwrap().to_string().contains("saved"));
        world.assert_readable(2);
    }
}

#[tokio::test]
async fn a_ref_that_the_catalog_dropped_on_the_way_saves_the_files() {
    let world = compacted().await;
    let plan = world.plan().await;
    // Too late for any check: the catalog applies the expiry and forgets the tag.
    let tag = before_commit(&world, |world| world.metadata["refs"]["saved"] = json!({"snapshot-id": 2, "type": "tag"}));
    world.catalog.script([tag]);
    let report = world.carry_out(&plan).await;
    assert!(report.error.unwrap().to_string().contains("ref saved was set on snapshot 2"));
    assert!(world.store.deleted().is_empty());
    world.assert_readable(2);
}

#[tokio::test]
async fn a_rollback_during_the_expiry_stops_it() {
    let world = compacted().await;
    let plan = world.plan().await;
    let rollback = before_commit(&world, |world| {
        world.metadata["refs"]["main"]["snapshot-id"] = 2.into();
        world.metadata["current-snapshot-id"] = 2.into();
    });
    world.catalog.script([rollback]);
    let report = world.carry_out(&plan).await;
    assert_eq!(report.outcome, ExpireOutcome::NotCommitted);
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_file_that_comes_back_between_two_batches_is_spared() {
    let mut world = World::new().await;
    let names: Vec<String> = (0..1100).map(|i| format!("data/{i:04}.parquet")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world.commit(1, None, 8 * HOUR, &names, &[]).await;
    world.commit(2, Some(1), 7 * HOUR, &["data/all.parquet"], &names).await;
    let plan = world.plan().await;
    let racing = tokio::sync::Mutex::new(world.clone());
    let racing = Arc::new(racing);
    let race = move || {
        let racing = racing.clone();
        async move {
            let mut racing = racing.lock().await;
            racing.metadata["snapshots"].as_array_mut().unwrap().retain(|s| s["snapshot-id"] != 1);
            racing.snapshot(3, Some(2), 0, &["data/1099.parquet"], &[]).await;
            racing.metadata["refs"]["main"]["snapshot-id"] = 3.into();
            racing.metadata["current-snapshot-id"] = 3.into();
            racing.publish(0);
        }
        .boxed()
    };
    world.faulty.inject(Operation::Delete, 0..1, StoreFault::After(Arc::new(race)));
    let report = world.carry_out(&plan).await;
    assert_eq!(report.deleted.get(&FileKind::DataFile).map(|t| t.files), Some(1099));
    assert_eq!(report.kept.get("referenced-again").map(|t| t.files), Some(1));
    assert!(world.exists("data/1099.parquet"));
}

#[tokio::test]
async fn failed_deletions_are_told_and_keep_their_proof() {
    let world = compacted().await;
    world.faulty.inject_on("data/", Operation::Delete, 0..1, StoreFault::Throttle);
    let report = world.expire().await;
    assert_eq!(report.deleted.get(&FileKind::DataFile), Some(&tally(1, 10)));
    assert_eq!(report.failed.get(&FileKind::DataFile), Some(&tally(1, 10)));
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.kept.get("content-not-deleted").map(|t| t.files), Some(5), "two manifests, three lists");
    let left = world.left();
    assert_eq!(left.iter().filter(|p| p.contains("snap-")).count(), 4);
    // The proof serves: the next orphan run takes the rest at the short age.
    let orphans = world.remove_orphans().await;
    assert!(orphans.error.is_none() && orphans.refused.is_none(), "{orphans:?}");
    assert_eq!(world.left().iter().filter(|p| p.contains("snap-")).count(), 1);
    assert!(!world.exists("data/a.parquet") && !world.exists("data/b.parquet"));
    world.assert_readable(4);
}

#[tokio::test]
async fn files_outside_of_the_table_stay() {
    let mut world = World::new().await;
    let imported = ["s3://b/db/t_2/data/x.parquet", "s3://other/db/t/data/x.parquet", "data/own.parquet"];
    world.commit(1, None, 8 * HOUR, &imported, &[]).await;
    world.commit(2, Some(1), 7 * HOUR, &["data/all.parquet"], &imported).await;
    let report = world.expire().await;
    assert_eq!(report.kept.get("outside-table"), Some(&tally(2, 20)));
    assert!(world.exists(imported[0]) && world.exists(imported[1]) && !world.exists(imported[2]));
}

#[tokio::test]
async fn external_data_directories_are_the_tables_own() {
    let mut world = World::new().await;
    world.metadata["properties"] = json!({"write.data.path": "s3://data/elsewhere"});
    world.commit(1, None, 8 * HOUR, &["s3://data/elsewhere/x.parquet"], &[]).await;
    world.commit(2, Some(1), 7 * HOUR, &["data/all.parquet"], &["s3://data/elsewhere/x.parquet"]).await;
    let report = world.expire().await;
    assert!(report.kept.is_empty() && !world.exists("s3://data/elsewhere/x.parquet"));
}

#[tokio::test]
async fn a_local_file_takes_its_checksum_along() {
    let mut world = World::new().await;
    world.metadata["location"] = "file:///wh/t".into();
    let [gone, stays] = ["file:///wh/t/data/a.parquet", "file:///wh/t/data/b.parquet"];
    world.commit(1, None, 8 * HOUR, &[gone, stays], &[]).await;
    world.commit(2, Some(1), 7 * HOUR, &["file:///wh/t/data/c.parquet"], &[gone]).await;
    world.file("file:///wh/t/data/.a.parquet.crc", 8 * HOUR);
    world.file("file:///wh/t/data/.b.parquet.crc", 8 * HOUR);
    let report = world.expire().await;
    assert_eq!(report.deleted.get(&FileKind::DataFile), Some(&tally(1, 10)));
    let left: Vec<String> = world.store.paths().into_iter().filter(|p| p.starts_with("/wh/t/data")).collect();
    assert_eq!(left, ["/wh/t/data/.b.parquet.crc", "/wh/t/data/b.parquet", "/wh/t/data/c.parquet"]);
}

#[tokio::test]
async fn gc_disabled_is_honoured_even_for_a_plan_made_before() {
    let mut world = compacted().await;
    let plan = world.plan().await;
    world.metadata["properties"] = json!({"gc.enabled": "false"});
    world.publish(0);
    assert!(world.plan().await.is_empty());
    let report = world.carry_out(&plan).await;
    assert_eq!((report.outcome, world.catalog.commits()), (ExpireOutcome::NotCommitted, 0));
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn paths_are_compared_by_key_not_by_spelling() {
    let mut world = World::new().await;
    let spelled = LOCATION.replace("s3://", "s3a://");
    world.commit(1, None, 8 * HOUR, &["data/a.parquet", "data/b.parquet"], &[]).await;
    world
        .commit(2, Some(1), 7 * HOUR, &[&format!("{spelled}/data//a.parquet")], &["data/a.parquet", "data/b.parquet"])
        .await;
    world.expire().await;
    assert!(world.exists("data/a.parquet"), "live in 2 under another spelling");
    assert!(!world.exists("data/b.parquet"));
}

#[tokio::test]
async fn each_manifest_is_read_once_however_many_snapshots_share_it() {
    let mut world = World::new().await;
    let count = 60;
    for id in 1..=count {
        let name = format!("data/{id}.parquet");
        world.snapshot(id, (id > 1).then(|| id - 1), (count - id + 1) * HOUR, &[&name], &[]).await;
    }
    world.metadata["refs"]["main"] = json!({"snapshot-id": count, "type": "branch"});
    world.metadata["current-snapshot-id"] = count.into();
    world.publish(HOUR);
    let report = world.expire().await;
    assert_eq!(report.expired_snapshots, 59);
    let reads = world.faulty.count(Operation::Read);
    assert_eq!(reads, 120, "60 lists and 60 manifests; the lists name 1830");
    assert_eq!(world.catalog.commits(), 1);
    assert!(world.exists("data/1.parquet"));
}

#[test]
fn the_actions_can_move_between_threads() {
    fn is_send<T: Send>(_: impl FnOnce(&'static World) -> T) {}
    is_send(|world| world.carry_out(Box::leak(Box::default())));
    is_send(World::remove_orphans);
}

#[tokio::test]
async fn files_stay_where_another_table_lies_in_the_same_place() {
    for location in [LOCATION.to_owned(), format!("{LOCATION}/inner"), "s3://b/db".to_owned()] {
        let mut world = compacted().await;
        world.neighbours = vec![("lake.db.clone".to_owned(), location.clone())];
        let before = world.left().len();
        let report = world.expire().await;
        assert_eq!((report.outcome, report.expired_snapshots), (ExpireOutcome::Committed, 3), "{location}");
        assert_eq!(report.kept.get("shared-location").map(|t| t.files), Some(7), "{location}: {report:?}");
        assert!(report.deleted.is_empty() && world.left().len() == before, "{location}");
        assert_eq!(report.files_stay.map(|refused| refused.reason), Some("shared_location"), "{location}");
    }
}
