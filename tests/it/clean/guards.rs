//! When orphan removal must do nothing at all.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use icewright::clean::{ExpireOutcome, Needs, OrphanRequest, Suspects, remove_orphan_files};
use icewright::clock::{Clock, SystemClock};
use icewright::error::Result;
use icewright::plan::remove_orphan_files::{Garbage, KeepReason};
use icewright::storage::{Store, StoreRef, StoreWriter};
use icewright::table::ListedFile;
use icewright::testing::{Operation, StoreFault};
use serde_json::json;

use super::orphans::files;
use super::world::{DAY, HOUR, INTERVAL, MINUTE, Needed, UUID, World, at};

const FOREIGN: &str = "ffffffff-5d0f-4e5c-9d5e-123456789012";

/// A table with an orphan that would go.
async fn table() -> World {
    let mut world = World::new().await;
    world.commit(1, None, 6 * HOUR, &["data/a.parquet"], &[]).await;
    world.file("data/orphan.parquet", 3 * DAY);
    world
}

/// Runs the removal, which must refuse for this reason and delete nothing.
async fn assert_refused(world: &World, reason: &str) -> String {
    let report = world.remove_orphans().await;
    let refused = report.refused.unwrap_or_else(|| panic!("not refused, error {:?}", report.error));
    assert_eq!(refused.reason, reason, "{}", refused.detail);
    assert!(world.store.deleted().is_empty());
    assert_eq!(world.find_orphans().await.refused.map(|r| r.reason), Some(refused.reason));
    refused.detail
}

#[tokio::test]
async fn without_any_hindrance_the_orphan_goes() {
    let world = table().await;
    let report = world.remove_orphans().await;
    assert_eq!(world.store.deleted(), [at("data/orphan.parquet")]);
    assert!(report.refused.is_none() && report.error.is_none());
}

#[tokio::test]
async fn disabled_by_policy_or_by_the_table() {
    let mut world = table().await;
    world.policy.remove_orphan_files.enabled = false;
    assert_refused(&world, "disabled").await;
    world.policy.remove_orphan_files.enabled = true;
    world.metadata["properties"] = json!({"gc.enabled": "false"});
    world.publish(HOUR);
    assert_refused(&world, "gc_disabled").await;
}

#[tokio::test]
async fn a_clock_that_is_behind() {
    let mut world = table().await;
    world.publish(0);
    world.now_ms -= 11 * MINUTE;
    assert_refused(&world, "clock_skew").await;
}

/// Of the store, which dates files, and of the catalog.
#[tokio::test]
async fn a_clock_far_from_the_stores_or_the_catalogs_on_either_side() {
    let limit = 10 * MINUTE;
    for beside in [-25 * HOUR, -limit - 1, limit + 1, 25 * HOUR] {
        for of_store in [true, false] {
            let world = table().await;
            let tell = |now_ms: i64| match of_store {
                true => world.store.tell_time_ms(Some(now_ms + beside)),
                false => world.catalog.tell_time_ms(Some(now_ms + beside)),
            };
            tell(world.now_ms);
            let detail = assert_refused(&world, "clock_skew").await;
            let whose = if of_store { "the store's" } else { "the catalog's" };
            assert!(detail.contains(whose) && detail.contains("set the clocks right"), "{detail}");
        }
    }
    let world = table().await;
    world.store.tell_time_ms(Some(world.now_ms - limit));
    world.catalog.tell_time_ms(Some(world.now_ms + limit));
    assert!(world.remove_orphans().await.refused.is_none(), "ten minutes are borne");
    assert_eq!(world.store.deleted(), [at("data/orphan.parquet")]);
}

#[tokio::test]
async fn an_expiry_by_a_clock_far_from_the_stores() {
    let mut world = World::new().await;
    world.commit(1, None, 6 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, Some(1), 3 * HOUR, &["data/b.parquet"], &[]).await;
    world.store.tell_time_ms(Some(SystemClock.now_ms() - 25 * HOUR));
    let plan = world.plan().await;
    assert!(!plan.is_empty(), "there is something to expire");
    let report = world.carry_out(&plan).await;
    assert!(report.refused && report.outcome == ExpireOutcome::NotCommitted, "{report:?}");
    assert!(report.error.is_some_and(|error| error.to_string().contains("clock_skew")));
    assert_eq!((world.catalog.commits(), world.store.deleted().len()), (0, 0));
}

