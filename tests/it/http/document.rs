//! The API's description says what the server does.

use std::collections::BTreeSet;

use icewright::server::document;
use serde_json::Value;

/// Operations as `METHOD path`.
fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().expect("paths");
    let methods = |(path, item): (&String, &Value)| {
        let item = item.as_object().expect("a path item").clone();
        let path = path.clone();
        item.into_iter().map(move |(method, _)| format!("{} {path}", method.to_uppercase())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}

/// After a wanted change, write it anew: `BLESS=1 cargo test --test it http::document`.
#[test]
fn the_description_is_the_one_that_was_agreed_on() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/openapi.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, document()).expect("write");
    }
    assert_eq!(document(), std::fs::read_to_string(golden).expect("read"));
}

#[test]
fn the_documentation_lists_every_operation_and_no_other() {
    let description: Value = serde_json::from_str(&document()).expect("JSON");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/api.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(ToOwned::to_owned));
    let listed: BTreeSet<String> = rows.filter(|row| row.contains(" /api/v1")).collect();
    assert_eq!(listed, operations(&description));
    for operation in listed {
        let (method, path) = operation.split_once(' ').expect("method and path");
        let operation = &description["paths"][path][method.to_lowercase()];
        let locked = operation["security"].is_array();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{method} {path}`"))).expect("a row");
        assert_eq!(locked, row.contains("| token |"), "{row}");
        assert_eq!(locked, method != "GET", "looking is free");
    }
}
