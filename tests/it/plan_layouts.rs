//! Golden plans: each `rewrite_data_files_*.txt` in `tests/layouts` describes a table and a policy, and below `[plan]` holds the drawing of what is
//! planned, then of what is planned once that is done. `BLESS=1` writes the drawings anew; read the difference before keeping it.
//!
//! A file line is `[N x] data|eq|pos|dv NAME seq=S [size=6MiB] [rows=100] [spec=0] [part=(a, b)] [of=NAME] [format=orc] [run=1] [added=9]`;
//! `seq=S+` counts on with each of the N files. Numbers after `N x` are appended to the name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::DataFileFormat;
use icewright::plan::{check_rewrite_plan, plan_rewrite_data_files};
use icewright::policy::{
    PartitionCondition, PartitionSelection, PartitionTest, RewriteJobOrder, Span, TablePolicy, Window,
};
use icewright::table::FileEntry;

use super::plan_support::{self as support, World};

const COMMIT_INTERVAL: Duration = Duration::from_secs(600);

/// A parsed layout.
struct Layout {
    world: World,
    policy: TablePolicy,
    now_ms: i64,
    expected: String,
    /// Everything above the drawing.
    head: String,
}

#[test]
fn plans_match_their_drawings() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut failures = Vec::new();
    let paths = layout_paths("rewrite_data_files_");
    assert!(paths.len() >= 25, "only {} layouts found", paths.len());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("layout is readable");
        let layout = parse(&text);
        let actual = draw(&layout);
        if bless {
            std::fs::write(&path, format!("{}{actual}", layout.head)).expect("layout is writable");
        } else if actual != layout.expected {
            failures.push(format!("{}\nexpected:\n{}\nplanned:\n{actual}", path.display(), layout.expected));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The layouts of an action, by name.
pub(crate) fn layout_paths(prefix: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layouts");
    let entries = std::fs::read_dir(folder).expect("tests/layouts exists");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str().map(str::to_owned));
    paths.retain(|path| name(path).is_some_and(|name| name.starts_with(prefix) && name.ends_with(".txt")));
    paths.sort();
    paths
}

fn draw(layout: &Layout) -> String {
    let Layout { world, policy, now_ms, .. } = layout;
    let state = world.state();
    let plan = match plan_rewrite_data_files(&state, policy, COMMIT_INTERVAL, *now_ms) {
        Ok(plan) => plan,
        Err(error) => return format!("{}: {error}\n", error.kind().as_str()),
    };
    check_rewrite_plan(&plan, &state, &policy.rewrite_data_files).expect("plan is sound");
    if plan.is_empty() {
        return plan.to_string();
    }
    let after = world.apply(&plan).state();
    let next = plan_rewrite_data_files(&after, policy, COMMIT_INTERVAL, *now_ms).expect("plannable again");
    check_rewrite_plan(&next, &after, &policy.rewrite_data_files).expect("next plan is sound");
    format!("{plan}\nonce done, {next}")
}

fn parse(text: &str) -> Layout {
    let (head, expected) = text.split_once("[plan]\n").expect("a layout has a line [plan]");
    let mut world = World::new(&[]);
    let mut policy = support::policy(Default::default());
    let mut now_ms = 1_743_491_400_000; // 2025-04-01 16:10 in Seoul
    let mut files = Vec::new();
    let mut section = "";
    for line in head.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line, section) {
            ("[table]" | "[policy]" | "[files]", _) => section = line,
            (_, "[table]") => table_line(&mut world, line),
            (_, "[policy]") => policy_line(&mut policy, &mut now_ms, line),
            (_, "[files]") => files.push(line),
            _ => panic!("line outside a section: {line}"),
        }
    }
    if world.specs.is_empty() {
        world.specs.push((0, Vec::new()));
    }
    files.into_iter().for_each(|line| file_lines(&mut world, line));
    Layout { world, policy, now_ms, expected: expected.to_string(), head: format!("{head}[plan]\n") }
}

pub(crate) fn key_value(line: &str) -> (&str, &str) {
    let (key, value) = line.split_once(" = ").unwrap_or_else(|| panic!("no ` = ` in {line}"));
    (key.trim(), value.trim())
}

fn table_line(world: &mut World, line: &str) {
    let (key, value) = key_value(line);
    match key.split_once(' ') {
        Some(("spec", id)) => {
            let fields = value.split(", ").map(str::to_string).filter(|field| field != "none").collect();
            world.specs.push((id.parse().expect("spec id"), fields));
        }
        Some(("property", name)) => world.properties.push((name.to_string(), value.to_string())),
        _ if key == "format-version" => world.format_version = value.parse().expect("version"),
        _ => panic!("unknown table line: {line}"),
    }
}

fn policy_line(policy: &mut TablePolicy, now_ms: &mut i64, line: &str) {
    let (key, value) = key_value(line);
    let options = &mut policy.rewrite_data_files;
    let number = || value.parse().expect("number");
    match key {
        "enabled" => options.enabled = value == "true",
        "rewrite-all" => options.rewrite_all = value == "true",
        "target-file-size" => options.target_file_size_bytes = Some(bytes(value)),
        "min-file-size" => options.min_file_size_bytes = Some(bytes(value)),
        "max-file-size" => options.max_file_size_bytes = Some(bytes(value)),
        "min-input-files" => options.min_input_files = number(),
        "max-file-group-size" => options.max_file_group_size_bytes = bytes(value),
        "max-file-group-input-files" => options.max_file_group_input_files = Some(number()),
        "delete-file-threshold" => options.delete_file_threshold = Some(number()),
        "delete-ratio-threshold" => options.delete_ratio_threshold = value.parse().expect("ratio"),
        "max-files-to-rewrite" => options.max_files_to_rewrite = Some(number()),
        "rewrite-job-order" => {
            options.rewrite_job_order = match value {
                "bytes-asc" => RewriteJobOrder::BytesAsc,
                "bytes-desc" => RewriteJobOrder::BytesDesc,
                "files-asc" => RewriteJobOrder::FilesAsc,
                "files-desc" => RewriteJobOrder::FilesDesc,
                _ => panic!("unknown order {value}"),
            }
        }
        "now" => *now_ms = value.parse::<jiff::Timestamp>().expect("timestamp").as_millisecond(),
        "time-zone" => policy.time_zone = value.to_string(),
        "partitions" => options.partitions = selection(value),
        _ => panic!("unknown policy line: {line}"),
    }
}

