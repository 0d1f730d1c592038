//! `docs/json.md` against what the commands print: no key without a word about it, and none that is only in the document.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::command::{Lake, icewright};

/// The paths in the first column of a section's tables.
fn documented() -> BTreeMap<&'static str, BTreeSet<Vec<String>>> {
    let mut sections: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut section = "";
    for line in include_str!("../../docs/json.md").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim_matches('`');
        }
        let Some(cell) = line.strip_prefix("| `").and_then(|rest| rest.split(" | ").next()) else { continue };
        for path in cell.split("`, `") {
            let parts = path.trim_matches('`').replace("[]", ".[]");
            sections.entry(section).or_default().insert(parts.split('.').map(str::to_owned).collect());
        }
    }
    sections
}

/// Every path that leads to a value or to something empty.
fn paths(value: &Value, here: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    let mut below = |part: &str, value: &Value, found: &mut BTreeSet<Vec<String>>| {
        here.push(part.to_owned());
        paths(value, here, found);
        here.pop();
    };
    match value {
        Value::Object(object) if !object.is_empty() => {
            object.iter().for_each(|(key, value)| below(&key.replace('.', "/"), value, found));
        }
        Value::Array(values) if values.iter().any(|v| v.is_object()) => {
            values.iter().for_each(|value| below("[]", value, found));
        }
        _ => {
            found.insert(here.clone());
        }
    }
}

/// Whether the document speaks of a path: word for word, by `*` for one name, or, with `*` at its end, for all below.
fn covers(pattern: &[String], path: &[String]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        ([star], [_, ..]) if star == "*" => true,
        ([part, pattern @ ..], [name, path @ ..]) => (part == "*" || part == name) && covers(pattern, path),
        _ => false,
    }
}

/// An object or a list that is empty has no keys that could be documented; what stands above one is enough.
fn begins(pattern: &[String], path: &[String]) -> bool {
    pattern.len() > path.len() && covers(&pattern[..path.len()], path)
}

#[test]
fn every_key_of_real_output_is_documented() {
    let lake = Lake::start();
    let config = lake.config("1s", 1).display().to_string();
    let documented = documented();
    let run = |arguments: &[&str]| {
        let output =
            icewright(&[arguments, &["--config", &config, "--json"]].concat()).output().expect("start icewright");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>()
    };
    let outputs = [
        ("plan", run(&["plan"])),
        ("plan", run(&["plan", "lake.shop.missing"])),
        ("inspect", run(&["inspect", "lake.shop.orders"])),
        ("once", run(&["once"])),
        // Nothing left to do.
        ("plan", run(&["plan"])),
        ("once", run(&["once", "lake.shop.orders"])),
    ];
    let mut seen: BTreeMap<&str, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (command, objects) in outputs {
        assert!(!objects.is_empty(), "{command}");
        objects.iter().for_each(|object| paths(object, &mut Vec::new(), seen.entry(command).or_default()));
    }
    for (command, seen) in &seen {
        let patterns = &documented[command];
        let known = |path: &&Vec<String>| patterns.iter().any(|p| covers(p, path) || begins(p, path));
        let unknown: Vec<String> = seen.iter().filter(|path| !known(path)).map(|path| path.join(".")).collect();
        assert_eq!(unknown, Vec::<String>::new(), "docs/json.md says nothing of these keys of `{command}`");
    }
    // Optional parts need not have come up; a first level that never did is a mistake in the document.
    for (command, patterns) in &documented {
        let first = |paths: &BTreeSet<Vec<String>>| paths.iter().map(|path| path[0].clone()).collect::<BTreeSet<_>>();
        assert_eq!(first(patterns), first(&seen[command]), "{command}");
    }
}

#[test]
fn the_document_is_read_as_it_is_meant() {
    let path = |text: &str| text.replace("[]", ".[]").split('.').map(str::to_owned).collect::<Vec<_>>();
    assert!(covers(&path("steps[].deleted.*.files"), &path("steps[].deleted.manifest.files")));
    assert!(!covers(&path("steps[].deleted.*.files"), &path("steps[].deleted.manifest.rows")));
    assert!(!covers(&path("table"), &path("tables")) && !covers(&path("a"), &path("a.b")));
    assert!(
        covers(&path("would.*"), &path("would.listed.files")) && begins(&path("deleted.*.files"), &path("deleted"))
    );
    assert!(documented()["once"].contains(&path("steps[].expire-snapshots.kept.*.bytes")));
}
