//! One file, two names: links, mounts, aliases and spellings. What is live by one name never goes by the other.

use icewright::actions::expire_snapshots::report_of;
use icewright::clean::{ExpireOutcome, Needs, Suspects};
use icewright::fleet::neighbours::Surroundings;
use icewright::plan::remove_orphan_files::{Garbage, KeepReason};
use icewright::run_id::RunId;
use icewright::testing::{Operation, StoreFault};

use serde_json::json;
use uuid::Uuid;

use super::orphans::{JOB, OPERATION, checkpointed, files};
use super::world::{DAY, HOUR, LOCATION, World, at, write_manifest};

/// A data file as writers of tables name it.
fn unique(number: u32) -> String {
    format!("00000-0-{OPERATION}-{number:05}.parquet")
}

/// Runs the removal, which must refuse and say both names.
async fn assert_refused(world: &World, name: &str, other: &str) {
    let before = world.store.paths();
    let report = world.remove_orphans().await;
    let refused = report.refused.unwrap_or_else(|| panic!("{other}: not refused, error {:?}", report.error));
    assert_eq!(refused.reason, "other_name", "{}", refused.detail);
    assert!(refused.detail.contains(&at(name)) && refused.detail.contains(&at(other)), "{}", refused.detail);
    assert_eq!(world.store.paths(), before);
}

#[tokio::test]
async fn a_warehouse_that_moved_behind_a_link_is_refused() {
    let mut world = World::new().await;
    world.commit(1, None, 3 * DAY, &["data/a.parquet"], &[]).await;
    world.store.link("s3://b/new/t", LOCATION);
    world.metadata["location"] = "s3://b/new/t".into();
    world.commit(2, Some(1), 2 * DAY, &["s3://b/new/t/data/b.parquet"], &[]).await;
    // The oldest names lie in the old folder, the listing shows all in the new one.
    let before = world.store.paths();
    let report = world.remove_orphans().await;
    let refused = report.refused.expect("the metadata files alone show it");
    assert_eq!(refused.reason, "other_name");
    assert!(refused.detail.contains("s3://b/new/t/metadata/") && refused.detail.contains("s3://b/db/t/metadata/"));
    assert_eq!(world.store.paths(), before);
}

#[tokio::test]
async fn no_spelling_of_a_name_lets_a_live_file_go() {
    for (named, lies) in [
        ("data/link", "data/real"),
        ("data", "mnt/bound"),
        ("s3://other-account-alias/x/t", "moved"),
        ("s3://minio:9000/b/db/t/data", "data"),
        ("s3://arn:aws:s3:eu-central-1:1:accesspoint/ap/t", "data/ap"),
        ("data/C=A", "data/c=a"),
        ("data/c=a%20b", "data/c=a b"),
        ("data/c=a b", "data/c=a+b"),
        ("data/e\u{301}", "data/\u{e9}"),
        ("file:///mnt/lake/t/data", "data"),
    ] {
        let mut world = World::new().await;
        world.store.link(&at(named), &at(lies));
        let (live, listed) = (format!("{named}/{}", unique(1)), format!("{lies}/{}", unique(1)));
        world.commit(1, None, 3 * DAY, &[&live], &[]).await;
        world.file("data/orphan.parquet", 3 * DAY);
        assert!(world.exists(&listed), "{named}");
        if world.remove_orphans().await.refused.is_some_and(|r| r.reason == "prefix_mismatch") {
            assert!(world.exists(&listed) && world.store.deleted().is_empty(), "{named}");
            continue;
        }
        assert_refused(&world, &listed, &live).await;
    }
}

#[tokio::test]
async fn a_file_name_in_another_spelling_is_the_same_file() {
    for (named, lies) in [
        (unique(1).to_uppercase(), unique(1)),
        (unique(1).replacen("00000-0", "00000%2D0", 1), unique(1)),
        (unique(1).replace(".parquet", "e\u{301}.parquet"), unique(1).replace(".parquet", "\u{e9}.parquet")),
    ] {
        let mut world = World::new().await;
        let (named, lies) = (format!("data/{named}"), format!("data/{lies}"));
        world.store.link(&at(&named), &at(&lies));
        world.commit(1, None, 3 * DAY, &[&named], &[]).await;
        assert_refused(&world, &lies, &named).await;
    }
}

