//! Expiry by name.

use std::collections::BTreeMap;

use futures::FutureExt;
use iceberg::spec::*;
use iceberg::{TableRequirement, TableUpdate};

use super::world::*;
use crate::commit::{CommitResult, commit_expire};
use crate::error::ErrorKind;
use crate::plan::ExpirePlan;
use crate::table::LoadedTable;
use crate::testing::CommitFault;

async fn expire(world: &World, plan: &ExpirePlan) -> CommitResult {
    commit_expire(&world.handle().await, plan, &world.ctx(), world.clock.as_ref()).await
}

fn refs(loaded: &LoadedTable) -> BTreeMap<String, i64> {
    loaded.refs.iter().map(|(name, r)| (name.clone(), r.snapshot_id)).collect()
}

pub(super) async fn plan(world: &World, snapshots: &[i64]) -> ExpirePlan {
    ExpirePlan { remove_snapshots: snapshots.to_vec(), refs_seen: refs(&world.load().await), ..ExpirePlan::default() }
}

pub(super) async fn appends(n: usize) -> (World, Vec<i64>) {
    let world = World::v2();
    let mut ids = Vec::new();
    for i in 0..n {
        ids.push(world.append(&[(&format!("f{i}"), "x", 1)]).await);
    }
    (world, ids)
}

fn tag(world: &World, name: &str, id: i64) {
    let reference = SnapshotReference::new(id, SnapshotRetention::Tag { max_ref_age_ms: None });
    world.catalog.tamper(&world.ident, |m| {
        m.into_builder(None).set_ref(name, reference).expect("valid").build().expect("valid").metadata
    });
}

fn set_main(world: &World, id: i64) {
    let reference = SnapshotReference::new(id, SnapshotRetention::branch(None, None, None));
    world.catalog.tamper(&world.ident, |m| {
        m.into_builder(None).set_ref("main", reference).expect("valid").build().expect("valid").metadata
    });
}