#[tokio::test]
async fn neighbours_at_the_same_place_inside_or_around() {
    let mut world = table().await;
    for place in ["s3://b/db/t", "s3a://b/db/t/", "s3://b/db/t/d", "s3://b/db", "s3://b", "nonsense"] {
        world.neighbours = vec![("lake.db.other".into(), place.into())];
        let detail = assert_refused(&world, "shared_location").await;
        assert!(detail.contains("lake.db.other"), "{place}: {detail}");
    }
    world.neighbours = ["s3://b/db/t_2", "s3://b/db/t.bak", "s3://c/db/t", "file:///db/t"]
        .map(|place| ("lake.db.other".to_owned(), place.to_owned()))
        .into();
    world.neighbours.push(("lake.db.t".into(), "s3://b/db/t".into()));
    assert!(world.remove_orphans().await.refused.is_none());
    assert!(!world.exists("data/orphan.parquet"));
}

#[tokio::test]
async fn a_shared_external_directory_is_left_out() {
    let mut world = World::new().await;
    world.metadata["properties"] = json!({"write.data.path": "s3://shared/data"});
    world.commit(1, None, 6 * HOUR, &["s3://shared/data/a.parquet"], &[]).await;
    world.commit(2, None, 5 * HOUR, &["s3://shared/data/b.parquet"], &[]).await;
    world.forget(&[1], 4 * HOUR);
    world.neighbours = vec![("lake.db.other".into(), "s3://shared/data".into())];
    let report = world.remove_orphans().await;
    assert!(report.refused.is_none() && report.error.is_none());
    assert!(world.exists("s3://shared/data/a.parquet"), "not even listed");
    assert!(!world.exists("metadata/snap-1-1-0b9a9e3c-5d0f-4e5c-9d5e-000000000001.avro"));
}

#[tokio::test]
async fn metadata_of_another_table_in_the_listing() {
    let gzip = |text: String| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let late = |uuid: &str| format!("{{\"location\":\"{}\",\"table-uuid\":\"{uuid}\"}}", "x".repeat(2000));
    let foreign = format!("{{\"format-version\":2,\"table-uuid\":\"{FOREIGN}\"}}");
    for (name, content) in [
        ("metadata/00000-x.metadata.json", foreign.clone().into_bytes()),
        ("metadata/00000-x.metadata.json", late(FOREIGN).into_bytes()),
        ("metadata/00000-x.gz.metadata.json", gzip(foreign)),
        ("metadata/v1.metadata.json", b"{\"format-version\":1}".to_vec()),
        ("metadata/v1.metadata.json", b"garbage".to_vec()),
        ("metadata/v1.metadata.json", vec![]),
        ("metadata/v1.metadata.json.gz", b"\x1f\x8bgarbage".to_vec()),
        ("nested/metadata/v1.metadata.json", late(UUID).into_bytes()),
        ("data/00000-x.metadata.json", late(UUID).into_bytes()),
    ] {
        let world = table().await;
        world.file_of(name, MINUTE, content);
        let detail = assert_refused(&world, "shared_location").await;
        assert!(detail.contains(name), "{detail}");
    }
    let world = table().await;
    world.file_of("metadata/00000-x.metadata.json", MINUTE, late(UUID).into_bytes());
    world.file_of("metadata/00000-x.gz.metadata.json", MINUTE, gzip(late(UUID)));
    assert!(world.remove_orphans().await.refused.is_none(), "these are this table's own");
    assert!(!world.exists("data/orphan.parquet"));
}

#[tokio::test]
async fn a_table_of_another_format_at_the_same_place() {
    for log in [
        "_delta_log/00000000000000000000.json",
        "data/_delta_log/1.json",
        ".hoodie/hoodie.properties",
        "snapshot/LATEST",
    ] {
        let world = table().await;
        world.file(log, 9 * DAY);
        let detail = assert_refused(&world, "shared_location").await;
        assert!(detail.contains(log), "{detail}");
    }
    let world = table().await;
    world.file("data/_delta_log", 9 * DAY);
    assert!(world.remove_orphans().await.refused.is_none(), "a file of that name is no log");
}

#[tokio::test]
async fn a_metadata_file_that_cannot_be_looked_into_is_an_error() {
    let world = table().await;
    world.file_of("metadata/00000-x.metadata.json", MINUTE, b"{}".to_vec());
    world.faulty.inject_on("00000-x", Operation::ReadRange, 0..9, StoreFault::fail());
    let report = world.remove_orphans().await;
    assert!(report.error.is_some() && world.store.deleted().is_empty());
}