#[tokio::test]
async fn proofs_do_not_help_against_another_name() {
    let mut world = World::new().await;
    // Committed by its real name first, then by that of a link, and the first snapshot has expired.
    world.store.link(&at("link"), &at("data"));
    let (real, link) = (format!("data/{}", unique(1)), format!("link/{}", unique(1)));
    world.commit(1, None, 9 * HOUR, &[&real], &[]).await;
    world.commit(2, Some(1), 8 * HOUR, &[&link, &format!("data/{}", unique(7))], &[&real]).await;
    world.forget(&[1], 7 * HOUR);
    assert_refused(&world, &real, &link).await;
}

#[tokio::test]
async fn names_that_engines_repeat_keep_one_file_and_not_the_whole_table() {
    let mut world = World::new().await;
    let repeated = format!("part-00000-{OPERATION}.c000.snappy.parquet");
    world.commit(1, None, 3 * DAY, &[&format!("data/p=1/{repeated}")], &[]).await;
    let (same, larger) = (format!("data/p=2/{repeated}"), format!("data/p=3/{repeated}"));
    world.file(&same, 2 * DAY);
    world.file_of(&larger, 2 * DAY, vec![b'x'; 11]);
    world.file("data/orphan.parquet", 2 * DAY);
    let report = world.remove_orphans().await;
    assert!(report.refused.is_none() && report.error.is_none(), "{report:?}");
    assert_eq!((files(&report.kept, KeepReason::OtherName), files(&report.removable, Garbage::Unproven)), (1, 2));
    assert!(world.exists(&same), "it has the size of the live one, and may be that");
    assert!(!world.exists(&larger), "a file of another size is another file");
    world.assert_readable(1);
}

#[tokio::test]
async fn names_that_count_anew_in_each_partition_refuse_neither_expiry_nor_orphan_removal() {
    for name in [format!("{OPERATION}_1_0_0.parquet"), format!("{OPERATION}-0.parquet")] {
        let mut world = World::new().await;
        let [kept, compacted, lost] = [1, 2, 3].map(|p| format!("data/p={p}/{name}"));
        world.file_of(&at(&compacted), 3 * DAY, vec![b'x'; 11]);
        world.commit(1, None, 3 * DAY, &[&kept, &compacted], &[]).await;
        world.commit(2, Some(1), 2 * DAY, &["data/p=2/rewritten.parquet"], &[&compacted]).await;
        world.file_of(&at(&lost), 2 * DAY, vec![b'x'; 12]);
        let report = world.remove_orphans().await;
        assert!(report.refused.is_none() && report.error.is_none(), "{name}: {report:?}");
        assert!(!world.exists(&lost), "{name}");
        let report = world.expire().await;
        assert_eq!((report.outcome, report.expired_snapshots), (ExpireOutcome::Committed, 1), "{report:?}");
        // The manifest says ten bytes of each file, so these two look alike.
        assert_eq!(report.kept["other-name"].files, 1, "{name}: {report:?}");
        assert!(!world.exists(&format!("metadata/snap-1-1-0b9a9e3c-5d0f-4e5c-9d5e-{:012}.avro", 1)), "{name}");
        world.assert_readable(2);
    }
}

#[tokio::test]
async fn a_copy_that_stays_anyway_refuses_nothing() {
    let mut world = World::new().await;
    world.commit(1, None, 3 * DAY, &[&format!("data/{}", unique(1))], &[]).await;
    let backup = format!("_backup/{}", unique(1));
    world.file(&backup, 2 * DAY);
    world.file("data/orphan.parquet", 2 * DAY);
    let report = world.remove_orphans().await;
    assert!(report.refused.is_none(), "{report:?}");
    assert!(world.exists(&backup) && !world.exists("data/orphan.parquet"));
}

