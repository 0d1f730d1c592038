//! What orphan removal takes, and what it leaves.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use icewright::clean::{FileKind, Tally};
use icewright::plan::remove_orphan_files::{Garbage, KeepReason};
use icewright::policy::Span;
use icewright::testing::{Operation, StoreFault};
use serde_json::json;

use super::world::{DAY, HOUR, LOCATION, MINUTE, UUID, World, at, metadata_name, write_manifest};

pub(super) const OPERATION: &str = "7c9a9e3c-5d0f-4e5c-9d5e-123456789012";
pub(super) const JOB: &str = "a1b2c3d4e5f60718293a4b5c6d7e8f90";

/// Two appends, six and five hours old.
pub(super) async fn table() -> World {
    let mut world = World::new().await;
    world.commit(1, None, 6 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, Some(1), 5 * HOUR, &["data/b.parquet"], &[]).await;
    world
}

pub(super) fn files<K: Ord>(tallies: &std::collections::BTreeMap<K, Tally>, key: K) -> u64 {
    tallies.get(&key).map_or(0, |t| t.files)
}

#[tokio::test]
async fn old_garbage_goes_and_young_garbage_stays() {
    let world = table().await;
    for (name, age) in [("data/old.parquet", 25 * HOUR), ("metadata/old-m0.avro", 26 * HOUR), ("junk/x.orc", 25 * HOUR)]
    {
        world.file(name, age);
    }
    world.file("data/young.parquet", 23 * HOUR);
    let before = world.store.paths();
    let found = world.find_orphans().await;
    assert_eq!((world.store.paths(), world.store.deleted().len()), (before, 0), "looking changes nothing");
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    assert_eq!((found.removable, found.kept), (report.removable.clone(), report.kept.clone()));
    assert_eq!(files(&report.removable, Garbage::Unproven), 3);
    assert_eq!(files(&report.kept, KeepReason::Unproven), 1);
    assert_eq!(report.orphans, Tally { files: 4, bytes: 40 });
    assert_eq!(report.listed.files - report.referenced.files, 4);
    assert_eq!(report.deleted.get(&FileKind::Manifest), Some(&Tally { files: 1, bytes: 10 }));
    assert!(!world.exists("data/old.parquet") && !world.exists("junk/x.orc") && world.exists("data/young.parquet"));
    world.assert_readable(2);
    let again = world.remove_orphans().await;
    assert!(again.removable.is_empty() && again.deleted.is_empty());
}

#[tokio::test]
async fn staged_snapshots_and_statistics_are_referenced() {
    let mut world = table().await;
    world.snapshot(3, Some(2), 3 * DAY, &["data/staged.parquet"], &[]).await;
    world.statistics(2, "metadata/2.stats", "metadata/2.pstats", 3 * DAY);
    world.publish(4 * HOUR);
    let report = world.remove_orphans().await;
    assert!(report.removable.is_empty() && report.error.is_none(), "{report:?}");
    world.assert_readable(3);
    assert!(world.exists("metadata/2.stats") && world.exists("metadata/2.pstats"));
}

#[tokio::test]
async fn a_table_without_snapshots_keeps_its_metadata() {
    let mut world = World::new().await;
    world.publish(9 * DAY);
    world.file("data/first-write.parquet", HOUR);
    let report = world.remove_orphans().await;
    assert_eq!((report.listed.files, report.referenced.files, report.deleted.len()), (3, 2, 0));
    assert_eq!(report.error.map(|e| e.to_string()), None);
}

#[tokio::test]
async fn files_without_a_trustworthy_time_stay_and_are_counted() {
    let world = table().await;
    for (name, time) in [("data/none", None), ("data/zero", Some(0)), ("data/soon", Some(world.now_ms + DAY))] {
        world.file(name, 99 * DAY);
        world.store.set_last_modified(&at(name), time);
    }
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::UnknownAge), report.deleted.len()), (3, 0));
}

#[tokio::test]
async fn odd_names_are_compared_byte_by_byte() {
    let mut world = World::new().await;
    let live = ["a b", "50%", "x#y", "p+q", "k%3Av", "\u{e9}", "e\u{301}", "q?r", "'\""];
    let like = ["a%20b", "50%25", "x%23y", "p q", "k:v", "E\u{301}", "e", "q%3Fr", "'"];
    let live: Vec<String> = live.iter().map(|name| format!("data/c={name}/live.parquet")).collect();
    let like: Vec<String> = like.iter().map(|name| format!("data/c={name}/like.parquet")).collect();
    let paths: Vec<&str> = live.iter().map(String::as_str).collect();
    world.commit(1, None, 3 * DAY, &paths, &[]).await;
    like.iter().for_each(|name| world.file(name, 2 * DAY));
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.removable, Garbage::Unproven), 9);
    assert!(like.iter().all(|name| !world.exists(name)));
    world.assert_readable(1);
}

