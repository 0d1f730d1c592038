//! What a rewrite's snapshot looks like, and which deletes leave with it.

use std::collections::{BTreeSet, HashMap};

use iceberg::spec::*;
use iceberg::{TableRequirement, TableUpdate};

use super::world::*;
use crate::error::ErrorKind;
use crate::run_id::{RunId, SUMMARY_ACTION, SUMMARY_RUN_ID};
use crate::storage::Store;

fn property<'a>(snapshot: &'a crate::table::Snapshot, key: &str) -> Option<&'a str> {
    snapshot.summary().additional_properties.get(key).map(String::as_str)
}

#[tokio::test]
async fn a_rewrite_keeps_the_starting_sequence_number_and_replaces_its_inputs() {
    let world = World::v2();
    world.append(&[("a", "x", 5), ("b", "x", 6)]).await;
    world.append(&[("c", "x", 7), ("d", "y", 8)]).await;
    let start = world.start().await;
    let result = world.result(&["a", "c"], vec![data("out", "x", 12)], 0).await;
    let ctx = world.ctx();
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((done.conflicts, done.unknown_outcomes, done.removed_delete_files), (0, 0, 0));
    assert_eq!(world.live().await, ["b", "d", "out"]);
    let state = world.state().await;
    let snapshot = state.snapshot.clone().expect("a head");
    assert_eq!(Some(snapshot.snapshot_id()), done.snapshot_id);
    assert_eq!((snapshot.sequence_number(), snapshot.parent_snapshot_id()), (3, Some(start.snapshot_id)));
    assert_eq!(snapshot.summary().operation, Operation::Replace);
    let out = find(&state, "out");
    assert_eq!((out.data_sequence_number, out.file_sequence_number), (2, Some(3)));
    let b = find(&state, "b");
    assert_eq!((b.data_sequence_number, b.file_sequence_number), (1, Some(1)));
    // One new manifest, one that holds what is left of both old ones, under names that tell the run.
    assert_eq!(state.manifests.len(), 2);
    for path in state.manifests.iter().map(|m| m.manifest_path.as_str()).chain([snapshot.manifest_list()]) {
        assert_eq!(RunId::from_file_name(path), Some(ctx.run_id), "{path}");
    }
    assert_eq!(state.manifests[0].min_sequence_number, 2);
    assert_eq!(state.manifests[1].deleted_files_count, Some(2));
    let deleted = Manifest::parse_avro(&world.store.read(&state.manifests[1].manifest_path).await.expect("there"))
        .expect("valid");
    let deleted: Vec<_> =
        deleted.entries().iter().filter(|e| !e.is_alive()).map(|e| (e.snapshot_id(), e.sequence_number())).collect();
    assert_eq!(deleted, [(done.snapshot_id, Some(2)), (done.snapshot_id, Some(1))]);
    for (key, value) in [
        ("added-data-files", "1"),
        ("deleted-data-files", "2"),
        ("total-data-files", "3"),
        ("added-records", "12"),
        ("deleted-records", "12"),
        ("total-records", "26"),
        ("total-files-size", "2600"),
        ("changed-partition-count", "1"),
        ("manifests-created", "2"),
        ("manifests-kept", "0"),
        ("manifests-replaced", "2"),
        (SUMMARY_ACTION, "rewrite-data-files"),
    ] {
        assert_eq!(property(&snapshot, key), Some(value), "{key}");
    }
    assert_eq!(property(&snapshot, SUMMARY_RUN_ID), Some(ctx.run_id.to_string().as_str()));
    // A writer's own keys are not ours to repeat.
    assert_eq!(property(&snapshot, "flink.job-id"), None);
    assert_eq!(property(&snapshot, "added-delete-files"), None);
}