pub(super) async fn snapshots(world: &World) -> Vec<i64> {
    let loaded = world.load().await;
    let mut ids: Vec<_> = loaded.metadata.snapshots().map(|s| s.snapshot_id()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn the_named_snapshots_leave_and_nothing_else() {
    let (world, ids) = appends(4).await;
    tag(&world, "keep", ids[1]);
    let files = world.store.paths();
    let done = committed(expire(&world, &plan(&world, &[ids[0], ids[2]]).await).await);
    assert_eq!(snapshots(&world).await, [ids[1], ids[3]]);
    assert_eq!(done.table.loaded.metadata.snapshots().len(), 2);
    assert_eq!(refs(&done.table.loaded), BTreeMap::from([("keep".into(), ids[1]), ("main".into(), ids[3])]));
    assert_eq!(world.store.paths(), files, "no file is touched");
    let (_, requirements, _) = world.catalog.last().expect("a commit");
    assert_eq!(requirements.len(), 3, "uuid and both refs");
}

#[tokio::test]
async fn nothing_to_do_asks_nothing() {
    let (world, ids) = appends(2).await;
    committed(expire(&world, &plan(&world, &[]).await).await);
    assert_eq!(world.catalog.commits(), 0);
    let twice = plan(&world, &[ids[0]]).await;
    committed(expire(&world, &twice).await);
    committed(expire(&world, &twice).await);
    assert_eq!(world.catalog.commits(), 1);
}

#[tokio::test]
async fn what_a_remaining_ref_names_cannot_expire() {
    let (world, ids) = appends(3).await;
    tag(&world, "t", ids[0]);
    for victim in [ids[0], ids[2]] {
        let error = refused(expire(&world, &plan(&world, &[victim]).await).await);
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
    let mut wrong = plan(&world, &[ids[1]]).await;
    wrong.remove_refs = vec!["main".into()];
    refused(expire(&world, &wrong).await);
    assert_eq!((world.catalog.commits(), snapshots(&world).await.len()), (0, 3));
    // With its ref it may go.
    let mut both = plan(&world, &[ids[0]]).await;
    both.remove_refs = vec!["t".into()];
    let done = committed(expire(&world, &both).await);
    assert!(!done.table.loaded.refs.contains_key("t"));
    assert!(!snapshots(&world).await.contains(&ids[0]));
}

#[tokio::test]
async fn refs_that_changed_since_planning_conflict() {
    let (world, ids) = appends(3).await;
    let planned = plan(&world, &[ids[0]]).await;
    tag(&world, "new", ids[0]);
    let error = refused(expire(&world, &planned).await);
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("ref new"), "{error}");
    let planned = plan(&world, &[ids[0]]).await;
    set_main(&world, ids[1]);
    assert!(refused(expire(&world, &planned).await).to_string().contains("ref main"));
    assert_eq!((world.catalog.commits(), snapshots(&world).await.len()), (0, 3));
}

#[tokio::test]
async fn a_branch_that_has_grown_since_planning_is_required_where_it_is_now() {
    let (world, ids) = appends(3).await;
    let planned = plan(&world, &[ids[0]]).await;
    let head = world.append(&[("more", "x", 1)]).await;
    committed(expire(&world, &planned).await);
    let (_, requirements, _) = world.catalog.last().expect("a commit");
    let main = TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: Some(head) };
    assert!(requirements.contains(&main), "{requirements:?}");
    assert_eq!(snapshots(&world).await, [ids[1], ids[2], head]);
}

#[tokio::test]
async fn a_table_whose_files_must_not_go_any_more_expires_nothing() {
    let (world, ids) = appends(2).await;
    let planned = plan(&world, &[ids[0]]).await;
    world.catalog.tamper(&world.ident, |m| {
        let off = std::collections::HashMap::from([("gc.enabled".to_owned(), "false".to_owned())]);
        m.into_builder(None).set_properties(off).expect("valid").build().expect("valid").metadata
    });
    assert!(refused(expire(&world, &planned).await).to_string().contains("gc.enabled"));
    assert_eq!(world.catalog.commits(), 0);
}

#[tokio::test]
async fn a_branch_moved_during_the_commit_is_not_lost() {
    let (world, ids) = appends(3).await;
    let branch = |id| SnapshotReference::new(id, SnapshotRetention::branch(None, None, None));
    world.catalog.tamper(&world.ident, |m| {
        m.into_builder(None).set_ref("dev", branch(ids[1])).expect("valid").build().expect("valid").metadata
    });
    let planned = plan(&world, &[ids[0]]).await;
    let other = world.clone();
    let (moved, target) = (ids[0], branch(ids[0]));
    world.catalog.script([CommitFault::After(std::sync::Arc::new(move || {
        let (other, target) = (other.clone(), target.clone());
        async move {
            other.catalog.tamper(&other.ident, |m| {
                m.into_builder(None).set_ref("dev", target).expect("valid").build().expect("valid").metadata
            });
        }
        .boxed()
    }))]);
    let error = refused(expire(&world, &planned).await);
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(snapshots(&world).await.contains(&moved));
    assert_eq!(refs(&world.load().await)["dev"], moved);
}

#[tokio::test]
async fn statistics_leave_with_their_snapshot() {
    let (world, ids) = appends(2).await;
    let statistics = |id, path: &str| StatisticsFile {
        snapshot_id: id,
        statistics_path: path.into(),
        file_size_in_bytes: 1,
        file_footer_size_in_bytes: 1,
        key_metadata: None,
        blob_metadata: Vec::new(),
    };
    world.catalog.tamper(&world.ident, |m| {
        let partition =
            PartitionStatisticsFile { snapshot_id: ids[0], statistics_path: "ps".into(), file_size_in_bytes: 1 };
        let builder =
            m.into_builder(None).set_statistics(statistics(ids[0], "s0")).set_statistics(statistics(ids[1], "s1"));
        builder.set_partition_statistics(partition).build().expect("valid").metadata
    });
    let done = committed(expire(&world, &plan(&world, &[ids[0]]).await).await);
    let metadata = &done.table.loaded.metadata;
    assert_eq!(metadata.statistics_iter().map(|s| s.snapshot_id).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(metadata.partition_statistics_iter().len(), 0);
    let (_, _, updates) = world.catalog.last().expect("a commit");
    assert!(updates.contains(&TableUpdate::RemoveStatistics { snapshot_id: ids[0] }));
    assert!(updates.contains(&TableUpdate::RemovePartitionStatistics { snapshot_id: ids[0] }));
}

#[tokio::test]
async fn lost_answers_are_settled_by_looking() {
    for (fault, commits) in
        [(CommitFault::UnknownApplied, 1), (CommitFault::UnknownNotApplied, 2), (CommitFault::Pretended, 2)]
    {
        let (world, ids) = appends(3).await;
        world.catalog.script([fault]);
        let done = committed(expire(&world, &plan(&world, &[ids[0]]).await).await);
        assert_eq!((done.unknown_outcomes, world.catalog.commits()), (1, commits));
        assert_eq!(snapshots(&world).await, ids[1..]);
    }
    let (world, ids) = appends(3).await;
    world.catalog.script(vec![CommitFault::UnknownLate; 5]);
    unknown(expire(&world, &plan(&world, &[ids[0]]).await).await);
    world.catalog.deliver_late().await.expect("written");
    assert_eq!(snapshots(&world).await, ids[1..]);
    // The very last answer is looked after, too.
    let (world, ids) = appends(3).await;
    world.catalog.script(vec![CommitFault::Conflict; 4]);
    world.catalog.script([CommitFault::UnknownApplied]);
    committed(expire(&world, &plan(&world, &[ids[0]]).await).await);
    let (world, ids) = appends(3).await;
    world.catalog.script(vec![CommitFault::Conflict; 5]);
    refused(expire(&world, &plan(&world, &[ids[0]]).await).await);
    assert_eq!(snapshots(&world).await, ids);
}

/// A table with `count` more snapshots, in the order of their ids.
pub(super) async fn many(count: i64) -> (World, Vec<i64>) {
    let world = World::v2();
    world.append(&[("a", "x", 1)]).await;
    let list = world.state().await.snapshot.expect("a head").manifest_list().to_owned();
    let mut ids = Vec::new();
    world.catalog.tamper(&world.ident, |m| {
        let (first, made, mut parent) = (m.next_sequence_number(), m.last_updated_ms(), m.current_snapshot_id());
        let mut builder = m.into_builder(None);
        for n in 0..count {
            let summary = Summary { operation: Operation::Append, additional_properties: Default::default() };
            let snapshot = Snapshot::builder()
                .with_snapshot_id(10_000 + n)
                .with_parent_snapshot_id(parent)
                .with_sequence_number(first + n)
                .with_timestamp_ms(made)
                .with_manifest_list(list.as_str())
                .with_summary(summary)
                .with_schema_id(0)
                .build();
            ids.push(10_000 + n);
            parent = ids.last().copied();
            builder = builder.add_snapshot(snapshot).expect("valid");
        }
        builder.build().expect("valid").metadata
    });
    set_main(&world, *ids.last().expect("many"));
    (world, ids)
}

#[tokio::test]
async fn many_snapshots_go_in_several_commits_and_what_is_in_counts() {
    let (world, mut ids) = many(1500).await;
    let head = ids.pop().expect("many");
    let planned = plan(&world, &ids).await;
    world.catalog.script([CommitFault::After(std::sync::Arc::new(|| async {}.boxed())), CommitFault::Refused]);
    let done = committed(expire(&world, &planned).await);
    assert!(done.incomplete.is_some());
    assert_eq!(done.table.loaded.metadata.snapshots().len(), 1501 - 1000);
    let done = committed(expire(&world, &planned).await);
    assert!(done.incomplete.is_none());
    assert!(snapshots(&world).await.contains(&head));
    assert_eq!(snapshots(&world).await.len(), 2);
}

#[tokio::test]
async fn version_3_expires_too() {
    let (world, ids) = appends(3).await;
    world.catalog.tamper(&world.ident, |m| {
        m.into_builder(None).upgrade_format_version(FormatVersion::V3).expect("valid").build().expect("valid").metadata
    });
    committed(expire(&world, &plan(&world, &[ids[0]]).await).await);
    assert_eq!(snapshots(&world).await, ids[1..]);
}
