//! Which unreferenced files are candidates at all, and that none of them hides the others.

use icewright::plan::remove_orphan_files::{Garbage, KeepReason};
use icewright::run_id::RunId;
use serde_json::json;
use uuid::Uuid;

use super::orphans::{OPERATION, files, table};
use super::world::{DAY, HOUR, Needed, UUID, World, at};

#[tokio::test]
async fn what_a_run_left_in_an_external_data_directory_goes_unless_another_table_is_near() {
    let mut world = World::new().await;
    world.metadata["properties"] = json!({"write.data.path": "s3://elsewhere/t"});
    world.commit(1, None, 6 * HOUR, &["s3://elsewhere/t/a.parquet"], &[]).await;
    let started_ms = u128::try_from(world.now_ms - 30 * DAY).unwrap();
    let run = RunId(Uuid::from_u128((started_ms << 80) | (7 << 76) | (2 << 62) | 5));
    let left = format!("s3://elsewhere/t/p=1/00000-0-{}-00001.parquet", run.file_token());
    world.file(&left, 30 * DAY);
    for near in ["s3://elsewhere/t", "s3://elsewhere", "s3a://elsewhere/t/p=1"] {
        world.neighbours = vec![("other.db.t".into(), near.into())];
        let report = world.remove_orphans().await;
        assert!(report.refused.is_none() && world.exists(&left), "{near}");
    }
    world.neighbours.clear();
    world.elsewhere = Needed(Some(vec![left.clone()]));
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.kept, KeepReason::ReferencedElsewhere), 1);
    world.elsewhere = Needed(Some(Vec::new()));
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.removable, Garbage::RunOver), 1, "{report:?}");
    assert!(!world.exists(&left));
    world.assert_readable(1);
}

#[tokio::test]
async fn archives_and_exports_below_the_table_are_no_garbage_of_it() {
    let world = table().await;
    let foreign = [
        "backup.tar.gz",
        "dump.sql.gz",
        "data/export.csv.gz",
        "landing/2026-11-29/events.json.gz",
        "metadata/notes.gz",
        "data/x.parquet.gz",
        "gc.stats",
    ];
    foreign.iter().for_each(|name| world.file(name, 30 * DAY));
    world.file("data/a4_7_data.0.parq", 30 * DAY);
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::Foreign), files(&report.removable, Garbage::Unproven)), (7, 1));
    assert!(foreign.iter().all(|name| world.exists(name)));
    assert!(!world.exists("data/a4_7_data.0.parq"), "Impala's");
}

#[tokio::test]
async fn files_that_stay_never_hide_those_that_can_go() {
    let mut world = table().await;
    (0..50).for_each(|i| world.file(&format!("data/0{i:03}.txt"), 30 * DAY));
    (0..50).for_each(|i| world.file(&format!("_checkpoints/0{i:03}.parquet"), 30 * DAY));
    (0..5).for_each(|i| world.file(&format!("data/z{i}.parquet"), 30 * DAY));
    world.candidates_max = 5;
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::Foreign), files(&report.kept, KeepReason::Hidden)), (50, 50));
    assert_eq!((files(&report.removable, Garbage::Unproven), report.deleted.len()), (5, 1), "{report:?}");
}

#[tokio::test]
async fn what_is_proven_goes_however_many_files_stay() {
    let mut world = World::new().await;
    // Imported, without an ending: only the proof lets it go, and it is one of many that have none.
    world.commit(1, None, 9 * HOUR, &["data/000007_0"], &[]).await;
    world.commit(2, None, 8 * HOUR, &["data/b.parquet"], &[]).await;
    world.forget(&[1], 7 * HOUR);
    (0..20).for_each(|i| world.file(&format!("data/1000{i:02}_0"), 30 * DAY));
    // Needed elsewhere, and likely to go until that is asked.
    let needed: Vec<String> = (0..20).map(|i| at(&format!("data/{i:02}.parquet"))).collect();
    needed.iter().for_each(|path| world.file(path, 30 * DAY));
    world.elsewhere = Needed(Some(needed));
    world.file("data/zz.parquet", 30 * DAY);
    world.candidates_max = 15;
    for _ in 0..300 {
        let report = world.remove_orphans().await;
        assert!(files(&report.kept, KeepReason::Foreign) <= 21, "{report:?}");
        world.now_ms += 1;
    }
    assert!(!world.exists("data/zz.parquet"), "files that other tables need hide nothing");
    assert!(!world.exists("data/000007_0"), "nor do foreign ones hide what is proven");
    assert!(world.left().iter().any(|p| p.contains("snap-1-")), "it may prove something about files left out");
    world.candidates_max = 22;
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.kept, KeepReason::Foreign), 20);
    assert!(!world.left().iter().any(|p| p.contains("snap-1-")), "{report:?}");
    world.assert_readable(2);
}

#[tokio::test]
async fn metadata_files_named_by_a_uuid_alone_go_by_what_they_say() {
    let world = table().await;
    let name = |n: u32| format!("metadata/{}.metadata.json", OPERATION.replace("7c9a", &format!("7c9{n}")));
    let says = |updated_ms: i64| json!({"table-uuid": UUID, "last-updated-ms": updated_ms}).to_string().into_bytes();
    world.file_of(&name(1), 3 * DAY, says(world.now_ms - 31 * DAY));
    world.file_of(&name(2), 3 * DAY, says(world.now_ms - DAY));
    world.file_of(&name(3), 3 * DAY, says(world.now_ms));
    world.file_of(&name(4), 3 * DAY, json!({"table-uuid": UUID}).to_string().into_bytes());
    world.file_of(&name(5).replace(".metadata", "-backup.metadata"), 3 * DAY, says(world.now_ms - 31 * DAY));
    let report = world.remove_orphans().await;
    assert_eq!(report.error.map(|e| e.to_string()), None);
    let gone = [1, 2, 3, 4].map(|n| !world.exists(&name(n)));
    assert_eq!(gone, [true, true, false, false]);
    assert_eq!(files(&report.removable, Garbage::FellOutOfMetadataLog), 1);
    assert_eq!(
        (files(&report.kept, KeepReason::NewerMetadata), files(&report.kept, KeepReason::MetadataVersionUnknown)),
        (1, 2)
    );
}
