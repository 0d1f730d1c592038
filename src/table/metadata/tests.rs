use std::collections::{BTreeMap, HashMap};

use iceberg::spec::{MAIN_BRANCH, SnapshotReference, SnapshotRetention, TableMetadata};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::table::LoadedTable;

/// A document that the library reads.
#[derive(Debug, Clone)]
struct Drawn {
    version: u8,
    snapshots: Vec<(i64, bool, Option<i32>, u8)>,
    log: Vec<i64>,
    tagged: Option<prop::sample::Index>,
    properties: HashMap<String, String>,
    statistics: bool,
    explicit_main: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (
        1..=3u8,
        proptest::collection::vec((1..i64::MAX, any::<bool>(), proptest::option::of(0..1i32), 0..4u8), 0..6),
        proptest::collection::vec(any::<i64>(), 0..4),
        proptest::option::of(any::<prop::sample::Index>()),
        proptest::collection::hash_map("[a-z.]{1,8}", "\\PC{0,8}", 0..4),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(version, mut snapshots, log, tagged, properties, statistics, explicit_main)| {
            snapshots.sort_unstable();
            snapshots.dedup_by_key(|s| s.0);
            Drawn { version, snapshots, log, tagged, properties, statistics, explicit_main }
        })
}

fn document(drawn: &Drawn) -> Value {
    let operations = ["append", "replace", "overwrite", "delete"];
    let mut parent = None;
    let mut snapshots = Vec::new();
    for (at, (id, has_parent, schema, operation)) in drawn.snapshots.iter().enumerate() {
        let mut snapshot = json!({
            "snapshot-id": id, "timestamp-ms": 1_000_000 + at, "manifest-list": format!("s3://b/t/metadata/snap-{id}.avro"),
            "summary": {"operation": operations[usize::from(*operation)], "added-records": "7"},
        });
        if drawn.version > 1 {
            snapshot["sequence-number"] = json!(at + 1);
        }
        if let (true, Some(parent)) = (has_parent, parent) {
            snapshot["parent-snapshot-id"] = json!(parent);
        }
        if let Some(schema) = schema {
            snapshot["schema-id"] = json!(schema);
        }
        if drawn.version > 2 {
            (snapshot["first-row-id"], snapshot["added-rows"]) = (json!(0), json!(0));
        }
        parent = Some(*id);
        snapshots.push(snapshot);
    }
    let mut refs = serde_json::Map::new();
    if let Some(id) = parent.filter(|_| drawn.explicit_main) {
        refs.insert(MAIN_BRANCH.into(), json!({"snapshot-id": id, "type": "branch", "max-snapshot-age-ms": 5}));
    }
    if let (Some(index), false) = (drawn.tagged, drawn.snapshots.is_empty()) {
        let (id, ..) = drawn.snapshots[index.index(drawn.snapshots.len())];
        refs.insert("tagged".into(), json!({"snapshot-id": id, "type": "tag", "max-ref-age-ms": i64::MAX}));
    }
    let schema = json!({"type": "struct", "schema-id": 0, "fields": []});
    let log: Vec<Value> = drawn.log.iter().map(|id| json!({"snapshot-id": id, "timestamp-ms": 7})).collect();
    let files: Vec<Value> =
        drawn.log.iter().map(|id| json!({"metadata-file": format!("{id}"), "timestamp-ms": 7})).collect();
    let statistics = drawn.snapshots.iter().filter(|_| drawn.statistics).map(|(id, ..)| {
        json!({"snapshot-id": id, "statistics-path": format!("s-{id}"), "file-size-in-bytes": 9,
            "file-footer-size-in-bytes": 1, "blob-metadata": []})
    });
    json!({
        "format-version": drawn.version, "table-uuid": "0199e4c0-0000-7000-8000-000000000000", "location": "s3://b/t",
        "last-sequence-number": 9, "last-updated-ms": 2_000_000, "last-column-id": 0, "current-schema-id": 0, "next-row-id": 0,
        "schema": schema, "schemas": [schema], "partition-spec": [], "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999, "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}], "properties": drawn.properties, "refs": refs,
        "current-snapshot-id": parent.unwrap_or(-1), "snapshots": snapshots, "snapshot-log": log, "metadata-log": files,
        "statistics": statistics.collect::<Vec<_>>(), "partition-statistics": [],
    })
}

