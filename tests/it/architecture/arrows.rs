//! Which module may use which: the list of arrows in ARCHITECTURE.md, held against the code.

use std::collections::{BTreeMap, BTreeSet};

use super::NONE;
use super::source::{Source, root, sources};

/// Modules of facts and pure functions, each with the crates it may name. None of these can reach a file, a network, a task or
/// a clock; of the standard library the modules may use what cannot either.
const PURE: [(&str, &[&str]); 6] = [
    ("action", &["serde", "utoipa"]),
    ("error", &["arrow", "iceberg", "parquet", "serde_json"]),
    ("run_id", &["uuid"]),
    ("table", &["foldhash", "hashbrown", "iceberg", "jiff", "serde", "serde_json", "uuid"]),
    ("policy", &["croner", "jiff", "serde", "utoipa"]),
    ("plan", &["iceberg", "jiff", "serde", "uuid"]),
];
const IMPURE_STD: [&str; 8] =
    ["std::fs", "std::net", "std::io", "std::process", "std::env", "std::thread", "std::os", "std::time::Sy"];

/// The modules of ARCHITECTURE.md's list, in its order, with those that each may use.
fn drawn() -> Vec<(String, BTreeSet<String>)> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, list) = text.split_once("```arrows\n").expect("a block of arrows");
    let (list, _) = list.split_once("```").expect("its end");
    let arrows = list.lines().map(|line| {
        let (module, uses) = line.split_once("->").unwrap_or((line, ""));
        (module.trim().to_owned(), uses.split_whitespace().map(str::to_owned).collect())
    });
    arrows.collect()
}

/// The modules that a line of `source` names by `crate::`, or by as many `super::` as lead to the root.
fn named(source: &Source, line: &str) -> Vec<String> {
    let module_of = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        rest[..end].to_owned()
    };
    let mut found: Vec<_> = line.split("crate::").skip(1).map(module_of).collect();
    let mut rest = line;
    while let Some(at) = rest.find("super::") {
        rest = &rest[at..];
        let mut ups = 0;
        while let Some(further) = rest.strip_prefix("super::") {
            (rest, ups) = (further, ups + 1);
        }
        if ups >= source.depth() {
            found.push(module_of(rest));
        }
    }
    found
}

#[test]
fn data_flows_one_way() {
    let drawn = drawn();
    let mut below = BTreeSet::new();
    for (module, uses) in &drawn {
        assert!(uses.is_subset(&below), "{module} may use only what stands before it in the list: {uses:?}");
        assert!(below.insert(module.clone()), "{module} stands in the list twice");
    }
    let allowed: BTreeMap<_, _> = drawn.into_iter().collect();
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for source in sources("src").iter().filter(|s| !s.is_test() && s.path != "src/lib.rs") {
        let module = source.module();
        used.entry(module.to_owned()).or_default();
        for (number, line) in source.code() {
            for other in named(source, line).into_iter().filter(|other| other != module) {
                if !allowed.get(module).is_some_and(|uses| uses.contains(&other)) {
                    wrong.push(format!("{}:{number}: {module} may not use `{other}`", source.path));
                }
                used.entry(module.to_owned()).or_default().insert(other);
            }
        }
    }
    assert_eq!(wrong, NONE, "see the list of arrows in ARCHITECTURE.md");
    assert_eq!(used, allowed, "the list of arrows in ARCHITECTURE.md names what is used, and all of it");
}

/// A name has one home. Else a use of `policy::X` could be a use of what lies above `policy`.
#[test]
fn nothing_is_named_by_another_module_than_its_own() {
    let mut wrong = Vec::new();
    for source in sources("src").iter().filter(|s| !s.is_test() && s.path != "src/lib.rs") {
        for (number, line) in source.code() {
            let passes_on = line.trim_start().starts_with("pub") && line.contains(" use ");
            let foreign = named(source, line).iter().any(|other| other != source.module());
            // A group at the root would hide its modules from `named`.
            if (passes_on && foreign) || line.contains("crate::{") || line.contains("use crate as") {
                wrong.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_eq!(wrong, NONE);
}

#[test]
fn pure_modules_name_no_crate_that_can_do_io() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let manifest: toml::Table = toml::from_str(&manifest).expect("TOML");
    let crates: Vec<String> =
        manifest["dependencies"].as_table().expect("dependencies").keys().map(|name| name.replace('-', "_")).collect();
    let names = |line: &str, path: &str| {
        let before = |at: usize| line[..at].chars().next_back();
        line.match_indices(path).any(|(at, _)| !before(at).is_some_and(|c| c.is_alphanumeric() || "_:".contains(c)))
    };
    let mut wrong = Vec::new();
    let mut used: BTreeMap<&str, BTreeSet<&str>> = PURE.iter().map(|(module, _)| (*module, BTreeSet::new())).collect();
    for source in sources("src").iter().filter(|s| !s.is_test()) {
        let Some(used) = used.get_mut(source.module()) else { continue };
        for (number, line) in source.code() {
            used.extend(crates.iter().filter(|name| names(line, &format!("{name}::"))).map(String::as_str));
            if IMPURE_STD.iter().any(|path| names(line, path)) || line.contains("async ") {
                wrong.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_eq!(wrong, NONE);
    let allowed = PURE.iter().map(|(module, crates)| (*module, crates.iter().copied().collect())).collect();
    assert_eq!(used, allowed);
}

/// In the map and in the decisions, words in backticks that look like a path below `src` or the root are one.
#[test]
fn the_map_names_files_that_exist() {
    let decisions = std::fs::read_dir(root().join("docs/decisions")).expect("decisions");
    let mut pages: Vec<_> = decisions.map(|page| page.expect("a page").path()).collect();
    pages.push(root().join("ARCHITECTURE.md"));
    let is_path = |word: &str| {
        let in_folder = word.trim_end_matches('/').contains('/') && !word.starts_with('/');
        in_folder && (word.ends_with(".rs") || word.ends_with('/')) && !word.contains([' ', '*', '<'])
    };
    let exists = |word: &str| root().join("src").join(word).exists() || root().join(word).exists();
    let mut missing = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let words = text.split('`').skip(1).step_by(2).filter(|word| is_path(word) && !exists(word));
        missing.extend(words.map(|word| format!("{}: {word}", page.display())));
    }
    assert_eq!(missing, NONE);
}

#[test]
fn the_code_map_has_every_folder() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for module in sources("src").iter().filter(|s| s.path.ends_with("/mod.rs")).map(Source::module) {
        assert!(text.contains(&format!("\n| `{module}/` |")), "{module}/ stands in the code map of ARCHITECTURE.md");
    }
}