#[tokio::test]
async fn hidden_looking_partitions_are_no_exception() {
    let mut world = World::new().await;
    world.commit(1, None, 3 * DAY, &["data/_p=1/live.parquet", "data/.q=1/live.parquet"], &[]).await;
    world.file("data/_p=1/orphan.parquet", 2 * DAY);
    world.file("data/.q=1/orphan.parquet", 2 * DAY);
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.removable, Garbage::Unproven), 2);
    assert!(!world.exists("data/_p=1/orphan.parquet") && !world.exists("data/.q=1/orphan.parquet"));
    world.assert_readable(1);
}

#[tokio::test]
async fn slashes_schemes_and_hints_do_not_make_orphans() {
    let mut world = World::new().await;
    let spelled = LOCATION.replace("s3://", "s3a://");
    let second = format!("{spelled}/data//b.parquet");
    world.file("data/b.parquet", 3 * DAY);
    world.metadata["location"] = format!("{spelled}/").into();
    world.commit(1, None, 3 * DAY, &["data/a.parquet", &second], &[]).await;
    world.file("metadata/version-hint.text", 9 * DAY);
    let report = world.remove_orphans().await;
    assert_eq!((report.removable.len(), report.refused, report.deleted.len()), (0, None, 0));
    assert_eq!(files(&report.kept, KeepReason::VersionHint), 1);
    assert!(world.exists("data/b.parquet") && world.exists("metadata/version-hint.text"));
}

#[tokio::test]
async fn checksums_share_the_fate_of_their_file() {
    let world = table().await;
    world.file("data/.a.parquet.crc", 3 * DAY);
    world.file("data/.gone.parquet.crc", 3 * DAY);
    world.remove_orphans().await;
    assert!(world.exists("data/.a.parquet.crc") && !world.exists("data/.gone.parquet.crc"));
}

#[tokio::test]
async fn no_age_is_less_than_a_commit_interval() {
    // With an inferred commit interval nothing can refuse such a policy beforehand.
    let mut world = table().await;
    world.policy.remove_orphan_files.older_than = Span::Fixed(Duration::from_secs(1));
    world.policy.remove_orphan_files.unproven_min_age = Span::Fixed(Duration::from_secs(1));
    world.file("data/to-be-committed.parquet", 9 * MINUTE);
    world.file("data/given-up.parquet", 11 * MINUTE);
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    assert!(world.exists("data/to-be-committed.parquet") && !world.exists("data/given-up.parquet"));
}

#[tokio::test]
async fn what_a_dead_clean_up_left_goes_at_the_short_age() {
    let mut world = World::new().await;
    world.commit(1, None, 6 * HOUR, &["data/a.parquet", "data/keep.parquet"], &[]).await;
    world.commit(2, Some(1), 5 * HOUR, &["data/b.parquet"], &["data/a.parquet"]).await;
    world.commit(3, Some(2), 4 * HOUR, &["data/c.parquet"], &["data/b.parquet"]).await;
    world.forget(&[1, 2], 3 * HOUR);
    world.file("data/never-committed.parquet", 6 * HOUR);
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    // Two data files, the manifest of 1 (2 and 3 rewrote theirs), two manifests of 2, two lists.
    assert_eq!(
        files(&report.removable, Garbage::OnceReferenced),
        report.removable.values().map(|t| t.files).sum::<u64>()
    );
    assert!(!world.exists("data/a.parquet") && !world.exists("data/b.parquet"));
    assert!(world.exists("data/never-committed.parquet"), "no proof");
    assert_eq!(world.left().iter().filter(|p| p.contains("snap-")).count(), 1);
    world.assert_readable(3);
}

#[tokio::test]
async fn proof_reaches_back_over_several_metadata_files() {
    let mut world = World::new().await;
    world.commit(1, None, 9 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, None, 8 * HOUR, &["data/b.parquet"], &[]).await;
    world.forget(&[1], 7 * HOUR);
    // The newest log entry names 1 no more, and the log of the current file begins after 1's time.
    world.publish(6 * HOUR);
    let log = world.metadata["metadata-log"].as_array_mut().unwrap();
    log.drain(..3);
    world.publish(5 * HOUR);
    // Only the log of an older file leads to the snapshot list of 1; no retained manifest tells of it.
    world.commit(3, None, 4 * HOUR, &["data/c.parquet"], &[]).await;
    world.forget(&[2], 3 * HOUR);
    let report = world.remove_orphans().await;
    assert!(!world.exists("data/a.parquet"), "{report:?}");
    assert!(!world.exists("data/b.parquet"));
}

