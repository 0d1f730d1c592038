//! What stands in the way of a rewrite.

use iceberg::spec::*;

use super::world::*;
use crate::commit::CommitResult;
use crate::error::ErrorKind;

struct After {
    world: World,
    result: CommitResult,
    /// Commits asked for, and metadata files left, by the rewrite alone.
    commits: usize,
    left: Vec<String>,
}

/// A rewrite of `a` and `b` in `x`, planned before `meanwhile` happens.
async fn after(meanwhile: impl AsyncFnOnce(&World)) -> After {
    let world = World::v2();
    world.append(&[("a", "x", 5), ("other", "y", 1)]).await;
    world.append(&[("b", "x", 6), ("c", "x", 1)]).await;
    world.write(Operation::Delete, vec![position("p", "x", None)]).await;
    let start = world.start().await;
    let result = world.result(&["a", "b"], vec![data("out", "x", 11)], 0).await;
    meanwhile(&world).await;
    let (commits, ctx) = (world.catalog.commits(), world.ctx());
    let result = world.commit_as(&ctx, &start, &[result]).await;
    After { commits: world.catalog.commits() - commits, left: world.left_by(&ctx), world, result }
}

async fn conflicts(meanwhile: impl AsyncFnOnce(&World)) -> String {
    let After { world, result, commits, left } = after(meanwhile).await;
    let error = refused(result);
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(world.store.paths().iter().any(|p| *p == at("out")), "data files are the caller's");
    assert_eq!((commits, left), (0, Vec::new()), "nothing was asked of the catalog, nothing is left behind");
    error.to_string()
}

#[tokio::test]
async fn a_new_position_delete_on_an_input_conflicts() {
    let error = conflicts(async |w| {
        w.write(Operation::Delete, vec![position("new", "x", None)]).await;
    })
    .await;
    assert!(error.contains(&format!("delete file {} of snapshot", at("new"))), "{error}");
    conflicts(async |w| {
        w.write(Operation::Delete, vec![position("new", "x", Some("a"))]).await;
    })
    .await;
    // Even when a row delta adds data beside it.
    conflicts(async |w| {
        w.write(Operation::Overwrite, vec![data("d", "x", 1), position("new", "x", Some("b"))]).await;
    })
    .await;
}

#[tokio::test]
async fn deletes_that_cannot_hit_an_input_do_not_conflict() {
    for delete in [
        position("new", "x", Some("c")),
        position("new", "y", None),
        position("new", "y", Some("other")),
        equality("new", "x"),
        equality("new", "y"),
    ] {
        let After { world, result, .. } = after(async |w| {
            w.write(Operation::Delete, vec![delete]).await;
        })
        .await;
        committed(result);
        assert!(world.live().await.contains(&"new".to_owned()));
    }
    committed(
        after(async |w| {
            w.append(&[("d", "x", 1)]).await;
        })
        .await
        .result,
    );
}

#[tokio::test]
async fn a_delete_before_the_start_does_not_conflict() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    world.write(Operation::Delete, vec![position("p", "x", Some("a"))]).await;
    let result = world.result(&["a"], vec![data("out", "x", 4)], 1).await;
    committed(world.commit(&world.start().await, &[result]).await);
    assert_eq!(world.live().await, ["out"]);
}

#[tokio::test]
async fn a_delete_that_left_while_its_target_stayed_conflicts() {
    // Somebody takes the delete file back: its rows are visible again, but not in the output.
    let error = conflicts(async |w| {
        let before = w.load().await;
        let parent = before.current_snapshot().and_then(|s| s.parent_snapshot_id()).expect("a parent");
        let old = before.metadata.snapshot_by_id(parent).expect("there").clone();
        let head = before.metadata.current_snapshot_id().expect("a head");
        let again = Snapshot::builder()
            .with_snapshot_id(4711)
            .with_parent_snapshot_id(Some(head))
            .with_sequence_number(before.metadata.next_sequence_number())
            .with_timestamp_ms(before.metadata.last_updated_ms())
            .with_manifest_list(old.manifest_list())
            .with_summary(old.summary().clone())
            .with_schema_id(0)
            .build();
        w.catalog.tamper(&w.ident, |m| {
            m.into_builder(None).set_branch_snapshot(again, "main").expect("valid").build().expect("valid").metadata
        });
    })
    .await;
    assert!(error.contains("has since left"), "{error}");
}