#[tokio::test]
async fn anything_retained_that_cannot_be_read() {
    for part in ["metadata/snap-1-", "-m0.avro"] {
        let world = table().await;
        world.faulty.inject_on(part, Operation::Read, 0..9, StoreFault::fail());
        let report = world.remove_orphans().await;
        assert!(report.error.is_some(), "{part}");
        assert!(world.store.deleted().is_empty(), "{part}");
    }
}

#[tokio::test]
async fn a_listing_that_breaks_off() {
    let world = table().await;
    world.faulty.inject(Operation::List, 0..1, StoreFault::Short);
    let report = world.remove_orphans().await;
    assert!(report.error.is_some() && world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_catalog_that_goes_down_before_the_first_batch() {
    let world = table().await;
    let catalog = world.catalog.clone();
    let down = move || {
        catalog.fail_loads(99);
        futures::FutureExt::boxed(async {})
    };
    world.faulty.inject(Operation::List, 0..1, StoreFault::After(Arc::new(down)));
    let report = world.remove_orphans().await;
    assert!(report.error.is_some() && world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_bucket_known_by_two_names() {
    let mut world = World::new().await;
    // Half of the table is written under an alias that the store resolves, the listing gives the other name.
    world.file("data/a.parquet", 3 * DAY);
    world.commit(1, None, 6 * HOUR, &["s3://b-alias/db/t/data/a.parquet", "data/b.parquet"], &[]).await;
    world.file("data/orphan.parquet", 3 * DAY);
    let detail = assert_refused(&world, "prefix_mismatch").await;
    assert!(detail.contains("data/a.parquet"), "{detail}");
}

/// A store whose listing is what a test says.
struct Lister {
    inner: StoreRef,
    listed: Vec<ListedFile>,
}

#[async_trait]
impl Store for Lister {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.inner.read(path).await
    }
    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner.read_range(path, range).await
    }
    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        self.inner.stat(path).await
    }
    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        self.inner.writer(path).await
    }
    fn list(&self, _prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        futures::stream::iter(self.listed.clone().into_iter().map(Ok)).boxed()
    }
    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        self.inner.delete_batch(paths).await
    }
}

/// Runs the removal on a listing of these old files.
async fn remove_listed(world: &World, paths: &[&str]) -> icewright::clean::OrphanReport {
    let listed =
        paths.iter().map(|p| ListedFile { path: at(p), size: 10, last_modified_ms: Some(world.now_ms - 3 * DAY) });
    let mut table = world.table().await;
    table.store = Arc::new(Lister { inner: table.store, listed: listed.collect() });
    let request = OrphanRequest {
        policy: &world.policy,
        commit_interval: INTERVAL,
        run_timeout: INTERVAL,
        now_ms: world.now_ms,
        is_active: &|_| false,
        neighbours: &[],
        elsewhere: &world.elsewhere,
        candidates_max: 100,
    };
    remove_orphan_files(&table, &request).await
}

#[tokio::test]
async fn a_listing_of_some_other_place() {
    let world = table().await;
    for listed in [&[][..], &["data/orphan.parquet", "data/x.parquet"]] {
        let report = remove_listed(&world, listed).await;
        assert_eq!(report.refused.map(|r| r.reason), Some("listing_mismatch"));
        assert!(world.store.deleted().is_empty());
    }
}

#[tokio::test]
async fn a_listing_that_strays_outside_of_the_table() {
    let world = table().await;
    let listed = [
        "data/a.parquet",
        "data/orphan.parquet",
        "s3://b/db/t_2/x",
        "s3://b/db/t.bak/x",
        "s3://c/db/t/x",
        "s3://b/db/t",
    ];
    let report = remove_listed(&world, &listed).await;
    assert_eq!(world.store.deleted(), [at("data/orphan.parquet")]);
    assert_eq!(report.kept.get(&KeepReason::OutsideTable).map(|t| t.files), Some(4));
}

