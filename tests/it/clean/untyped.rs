//! Tables that the library cannot read, or reads in part: expiry and the search for garbage need none of it.

use icewright::clean::{ExpireOutcome, FileKind};
use icewright::error::ErrorKind;
use icewright::inspect::{ManifestCache, collect_partition_stats, collect_stats, inspect_table};
use icewright::table::LoadedTable;
use serde_json::{Value, json};

use super::world::{HOUR, World};

type Change = fn(&mut Value);

fn add_column(metadata: &mut Value, schema: usize, ty: &Value) {
    metadata["format-version"] = 3.into();
    metadata["next-row-id"] = 0.into();
    let fields = metadata["schemas"][schema]["fields"].as_array_mut().expect("fields");
    fields.push(json!({"id": 7, "name": "v", "required": false, "type": ty}));
    metadata["last-column-id"] = 7.into();
}

/// What keeps the library from reading the table, and what the reason must name.
const UNTYPED: [(&str, Change); 17] = [
    ("column v of schema 0 has the type variant", |m| add_column(m, 0, &json!("variant"))),
    ("column v of schema 0 has the type unknown", |m| add_column(m, 0, &json!("unknown"))),
    ("column v of schema 0 has the type geometry(srid:4326)", |m| add_column(m, 0, &json!("geometry(srid:4326)"))),
    ("column v of schema 0 has the type geography", |m| add_column(m, 0, &json!("geography"))),
    ("column v of schema 0 has the type {\"shape\":[3],\"type\":\"tensor\"}", |m| {
        add_column(m, 0, &json!({"type": "tensor", "shape": [3]}));
    }),
    ("column v.element.inner of schema 0 has the type variant", |m| {
        let field = json!({"id": 9, "name": "inner", "required": false, "type": "variant"});
        let element = json!({"type": "struct", "fields": [field]});
        add_column(m, 0, &json!({"type": "list", "element-id": 8, "element-required": false, "element": element}));
    }),
    ("column v.value of schema 0 has the type vector(3)", |m| {
        let ty = json!({"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value-required": false,
            "value": "vector(3)"});
        add_column(m, 0, &ty);
    }),
    // Dropped long ago: only an old schema has it.
    ("column v of schema 0 has the type variant", |m| {
        let mut now = m["schemas"][0].clone();
        now["schema-id"] = 1.into();
        add_column(m, 0, &json!("variant"));
        m["schemas"].as_array_mut().expect("schemas").push(now);
        m["current-schema-id"] = 1.into();
    }),
    // Version 1 keeps a dropped partition field as void, and then its column goes as well.
    ("partition field gone_part (void) is made from column 5, which was dropped", |m| {
        m["format-version"] = 1.into();
        m["schema"] = m["schemas"][0].clone();
        m["partition-spec"] = json!([]);
        let field = json!({"name": "gone_part", "transform": "void", "source-id": 5, "field-id": 1000});
        m["partition-specs"].as_array_mut().expect("specs").push(json!({"spec-id": 1, "fields": [field]}));
        m["default-spec-id"] = 1.into();
    }),
    ("partition spec 1 cannot be read", |m| {
        let field = json!({"name": "z", "transform": "zorder[4]", "source-id": 1, "field-id": 1000});
        m["partition-specs"].as_array_mut().expect("specs").push(json!({"spec-id": 1, "fields": [field]}));
    }),
    ("sort order 1 cannot be read", |m| {
        let field = json!({"transform": "hilbert[4]", "source-id": 1, "direction": "asc", "null-order": "nulls-first"});
        m["sort-orders"].as_array_mut().expect("orders").push(json!({"order-id": 1, "fields": [field]}));
    }),
    ("partition spec 0 cannot be read", |m| m["partition-specs"][0]["fields"] = json!([{"name": "x"}])),
    ("sort order 1 cannot be read", |m| {
        m["sort-orders"].as_array_mut().expect("orders").push(json!({"order-id": 1, "fields": [{"transform": 5}]}));
    }),
    ("current-schema-id names none of schemas", |m| m["current-schema-id"] = 7.into()),
    ("default-spec-id names none of partition-specs", |m| m["default-spec-id"] = 7.into()),
    ("", |m| m["last-column-id"] = "many".into()),
    ("schema 0 cannot be read", |m| m["schemas"][0]["fields"][0]["id"] = "one".into()),
];

