use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::policy::{CommitInterval, ExpireSnapshotsPolicy, Schedule, Span};
use crate::testing::builder::{self, main_at, metadata};

const NOW: i64 = 1_800_000_000_000;
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;
const INTERVAL: Duration = Duration::from_secs(600);

/// A snapshot: id, parent, age in milliseconds, operation, further summary entries.
#[derive(Debug, Clone)]
struct Snap(i64, Option<i64>, i64, &'static str, Vec<(&'static str, &'static str)>);

fn append(id: i64, parent: Option<i64>, age_ms: i64) -> Snap {
    Snap(id, parent, age_ms, "append", vec![])
}

fn replace(id: i64, parent: Option<i64>, age_ms: i64) -> Snap {
    Snap(id, parent, age_ms, "replace", vec![])
}

fn table(snapshots: &[Snap], refs: &Value, properties: &Value) -> LoadedTable {
    let main = refs.get("main").and_then(|r| r.get("snapshot-id")).cloned();
    let snapshot = |(number, snap): (usize, &Snap)| {
        let mut summary: HashMap<&str, &str> = snap.4.iter().copied().collect();
        summary.insert("operation", snap.3);
        let changes = json!({"sequence-number": number + 1, "timestamp-ms": NOW - snap.2, "summary": summary});
        builder::snapshot(snap.0, snap.1, changes)
    };
    let last_updated = snapshots.iter().map(|s| NOW - s.2).max().unwrap_or(NOW);
    let metadata = metadata(json!({
        "location": "s3://b/db/t", "last-sequence-number": snapshots.len(), "last-updated-ms": last_updated,
        "properties": properties, "current-snapshot-id": main.unwrap_or_else(|| json!(-1)), "refs": refs,
        "snapshots": snapshots.iter().enumerate().map(snapshot).collect::<Vec<_>>(),
        "snapshot-log": [], "metadata-log": [],
    }));
    LoadedTable::from_metadata_json("s3://b/db/t/metadata/00009-x.metadata.json".into(), &metadata)
        .expect("valid metadata")
}

fn policy(older_than_ms: i64, retain_last: usize) -> TablePolicy {
    let older_than = Span::Fixed(Duration::from_millis(u64::try_from(older_than_ms).expect("not negative")));
    TablePolicy {
        commit_interval: CommitInterval::Fixed(INTERVAL),
        schedule: Schedule::Every(INTERVAL),
        expire_snapshots: ExpireSnapshotsPolicy { older_than, retain_last, ..ExpireSnapshotsPolicy::default() },
        ..TablePolicy::default()
    }
}

fn plan(loaded: &LoadedTable, older_than_ms: i64, retain_last: usize) -> ExpirePlan {
    plan_expire_snapshots(loaded, &policy(older_than_ms, retain_last), INTERVAL, NOW).expect("plannable")
}

fn line(length: i64, step_ms: i64) -> Vec<Snap> {
    (1..=length).map(|i| append(i, (i > 1).then(|| i - 1), (length - i) * step_ms)).collect()
}

fn reasons(plan: &ExpirePlan) -> Vec<&'static str> {
    plan.skipped.iter().map(|s| s.reason).collect()
}

#[test]
fn refs_to_missing_snapshots_go_but_a_broken_main_is_an_error() {
    let mut loaded = table(&line(2, DAY), &main_at(2), &json!({}));
    let gone = SnapshotReference::new(99, SnapshotRetention::Tag { max_ref_age_ms: None });
    loaded.refs.insert("gone".into(), gone);
    assert_eq!(plan(&loaded, 10 * DAY, 1).remove_refs, ["gone"]);
    loaded.refs.insert("main".into(), SnapshotReference::new(98, SnapshotRetention::branch(None, None, None)));
    let error = plan_expire_snapshots(&loaded, &policy(DAY, 1), INTERVAL, NOW).expect_err("refused");
    assert!(error.to_string().contains("98"), "{error}");
}

#[test]
fn a_current_snapshot_without_a_main_ref_is_main() {
    let mut loaded = table(&line(3, DAY), &main_at(3), &json!({}));
    loaded.refs.clear();
    let result = plan(&loaded, MINUTE, 2);
    assert_eq!((result.remove_snapshots.as_slice(), result.refs_seen.get("main")), (&[1][..], Some(&3)));
}

#[test]
fn a_plan_follows_branches_that_grow_and_nothing_else() {
    let refs = |main: i64, tag: i64| json!({"main": {"snapshot-id": main, "type": "branch"}, "t": {"snapshot-id": tag, "type": "tag"}});
    let at = |snapshots: i64, refs: &Value| table(&line(snapshots, DAY), refs, &json!({}));
    let planned = plan(&at(4, &refs(4, 2)), MINUTE, 1);
    assert_eq!(planned.remove_snapshots, [1, 3]);
    let rebased = rebase(&planned, &at(6, &refs(6, 2))).expect("main has grown");
    assert_eq!((rebased.refs_seen.get("main"), rebased.remove_snapshots), (Some(&6), vec![1, 3]));
    let mut more = refs(4, 2);
    more["new"] = json!({"snapshot-id": 4, "type": "branch"});
    for (why, changed) in [
        ("rolled back", refs(2, 2)),
        ("a tag moved", refs(4, 4)),
        ("a ref came", more),
        ("a ref went", main_at(4)),
        (
            "a tag became a branch that has grown",
            json!({"main": {"snapshot-id": 4, "type": "branch"}, "t": {"snapshot-id": 1, "type": "branch"}}),
        ),
    ] {
        let error = rebase(&planned, &at(4, &changed)).expect_err(why);
        assert_eq!(error.kind(), ErrorKind::Conflict, "{why}");
    }
}