#[tokio::test]
async fn version_1_has_no_sequence_numbers() {
    let world = World::new(FormatVersion::V1, true, &[]);
    world.append(&[("a", "x", 5)]).await;
    world.append(&[("b", "x", 6)]).await;
    let result = world.result(&["a", "b"], vec![data("out", "x", 11)], 0).await;
    committed(world.commit(&world.start().await, &[result]).await);
    let state = world.state().await;
    assert_eq!(world.live().await, ["out"]);
    assert_eq!(state.snapshot.as_ref().map(|s| s.sequence_number()), Some(0));
    assert!(state.data_files.iter().all(|f| f.data_sequence_number == 0));
    let bytes = world.store.read(&state.manifests[0].manifest_path).await.expect("there");
    assert_eq!(Manifest::parse_avro(&bytes).expect("valid").metadata().format_version, FormatVersion::V1);
    // And once more on top: the manifest of deleted entries is gone then.
    world.append(&[("c", "x", 1)]).await;
    let result = world.result(&["out", "c"], vec![data("out2", "x", 12)], 0).await;
    committed(world.commit(&world.start().await, &[result]).await);
    assert_eq!(world.live().await, ["out2"]);
}

#[tokio::test]
async fn version_3_is_refused() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    let result = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
    world.catalog.tamper(&world.ident, |m| {
        let builder = m.into_builder(None).upgrade_format_version(FormatVersion::V3).expect("valid");
        builder.build().expect("valid").metadata
    });
    let error = refused(world.commit(&world.start().await, &[result]).await);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(world.live().await, ["a"]);
}

#[tokio::test]
async fn all_rows_deleted_means_no_file_added() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    world.write(Operation::Delete, vec![equality("e", "x")]).await;
    let result = world.result(&["a"], vec![], 5).await;
    let done = committed(world.commit(&world.start().await, &[result]).await);
    assert_eq!(done.removed_delete_files, 1);
    let state = world.state().await;
    assert!(state.data_files.is_empty() && state.delete_files.is_empty());
    let counts: Vec<_> =
        state.manifests.iter().map(|m| (m.added_files_count, m.existing_files_count, m.deleted_files_count)).collect();
    assert_eq!(counts, [(Some(0), Some(0), Some(1)), (Some(0), Some(0), Some(1))]);
    let snapshot = state.snapshot.expect("a head");
    assert_eq!(property(&snapshot, "total-records"), Some("0"));
    assert_eq!(property(&snapshot, "total-equality-deletes"), Some("0"));
    assert_eq!(property(&snapshot, "removed-equality-delete-files"), Some("1"));
}

#[tokio::test]
async fn totals_follow_the_parent_and_are_left_out_if_it_has_none() {
    let world = World::v2();
    world.append(&[("a", "x", 5), ("b", "x", 6)]).await;
    let result = world.result(&["a", "b"], vec![data("out", "x", 11)], 0).await;
    world.catalog.tamper(&world.ident, |m| {
        let mut json = serde_json::to_value(&m).expect("json");
        let summary = json["snapshots"][0]["summary"].as_object_mut().expect("a map");
        summary.remove("total-records");
        summary.insert("total-data-files".into(), "1".into());
        serde_json::from_value(json).expect("valid")
    });
    committed(world.commit(&world.start().await, &[result]).await);
    let snapshot = world.state().await.snapshot.expect("a head");
    assert_eq!(property(&snapshot, "total-records"), None);
    // 1 + 1 - 2: a wrong total is carried, never made negative.
    assert_eq!(property(&snapshot, "total-data-files"), Some("0"));
    assert_eq!(property(&snapshot, "total-files-size"), Some("1100"));
}

