//! Rules of the house that no compiler knows: which way data flows, who may delete and commit, and what a name is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use icewright::action::{Action, Outcome};
use icewright::clock::PhaseTimes;
use icewright::report::metrics::{Metrics, RunCounts, RunRecord};

/// Every module with the modules it may use, each of which stands above it: so no arrow goes back.
const LAYERS: [(&str, &[&str]); 31] = [
    ("action", &[]),
    ("allocator", &[]),
    ("concurrent", &[]),
    ("error", &[]),
    ("clock", &[]),
    ("run_id", &[]),
    ("version", &[]),
    ("http_client", &["clock", "error"]),
    ("telemetry", &["error", "http_client", "version"]),
    ("permit", &["clock", "error"]),
    ("leader", &["clock", "error", "http_client", "permit"]),
    ("table", &["error", "run_id"]),
    ("storage", &["clock", "error", "http_client", "permit", "run_id", "table"]),
    ("catalog", &["clock", "error", "http_client", "permit", "storage", "table"]),
    ("policy", &["error", "table"]),
    ("config", &["error", "policy", "table"]),
    ("meta", &["concurrent", "error", "storage", "table"]),
    ("inspect", &["catalog", "concurrent", "error", "meta", "table"]),
    ("plan", &["error", "policy", "run_id", "table"]),
    ("rewrite", &["concurrent", "error", "plan", "run_id", "storage", "table"]),
    ("commit", &["catalog", "clock", "concurrent", "error", "meta", "plan", "rewrite", "run_id", "storage", "table"]),
    (
        "clean",
        &["catalog", "clock", "commit", "error", "meta", "plan", "policy", "run_id", "storage", "table", "telemetry"],
    ),
    (
        "report",
        &[
            "action",
            "catalog",
            "clean",
            "clock",
            "config",
            "error",
            "http_client",
            "inspect",
            "plan",
            "policy",
            "rewrite",
            "run_id",
            "table",
            "version",
        ],
    ),
    (
        "schedule",
        &[
            "action",
            "catalog",
            "clean",
            "clock",
            "commit",
            "concurrent",
            "config",
            "error",
            "http_client",
            "inspect",
            "permit",
            "plan",
            "policy",
            "report",
            "rewrite",
            "run_id",
            "storage",
            "table",
            "telemetry",
        ],
    ),
    ("server", &["clock", "error", "report", "table", "telemetry"]),
    ("reload", &["clock", "config", "error", "report", "schedule"]),
    (
        "daemon",
        &[
            "catalog",
            "clock",
            "config",
            "error",
            "inspect",
            "leader",
            "permit",
            "reload",
            "report",
            "rewrite",
            "schedule",
            "server",
            "table",
            "telemetry",
        ],
    ),
    ("sandbox", &["catalog", "clock", "error", "meta", "storage", "table"]),
    (
        "cli",
        &[
            "action",
            "clean",
            "clock",
            "config",
            "daemon",
            "error",
            "inspect",
            "plan",
            "policy",
            "report",
            "rewrite",
            "sandbox",
            "schedule",
            "table",
            "telemetry",
            "version",
        ],
    ),
    ("main", &[]),
    ("testing", &["catalog", "clock", "error", "sandbox", "storage", "table"]),
];

/// Single files that may use more. Events turn what the scheduler says into metrics, health and printed lines.
const EXCEPTIONS: [(&str, &[&str]); 2] = [
    ("src/report/events/mod.rs", &["cli", "config", "schedule", "server"]),
    ("src/report/events/records.rs", &["cli", "schedule"]),
];

/// A source file: its path from the root, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Whether the whole file is compiled for tests only.
    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs" || name.ends_with("_tests.rs") || self.path.contains("/tests/")
    }

    /// Numbered lines without comments, up to the tests at the end.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        let code = self.text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
        (1..).zip(code)
    }

    /// The module of `src` that it belongs to.
    fn module(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split(['/', '.']).next().unwrap_or_default()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(dir: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(root().join(&dir)).expect("a readable folder") {
            let entry = entry.expect("a readable entry");
            let path = dir.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(root().join(&path)).expect("readable source");
                found.push(Source { path: path.to_str().expect("plain names").to_owned(), text });
            }
        }
    }
    assert!(found.len() > 5, "{dir} has source files");
    found
}

/// `path:line: text` of every line of code that holds one of `words`, outside the `allowed` files and folders.
fn uses_outside(words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources("src").iter().filter(|s| !s.is_test()) {
        for (number, line) in source.code().filter(|(_, line)| words.iter().any(|word| line.contains(word))) {
            match allowed.iter().find(|place| source.path.starts_with(**place)) {
                Some(place) => drop(seen.insert(*place)),
                None => found.push(format!("{}:{number}: {}", source.path, line.trim())),
            }
        }
    }
    assert_eq!(seen.len(), allowed.len(), "each place that may use {words:?} does: {seen:?} of {allowed:?}");
    found
}

const NONE: [String; 0] = [];