/// What an ordinary reader passes over.
const HARMLESS: [(&str, Change); 7] = [
    ("fields of a later version", |m| m["materialized-views"] = json!([{"anything": 1}])),
    ("keys", |m| m["encryption-keys"] = json!([{"key-id": "k"}, 5])),
    ("statistics of a new kind", |m| {
        m["statistics"] = json!([{"snapshot-id": 4, "statistics-path": "s3://b/db/t/metadata/x.puffin",
            "file-size-in-bytes": 1, "blob-metadata": "of a new kind", "key-metadata": 7}]);
    }),
    ("an operation of a new kind", |m| m["snapshots"][0]["summary"]["operation"] = "merge".into()),
    ("no operation", |m| m["snapshots"][0]["summary"] = json!({"added-records": 7})),
    ("no summary", |m| {
        m["snapshots"][0].as_object_mut().expect("a snapshot").remove("summary");
    }),
    ("missing lists", |m| {
        for key in ["partition-statistics", "statistics", "metadata-log"] {
            m[key] = Value::Null;
        }
    }),
];

/// Three appends and a compaction of the first two files, hours apart, with an orphan, and then `change`.
async fn changed(change: Change) -> World {
    let mut world = World::new().await;
    world.commit(1, None, 8 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, Some(1), 7 * HOUR, &["data/b.parquet"], &[]).await;
    world.commit(3, Some(2), 6 * HOUR, &["data/ab.parquet"], &["data/a.parquet", "data/b.parquet"]).await;
    world.commit(4, Some(3), 5 * HOUR, &["data/c.parquet"], &[]).await;
    world.file("data/litter.parquet", 25 * HOUR);
    let log = world.metadata["metadata-log"].clone();
    change(&mut world.metadata);
    let lost_log = world.metadata["metadata-log"].is_null();
    world.metadata["metadata-log"] = log;
    world.publish(5 * HOUR);
    if lost_log {
        world.catalog.tamper_json(&world.ident, |mut document| {
            document["metadata-log"] = Value::Null;
            document
        });
    }
    world
}

/// Snapshots 1 to 3 expire with their files, the orphan goes, and snapshot 4 stays readable.
async fn is_cleaned(world: &World, what: &str) {
    let expired = world.expire().await;
    assert_eq!((expired.outcome, expired.expired_snapshots), (ExpireOutcome::Committed, 3), "{what}: {expired:?}");
    assert_eq!(expired.deleted.get(&FileKind::DataFile).map(|t| t.files), Some(2), "{what}");
    assert!(expired.error.is_none() && expired.kept.is_empty(), "{what}: {expired:?}");
    let removed = world.remove_orphans().await;
    assert_eq!(removed.error.map(|e| e.to_string()), None, "{what}");
    let mut gone: Vec<String> = world.store.deleted().into_iter().filter(|path| path.contains("/data/")).collect();
    gone.sort();
    assert_eq!(gone, ["a", "b", "litter"].map(|name| format!("s3://b/db/t/data/{name}.parquet")), "{what}");
    world.assert_readable(4);
}

#[tokio::test]
async fn snapshots_expire_and_orphans_go_whatever_types_and_transforms_a_table_has() {
    for (reason, change) in UNTYPED {
        let world = changed(change).await;
        let table = world.table().await;
        let error = table.loaded.typed().expect_err(reason);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(reason), "{error} instead of {reason}");
        assert!(error.to_string().contains("its snapshots expire"), "the message tells what goes on: {error}");
        is_cleaned(&world, reason).await;
        let table = world.table().await;
        let again = table.loaded.typed().expect_err("what cannot be read is carried over as it is");
        assert!(again.to_string().contains(reason), "{again}");
    }
}

#[tokio::test]
async fn what_a_reader_passes_over_changes_nothing() {
    for (what, change) in HARMLESS {
        let world = changed(change).await;
        let table = world.table().await;
        assert!(table.loaded.typed().is_ok(), "{what}: {:?}", table.loaded.typed().err());
        let state = inspect_table(&table, &ManifestCache::new(1 << 20)).await.expect(what);
        assert_eq!(state.data_files.len(), 2, "{what}: it can be compacted");
        is_cleaned(&world, what).await;
    }
}