#[tokio::test]
async fn the_request_asserts_table_head_schema_and_spec_and_keeps_the_branch_settings() {
    let world = World::v2();
    let head = world.append(&[("a", "x", 5)]).await;
    world.catalog.tamper(&world.ident, |m| {
        let retention = SnapshotRetention::branch(Some(7), None, None);
        let builder = m.into_builder(None).set_ref("main", SnapshotReference::new(head, retention)).expect("valid");
        builder.build().expect("valid").metadata
    });
    let result = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
    let done = committed(world.commit(&world.start().await, &[result]).await);
    let (_, requirements, updates) = world.catalog.last().expect("a commit");
    let uuid = world.load().await.metadata.uuid();
    assert_eq!(
        requirements,
        [
            TableRequirement::UuidMatch { uuid },
            TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: Some(head) },
            TableRequirement::CurrentSchemaIdMatch { current_schema_id: 0 },
            TableRequirement::DefaultSpecIdMatch { default_spec_id: 0 },
        ]
    );
    assert!(matches!(&updates[..], [TableUpdate::AddSnapshot { .. }, TableUpdate::SetSnapshotRef { .. }]));
    assert_eq!(done.table.loaded.refs["main"].retention, SnapshotRetention::branch(Some(7), None, None));
}

#[tokio::test]
async fn the_snapshot_is_never_older_than_the_tables_last_change() {
    for shift in [-300_000, 86_400_000] {
        let world = World::v2();
        world.append(&[("a", "x", 5)]).await;
        let before = world.load().await.metadata.last_updated_ms();
        world.shift_clock(shift);
        let result = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
        committed(world.commit(&world.start().await, &[result]).await);
        let made = world.state().await.snapshot.expect("a head").timestamp_ms();
        assert_eq!(made, before.max(before + shift));
    }
}

/// Data at 1 and 2, planned at 2, an equality delete at 3: the output has 2, so that the delete still has work to do.
#[tokio::test]
async fn an_equality_delete_that_came_meanwhile_stays_though_all_other_data_is_newer() {
    for newer in [false, true] {
        let world = World::v2();
        world.append(&[("a", "x", 5)]).await;
        world.append(&[("b", "x", 6)]).await;
        let start = world.start().await;
        let result = world.result(&["a", "b"], vec![data("c", "x", 11)], 0).await;
        world.write(Operation::Delete, vec![equality("e", "x")]).await;
        if newer {
            world.append(&[("d", "x", 1)]).await;
        }
        let done = committed(world.commit(&start, &[result]).await);
        assert_eq!(done.removed_delete_files, 0);
        let state = world.state().await;
        let c = find(&state, "c");
        assert_eq!(state.delete_files.len(), 1);
        assert!(state.delete_files[0].data_sequence_number > c.data_sequence_number, "the delete still applies");
    }
}

/// `keeps`: delete files that must survive a rewrite of everything in `x`; the rest must leave.
async fn removed_of(
    deletes: Vec<DataFile>,
    before: &[(&str, &str, u64)],
    after: &[(&str, &str, u64)],
    partitioned: bool,
) -> BTreeSet<String> {
    let world = World::new(FormatVersion::V2, partitioned, &[]);
    let fit = |mut files: Vec<DataFile>| {
        if !partitioned {
            files = files
                .iter()
                .map(|f| {
                    let mut b = built(f.content_type(), name_of(f.file_path()), Struct::empty(), f.record_count());
                    b.referenced_data_file(f.referenced_data_file()).build().expect("complete")
                })
                .collect();
        }
        files
    };
    let all: BTreeSet<_> = deletes.iter().map(|f| name_of(f.file_path()).to_owned()).collect();
    let rows = |files: &[(&str, &str, u64)]| files.iter().map(|(name, p, n)| data(name, p, *n)).collect::<Vec<_>>();
    world.write(Operation::Append, fit(rows(before))).await;
    world.write(Operation::Delete, fit(deletes)).await;
    if !after.is_empty() {
        world.write(Operation::Append, fit(rows(after))).await;
    }
    let inputs: Vec<_> = before.iter().chain(after).filter(|f| f.1 == "x").collect();
    let records = inputs.iter().map(|f| f.2).sum::<u64>();
    let names: Vec<_> = inputs.iter().map(|f| f.0).collect();
    let result = world.result(&names, fit(vec![data("out", "x", records)]), 0).await;
    let done = committed(world.commit(&world.start().await, &[result]).await);
    let live: BTreeSet<_> = world.live().await.into_iter().collect();
    let removed: BTreeSet<_> = all.difference(&live).cloned().collect();
    assert_eq!(removed.len(), done.removed_delete_files);
    removed
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|p| (*p).to_owned()).collect()
}