/// `window COLUMN previous-hour [FORMAT]`, or conditions joined by ` and `: `equal COLUMN v1|v2`, `older COLUMN 2h [FORMAT]`.
fn selection(text: &str) -> PartitionSelection {
    if let Some(rest) = text.strip_prefix("window ") {
        let mut words = rest.splitn(3, ' ');
        let column = words.next().expect("column").to_string();
        let window = match words.next() {
            Some("previous-hour") => Window::PreviousHour,
            Some("previous-day") => Window::PreviousDay,
            other => panic!("unknown window {other:?}"),
        };
        return PartitionSelection::Window { column, window, format: words.next().map(str::to_string) };
    }
    let condition = |text: &str| {
        let mut words = text.splitn(4, ' ');
        let kind = words.next().expect("kind");
        let column = words.next().expect("column").to_string();
        let value = words.next().expect("value");
        let format = words.next().map(str::to_string);
        let than = || match value.split_at(value.len() - 1) {
            (number, "x") => Span::Intervals(number.parse().expect("multiple")),
            (number, "h") => Span::Fixed(Duration::from_secs(3600 * number.parse::<u64>().expect("hours"))),
            _ => panic!("unknown span {value}"),
        };
        let test = match kind {
            "equal" => {
                let all = format.map_or(value.to_string(), |rest| format!("{value} {rest}"));
                PartitionTest::Equal(all.split('|').map(str::to_string).collect())
            }
            "older" => PartitionTest::Older { than: than(), format },
            "newer" => PartitionTest::Newer { than: than(), format },
            _ => panic!("unknown condition {text}"),
        };
        PartitionCondition { column, test }
    };
    PartitionSelection::Conditions(text.split(" and ").map(condition).collect())
}

fn bytes(text: &str) -> u64 {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("no size: {text}"));
    match &text[digits.len()..] {
        "" => number,
        "KiB" => number << 10,
        "MiB" => number << 20,
        "GiB" => number << 30,
        unit => panic!("unknown unit {unit}"),
    }
}

fn file_lines(world: &mut World, line: &str) {
    let (copies, rest) = match line.split_once(" x ") {
        Some((copies, rest)) => (Some(copies.parse::<i64>().expect("copies")), rest),
        None => (None, line),
    };
    for number in 0..copies.unwrap_or(1) {
        let file = file_line(world, rest, number, copies.is_some());
        world.sequence_number = world.sequence_number.max(file.data_sequence_number);
        let is_data = file.content == iceberg::spec::DataContentType::Data;
        let files = if is_data { &mut world.data } else { &mut world.deletes };
        files.push(Arc::new(file));
    }
}

fn file_line(world: &World, line: &str, number: i64, numbered: bool) -> FileEntry {
    let (line, part) = match line.split_once("part=(") {
        Some((before, after)) => {
            let (part, rest) = after.split_once(')').expect("part=( is closed");
            (format!("{before}{rest}"), part.to_string())
        }
        None => (line.to_string(), String::new()),
    };
    let mut words = line.split_whitespace();
    let kind = words.next().expect("kind");
    let mut name = words.next().expect("name").to_string();
    let values: std::collections::HashMap<&str, &str> =
        words.map(|word| word.split_once('=').expect("key=value")).collect();
    if numbered {
        name = format!("{name}{:02}", number + 1);
    }
    if let Some(run) = values.get("run") {
        name = format!("{}-{name}", support::run_token(run.parse().expect("run")));
    }
    let sequence = match values["seq"].strip_suffix('+') {
        Some(first) => first.parse::<i64>().expect("seq") + number,
        None => values["seq"].parse().expect("seq"),
    };
    let current_spec = world.specs.last().map_or(0, |(id, _)| *id);
    let partition = world.partition(values.get("spec").map_or(current_spec, |id| id.parse().expect("spec")), &part);
    let of = values.get("of").map(|of| if numbered { format!("{of}{:02}", number + 1) } else { (*of).to_string() });
    let mut file = match kind {
        "data" => support::file(&name, sequence, 0, partition),
        "eq" => support::equality_delete(&name, sequence, partition),
        "pos" => support::position_delete(&name, sequence, partition, of.as_deref()),
        "dv" => support::deletion_vector(&name, sequence, partition, of.as_deref().expect("of=")),
        _ => panic!("unknown kind {kind}"),
    };
    file.file_size_bytes = values.get("size").map_or(file.file_size_bytes, |text| bytes(text));
    file.record_count = values.get("rows").map_or(file.record_count, |text| text.parse().expect("rows"));
    file.file_sequence_number = values.get("added").map_or(Some(sequence), |added| added.parse().ok());
    file.encrypted = values.contains_key("encrypted");
    if let Some(format) = values.get("format") {
        file.file_format = Some(format.parse::<DataFileFormat>().expect("format"));
    }
    file
}