#[tokio::test]
async fn a_table_without_known_types_is_counted_and_not_planned_for() {
    for (reason, change) in UNTYPED {
        let world = changed(change).await;
        let (table, cache) = (world.table().await, ManifestCache::new(1 << 20));
        let stats = collect_stats(&table, &cache, 1).await.expect("numbers need no types");
        assert_eq!((stats.data_files, stats.data_file_bytes, stats.all_files, stats.snapshots), (2, 20, 4, 4));
        let partitions = collect_partition_stats(&table, &cache, 9).await.expect("nor do these");
        assert_eq!(partitions.iter().map(|p| (p.spec_id, p.data_files)).collect::<Vec<_>>(), [(0, 2)]);
        let error = inspect_table(&table, &cache).await.expect_err("no plan without types");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn snapshots_that_name_their_manifests_themselves_are_followed_and_expire() {
    for version in [1, 2] {
        let mut world = changed(|_| ()).await;
        world.metadata["format-version"] = version.into();
        world.metadata["schema"] = world.metadata["schemas"][0].clone();
        world.metadata["partition-spec"] = json!([]);
        for id in 1..=4 {
            world.inline_manifests(id);
        }
        world.publish(5 * HOUR);
        let (table, cache) = (world.table().await, ManifestCache::new(1 << 20));
        let stats = collect_stats(&table, &cache, 1).await.expect("numbers");
        assert_eq!((stats.data_files, stats.all_files), (2, 4));
        let error = inspect_table(&table, &cache).await.expect_err("a head without a list is not compacted");
        assert!(error.to_string().contains("without a manifest list"), "{error}");
        let expired = world.expire().await;
        assert_eq!((expired.outcome, expired.expired_snapshots), (ExpireOutcome::Committed, 3), "{expired:?}");
        assert_eq!(expired.deleted.get(&FileKind::DataFile).map(|t| t.files), Some(2));
        assert_eq!(expired.deleted.get(&FileKind::ManifestList), None, "there was none");
        let removed = world.remove_orphans().await;
        assert_eq!(removed.error.map(|e| e.to_string()), None);
        assert!(!world.exists("data/litter.parquet"));
        world.assert_readable(4);
    }
}

#[tokio::test]
async fn a_lost_inline_manifest_of_a_retained_snapshot_stops_all_deletion() {
    let mut world = changed(|_| ()).await;
    for id in 1..=4 {
        world.inline_manifests(id);
    }
    let listed = world.metadata["snapshots"][3]["manifests"].clone();
    world.metadata["snapshots"][3]["manifests"] = json!([listed[0], "s3://b/db/t/metadata/lost-m0.avro"]);
    world.publish(5 * HOUR);
    let before = world.store.paths();
    let expired = world.expire().await;
    assert!(expired.error.is_some_and(|e| e.to_string().contains("lost-m0.avro")), "{:?}", expired.reason);
    let removed = world.remove_orphans().await;
    assert!(removed.error.is_some_and(|e| e.to_string().contains("lost-m0.avro")));
    let left = world.store.paths();
    assert!(before.iter().all(|path| left.contains(path)), "nothing was deleted");
}

#[tokio::test]
async fn wrong_counts_in_manifest_lists_stop_neither_expiry_nor_orphan_removal_nor_compaction() {
    let mut world = World::new().await;
    world.wrong_counts = true;
    world.commit(1, None, 8 * HOUR, &["data/a.parquet"], &[]).await;
    world.commit(2, Some(1), 7 * HOUR, &["data/b.parquet"], &[]).await;
    world.commit(3, Some(2), 6 * HOUR, &["data/ab.parquet"], &["data/a.parquet", "data/b.parquet"]).await;
    world.commit(4, Some(3), 5 * HOUR, &["data/c.parquet"], &[]).await;
    world.file("data/litter.parquet", 25 * HOUR);
    let table = world.table().await;
    let state = inspect_table(&table, &ManifestCache::new(1 << 20)).await.expect("the files are what they are");
    assert_eq!(state.data_files.len(), 2);
    is_cleaned(&world, "wrong counts").await;
}

/// What tells which files are needed is never read in part: a document that is wrong there is no table at all.
#[tokio::test]
async fn damage_where_files_are_named_is_an_error_that_names_the_place() {
    let world = changed(|_| ()).await;
    let faults: [(&str, Change); 12] = [
        ("format-version is 4", |m| m["format-version"] = 4.into()),
        ("format-version is missing", |m| m["format-version"] = Value::Null),
        ("snapshots is no list", |m| m["snapshots"] = "none".into()),
        ("snapshots[2]: neither manifest-list nor manifests", |m| m["snapshots"][2]["manifest-list"] = Value::Null),
        ("snapshots[1]", |m| m["snapshots"][1]["manifest-list"] = json!(["x"])),
        ("snapshots[0]", |m| m["snapshots"][0]["snapshot-id"] = "1".into()),
        ("refs", |m| m["refs"]["side"] = json!({"snapshot-id": 2, "type": "bookmark"})),
        ("branch main is at 3", |m| m["refs"]["main"]["snapshot-id"] = 3.into()),
        ("current-snapshot-id is 9", |m| m["current-snapshot-id"] = 9.into()),
        ("statistics", |m| m["statistics"] = json!([{"snapshot-id": 4}])),
        ("metadata-log", |m| m["metadata-log"] = json!([{"timestamp-ms": 4}])),
        ("location", |m| m["location"] = Value::Null),
    ];
    for (place, fault) in faults {
        let mut document = world.metadata.clone();
        fault(&mut document);
        let error = LoadedTable::from_metadata_json("m.json".into(), &document).expect_err(place);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(place) && error.to_string().contains("m.json"), "{error}");
    }
}
