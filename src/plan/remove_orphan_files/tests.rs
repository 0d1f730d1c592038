use serde_json::json;

use super::*;

const OPERATION: &str = "0b9a9e3c-5d0f-4e5c-9d5e-123456789012";

#[test]
fn the_log_gives_the_range_of_versions() {
    let file = |n: u64| format!("s3://b/db/t/metadata/{n:05}-{OPERATION}.metadata.json");
    let log: Vec<_> = [41, 42].map(|n| json!({"metadata-file": file(n), "timestamp-ms": 1})).into();
    let metadata = json!({
        "format-version": 2, "table-uuid": OPERATION, "location": "s3://b/db/t", "last-sequence-number": 0,
        "last-updated-ms": 1, "last-column-id": 1, "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": false, "type": "long"}]}],
        "partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0, "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0, "properties": {}, "refs": {},
        "snapshots": [], "snapshot-log": [], "metadata-log": log,
    });
    let names = NamesInUse::of(&LoadedTable::from_metadata_json(file(43), &metadata).expect("valid")).expect("located");
    assert_eq!((names.current_version, names.oldest_version), (Some((true, 43)), Some(41)));
    let nowhere = LoadedTable::from_metadata_json(String::new(), &metadata).expect("valid");
    assert!(NamesInUse::of(&nowhere).is_err(), "a table that does not say where its metadata lies is left alone");
}
