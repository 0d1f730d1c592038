//! When a table counts as changed since its last compaction.

use icewright::action::Action;
use icewright::plan::changed_since_last_rewrite;
use icewright::table::LoadedTable;
use icewright::table::history::last_own_run;
use serde_json::{Value, json};

use super::plan_support::{World, snapshot_json};

/// Snapshots in order of commit, each the parent of the next; the last is the head.
fn table(snapshots: &[(i64, &str, Value)]) -> LoadedTable {
    let mut all = Vec::new();
    for (number, (id, operation, summary)) in (1..).zip(snapshots) {
        all.push(snapshot_json(*id, Some(id - 1), number, operation, summary));
    }
    let mut world = World::new(&[&[]]);
    world.sequence_number = 100;
    let json = world.metadata_json(&all);
    LoadedTable::from_metadata_json("m.json".into(), &json).expect("valid")
}

fn changed(snapshots: &[(i64, &str, Value)]) -> bool {
    changed_since_last_rewrite(&table(snapshots))
}

fn append(id: i64) -> (i64, &'static str, Value) {
    (id, "append", json!({}))
}

/// A batch of ours: planned from a snapshot, and whether the run was complete with it.
fn batch(id: i64, planned_from: i64, complete: &str) -> (i64, &'static str, Value) {
    let summary = json!({
        "icewright.action": "rewrite-data-files",
        "icewright.run-id": "0199e4c0-0000-7000-8000-000000000000",
        "icewright.planned-snapshot-id": planned_from.to_string(),
        "icewright.run-complete": complete,
    });
    (id, "replace", summary)
}

#[test]
fn an_untouched_table_is_unchanged() {
    assert!(!changed(&[]), "no snapshot, nothing to do");
    assert!(!changed(&[append(11), batch(12, 11, "true")]));
    // The planning snapshot has expired since; the parent id is proof enough.
    assert!(!changed(&[batch(12, 11, "true")]));
}

#[test]
fn other_replace_snapshots_change_nothing() {
    assert!(!changed(&[append(11), batch(12, 11, "true"), (13, "replace", json!({}))]));
    let foreign = (13, "replace", json!({"icewright.action": "rewrite-manifests"}));
    assert!(!changed(&[append(11), batch(12, 11, "true"), foreign]));
}

#[test]
fn any_other_operation_is_a_change() {
    for operation in ["append", "overwrite", "delete"] {
        assert!(changed(&[append(11), batch(12, 11, "true"), (13, operation, json!({}))]), "{operation}");
    }
    assert!(changed(&[append(11)]), "never compacted");
    assert!(changed(&[append(11), (12, "replace", json!({}))]), "compacted by someone else");
}

#[test]
fn a_commit_during_the_run_is_a_change() {
    assert!(changed(&[append(11), append(12), batch(13, 11, "true")]));
    assert!(changed(&[append(11), batch(12, 11, "false"), append(13), batch(14, 11, "true")]));
}

#[test]
fn a_run_counts_when_its_last_batch_is_in() {
    assert!(!changed(&[append(11), batch(12, 11, "false"), batch(13, 11, "false"), batch(14, 11, "true")]));
    assert!(changed(&[append(11), batch(12, 11, "false"), batch(13, 11, "false")]));
    // A later run died half-way: the earlier one is no proof.
    assert!(changed(&[append(11), batch(12, 11, "true"), batch(13, 12, "false")]));
}

#[test]
fn gaps_and_missing_keys_prove_nothing() {
    // 12 has expired; it may have been an append.
    assert!(changed(&[batch(13, 11, "true")]));
    let without_plan =
        (12, "replace", json!({"icewright.action": "rewrite-data-files", "icewright.run-complete": "true"}));
    assert!(changed(&[append(11), without_plan]));
    let without_end =
        (12, "replace", json!({"icewright.action": "rewrite-data-files", "icewright.planned-snapshot-id": "11"}));
    assert!(changed(&[append(11), without_end]));
}

#[test]
fn a_commit_of_another_action_is_no_compaction_that_was_cut_short() {
    let other = (
        13,
        "replace",
        json!({
            "icewright.action": "rewrite-manifests",
            "icewright.run-id": "0199e4c0-0000-7000-8000-000000000001",
        }),
    );
    let last = |snapshots: &[_]| last_own_run(&table(snapshots), Action::RewriteDataFiles);
    let own = last(&[append(11), batch(12, 11, "true"), other.clone()]).expect("compacted");
    assert_eq!((own.snapshot_id, own.complete), (12, true));
    assert_eq!(last(&[append(11), other]), None);
}