#[tokio::test]
async fn a_metadata_file_that_only_the_listing_knows_proves_nothing() {
    let mut world = table().await;
    // A commit that lost its race and is being retried: its metadata file names its snapshot.
    let lost = world.clone();
    world.snapshot(9, Some(2), 4 * HOUR, &["data/pending.parquet"], &[]).await;
    let document = world.metadata.to_string();
    world.metadata = lost.metadata;
    let name = metadata_name(1).replace("000000000001.", "00000000ffff.");
    world.file_of(&name, 4 * HOUR, document.into_bytes());
    world.metadata["metadata-log"].as_array_mut().unwrap().drain(..2);
    world.publish(3 * HOUR);
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    assert!(world.exists("data/pending.parquet"), "it may be committed yet");
    assert!(!world.exists(&name), "the file itself can never become current");
}

#[tokio::test]
async fn old_metadata_of_another_table_proves_nothing() {
    let mut world = World::new().await;
    world.commit(1, None, 9 * HOUR, &["data/a.parquet"], &[]).await;
    let foreign = world.metadata.to_string().replace(UUID, OPERATION).into_bytes();
    world.commit(2, None, 8 * HOUR, &["data/b.parquet"], &[]).await;
    world.forget(&[1], 7 * HOUR);
    world.file_of(&metadata_name(1), 9 * HOUR, foreign.clone());
    world.file_of(&metadata_name(2), 8 * HOUR, foreign);
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::Unproven), report.deleted.len()), (3, 0));
    assert!(world.exists("data/a.parquet"));
}

#[tokio::test]
async fn a_removal_recorded_by_a_retained_snapshot_is_proof_enough() {
    let mut world = World::new().await;
    world.commit(1, None, 6 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, Some(1), 5 * HOUR, &["data/b.parquet"], &["data/a.parquet"]).await;
    world.metadata["metadata-log"].as_array_mut().unwrap().clear();
    world.forget(&[1], 4 * HOUR);
    let report = world.remove_orphans().await;
    assert!(files(&report.removable, Garbage::OnceReferenced) >= 1);
    assert!(!world.exists("data/a.parquet"));
    world.assert_readable(2);
}

#[tokio::test]
async fn a_writer_that_committed_later_files_has_given_up_earlier_ones() {
    let mut world = World::new().await;
    let name = |count: u32| format!("data/00000-0-{OPERATION}-{count:05}.parquet");
    world.commit(1, None, 6 * HOUR, &[&name(3)], &[]).await;
    let attempt = |n: u32, commit: &str| format!("metadata/snap-1-{n}-{commit}.avro");
    let commit = "0b9a9e3c-5d0f-4e5c-9d5e-000000000001";
    for (path, age) in [
        (name(2), 7 * HOUR),
        (name(4), 5 * HOUR),
        (attempt(0, commit), 7 * HOUR),
        (format!("metadata/{commit}-m7.avro"), 7 * HOUR),
        (format!("metadata/{OPERATION}-m7.avro"), 7 * HOUR),
    ] {
        world.file(&path, age);
    }
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.removable, Garbage::WriterCommittedPast), 3, "{report:?}");
    assert!(world.exists(&name(4)), "the next checkpoint");
    assert!(world.exists(&format!("metadata/{OPERATION}-m7.avro")), "another commit, maybe under way");
    world.assert_readable(1);
}

#[tokio::test]
async fn metadata_files_behind_the_log_go_and_newer_ones_never() {
    let mut world = table().await;
    world.metadata["metadata-log"].as_array_mut().unwrap().drain(..2);
    world.publish(4 * HOUR);
    let name = |version: usize| metadata_name(version).replace(&format!("{version:012}."), "00000000beef.");
    let document = world.metadata.to_string().into_bytes();
    for version in [2, 3, 4, 9] {
        world.file_of(&name(version), 9 * DAY, document.clone());
    }
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    assert_eq!(files(&report.removable, Garbage::FellOutOfMetadataLog), 2, "0 and 1");
    assert_eq!(files(&report.removable, Garbage::Unproven), 1, "the other 2: an attempt that lost");
    assert_eq!(files(&report.kept, KeepReason::NewerMetadata), 3, "beside the current 3, and after it");
    assert!(!world.exists(&metadata_name(0)) && world.exists(&metadata_name(2)) && world.exists(&metadata_name(3)));
    assert!(!world.exists(&name(2)) && world.exists(&name(3)) && world.exists(&name(9)));
}

