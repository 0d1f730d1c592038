//! Rules of the house that no compiler knows: which way data flows, who may delete and commit, and what a name is.

mod arrows;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use icewright::action::{Action, Outcome, RunStep};
use icewright::actions::report::ActionReport;
use icewright::report::metrics::Metrics;

use source::{root, sources, uses_outside};

const NONE: [String; 0] = [];

#[test]
fn files_are_deleted_in_one_place() {
    // The other places only hand on to the store that they stand before.
    let stores = ["src/storage/router.rs", "src/testing/faulty_store.rs"];
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

/// One idea has one type name, so that a search for it finds one thing.
#[test]
fn each_type_name_is_declared_once() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources("src").iter().filter(|s| !s.is_test()) {
        for (number, line) in source.code() {
            let words: Vec<_> = line.split_whitespace().skip_while(|word| word.starts_with("pub")).take(2).collect();
            let ["struct" | "enum" | "trait", name] = words[..] else { continue };
            let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            places.entry(name.to_owned()).or_default().push(format!("{}:{number}", source.path));
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert_eq!(places, BTreeMap::new());
}

#[test]
fn folders_have_one_layout() {
    let sources = sources("src");
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let mut wrong = Vec::new();
    for source in &sources {
        let folder = source.path.trim_end_matches(".rs");
        if paths.range(&*format!("{folder}/")..).next().is_some_and(|path| path.starts_with(&format!("{folder}/"))) {
            wrong.push(format!("{} stands beside its folder: make it {folder}/mod.rs", source.path));
        }
        if source.text.contains("#[path") {
            wrong.push(format!("{} names another file's place", source.path));
        }
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
        let section = format!("catalogs.lake.uri = 'http://localhost'\n[defaults.{word}]\nenabled = false");
        assert!(icewright::config::Config::parse("", &section).is_ok(), "the section {word} is read");
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
