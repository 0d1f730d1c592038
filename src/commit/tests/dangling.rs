//! Delete files that apply to nothing leave by themselves.

use iceberg::spec::{FormatVersion, Operation};

use super::world::*;
use crate::commit::{CommitResult, commit_dangling_deletes};
use crate::error::ErrorKind;
use crate::testing::CommitFault;

async fn clean(world: &World) -> CommitResult {
    let start = world.start().await;
    commit_dangling_deletes(&world.handle().await, &start, &world.ctx(), world.clock.as_ref()).await
}

/// A delete of a partition without data, one older than all data, one of a file that is gone, and three that are needed.
async fn world() -> World {
    let world = World::v2();
    world.write(Operation::Delete, vec![equality("older", "x"), position("gone", "x", Some("never-was"))]).await;
    world.append(&[("a", "x", 5)]).await;
    let needed = vec![equality("eq-a", "x"), position("pos-a", "x", None), position("file-a", "x", Some("a"))];
    world.write(Operation::Delete, needed).await;
    world.write(Operation::Delete, vec![equality("elsewhere", "y")]).await;
    world
}

#[tokio::test]
async fn deletes_that_apply_to_nothing_leave_in_a_commit_that_touches_no_data() {
    let world = world().await;
    let before = world.state().await;
    let done = committed(clean(&world).await);
    assert_eq!((done.removed_delete_files, done.snapshot_id.is_some()), (3, true));
    assert_eq!(world.live().await, ["a", "eq-a", "file-a", "pos-a"]);
    let after = world.state().await;
    let [a, same] = [&before, &after].map(|state| find(state, "a").data_sequence_number);
    assert_eq!(a, same);
    let snapshot = after.snapshot.expect("a head");
    let summary = snapshot.summary();
    let value = |key: &str| summary.additional_properties.get(key).map(String::as_str);
    assert_eq!(summary.operation, Operation::Replace);
    assert_eq!((value("removed-delete-files"), value("total-delete-files")), (Some("3"), Some("3")));
    assert_eq!(
        (value("added-data-files"), value("deleted-data-files"), value("total-data-files")),
        (None, None, Some("1"))
    );
    assert_eq!(value("icewright.action"), Some("rewrite-data-files"));
}

#[tokio::test]
async fn without_such_deletes_no_snapshot_is_made() {
    let world = world().await;
    committed(clean(&world).await);
    let (commits, files) = (world.catalog.commits(), world.store.paths().len());
    let done = committed(clean(&world).await);
    assert_eq!((done.removed_delete_files, done.snapshot_id), (0, None));
    assert_eq!((world.catalog.commits(), world.store.paths().len()), (commits, files));
}

#[tokio::test]
async fn what_came_meanwhile_decides() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    world.write(Operation::Delete, vec![equality("y1", "y")]).await;
    let start = world.start().await;
    world.append(&[("b", "y", 5)]).await;
    world.write(Operation::Delete, vec![equality("y2", "y")]).await;
    let ctx = world.ctx();
    let done = committed(commit_dangling_deletes(&world.handle().await, &start, &ctx, world.clock.as_ref()).await);
    assert_eq!(done.removed_delete_files, 1);
    assert_eq!(world.live().await, ["a", "b", "y2"]);
}

#[tokio::test]
async fn a_delete_file_that_is_live_twice_stays() {
    let world = World::v2();
    world.append(&[("a", "x", 5)]).await;
    for _ in 0..2 {
        world.write(Operation::Delete, vec![equality("twice", "y")]).await;
    }
    world.write(Operation::Delete, vec![equality("once", "y")]).await;
    assert_eq!(committed(clean(&world).await).removed_delete_files, 1);
    assert_eq!(world.live().await, ["a", "twice", "twice"]);
    let result = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
    committed(world.commit(&world.start().await, &[result]).await);
    assert_eq!(world.live().await, ["out", "twice", "twice"], "nor does a rewrite trip over it");
}

#[tokio::test]
async fn races_and_lost_answers_are_settled_as_for_any_commit() {
    for fault in [CommitFault::Conflict, CommitFault::UnknownApplied, CommitFault::UnknownNotApplied] {
        let world = world().await;
        world.catalog.script([fault]);
        assert_eq!(committed(clean(&world).await).removed_delete_files, 3);
        assert_eq!(world.live().await, ["a", "eq-a", "file-a", "pos-a"]);
    }
    let world = world().await;
    world.catalog.script([CommitFault::Refused]);
    let error = denied(clean(&world).await);
    assert_ne!(error.kind(), ErrorKind::Conflict);
    assert_eq!(world.live().await.len(), 7);
}

#[tokio::test]
async fn an_unpartitioned_table_needs_only_older_data() {
    let world = World::new(FormatVersion::V2, false, &[]);
    let plain =
        |content, name: &str| built(content, name, iceberg::spec::Struct::empty(), 1).build().expect("complete");
    use iceberg::spec::DataContentType::{Data, EqualityDeletes};
    world.write(Operation::Delete, vec![plain(EqualityDeletes, "e")]).await;
    world.write(Operation::Append, vec![plain(Data, "a")]).await;
    assert_eq!(committed(clean(&world).await).removed_delete_files, 1);
    assert_eq!(world.live().await, ["a"]);
}