#[tokio::test]
async fn a_backup_of_the_table_in_a_hidden_place_stays_as_it_is_and_refuses_nothing() {
    let mut world = World::new().await;
    let started_ms = u128::try_from(world.now_ms - 3 * DAY).unwrap();
    let run = RunId(Uuid::from_u128((started_ms << 80) | (7 << 76) | (2 << 62) | 5));
    let output = format!("data/00000-1-{}-00001.parquet", run.file_token());
    world.commit(1, None, 3 * DAY, &[&output], &[]).await;
    let backup: Vec<String> =
        world.store.paths().iter().map(|path| path.replace(LOCATION, &at("_backup/2026"))).collect();
    backup.iter().for_each(|path| world.file(path, 3 * DAY));
    world.commit(2, Some(1), 2 * DAY, &["data/b.parquet"], &[&output]).await;
    world.forget(&[1], DAY);
    let report = world.remove_orphans().await;
    assert!(report.refused.is_none() && report.error.is_none(), "{report:?}");
    assert!(!world.exists(&output) && backup.iter().all(|path| world.exists(path)), "{report:?}");
    world.assert_readable(2);
}

/// A table on a local disk, whose metadata lies elsewhere.
async fn local_table(live: &str) -> World {
    let mut world = World::new().await;
    world.metadata["location"] = "file:///wh/t".into();
    world.store.link(live, "file:///wh/t/archive/other.parquet");
    world.commit(1, None, 3 * DAY, &[live, "file:///wh/t/data/plain.parquet"], &[]).await;
    world.file("file:///wh/t/data/orphan.parquet", 2 * DAY);
    world
}

#[tokio::test]
async fn a_link_with_a_name_of_its_own_is_known_by_its_inode() {
    for live in ["file:///wh/t/data/live.parquet", "file:///import/live.parquet"] {
        let world = local_table(live).await;
        let report = world.remove_orphans().await;
        let refused = report.refused.unwrap_or_else(|| panic!("not refused, error {:?}", report.error));
        assert_eq!(refused.reason, "other_name");
        assert!(
            refused.detail.contains("archive/other.parquet") && refused.detail.contains(live),
            "{}",
            refused.detail
        );
        assert!(world.store.deleted().is_empty());
    }
}

#[tokio::test]
async fn a_name_that_appears_after_the_listing_stops_the_deletion() {
    let mut world = World::new().await;
    world.store.link(&at("link"), &at("data"));
    world.commit(1, None, 3 * DAY, &["data/a.parquet"], &[]).await;
    let slow = format!("data/{}", unique(1));
    (0..1000).for_each(|i| world.file(&format!("data/0000{i:04}.parquet"), 2 * DAY));
    world.file(&format!("data/99999-{}", unique(2)), 2 * DAY);
    world.file(&slow, 2 * DAY);
    let racing = std::sync::Arc::new(tokio::sync::Mutex::new(world.clone()));
    let commit = move || {
        let racing = racing.clone();
        Box::pin(async move {
            let linked = format!("link/99999-{}", unique(2));
            racing.lock().await.commit(2, Some(1), 0, &[&linked], &[]).await;
        }) as futures::future::BoxFuture<'static, ()>
    };
    world.faulty.inject(Operation::Delete, 0..1, StoreFault::After(std::sync::Arc::new(commit)));
    let report = world.remove_orphans().await;
    let error = report.error.expect("the second batch finds it").to_string();
    assert!(error.contains("link/99999-"), "{error}");
    assert!(world.exists(&format!("data/99999-{}", unique(2))));
}

#[tokio::test]
async fn expiry_spares_what_a_retained_snapshot_has_by_another_name() {
    let mut world = World::new().await;
    world.store.link(&at("old"), &at("data"));
    let (old, new) = (format!("old/{}", unique(1)), format!("data/{}", unique(1)));
    world.commit(1, None, 3 * DAY, &[&old, "data/gone.parquet"], &[]).await;
    world.commit(2, Some(1), 2 * DAY, &[&new], &[&old, "data/gone.parquet"]).await;
    let report = world.expire().await;
    assert_eq!((report.outcome, report.expired_snapshots), (ExpireOutcome::Committed, 1), "{report:?}");
    assert!(report.deleted.is_empty() && report.kept["other-name"].files >= 3, "{report:?}");
    world.assert_readable(2);
    assert!(world.exists("data/gone.parquet"), "all of it waits until the names are one");
    let told = report_of(report, &Surroundings::default());
    let refusal = told.refusal.expect("also without orphan removal somebody hears of it");
    assert!(refusal.reason == "other_name" && refusal.detail.contains(&at(&new)), "{refusal:?}");
}