#[test]
fn one_run_takes_a_bounded_number() {
    let count = i64::try_from(SNAPSHOTS_PER_RUN).expect("small") + 5;
    let result = plan(&table(&line(count, 1000), &main_at(count), &json!({})), 0, 1);
    assert_eq!((result.remove_snapshots.len(), result.remove_snapshots[0]), (SNAPSHOTS_PER_RUN, 1));
    assert!(reasons(&result).contains(&"run_limit"));
}

#[derive(Debug, Clone)]
struct Case {
    snapshots: Vec<Snap>,
    refs: Value,
}

fn case() -> impl Strategy<Value = Case> {
    let writer = prop_oneof![
        6 => Just(vec![]),
        1 => Just(vec![("flink.job-id", "a"), ("flink.operator-id", "x"), ("flink.max-committed-checkpoint-id", "7")]),
        1 => Just(vec![("flink.job-id", "b"), ("flink.max-committed-checkpoint-id", "7")]),
        1 => Just(vec![("kafka.connect.offsets.t.g", "1")]),
        1 => Just(vec![("spark.sql.streaming.queryId", "q")]),
        1 => Just(vec![("equality-convert-staging-snapshot", "3")]),
        1 => Just(vec![("somebody.offset", "9")]),
    ];
    let snapshot = (0..100usize, 0..20i64, prop_oneof![Just("append"), Just("replace")], writer);
    let retention =
        (any::<bool>(), 0..100usize, prop::option::of(1..5i32), prop::option::of(1..20i64), prop::option::of(1..20i64));
    let all = (prop::collection::vec(snapshot, 1..14), prop::collection::vec(retention, 0..4), 0..100usize);
    all.prop_map(|(snapshots, refs, main)| {
        let count = snapshots.len();
        let snapshots: Vec<Snap> = snapshots
            .into_iter()
            .enumerate()
            .map(|(i, (parent, age, operation, summary))| {
                let parent = (i > 0 && parent % 8 > 0).then(|| (i - 1 - parent % i.min(2)) as i64 + 1);
                Snap(i as i64 + 1, parent, age * DAY, operation, summary)
            })
            .collect();
        let mut json = json!({"main": {"snapshot-id": main % count + 1, "type": "branch"}});
        for (n, (is_tag, at, keep, age, ref_age)) in refs.into_iter().enumerate() {
            let mut reference = json!({"snapshot-id": at % count + 1, "type": if is_tag { "tag" } else { "branch" }});
            if let (Some(keep), false) = (keep, is_tag) {
                reference["min-snapshots-to-keep"] = keep.into();
            }
            if let (Some(age), false) = (age, is_tag) {
                reference["max-snapshot-age-ms"] = (age * DAY).into();
            }
            if let Some(age) = ref_age {
                reference["max-ref-age-ms"] = (age * DAY).into();
            }
            json[format!("r{n}")] = reference;
        }
        Case { snapshots, refs: json }
    })
}

fn run(case: &Case, older_than_days: i64, retain_last: usize) -> ExpirePlan {
    let loaded = table(&case.snapshots, &case.refs, &json!({}));
    plan_expire_snapshots(&loaded, &policy(older_than_days * DAY, retain_last), INTERVAL, NOW).expect("plannable")
}

/// The table after a plan was carried out.
fn after(mut case: Case, plan: &ExpirePlan) -> Case {
    case.snapshots.retain(|s| !plan.remove_snapshots.contains(&s.0));
    if let Some(refs) = case.refs.as_object_mut() {
        refs.retain(|name, _| !plan.remove_refs.contains(name));
    }
    case
}

proptest! {
    #[test]
    fn what_a_retained_ref_names_stays(case in case(), age in 0..20i64, last in 1..4usize) {
        let plan = run(&case, age, last);
        for (name, id) in &plan.refs_seen {
            prop_assert!(plan.remove_refs.contains(name) || !plan.remove_snapshots.contains(id), "{name} at {id}");
        }
        prop_assert!(!plan.remove_refs.contains(&"main".to_owned()));
        let mut unique = plan.remove_snapshots.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), plan.remove_snapshots.len());
    }

    #[test]
    fn longer_retention_never_expires_more(case in case(), age in 0..20i64, more in 0..5i64, last in 1..4usize, extra in 0..3usize) {
        let short = run(&case, age, last);
        let long = run(&case, age + more, last + extra);
        prop_assert!(long.remove_snapshots.iter().all(|id| short.remove_snapshots.contains(id)));
        prop_assert_eq!(long.remove_refs, short.remove_refs);
    }

    #[test]
    fn planning_again_finds_nothing_more(case in case(), age in 0..20i64, last in 1..4usize) {
        let mut case = case;
        case.snapshots.iter_mut().for_each(|s| s.4.clear());
        let plan = run(&case, age, last);
        let again = run(&after(case, &plan), age, last);
        prop_assert!(again.is_empty(), "first {plan:?}, then {again:?}");
    }

    #[test]
    fn every_kept_snapshot_has_a_reason(case in case(), age in 0..20i64, last in 1..4usize) {
        let plan = run(&case, age, last);
        let counted: usize = plan.skipped.iter().filter_map(|s| s.detail.split(' ').next()?.parse::<usize>().ok()).sum();
        prop_assert_eq!(counted + plan.remove_snapshots.len(), case.snapshots.len());
    }
}

#[test]
fn plans_do_not_depend_on_the_order_of_snapshots_in_the_metadata() {
    let mut snapshots = line(6, DAY);
    let first = plan(&table(&snapshots, &main_at(6), &json!({})), 2 * DAY, 1).remove_snapshots;
    snapshots.reverse();
    let mut second = plan(&table(&snapshots, &main_at(6), &json!({})), 2 * DAY, 1).remove_snapshots;
    second.sort_unstable();
    assert_eq!(first, second);
}

mod writers;
