//! Golden plans of the two clean-ups: each `expire_snapshots_*.txt` in `tests/layouts` describes the snapshots and refs of a table and
//! a policy, each `remove_orphan_files_*.txt` files that nothing refers to, and what is known of them. Below each `[plan]` stands what
//! comes of it. A section that follows a plan replaces the earlier one of its name for the next plan; the others stay.
//! `BLESS=1` writes the plans anew; read the difference before keeping it.
//!
//! Ages are sums such as `24h+1ms`. A snapshot is `ID [of PARENT] AGE [OPERATION] [KEY=VALUE ...]`, or `FIRST-LAST [of PARENT] every AGE
//! [until AGE]`: a line of snapshots, the last one of that age, by default 0. A ref is `branch|tag NAME ID [KEY=VALUE ...]`; without refs,
//! main is at the last snapshot. Commits are ten minutes apart.
//!
//! A file is `AGE PATH`, below s3://b/db/t unless the path is whole; `unknown` or `at=MILLISECONDS` may stand for the age. In paths,
//! `{uuid}` is an operation's id and `{run 7h}` names a run of this project that began seven hours ago. The table's metadata is at version
//! 50, updated 3 hours ago; its log goes back to version 40, 50 hours ago; the Flink job a1b2c3d4e5f60718293a4b5c6d7e8f90 commits to it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use icewright::plan::expire_snapshots::plan_expire_snapshots;
use icewright::plan::remove_orphan_files::{Evidence, NamesInUse, OrphanContents, OrphanRules, judge};
use icewright::policy::{Span, TablePolicy};
use icewright::run_id::RunId;
use icewright::table::file_names::WriterProgress;
use icewright::table::path_set::PathSet;
use icewright::table::scope::Scope;
use icewright::table::{ListedFile, LoadedTable};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::plan_layouts::{key_value, layout_paths};
use super::plan_support::{World, snapshot_json};

const NOW: i64 = 1_800_000_000_000;
const INTERVAL: Duration = Duration::from_secs(600);
const LOCATION: &str = "s3://b/db/t";
const TABLE: Uuid = Uuid::from_u128(0x0b9a_9e3c_5d0f_4e5c_9d5e_aaaa_bbbb_cccc);
const OPERATION: &str = "0b9a9e3c-5d0f-4e5c-9d5e-123456789012";

/// Lines by section.
type Sections<'a> = BTreeMap<&'a str, Vec<&'a str>>;

#[test]
fn expiry_plans_match_their_layouts() {
    match_layouts("expire_snapshots_", draw_expiry);
}

#[test]
fn orphan_verdicts_match_their_layouts() {
    match_layouts("remove_orphan_files_", draw_orphans);
}