#[tokio::test]
async fn a_listed_path_that_cannot_be_compared() {
    let world = table().await;
    let report = remove_listed(&world, &["data/a.parquet", "data/orphan.parquet", "data/../../t_2/x"]).await;
    assert!(report.error.is_some());
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_marker_of_a_directory_is_not_a_file() {
    let world = table().await;
    let report = remove_listed(&world, &["data/a.parquet", "data/", "data/old/"]).await;
    assert_eq!(report.kept.get(&KeepReason::DirectoryMarker).map(|t| t.files), Some(2));
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn a_reference_that_cannot_be_compared() {
    let mut world = World::new().await;
    world.commit(1, None, 6 * HOUR, &["s3://b/db/x/../t/data/a.parquet"], &[]).await;
    world.file("data/orphan.parquet", 3 * DAY);
    let report = remove_listed(&world, &["data/orphan.parquet"]).await;
    assert!(report.error.is_some());
    assert!(world.store.deleted().is_empty());
}

#[tokio::test]
async fn what_another_table_needs_stays_whatever_proves_it_garbage_here() {
    let mut world = table().await;
    world.file("data/ours.parquet", 3 * DAY);
    world.elsewhere = Needed(Some(vec![at("data/orphan.parquet")]));
    let report = world.remove_orphans().await;
    assert_eq!(
        (files(&report.kept, KeepReason::ReferencedElsewhere), files(&report.removable, Garbage::Unproven)),
        (1, 1)
    );
    assert!(world.exists("data/orphan.parquet") && !world.exists("data/ours.parquet"));
}

#[tokio::test]
async fn nothing_goes_while_another_table_cannot_be_read() {
    let mut world = table().await;
    world.elsewhere = Needed(None);
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::NeighbourUnreadable), report.orphans.files), (1, 1));
    assert_eq!(report.refused.map(|refused| refused.reason), Some("neighbour_unreadable"));
    assert!(world.exists("data/orphan.parquet") && report.deleted.is_empty());
}

#[tokio::test]
async fn what_engines_and_people_keep_beside_a_table_is_not_its_garbage() {
    let world = table().await;
    let kept =
        ["_checkpoints/0/a.parquet", ".staging/p.parquet", "data/_temporary/p.parquet", "data/README.txt", "r.csv"];
    kept.iter().for_each(|name| world.file(name, 30 * DAY));
    world.file("data/old.parquet", 30 * DAY);
    let report = world.remove_orphans().await;
    assert_eq!((files(&report.kept, KeepReason::Hidden), files(&report.kept, KeepReason::Foreign)), (3, 2));
    assert!(kept.iter().all(|name| world.exists(name)) && !world.exists("data/old.parquet"));
}

#[tokio::test]
async fn a_table_tells_which_files_it_needs_wherever_they_lie() {
    let mut world = table().await;
    world.commit(2, Some(1), 5 * HOUR, &["s3://b/db/u/old.parquet", "s3a://B/db/u//data/f"], &[]).await;
    world.commit(3, Some(2), 4 * HOUR, &["data/b.parquet"], &["s3://b/db/u/old.parquet"]).await;
    let table = world.table().await;
    let needs = Needs::new(&table.loaded).unwrap().with_table(&table.store, &table.loaded).await.unwrap();
    // Of the other table, which lies around this one.
    let mut other = world.clone();
    other.metadata["location"] = json!("s3://b/db");
    other.publish(HOUR);
    let own = ["s3://b/db/u/old.parquet", "s3://b/db/u/data/f", "s3://b/db/u/data/g", "s3://b/db/t/data/any.parquet"];
    let mut suspects = Suspects::new(&other.table().await.loaded, own.map(|path| (path.to_owned(), 7, None))).unwrap();
    suspects.spare(&needs).unwrap();
    let needed = suspects.into_answer(None).needed;
    assert_eq!(needed, [true, true, false, true], "retained, spelt otherwise, unknown, in the table's own folder");
    assert_eq!(
        needs.entries(),
        2 + 4 + 3 + 4,
        "two files elsewhere and their names, lists and manifests; none of its own files"
    );
}

#[tokio::test]
async fn a_file_is_the_same_in_whatever_store_it_is_said_to_be() {
    let mut world = table().await;
    world.commit(2, Some(1), 5 * HOUR, &["gs://alias/db/u/data/f"], &[]).await;
    let table = world.table().await;
    let needs = Needs::new(&table.loaded).unwrap().with_table(&table.store, &table.loaded).await.unwrap();
    let mut other = world.clone();
    other.metadata["location"] = json!("s3://bucket/db/u");
    other.publish(HOUR);
    let own = ["s3://bucket/db/u/data/f", "s3://bucket/db/u/data/f2"].map(|path| (path.to_owned(), 7, None));
    let mut suspects = Suspects::new(&other.table().await.loaded, own).unwrap();
    suspects.spare(&needs).unwrap();
    assert_eq!(suspects.into_answer(None).needed, [true, false]);
}