#[tokio::test]
async fn delete_files_leave_only_when_nothing_is_left_for_them() {
    // Sequence numbers: data 1, deletes 2, later data 3. The start is 3 (2 without later data).
    let before = [("a", "x", 5), ("old-y", "y", 5)];
    let after = [("b", "x", 5), ("later-y", "y", 5)];
    let deletes = || {
        vec![
            equality("eq-x", "x"),
            equality("eq-y", "y"),
            equality("eq-z", "z"),
            position("pos-x", "x", None),
            position("pos-y", "y", None),
            position("pos-z", "z", None),
            position("file-a", "x", Some("a")),
            position("file-y", "y", Some("old-y")),
            position("file-gone", "y", Some("never-was")),
            position("file-early", "y", Some("later-y")),
        ]
    };
    let gone = removed_of(deletes(), &before, &after, true).await;
    assert_eq!(gone, set(&["eq-x", "eq-z", "pos-x", "pos-z", "file-a", "file-gone", "file-early"]));
    // Without later data the output has the deletes' own number. By number alone position deletes may apply to it, but none
    // can name a file that did not exist when they were written.
    let gone = removed_of(deletes(), &before, &[], true).await;
    assert_eq!(gone, set(&["eq-x", "eq-z", "pos-x", "pos-z", "file-a", "file-gone", "file-early"]));
}

#[tokio::test]
async fn a_position_delete_whose_path_bounds_were_cut_stays_while_its_partition_does() {
    let bounded = |name: &str, partition: &str, bound: &str| {
        let bounds = HashMap::from([(2_147_483_546, Datum::string(at(bound)))]);
        let mut builder = built(DataContentType::PositionDeletes, name, in_partition(partition), 1);
        builder.lower_bounds(bounds.clone()).upper_bounds(bounds).build().expect("complete")
    };
    let before = [("a", "x", 5), ("y.parquet/1", "y", 5), ("y.parquet/2", "y", 5), ("b", "y", 5)];
    let deletes = vec![bounded("cut", "y", "y.parquet"), bounded("whole", "y", "b"), bounded("of-the-input", "x", "a")];
    assert_eq!(removed_of(deletes, &before, &[], true).await, set(&["of-the-input"]));
}

#[tokio::test]
async fn a_position_delete_stays_for_a_file_of_its_own_commit() {
    // As an upsert writes a key twice in one commit: data and position delete have the same number, and only this file stays.
    let world = World::new(FormatVersion::V2, true, &[]);
    world.append(&[("a", "x", 5)]).await;
    world.write(Operation::Overwrite, vec![data("twice", "w", 5), position("pos-w", "w", None)]).await;
    let result = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
    let done = committed(world.commit(&world.start().await, &[result]).await);
    assert_eq!(done.removed_delete_files, 0);
    assert_eq!(world.live().await.into_iter().collect::<BTreeSet<_>>(), set(&["out", "twice", "pos-w"]));
}

#[tokio::test]
async fn a_global_equality_delete_needs_the_whole_table_to_be_newer() {
    let gone = removed_of(vec![equality("eq", "x")], &[("a", "x", 5), ("b", "y", 5)], &[], false).await;
    assert_eq!(gone, set(&[]));
    let gone = removed_of(vec![equality("eq", "x")], &[("a", "x", 5)], &[], false).await;
    assert_eq!(gone, set(&["eq"]), "its own number is not strictly smaller");
    let gone = removed_of(vec![equality("eq", "x")], &[("a", "x", 5)], &[("b", "y", 5)], false).await;
    assert_eq!(gone, set(&["eq"]));
}