#[tokio::test]
async fn inputs_that_are_gone_conflict() {
    let error = conflicts(async |w| {
        let theirs = w.result(&["a"], vec![data("theirs", "x", 5)], 0).await;
        committed(w.commit(&w.start().await, &[theirs]).await);
    })
    .await;
    assert!(error.contains(&format!("missing input: {}", at("a"))), "{error}");
}

#[tokio::test]
async fn a_changed_table_conflicts() {
    type Change = fn(TableMetadata) -> TableMetadata;
    let cases: [(&str, Change); 4] = [
        ("current schema", |m| {
            let mut fields: Vec<_> = schema().as_struct().fields().to_vec();
            fields.push(std::sync::Arc::new(NestedField::optional(3, "n", Type::Primitive(PrimitiveType::Int))));
            let schema = Schema::builder().with_fields(fields).build().expect("valid");
            m.into_builder(None).add_current_schema(schema).expect("valid").build().expect("valid").metadata
        }),
        ("default partition spec", |m| {
            m.into_builder(None)
                .add_default_partition_spec(spec(false))
                .expect("valid")
                .build()
                .expect("valid")
                .metadata
        }),
        ("format version", |m| {
            m.into_builder(None)
                .upgrade_format_version(FormatVersion::V3)
                .expect("valid")
                .build()
                .expect("valid")
                .metadata
        }),
        ("another table", |m| {
            m.into_builder(None).assign_uuid(uuid::Uuid::from_u128(5)).build().expect("valid").metadata
        }),
    ];
    for (what, change) in cases {
        let error = conflicts(async |w| w.catalog.tamper(&w.ident, change)).await;
        assert!(error.contains(what), "{error}");
    }
}

#[tokio::test]
async fn a_start_that_is_no_ancestor_or_has_expired_conflicts() {
    let error = conflicts(async |w| {
        let first = w.load().await.metadata.history()[0].snapshot_id;
        w.catalog.tamper(&w.ident, |m| {
            let reference = SnapshotReference::new(first, SnapshotRetention::branch(None, None, None));
            m.into_builder(None).set_ref("main", reference).expect("valid").build().expect("valid").metadata
        });
    })
    .await;
    assert!(error.contains("no ancestor") || error.contains("missing input"), "{error}");
    let error = conflicts(async |w| {
        let start = w.start().await;
        w.append(&[("d", "y", 1)]).await;
        w.catalog.tamper(&w.ident, |m| {
            m.into_builder(None).remove_snapshots(&[start.snapshot_id]).build().expect("valid").metadata
        });
    })
    .await;
    assert!(error.contains("has been expired"), "{error}");
    let error = conflicts(async |w| {
        w.catalog.tamper(&w.ident, |m| m.into_builder(None).remove_ref("main").build().expect("valid").metadata);
    })
    .await;
    assert!(error.contains("no current snapshot"), "{error}");
}

#[tokio::test]
async fn an_input_that_came_back_as_another_file_conflicts() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    let mut result = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
    let mut planned = result.rewritten[0].as_ref().clone();
    planned.file_size_bytes += 1;
    result.rewritten[0] = std::sync::Arc::new(planned);
    let error = refused(world.commit(&world.start().await, &[result]).await);
    assert!(error.to_string().contains("removed and added again"), "{error}");
}

#[tokio::test]
async fn a_path_that_is_live_twice_is_no_input_and_stops_no_other() {
    let world = World::v2();
    world.append(&[("a", "x", 5), ("b", "x", 5)]).await;
    let start = world.start().await;
    let results = [
        world.result(&["a"], vec![data("out-a", "x", 5)], 0).await,
        world.result(&["b"], vec![data("out-b", "x", 5)], 0).await,
    ];
    world.append(&[("a", "x", 5)]).await;
    let error = refused(world.commit(&start, &results[..1]).await);
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(&format!("{} is live twice", at("a"))), "{error}");
    committed(world.commit(&start, &results[1..]).await);
    assert_eq!(world.live().await, ["a", "a", "out-b"]);
}

