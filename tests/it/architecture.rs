//! Rules of the house that no compiler knows: which way data flows, who may delete and commit, and what a name is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use icewright::action::{Action, Outcome, RunStep};
use icewright::actions::report::ActionReport;
use icewright::report::metrics::Metrics;

/// Every module with the modules it may use, each of which stands above it: so no arrow goes back.
const LAYERS: [(&str, &[&str]); 32] = [
    ("error", &[]),
    ("action", &["error"]),
    ("allocator", &[]),
    ("clock", &["action"]),
    ("run_id", &[]),
    ("version", &[]),
    ("http_client", &["clock", "error"]),
    ("telemetry", &["error", "http_client", "version"]),
    ("permit", &["clock", "error"]),
    ("leader", &["clock", "error", "http_client", "permit"]),
    ("table", &["action", "error", "run_id"]),
    ("storage", &["clock", "error", "http_client", "permit", "run_id", "table"]),
    ("catalog", &["clock", "error", "http_client", "permit", "storage", "table"]),
    ("policy", &["action", "error", "table"]),
    ("config", &["error", "policy", "table"]),
    ("meta", &["error", "storage", "table"]),
    ("inspect", &["catalog", "error", "meta", "table"]),
    ("plan", &["action", "error", "policy", "run_id", "table"]),
    ("rewrite", &["action", "error", "plan", "run_id", "storage", "table"]),
    ("commit", &["catalog", "clock", "error", "meta", "plan", "rewrite", "run_id", "storage", "table"]),
    (
        "clean",
        &[
            "action",
            "catalog",
            "clock",
            "commit",
            "error",
            "meta",
            "plan",
            "policy",
            "run_id",
            "storage",
            "table",
            "telemetry",
        ],
    ),
    ("fleet", &["catalog", "clean", "config", "error", "http_client", "permit", "policy", "storage", "table"]),
    (
        "actions",
        &[
            "action",
            "catalog",
            "clean",
            "clock",
            "commit",
            "error",
            "fleet",
            "inspect",
            "plan",
            "policy",
            "rewrite",
            "run_id",
            "storage",
            "table",
            "telemetry",
        ],
    ),
    (
        "schedule",
        &[
            "action",
            "actions",
            "clock",
            "config",
            "error",
            "fleet",
            "inspect",
            "plan",
            "policy",
            "rewrite",
            "run_id",
            "table",
            "telemetry",
        ],
    ),
    ("reload", &["clock", "config", "error", "fleet", "schedule"]),
    (
        "report",
        &[
            "action",
            "actions",
            "catalog",
            "clean",
            "config",
            "error",
            "http_client",
            "inspect",
            "policy",
            "rewrite",
            "run_id",
            "schedule",
            "table",
            "telemetry",
            "version",
        ],
    ),
    ("server", &["clock", "error", "report", "schedule", "table", "telemetry"]),
    (
        "daemon",
        &[
            "actions",
            "catalog",
            "clock",
            "config",
            "error",
            "fleet",
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
            "actions",
            "clock",
            "config",
            "daemon",
            "error",
            "fleet",
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
        let listed = LAYERS.iter().find(|(module, _)| *module == source.module());
        for (number, line) in source.code() {
            for other in line.split("crate::").skip(1) {
                let end = other.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(other.len());
                let (other, module) = (&other[..end], source.module());
                if module == other {
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
        let run = ActionReport { outcome: Outcome::Success, ..ActionReport::new(action) };
        metrics.record_run(&"lake.db.t".parse().expect("a name"), &run, 1);
    }
    let page = metrics.gather().expect("a page");
    for action in Action::ALL {
        let word = action.as_str();
        let file = root().join("src/actions").join(word.replace('-', "_"));
        assert!(file.is_dir() || file.with_extension("rs").exists(), "the story of {word}");
        let file = root().join("src/plan").join(word.replace('-', "_"));
        assert!(file.is_dir() || file.with_extension("rs").exists(), "the planner of {word}");
        assert!(read("src/config/policy_file.rs").contains(&format!("\"{word}\"")), "the section {word} is read");
        assert!(read("src/policy/setting.rs").contains(&format!("\"{word}.enabled\"")), "{word} can be switched off");
        assert!(read("config/icewright.toml").contains(&format!("[defaults.{word}]")), "{word} in the example");
        assert!(page.contains(&format!("action=\"{word}\"")), "{word} as a label");
        assert_eq!(serde_json::to_value(action).expect("a word"), word);
    }
    let script = read("src/server/page/words.js");
    let shown = script.lines().filter_map(|line| Some(line.trim().split_once(": { mark: ")?.0.to_owned()));
    assert_eq!(shown.collect::<Vec<_>>(), Action::ALL.map(|action| format!("\"{action}\"")), "the page's actions");
    let words = |step: RunStep| step.actions().iter().map(|action| action.as_str()).collect::<Vec<_>>();
    assert_eq!(RunStep::all().flat_map(words).collect::<Vec<_>>(), Action::ALL.map(Action::as_str));
    for step in RunStep::all().filter(|step| words(*step)[0] != step.as_str()) {
        let line = format!("\"{}\": [\"{}\"]", step.as_str(), words(step).join("\", \""));
        assert!(script.contains(&line), "the page knows {line}");
    }
}
