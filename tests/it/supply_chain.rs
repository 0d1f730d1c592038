//! What the binary is made of, held against `deny.toml`: licences, versions, sources. Needs no network and no other program.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// A list of texts in `deny.toml`.
fn list(section: &str, key: &str) -> BTreeSet<String> {
    let deny: toml::Table = toml::from_str(include_str!("../../deny.toml")).expect("TOML");
    let list = deny[section][key].as_array().expect("a list");
    list.iter().map(|text| text.as_str().expect("text").to_owned()).collect()
}

fn cargo(arguments: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments.split(' ')).args(["--locked", "--offline"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().expect("start cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Every package that is built for Linux, as cargo resolved it.
fn packages() -> Vec<Value> {
    let metadata = cargo("metadata --format-version 1 --filter-platform x86_64-unknown-linux-gnu");
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let built: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let all = metadata["packages"].as_array().expect("packages");
    all.iter().filter(|package| package["id"].as_str().is_some_and(|id| built.contains(id))).cloned().collect()
}

/// Whether a licence expression can be met with the allowed licences. `/` is how older packages write `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any(&mut words, allowed);
    met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all(words, allowed);
    }
    met
}

fn all(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => {
            let met = any(words, allowed);
            met && words.next() == Some(")")
        }
        Some(licence) => match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
            Some(exception) => allowed.contains(&format!("{licence} WITH {exception}")),
            None => allowed.contains(licence),
        },
        None => false,
    }
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = ["MIT", "ISC"].map(str::to_owned).into();
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("Apache-2.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("ISC AND (GPL-3.0 OR MIT)", true),
        ("(ISC OR X) AND (GPL-3.0 OR Y)", false),
        ("MIT WITH Some-exception", false),
        ("MIT WITH Some-exception OR ISC", true),
        ("X OR MIT AND GPL-3.0", false),
        ("MIT ISC", false),
        ("(MIT", false),
        ("", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_the_registry() {
    let allowed = list("licenses", "allow");
    let packages = packages();
    assert!(packages.len() > 100, "{}", packages.len());
    for package in &packages {
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_met(licence, &allowed), "{name} has the licence {licence:?}, which deny.toml does not allow");
        let source = package["source"].as_str();
        let registry =
            source.is_some_and(|source| source.starts_with("registry+https://github.com/rust-lang/crates.io-index"));
        assert!(registry || name == env!("CARGO_PKG_NAME"), "{name} comes from {source:?}");
    }
}

#[test]
fn no_further_crate_is_built_in_two_versions() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let text = |key: &str| package[key].as_str().expect("text").to_owned();
        versions.entry(text("name")).or_default().insert(text("version"));
    }
    let twice: BTreeSet<String> = versions.into_iter().filter(|(_, v)| v.len() > 1).map(|(name, _)| name).collect();
    assert_eq!(twice, list("bans", "skip"), "add it to `bans.skip` in deny.toml only if there is no other way");
}

#[test]
fn the_program_holds_nothing_for_tests() {
    let tests_only = ["icewright feature \"testing\"", "tokio feature \"test-util\""];
    let shipped = cargo("tree --edges normal,features --prefix none");
    assert!(shipped.contains("tokio feature \"time\""), "{shipped}");
    let tested = cargo("tree --edges normal,features --prefix none --features testing --invert tokio");
    for feature in tests_only {
        assert!(!shipped.contains(feature), "{feature} is in the program");
        assert!(tested.contains(feature), "{feature} has another name: {tested}");
    }
}