/// A Flink job has committed 2 and left a checkpoint manifest with a data file, both ten days old.
pub(super) async fn checkpointed(manifest: &str) -> World {
    let mut world = table().await;
    world.summary(2, "flink.job-id", JOB);
    world.publish(5 * HOUR);
    let data = at("data/checkpointed.parquet");
    world.file(&data, 10 * DAY);
    world.file("data/other.parquet", 10 * DAY);
    let (_, bytes) = write_manifest("m.avro", 7, 7, &[(data, 7, 7)], &[]).await;
    world.file_of(manifest, 10 * DAY, bytes);
    world
}

#[tokio::test]
async fn a_flink_checkpoint_keeps_its_manifest_and_its_data() {
    let manifest = format!("metadata/{JOB}-00000-0-12-00001.avro");
    let world = checkpointed(&manifest).await;
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.kept, KeepReason::FlinkCheckpoint), 2);
    assert!(world.exists(&manifest) && world.exists("data/checkpointed.parquet"));
    assert!(!world.exists("data/other.parquet"));
}

#[tokio::test]
async fn a_job_that_no_snapshot_knows_is_not_protected() {
    let manifest = format!("metadata/{}-00000-0-12-00001.avro", JOB.replace('a', "f"));
    let world = checkpointed(&manifest).await;
    world.remove_orphans().await;
    assert!(!world.exists(&manifest) && !world.exists("data/checkpointed.parquet"));
}

#[tokio::test]
async fn an_unreadable_checkpoint_holds_back_everything_unproven() {
    let manifest = format!("metadata/{JOB}-00000-0-12-00001.avro");
    let world = checkpointed(&manifest).await;
    world.faulty.inject_on(&manifest, Operation::Read, 0..9, StoreFault::fail());
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::FlinkCheckpointUnreadable), report.deleted.len()), (2, 0));
}

/// Commits a snapshot with these files when asked to.
fn racing_commit(world: &World, id: i64, paths: Vec<String>) -> StoreFault {
    let world = Arc::new(tokio::sync::Mutex::new(world.clone()));
    StoreFault::After(Arc::new(move || {
        let (world, paths) = (world.clone(), paths.clone());
        async move {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            world.lock().await.commit(id, Some(2), 0, &paths, &[]).await;
        }
        .boxed()
    }))
}

#[tokio::test]
async fn a_file_committed_after_the_listing_is_spared() {
    let world = table().await;
    world.file("data/slow.parquet", 30 * HOUR);
    world.file("data/orphan.parquet", 30 * HOUR);
    // The metadata file is looked into after the listing: the commit lands just then.
    let stray = metadata_name(1).replace("000000000001.", "00000000ffff.");
    world.file_of(&stray, 30 * HOUR, json!({"table-uuid": UUID}).to_string().into_bytes());
    world.faulty.inject_on(
        &stray,
        Operation::ReadRange,
        0..1,
        racing_commit(&world, 3, vec!["data/slow.parquet".into()]),
    );
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.kept, KeepReason::ReferencedMeanwhile), 1, "{report:?}");
    assert!(world.exists("data/slow.parquet") && !world.exists("data/orphan.parquet"));
}

#[tokio::test]
async fn files_committed_between_two_batches_are_spared() {
    let world = table().await;
    (0..1100).for_each(|i| world.file(&format!("data/{i:04}.parquet"), 30 * HOUR));
    let commit = racing_commit(&world, 3, vec!["data/0010.parquet".into(), "data/1099.parquet".into()]);
    world.faulty.inject(Operation::Delete, 0..1, commit);
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.kept, KeepReason::ReferencedMeanwhile), 1, "the look before the second batch");
    assert!(world.exists("data/1099.parquet"));
}

#[tokio::test]
async fn a_table_made_anew_stops_the_run() {
    let world = table().await;
    (0..1100).for_each(|i| world.file(&format!("data/{i:04}.parquet"), 30 * HOUR));
    let racing = Arc::new(tokio::sync::Mutex::new(world.clone()));
    let replace = move || {
        let racing = racing.clone();
        async move {
            let mut racing = racing.lock().await;
            racing.metadata["table-uuid"] = OPERATION.into();
            racing.publish(0);
        }
        .boxed()
    };
    world.faulty.inject(Operation::Delete, 0..1, StoreFault::After(Arc::new(replace)));
    let report = world.remove_orphans().await;
    assert!(report.error.unwrap().to_string().contains("made anew"));
    assert_eq!(report.deleted.values().map(|t| t.files).sum::<u64>(), 1000);
}