#[tokio::test]
async fn an_equality_delete_of_an_unpartitioned_spec_covers_data_of_other_specs() {
    let world = World::new(FormatVersion::V2, false, &[]);
    let unpartitioned = |name: &str| built(DataContentType::Data, name, Struct::empty(), 5).build().expect("complete");
    let global = built(DataContentType::EqualityDeletes, "eq", Struct::empty(), 1).build().expect("complete");
    world.write(Operation::Append, vec![unpartitioned("u")]).await;
    world.catalog.tamper(&world.ident, |m| {
        let builder = m.into_builder(None).add_default_partition_spec(spec(true)).expect("valid");
        builder.build().expect("valid").metadata
    });
    world.append(&[("old", "y", 5)]).await;
    // The delete is written by a writer that still uses the old spec.
    world.catalog.tamper(&world.ident, |m| {
        m.into_builder(None).set_default_partition_spec(0).expect("valid").build().expect("valid").metadata
    });
    world.write(Operation::Delete, vec![global]).await;
    world.catalog.tamper(&world.ident, |m| {
        m.into_builder(None).set_default_partition_spec(1).expect("valid").build().expect("valid").metadata
    });
    let result = world.result(&["u"], vec![data("out", "x", 5)], 0).await;
    let done = committed(world.commit(&world.start().await, &[result]).await);
    // No data of the delete's own spec is left, yet `old` still needs it.
    assert_eq!(done.removed_delete_files, 0);
    assert_eq!(world.live().await, ["eq", "old", "out"]);
}

#[tokio::test]
async fn deleted_entries_do_not_come_back_in_later_rewrites() {
    let world = World::v2();
    let mut expected = Vec::new();
    for round in 0..5 {
        let (one, two, keep) = (format!("one{round}"), format!("two{round}"), format!("keep{round}"));
        world.append(&[(&one, "x", 1), (&two, "x", 1), (&keep, "y", 1)]).await;
        world.write(Operation::Delete, vec![position(&format!("p{round}"), "x", Some(&one))]).await;
        let out = format!("out{round}");
        let mut inputs = vec![one.as_str(), two.as_str()];
        let last = format!("out{}", round - 1);
        if round > 0 {
            inputs.push(&last);
        }
        let rows = u64::try_from(round).expect("small") + 1;
        let result = world.result(&inputs, vec![data(&out, "x", rows)], 1).await;
        committed(world.commit(&world.start().await, &[result]).await);
        expected.push(keep);
        let mut live = expected.clone();
        live.push(out);
        live.sort();
        assert_eq!(world.live().await, live, "round {round}");
        assert!(world.state().await.manifests.len() <= 4, "manifests do not pile up");
    }
}

#[tokio::test]
async fn small_manifests_are_merged_once_there_are_enough() {
    for (properties, most) in [
        (vec![("commit.manifest.min-count-to-merge", "20")], 4),
        (vec![("commit.manifest.min-count-to-merge", "20"), ("commit.manifest-merge.enabled", "false")], 40),
    ] {
        let world = World::new(FormatVersion::V2, true, &properties);
        for n in 0..30 {
            world.append(&[(&format!("a{n:02}"), if n < 2 { "x" } else { "y" }, 1)]).await;
        }
        world.write(Operation::Delete, vec![equality("e", "y")]).await;
        let numbers = |state: &crate::table::TableState| {
            let mut all: Vec<_> = state
                .data_files
                .iter()
                .chain(&state.delete_files)
                .map(|f| {
                    (name_of(&f.file_path).to_owned(), f.data_sequence_number, f.file_sequence_number, f.snapshot_id)
                })
                .collect();
            all.sort();
            all.retain(|f| f.0 != "out" && f.0 != "a00" && f.0 != "a01");
            all
        };
        let before = numbers(&world.state().await);
        let result = world.result(&["a00", "a01"], vec![data("out", "x", 2)], 0).await;
        committed(world.commit(&world.start().await, &[result]).await);
        let state = world.state().await;
        assert_eq!(numbers(&state), before, "every number is as it was");
        assert_eq!(state.delete_files.len(), 1);
        let count = state.manifests.len();
        assert!(count <= most && (most == 4 || count > 20), "{count}");
    }
}
