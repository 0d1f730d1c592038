//! Values as the Iceberg Java library sees them: partition transforms, and rows that are found by each of their values.

use std::process::Command;

use super::lake::{AT_ONCE, Engine, Lake};
use super::process::{installed, output};

/// Partitions that the rows fall into, by either spec.
const PARTITIONS: u64 = 8;

#[test]
fn the_java_library_makes_the_golden_transforms_again() {
    let classes = format!("{}:{}/*", installed("classes").display(), installed("jars").display());
    let made = output(Command::new("java").args(["-XX:+UseSerialGC", "-cp", &classes, "TransformValues"]));
    let golden = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/transforms.tsv")).expect("the file");
    assert!(made.stdout == golden, "tests/golden/transforms.tsv is not what TransformValues.java prints");
}

/// Moves two unpartitioned files of edge values to the new spec that `options` choose. Rows stay what they are, and Java finds
/// each by each of its values, though it prunes by partitions, manifests and bounds.
fn assert_found(table: &str, options: &[&str]) {
    let lake = Lake::start();
    lake.fixture("file://", "values", table, options);
    let before = lake.judge.digest(table, &[Engine::Java]);

    lake.config(&lake.judge.uri, AT_ONCE).once(&format!("lake.{table}"), &[]);

    assert_eq!(lake.judge.digest(table, &[Engine::Java]), before);
    let found = lake.judge.ask(&["find", table]);
    let files = lake.judge.files(table).data_files();
    assert_eq!(files, PARTITIONS, "one file for each row of edge values, and one for NULLs");
    assert_eq!(found["specs"], serde_json::json!([1]), "{found}");
    assert!(found["asked"].as_u64() > Some(100), "{found}");
    assert_eq!(found["missed"], serde_json::json!([]), "Java would not find rows by these");
}

#[test]
fn rows_in_partitions_by_every_type_are_found_by_their_values() {
    assert_found("db.identity", &["identity=1"]);
}

#[test]
fn rows_in_partitions_by_every_transform_are_found_by_their_values() {
    assert_found("db.transforms", &["identity=0"]);
}
