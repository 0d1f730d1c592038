use serde_json::json;

use super::*;
use crate::testing::builder::metadata;

const OPERATION: &str = "0b9a9e3c-5d0f-4e5c-9d5e-123456789012";

#[test]
fn the_log_gives_the_range_of_versions() {
    let file = |n: u64| format!("s3://b/db/t/metadata/{n:05}-{OPERATION}.metadata.json");
    let log: Vec<_> = [41, 42].map(|n| json!({"metadata-file": file(n), "timestamp-ms": 1})).into();
    let metadata = metadata(json!({"location": "s3://b/db/t", "metadata-log": log}));
    let names = NamesInUse::of(&LoadedTable::from_metadata_json(file(43), &metadata).expect("valid")).expect("located");
    assert_eq!((names.current_version, names.oldest_version), (Some((true, 43)), Some(41)));
    let nowhere = LoadedTable::from_metadata_json(String::new(), &metadata).expect("valid");
    assert!(NamesInUse::of(&nowhere).is_err(), "a table that does not say where its metadata lies is left alone");
}