fn match_layouts(prefix: &str, draw: impl Fn(&Sections<'_>) -> String) {
    let mut failures = Vec::new();
    let paths = layout_paths(prefix);
    assert!(paths.len() >= 10, "only {} layouts found", paths.len());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("layout is readable");
        let planned = with_plans(&text, &draw);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, planned).expect("layout is writable");
        } else if planned != text {
            failures.push(format!("{}\nexpected:\n{text}\nplanned:\n{planned}", path.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The layout with what is planned below each `[plan]`.
fn with_plans(text: &str, draw: impl Fn(&Sections<'_>) -> String) -> String {
    let (mut planned, mut sections, mut section) = (String::new(), Sections::new(), "");
    for line in text.lines() {
        if section == "plan" {
            if !line.starts_with(['[', '#']) {
                continue;
            }
            (section, planned) = ("", planned + "\n");
        }
        planned = planned + line + "\n";
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
            if name == "plan" {
                planned += &draw(&sections);
            } else {
                sections.insert(name, Vec::new());
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            sections.get_mut(section).unwrap_or_else(|| panic!("line outside a section: {line}")).push(line);
        }
    }
    assert!(section == "plan", "a layout ends with a plan");
    planned
}

fn lines<'a>(sections: &'a Sections<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    sections.get(name).into_iter().flatten().copied()
}

fn properties(sections: &Sections<'_>) -> Value {
    let property = |line| {
        let (key, value) = key_value(line);
        let key = key.strip_prefix("property ").expect("a table has properties only");
        (key.to_owned(), json!(value.trim_matches('"')))
    };
    Value::Object(lines(sections, "table").map(property).collect())
}

/// A duration in milliseconds.
fn millis(text: &str) -> i64 {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let part = |part: &str| {
        let unit = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let number: i64 = part[..part.len() - unit.len()].parse().unwrap_or_else(|_| panic!("no duration: {text}"));
        let hour = 60 * 60 * 1000;
        number * HashMap::from([("ms", 1), ("m", 60_000), ("h", hour), ("d", 24 * hour)])[unit]
    };
    sign * text.split('+').map(part).sum::<i64>()
}

fn span(text: &str) -> Span {
    text.strip_suffix('x').map_or_else(
        || Span::Fixed(Duration::from_millis(u64::try_from(millis(text)).expect("not negative"))),
        |times| Span::Intervals(times.parse().expect("a number")),
    )
}

fn draw_expiry(sections: &Sections<'_>) -> String {
    let snapshots = snapshots(lines(sections, "snapshots"));
    let refs: Map<String, Value> = lines(sections, "refs").map(reference).collect();
    let mut metadata = World::new(&[&[]]).metadata_json(&snapshots);
    metadata["last-updated-ms"] = snapshots.iter().map(|s| s["timestamp-ms"].clone()).max_by_key(Value::as_i64).into();
    metadata["last-sequence-number"] = snapshots.len().into();
    metadata["properties"] = properties(sections);
    if !refs.is_empty() {
        metadata["current-snapshot-id"] = refs["main"]["snapshot-id"].clone();
        metadata["refs"] = Value::Object(refs);
    }
    let loaded = LoadedTable::from_metadata_json(format!("{LOCATION}/metadata/v9.metadata.json"), &metadata);
    let loaded = loaded.expect("valid metadata");
    let mut policy = TablePolicy::default();
    let options = &mut policy.expire_snapshots;
    (options.older_than, options.retain_last) = (Span::Fixed(Duration::ZERO), 1);
    for line in lines(sections, "policy") {
        match key_value(line) {
            ("enabled", value) => options.enabled = value == "true",
            ("older-than", value) => options.older_than = span(value),
            ("retain-last", value) => options.retain_last = value.parse().expect("a number"),
            ("writer-retention", value) => options.writer_retention = span(value),
            _ => panic!("unknown policy line: {line}"),
        }
    }
    let plan = match plan_expire_snapshots(&loaded, &policy, INTERVAL, NOW) {
        Ok(plan) => plan,
        Err(error) => return format!("{}: {error}\n", error.kind().as_str()),
    };
    let ids = snapshots.iter().filter_map(|snapshot| snapshot["snapshot-id"].as_i64());
    let kept: Vec<i64> = ids.filter(|id| !plan.remove_snapshots.contains(id)).collect();
    let refs: Vec<String> = plan.refs_seen.iter().map(|(name, id)| format!("{name} at {id}")).collect();
    let mut text = format!("expire {}\nkeep {}\n", ranges(&plan.remove_snapshots), ranges(&kept));
    let _ = writeln!(text, "require {}", refs.join(", "));
    if !plan.remove_refs.is_empty() {
        let _ = writeln!(text, "remove refs {}", plan.remove_refs.join(", "));
    }
    for kept in &plan.skipped {
        let _ = writeln!(text, "{}: {}", kept.reason, kept.detail);
    }
    text
}

/// Ids in their order, those that follow each other as one.
fn ranges(ids: &[i64]) -> String {
    let ranges = ids.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    let ranges: Vec<String> = ranges.collect();
    if ranges.is_empty() { "nothing".to_owned() } else { ranges.join(", ") }
}

fn snapshots<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Value> {
    let mut snapshots = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace().peekable();
        let ids = words.next().expect("an id");
        let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
        let (first, last): (i64, i64) = (first.parse().expect("an id"), last.parse().expect("an id"));
        let mut parent = words.next_if_eq(&"of").map(|_| words.next().expect("a parent").parse().expect("an id"));
        let step_ms = words.next_if_eq(&"every").map(|_| millis(words.next().expect("an age")));
        let until_ms = words.next_if(|word| *word != "until" && step_ms.is_none()).map_or(0, millis);
        let until_ms = words.next_if_eq(&"until").map_or(until_ms, |_| millis(words.next().expect("an age")));
        let operation = words.next_if(|word| !word.contains('=')).unwrap_or("append");
        let summary = words.map(|word| word.split_once('=').expect("KEY=VALUE"));
        let summary = Value::Object(summary.map(|(key, value)| (key.to_owned(), json!(value))).collect());
        for id in first..=last {
            let sequence = i64::try_from(snapshots.len()).expect("few") + 1;
            let mut snapshot = snapshot_json(id, parent, sequence, operation, &summary);
            snapshot["timestamp-ms"] = json!(NOW - until_ms - (last - id) * step_ms.unwrap_or(0));
            snapshots.push(snapshot);
            parent = Some(id);
        }
    }
    snapshots
}

fn reference(line: &str) -> (String, Value) {
    let mut words = line.split_whitespace();
    let mut word = || words.next().expect("branch|tag NAME ID");
    let (kind, name, id) = (word(), word().to_owned(), word().parse::<i64>().expect("an id"));
    let mut reference = json!({"type": kind, "snapshot-id": id});
    for (key, value) in words.map(|word| word.split_once('=').expect("KEY=VALUE")) {
        let number = if key.ends_with("-ms") { millis(value) } else { value.parse().expect("a number") };
        reference[key] = json!(number);
    }
    (name, reference)
}

fn draw_orphans(sections: &Sections<'_>) -> String {
    let job = json!({"flink.job-id": "a1b2c3d4e5f60718293a4b5c6d7e8f90"});
    let mut metadata = World::new(&[&[]]).metadata_json(&[snapshot_json(7, None, 1, "append", &job)]);
    let file = |version: i64| format!("{LOCATION}/metadata/{version:05}-{OPERATION}.metadata.json");
    let log = (40..50)
        .map(|version| json!({"metadata-file": file(version), "timestamp-ms": NOW + millis("-50h") + version - 40}));
    metadata["metadata-log"] = log.collect();
    metadata["location"] = json!(LOCATION);
    metadata["table-uuid"] = json!(TABLE.to_string());
    metadata["last-updated-ms"] = json!(NOW - millis("3h"));
    metadata["properties"] = properties(sections);
    let loaded = LoadedTable::from_metadata_json(file(50), &metadata).expect("valid metadata");
    let (names, scope) = (NamesInUse::of(&loaded).expect("located"), Scope::of(&loaded).expect("comparable"));

    let (mut once, mut progress, mut active) = (PathSet::default(), WriterProgress::default(), Vec::new());
    let mut contents = OrphanContents { last_updated_ms: HashMap::new(), checkpoints_known: true };
    for line in lines(sections, "known") {
        let (kind, rest) = line.split_once(' ').expect("KIND WHAT");
        match kind {
            "once-referenced" => drop(once.insert(&whole_path(rest)).expect("comparable")),
            "referenced" => progress.note(&whole_path(rest)),
            "active" => active.push(run_id(millis(rest.strip_prefix("run ").expect("active run AGE")))),
            "updated" => {
                let (age, path) = rest.split_once(' ').expect("updated AGE PATH");
                contents.last_updated_ms.insert(whole_path(path), NOW - millis(age));
            }
            "unread" => contents.checkpoints_known = false,
            _ => panic!("unknown line: {line}"),
        }
    }
    let mut rules = OrphanRules {
        now_ms: NOW,
        older_than_ms: millis("20m"),
        unproven_min_age_ms: millis("24h"),
        run_timeout_ms: millis("6h"),
    };
    for line in lines(sections, "policy") {
        match key_value(line) {
            ("older-than", value) => rules.older_than_ms = millis(value),
            ("unproven-min-age", value) => rules.unproven_min_age_ms = millis(value),
            ("run-timeout", value) => rules.run_timeout_ms = millis(value),
            _ => panic!("unknown policy line: {line}"),
        }
    }
    let (is_active, once_referenced) = (|run| active.contains(&run), vec![&once]);
    let evidence =
        Evidence { rules, names: &names, scope: &scope, progress: &progress, once_referenced, is_active: &is_active };
    let mut text = String::new();
    for line in lines(sections, "files") {
        let (age, path) = line.split_once(' ').expect("AGE PATH");
        let last_modified_ms = match (age, age.strip_prefix("at=")) {
            ("unknown", _) => None,
            (_, Some(at)) => Some(at.parse().expect("milliseconds")),
            (age, None) => Some(NOW - millis(age)),
        };
        let file = ListedFile { path: whole_path(path), size: 10, last_modified_ms };
        let (verdict, reason) = match judge(&file, &evidence, &contents).expect("comparable") {
            Ok(garbage) => ("remove", json!(garbage)),
            Err(kept) => ("keep", json!(kept)),
        };
        let reason = reason.as_str().expect("a name");
        let _ = writeln!(text, "{verdict:<7}{reason:<28}{age:<9} {path}");
    }
    text
}

/// A path as storage knows it.
fn whole_path(path: &str) -> String {
    let mut whole = path.replace("{uuid}", OPERATION);
    while let Some((before, (run, after))) =
        whole.split_once("{run ").and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
    {
        let (age, table) = run.split_once(' ').unwrap_or((run, ""));
        let run = run_id(millis(age));
        let token = match table {
            "" => run.file_token(),
            "for this table" => run.table_token(TABLE),
            "for another table" => run.table_token(Uuid::from_u128(TABLE.as_u128() + 1)),
            _ => panic!("no such table: {table}"),
        };
        whole = format!("{before}{token}{after}");
    }
    if whole.contains("://") { whole } else { format!("{LOCATION}/{whole}") }
}

/// A run that began so long ago.
fn run_id(age_ms: i64) -> RunId {
    RunId(Uuid::from_u128((u128::try_from(NOW - age_ms).expect("after 1970") << 80) | (7 << 76) | (2 << 62) | 5))
}