#[tokio::test]
async fn expiry_spares_a_repeated_name_and_deletes_the_rest() {
    let mut world = World::new().await;
    world.store.link(&at("old"), &at("data"));
    world.commit(1, None, 3 * DAY, &["old/000000_0", "data/gone.parquet"], &[]).await;
    world.commit(2, Some(1), 2 * DAY, &["data/000000_0"], &["old/000000_0", "data/gone.parquet"]).await;
    let report = world.expire().await;
    assert!(report.error.is_none(), "{report:?}");
    assert_eq!(report.kept["other-name"].files, 1);
    assert!(!world.exists("data/gone.parquet"));
    world.assert_readable(2);
}

#[tokio::test]
async fn a_table_needs_its_files_by_whatever_name_another_table_finds_them() {
    let mut world = World::new().await;
    let live = format!("s3://alias/u/data/{}", unique(1));
    world.commit(1, None, 3 * DAY, &[&live], &[]).await;
    let table = world.table().await;
    let needs = Needs::new(&table.loaded).unwrap().with_table(&table.store, &table.loaded).await.unwrap();
    let mut other = world.clone();
    other.metadata["location"] = json!("s3://b/warehouse/u");
    other.publish(HOUR);
    let own = [1, 2].map(|number| (format!("s3://b/warehouse/u/data/{}", unique(number)), 7, None));
    let mut suspects = Suspects::new(&other.table().await.loaded, own).unwrap();
    suspects.spare(&needs).unwrap();
    let referenced = suspects.into_answer(None).needed;
    assert_eq!(referenced, [true, false]);
}

#[tokio::test]
async fn a_table_needs_a_local_file_that_it_reaches_by_a_link_of_another_name() {
    let mut world = World::new().await;
    world.metadata["location"] = "file:///wh/u".into();
    world.store.link("file:///wh/u/data/mine.parquet", "file:///wh/t/data/theirs.parquet");
    world.commit(1, None, 3 * DAY, &["file:///wh/u/data/mine.parquet"], &[]).await;
    let table = world.table().await;
    let needs = Needs::new(&table.loaded).unwrap().with_table(&table.store, &table.loaded).await.unwrap();
    let mut other = world.clone();
    other.metadata["location"] = json!("file:///wh/t");
    other.publish(HOUR);
    world.file("file:///wh/t/data/orphan.parquet", DAY);
    let own = ["theirs", "orphan"].map(|name| format!("file:///wh/t/data/{name}.parquet"));
    let other = other.table().await;
    let identities = other.store.identities(&own).await.unwrap();
    let own = own.into_iter().zip(identities).map(|(path, identity)| (path, 7, identity));
    let mut suspects = Suspects::new(&other.loaded, own).unwrap();
    suspects.spare(&needs).unwrap();
    assert_eq!(suspects.into_answer(None).needed, [true, false]);
}

#[tokio::test]
async fn a_flink_checkpoint_keeps_its_data_by_another_name() {
    let manifest = format!("metadata/{JOB}-00000-0-12-00001.avro");
    let world = checkpointed(&manifest).await;
    let name = format!("00000-0-{OPERATION}-00001.parquet");
    let (_, bytes) = write_manifest("m.avro", 7, 7, &[(format!("s3://alias/t/data/{name}"), 7, 7)], &[]).await;
    world.file_of(&manifest, 10 * DAY, bytes);
    world.file(&format!("data/{name}"), 10 * DAY);
    let report = world.remove_orphans().await;
    assert_eq!(files(&report.kept, KeepReason::FlinkCheckpoint), 2, "{report:?}");
    assert!(world.exists(&format!("data/{name}")) && !world.exists("data/other.parquet"));
}