#[test]
fn data_flows_one_way() {
    let mut above = BTreeSet::new();
    for (module, uses) in LAYERS {
        assert!(uses.iter().all(|other| above.contains(other)), "{module} uses what stands below it: {uses:?}");
        above.insert(module);
    }
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for source in sources("src").iter().filter(|s| !s.is_test()) {
        let exceptions = EXCEPTIONS.iter().find(|(path, _)| *path == source.path).map_or(&[][..], |(_, uses)| *uses);
        let listed = LAYERS.iter().find(|(module, _)| *module == source.module());
        for (number, line) in source.code() {
            for other in line.split("crate::").skip(1) {
                let end = other.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(other.len());
                let (other, module) = (&other[..end], source.module());
                if module == other || exceptions.contains(&other) {
                    continue;
                }
                edges.entry(module.to_owned()).or_default().insert(other.to_owned());
                if !listed.is_some_and(|(_, uses)| uses.contains(&other)) {
                    wrong.push(format!("{}:{number}: {module} may not use `{other}`", source.path));
                }
            }
        }
    }
    assert_eq!(wrong, NONE, "see LAYERS in this file");
    let unused: Vec<_> = LAYERS
        .iter()
        .flat_map(|(module, uses)| uses.iter().map(move |other| (*module, *other)))
        .filter(|(module, other)| !edges.get(*module).is_some_and(|used| used.contains(*other)))
        .collect();
    assert_eq!(unused, [], "allowed but not used: take it out of LAYERS");
}

#[test]
fn files_are_deleted_in_one_place() {
    // The other places only hand on to the store that they stand before.
    let stores = ["src/storage/router.rs", "src/storage/instrument.rs", "src/testing/faulty_store.rs"];
    let allowed = [&stores[..], &["src/storage/delete_files.rs"]].concat();
    assert_eq!(uses_outside(&[".delete_batch("], &allowed), NONE);
}

#[test]
fn tables_are_changed_in_one_place() {
    // The sandbox has a catalog of its own, and writers.
    assert_eq!(uses_outside(&[".commit_table("], &["src/commit/", "src/sandbox/"]), NONE);
}

/// The library's `Struct` takes 0.0 and -0.0 for one value.
#[test]
fn partitions_are_told_apart_by_one_type() {
    let is_key = |line: &str| {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        (line.contains("Map<") || line.contains("Set<")) && words.into_iter().any(|word| word == "Struct")
    };
    let mut keyed = Vec::new();
    for source in sources("src").iter().filter(|s| !s.is_test()) {
        let lines = source.code().filter(|(_, line)| is_key(line));
        keyed.extend(lines.map(|(number, line)| format!("{}:{number}: {}", source.path, line.trim())));
    }
    assert_eq!(keyed, NONE, "use PartitionValues");
    assert!(is_key("HashSet<(i32, &Struct)>") && !is_key("HashSet<PartitionValues>"));
}

#[test]
fn time_and_chance_come_from_the_clock() {
    let sources =
        ["SystemTime::now", "Timestamp::now", "Zoned::now", "Uuid::new_v", "Uuid::now_v", "rand::", "RandomState"];
    assert_eq!(uses_outside(&sources, &["src/clock.rs"]), NONE);
}

#[test]
fn doubles_stay_in_tests() {
    assert_eq!(uses_outside(&["testing::"], &["src/testing/"]), NONE);
}

#[test]
fn files_stay_short_and_finished() {
    let marks =
        [["TO", "DO"], ["FIX", "ME"], ["dbg", "!("], ["todo", "!("], ["unimplemented", "!("]].map(|m| m.concat());
    let mut wrong = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        let lines = source.text.lines().count();
        if lines > 500 {
            wrong.push(format!("{} has {lines} lines", source.path));
        }
        let marked = source.text.lines().zip(1..).filter(|(line, _)| marks.iter().any(|mark| line.contains(mark)));
        wrong.extend(marked.map(|(line, number)| format!("{}:{number}: {}", source.path, line.trim())));
    }
    assert_eq!(wrong, NONE);
}

#[test]
fn each_action_has_one_word_everywhere() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    assert_eq!(Action::ALL.map(Action::as_str), ["rewrite-data-files", "expire-snapshots", "remove-orphan-files"]);
    let metrics = Metrics::new(10);
    for action in Action::ALL {
        let counts = RunCounts::default();
        let (phases, outcome) = (PhaseTimes::default(), Outcome::Success);
        let duration = Duration::ZERO;
        let run = RunRecord { action, outcome, duration, finished_ms: 1, counts, phases, refused: false };
        metrics.record_run(&"lake.db.t".parse().expect("a name"), &run);
    }
    let page = metrics.gather().expect("a page");
    for action in Action::ALL {
        let word = action.as_str();
        let file = root().join("src/plan").join(word.replace('-', "_"));
        assert!(file.is_dir() || file.with_extension("rs").exists(), "the planner of {word}");
        assert!(read("src/config/policy_file.rs").contains(&format!("\"{word}\"")), "the section {word} is read");
        assert!(read("src/policy/setting.rs").contains(&format!("\"{word}.enabled\"")), "{word} can be switched off");
        assert!(read("config/icewright.toml").contains(&format!("[defaults.{word}]")), "{word} in the example");
        assert!(page.contains(&format!("action=\"{word}\"")), "{word} as a label");
        assert_eq!(serde_json::to_value(action).expect("a word"), word);
    }
}