#[tokio::test]
async fn results_that_contradict_themselves_are_refused() {
    let world = World::v2();
    world.append(&[("a", "x", 5), ("b", "y", 6)]).await;
    let start = world.start().await;
    let good = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
    let mut add_only = good.clone();
    add_only.rewritten.clear();
    let mut grown = world.result(&["a"], vec![data("out", "x", 6)], 0).await;
    grown.input_rows = 6;
    let mut uncounted = good.clone();
    uncounted.deleted_rows = 1;
    let wrong_partition = world.result(&["a"], vec![data("out", "y", 5)], 0).await;
    let deletes = world.result(&["a"], vec![equality("out", "x")], 4).await;
    let own_input = world.result(&["a"], vec![data("b", "x", 5)], 0).await;
    let cases = [
        vec![],
        vec![add_only],
        vec![grown],
        vec![uncounted],
        vec![good.clone(), good.clone()],
        vec![deletes],
        vec![wrong_partition],
    ];
    for (n, results) in cases.into_iter().enumerate() {
        assert_eq!(refused(world.commit(&start, &results).await).kind(), ErrorKind::Internal, "case {n}");
    }
    // An output that is live already must not be cleaned up by anyone.
    assert_eq!(unknown(world.commit(&start, &[own_input]).await).kind(), ErrorKind::CommitUnknown);
    assert_eq!(world.live().await, ["a", "b"]);
    assert_eq!(world.catalog.commits(), 0);
    committed(world.commit(&start, &[good]).await);
}

/// Rows that change their spec come under deletes that did not apply to them, or escape those that did.
#[tokio::test]
async fn newer_equality_deletes_conflict_with_rows_that_change_their_spec() {
    for (delete, conflict) in [("p", true), ("q", false)] {
        let world = World::v2();
        world.append(&[("a", "p", 5)]).await;
        world.catalog.tamper(&world.ident, |m| {
            let bucket = UnboundPartitionSpec::builder()
                .add_partition_field(2, "p_trunc", Transform::Truncate(9))
                .expect("valid");
            m.into_builder(None)
                .add_default_partition_spec(bucket.build())
                .expect("valid")
                .build()
                .expect("valid")
                .metadata
        });
        let start = world.start().await;
        let result = world.result(&["a"], vec![data("out", "p", 5)], 0).await;
        // In the new spec: it does not apply to `a`, and must not begin to.
        world.write(Operation::Delete, vec![equality("e", delete)]).await;
        let done = world.commit(&start, &[result]).await;
        if conflict {
            assert!(refused(done).to_string().contains("move to another spec"));
            assert_eq!(world.live().await, ["a", "e"]);
        } else {
            committed(done);
            assert_eq!(world.live().await, ["out"], "and the delete of a partition without data has left");
        }
    }
}

#[tokio::test]
async fn an_input_newer_than_the_start_is_refused() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    let start = world.start().await;
    world.append(&[("b", "x", 5)]).await;
    let result = world.result(&["b"], vec![data("out", "x", 5)], 0).await;
    let error = refused(world.commit(&start, &[result]).await);
    assert!(error.to_string().contains("newer than the start"), "{error}");
}

/// The first batch makes a delete file dangling and takes it along; that is no conflict for the second batch of the partition.
#[tokio::test]
async fn batches_of_one_partition_do_not_conflict_with_each_other() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    world.write(Operation::Delete, vec![position("p", "x", None), equality("e", "x")]).await;
    world.append(&[("b", "x", 6)]).await;
    let start = world.start().await;
    let first = world.result(&["a"], vec![data("out1", "x", 3)], 2).await;
    let second = world.result(&["b"], vec![data("out2", "x", 6)], 0).await;
    let done = committed(world.commit(&start, &[first]).await);
    assert_eq!(done.removed_delete_files, 2);
    committed(world.commit(&start, &[second]).await);
    assert_eq!(world.live().await, ["out1", "out2"]);
}