proptest! {
    /// Whatever the library reads as well is told the same.
    #[test]
    fn what_the_library_reads_is_read_the_same(drawn in drawn()) {
        let json = document(&drawn);
        let library: TableMetadata = serde_json::from_value(json.clone()).expect("the library reads it");
        let loaded = LoadedTable::from_metadata_json("m.json".into(), &json).expect("readable");
        let own = &loaded.metadata;
        prop_assert_eq!(own.format_version(), library.format_version());
        prop_assert_eq!(own.uuid(), library.uuid());
        prop_assert_eq!(own.location(), library.location());
        prop_assert_eq!(own.properties(), library.properties());
        prop_assert_eq!(own.last_sequence_number(), library.last_sequence_number());
        prop_assert_eq!(own.next_sequence_number(), library.next_sequence_number());
        prop_assert_eq!(own.last_updated_ms(), library.last_updated_ms());
        prop_assert_eq!(own.current_schema_id(), library.current_schema_id());
        prop_assert_eq!(own.default_partition_spec_id(), library.default_partition_spec_id());
        prop_assert_eq!(own.current_snapshot_id(), library.current_snapshot_id());
        prop_assert_eq!(own.history(), library.history());
        prop_assert_eq!(own.metadata_log(), library.metadata_log());
        prop_assert_eq!(own.snapshots().len(), library.snapshots().len());
        for theirs in library.snapshots() {
            let ours = own.snapshot_by_id(theirs.snapshot_id()).expect("the same snapshots");
            prop_assert_eq!(ours.parent_snapshot_id(), theirs.parent_snapshot_id());
            prop_assert_eq!(ours.sequence_number(), theirs.sequence_number());
            prop_assert_eq!(ours.timestamp_ms(), theirs.timestamp_ms());
            prop_assert_eq!(ours.manifest_list(), theirs.manifest_list());
            prop_assert!(ours.inline_manifests().is_empty());
            prop_assert_eq!(ours.summary(), theirs.summary());
            prop_assert_eq!(ours.operation(), Some(theirs.summary().operation.as_str()));
            prop_assert_eq!(ours.schema_id(), theirs.schema_id());
        }
        let paths = |id: i64| (own.statistics_for_snapshot(id).map(|s| s.statistics_path.clone()),
            library.statistics_for_snapshot(id).map(|s| s.statistics_path.clone()));
        for (id, ..) in &drawn.snapshots {
            let (ours, theirs) = paths(*id);
            prop_assert_eq!(ours, theirs);
        }
        // The library tells single refs only by their snapshots, and of version 1 tables none but `main`.
        for (name, reference) in loaded.refs.iter().filter(|(name, _)| drawn.version > 1 || *name == MAIN_BRANCH) {
            prop_assert_eq!(library.snapshot_for_ref(name).map(|s| s.snapshot_id()), Some(reference.snapshot_id));
        }
        let typed = loaded.typed().expect("the library reads it");
        prop_assert_eq!(typed.current_schema(), library.current_schema());
        prop_assert_eq!(typed.default_partition_spec(), library.default_partition_spec());
        prop_assert_eq!(typed.default_sort_order(), library.default_sort_order());
        prop_assert_eq!(typed.next_sequence_number(), library.next_sequence_number());
        prop_assert_eq!(typed.properties(), library.properties());
        prop_assert_eq!(typed.snapshots().len(), 0, "snapshots are told by one of the two only");
    }
}

#[test]
fn ids_and_times_of_any_size_are_kept() {
    for id in [i64::MAX, i64::MIN + 1, 1, 0] {
        let drawn = Drawn {
            version: 2,
            snapshots: vec![(id, false, None, 0)],
            log: vec![id],
            tagged: None,
            properties: HashMap::new(),
            statistics: true,
            explicit_main: true,
        };
        let metadata = Metadata::from_json(&document(&drawn)).expect("readable");
        assert_eq!(metadata.current_snapshot().map(|s| s.snapshot_id()), Some(id));
        assert_eq!(metadata.statistics_iter().map(|s| s.snapshot_id).collect::<Vec<_>>(), [id]);
    }
}

#[test]
fn two_snapshots_of_one_id_and_two_statistics_of_one_snapshot_are_all_kept() {
    let drawn = Drawn {
        version: 2,
        snapshots: vec![(5, false, None, 0)],
        log: Vec::new(),
        tagged: None,
        properties: HashMap::new(),
        statistics: true,
        explicit_main: true,
    };
    let mut json = document(&drawn);
    let mut again = json["snapshots"][0].clone();
    again["manifest-list"] = json!("s3://b/t/metadata/other.avro");
    json["snapshots"].as_array_mut().expect("a list").push(again);
    let mut twice = json["statistics"][0].clone();
    twice["statistics-path"] = json!("other");
    json["statistics"].as_array_mut().expect("a list").push(twice);
    let metadata = Metadata::from_json(&json).expect("readable");
    let lists: Vec<&str> = metadata.snapshots().map(|s| s.manifest_list()).collect();
    assert_eq!(lists, ["s3://b/t/metadata/snap-5.avro", "s3://b/t/metadata/other.avro"]);
    let paths: Vec<&str> = metadata.statistics_iter().map(|s| s.statistics_path.as_str()).collect();
    assert_eq!(paths, ["s-5", "other"], "a file that the metadata names is needed");
}

#[test]
fn an_old_table_without_lists_of_schemas_and_specs_is_read() {
    let json = json!({
        "format-version": 1, "location": "s3://b/t", "last-updated-ms": 5, "last-column-id": 1,
        "schema": {"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "long"}]},
        "partition-spec": [], "properties": {"a": 1, "b": true, "c": null}, "current-snapshot-id": 3,
        "snapshots": [{"snapshot-id": 3, "timestamp-ms": 5, "manifests": ["s3://b/t/m0.avro", "s3://b/t/m1.avro"]}],
    });
    let loaded = LoadedTable::from_metadata_json("m.json".into(), &json).expect("readable");
    let metadata = &loaded.metadata;
    assert_eq!((metadata.uuid(), metadata.current_schema_id()), (Uuid::nil(), 0));
    let properties: BTreeMap<_, _> = metadata.properties().iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(properties, BTreeMap::from([("a", "1"), ("b", "true")]));
    let snapshot = loaded.current_snapshot().expect("a head");
    assert_eq!((snapshot.manifest_list(), snapshot.operation()), ("", None));
    assert_eq!(snapshot.inline_manifests(), ["s3://b/t/m0.avro", "s3://b/t/m1.avro"]);
    assert_eq!(snapshot.summary().operation, Operation::Overwrite, "anything may have changed");
    let main = SnapshotReference::new(3, SnapshotRetention::branch(None, None, None));
    assert_eq!(loaded.refs, BTreeMap::from([(MAIN_BRANCH.to_owned(), main)]));
    assert!(loaded.typed().is_ok(), "{:?}", loaded.typed().err());
}