#[tokio::test]
async fn one_run_takes_a_bounded_number_and_the_next_goes_on() {
    let mut world = table().await;
    (0..25).for_each(|i| world.file(&format!("data/{i:03}.parquet"), 30 * HOUR));
    world.candidates_max = 10;
    for (left, taken) in [(15, 10), (5, 10), (0, 5)] {
        let report = world.remove_orphans().await;
        assert_eq!(report.orphans.files, left + taken, "the totals are known all the same");
        assert_eq!(files(&report.kept, KeepReason::RunLimit), left);
        assert_eq!(report.deleted.values().map(|t| t.files).sum::<u64>(), taken);
    }
    world.assert_readable(2);
}

#[tokio::test]
async fn failed_deletions_keep_what_proves_them() {
    let mut world = World::new().await;
    world.commit(1, None, 6 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, None, 5 * HOUR, &["data/b.parquet"], &[]).await;
    world.forget(&[1], 4 * HOUR);
    world.faulty.inject_on("data/a.parquet", Operation::Delete, 0..1, StoreFault::fail());
    let report = world.remove_orphans().await;
    assert_eq!(report.failed.get(&FileKind::Other), Some(&Tally { files: 1, bytes: 10 }));
    assert_eq!(files(&report.kept, KeepReason::ContentNotDeleted), 2, "its manifest and its list");
    let next = world.remove_orphans().await;
    assert_eq!((next.failed.len(), files(&next.removable, Garbage::OnceReferenced)), (0, 3));
    assert!(!world.exists("data/a.parquet"));
    world.assert_readable(2);
}

#[tokio::test]
async fn an_external_data_directory_loses_only_what_is_proven() {
    let mut world = World::new().await;
    world.metadata["properties"] = json!({"write.data.path": "s3://shared/data"});
    world.commit(1, None, 6 * HOUR, &["s3://shared/data/a.parquet"], &[]).await;
    world.commit(2, None, 5 * HOUR, &["s3://shared/data/b.parquet"], &[]).await;
    world.file("s3://shared/data/whose.parquet", 99 * DAY);
    world.forget(&[1], 4 * HOUR);
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.kept, KeepReason::ExternalDirectory), 1);
    assert!(!world.exists("s3://shared/data/a.parquet") && world.exists("s3://shared/data/whose.parquet"));
    world.assert_readable(2);
}

#[tokio::test]
async fn each_manifest_is_read_once_however_many_snapshots_share_it() {
    let mut world = World::new().await;
    for id in 1..=30 {
        world.commit(id, (id > 1).then(|| id - 1), (31 - id) * HOUR, &[&format!("data/{id}.parquet")], &[]).await;
    }
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    assert_eq!(world.faulty.count(Operation::Read), 60, "30 lists and 30 manifests; the lists name 465");
}

#[tokio::test]
async fn a_backlog_of_metadata_files_goes_first_and_alone() {
    let world = table().await;
    world.file("data/orphan.parquet", 3 * DAY);
    let own = json!({"table-uuid": UUID}).to_string().into_bytes();
    for i in 0..10_050 {
        let name = metadata_name(0).replace("000000000000.", &format!("{:012x}.", i + 0xf00_000));
        world.file_of(&name, 3 * DAY, own.clone());
    }
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    assert_eq!(report.deleted.keys().copied().collect::<Vec<_>>(), [FileKind::MetadataFile]);
    assert_eq!(
        (report.deleted[&FileKind::MetadataFile].files, files(&report.kept, KeepReason::RunLimit)),
        (10_000, 51)
    );
    assert!(world.exists("data/orphan.parquet"), "some of the 50 left might tell of another table");
    world.remove_orphans().await;
    assert!(!world.exists("data/orphan.parquet"));
    world.assert_readable(2);
}

#[tokio::test]
async fn a_list_that_is_never_explained_costs_no_walk_over_the_whole_log() {
    let mut world = World::new().await;
    for id in 1..=20 {
        world.commit(id, (id > 1).then(|| id - 1), (41 - id) * HOUR, &[&format!("data/{id}.parquet")], &[]).await;
    }
    world.file(&format!("metadata/snap-99-1-{OPERATION}.avro"), 23 * HOUR);
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::Unproven), report.deleted.len()), (1, 0));
    assert_eq!(
        world.faulty.count(Operation::Read) - 40,
        2,
        "the metadata files of 22 and 23 hours ago; 21 is the current one"
    );
}
