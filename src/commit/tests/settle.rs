//! Conflicts, refusals and lost answers.

use std::sync::Arc;

use futures::FutureExt;
use iceberg::spec::*;

use super::world::*;
use crate::commit::{CommitContext, StartSnapshot};
use crate::error::ErrorKind;
use crate::rewrite::RewriteResult;
use crate::testing::{CommitFault, Meanwhile};

async fn ready() -> (World, StartSnapshot, RewriteResult, CommitContext) {
    ready_in(World::v2()).await
}

async fn ready_in(world: World) -> (World, StartSnapshot, RewriteResult, CommitContext) {
    world.append(&[("a", "x", 5), ("b", "x", 6), ("keep", "x", 1)]).await;
    let start = world.start().await;
    let result = world.result(&["a", "b"], vec![data("out", "x", 11)], 0).await;
    let ctx = world.ctx();
    (world, start, result, ctx)
}

pub(super) fn meanwhile(world: &World, act: impl AsyncFn(World) + Clone + Send + Sync + 'static) -> Meanwhile {
    let world = world.clone();
    Arc::new(move || {
        let (world, act) = (world.clone(), act.clone());
        // The doubles never wait for anything, so that the future is done at once.
        act(world).now_or_never().expect("no waiting");
        Box::pin(async {})
    })
}

/// Every file that the head's snapshot needs is there, and nothing else of the run.
async fn only_the_winner_is_left(world: &World, ctx: &CommitContext) {
    let state = world.state().await;
    let mut used: Vec<_> = state.manifests.iter().map(|m| m.manifest_path.clone()).collect();
    used.push(state.snapshot.expect("a head").manifest_list().to_owned());
    let token = ctx.run_id.file_token();
    used.retain(|p| p.contains(&token));
    used.sort();
    assert_eq!(world.left_by(ctx), used);
}

async fn replaces(world: &World) -> usize {
    let loaded = world.load().await;
    loaded.metadata.snapshots().filter(|s| s.summary().operation == Operation::Replace).count()
}

#[tokio::test]
async fn three_conflicts_then_success_reuses_the_manifests() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script([CommitFault::Conflict, CommitFault::Conflict, CommitFault::Conflict]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((done.conflicts, world.catalog.commits()), (3, 4));
    only_the_winner_is_left(&world, &ctx).await;
    // Three lists, and not one manifest, were written in vain.
    assert_eq!(world.store.deleted().len(), 3);
    assert!(world.store.deleted().iter().all(|p| p.contains("/snap-")));
}

#[tokio::test]
async fn five_conflicts_leave_no_metadata_files_and_every_data_file() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script((0..5).map(|n| {
        CommitFault::After(meanwhile(&world, async move |w: World| {
            w.append(&[(&format!("new{n}"), "x", 1)]).await;
        }))
    }));
    let error = refused(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((error.kind(), world.catalog.commits()), (ErrorKind::Conflict, 5));
    assert_eq!(world.left_by(&ctx), Vec::<String>::new());
    assert!(world.store.paths().contains(&at("out")));
    assert_eq!(world.live().await, ["a", "b", "keep", "new0", "new1", "new2", "new3", "new4"]);
}

/// Nothing has taken the place of the request, so that a second delivery of it may still bring it in.
#[tokio::test]
async fn conflicts_and_refusals_without_a_rival_delete_nothing() {
    for (fault, commits) in [(CommitFault::Conflict, 5), (CommitFault::Refused, 1)] {
        let (world, start, result, ctx) = ready().await;
        world.catalog.script(vec![fault; 5]);
        denied(world.commit_as(&ctx, &start, &[result]).await);
        assert_eq!(world.catalog.commits(), commits);
        assert_eq!(world.store.deleted(), Vec::<String>::new());
        assert_eq!(world.live().await, ["a", "b", "keep"]);
    }
}

#[tokio::test]
async fn an_append_that_wins_the_race_is_kept() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script([CommitFault::After(meanwhile(&world, async |w: World| {
        w.append(&[("new", "x", 1)]).await;
    }))]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(done.conflicts, 1);
    assert_eq!(world.live().await, ["keep", "new", "out"]);
    only_the_winner_is_left(&world, &ctx).await;
}

#[tokio::test]
async fn a_position_delete_that_wins_the_race_is_noticed_on_the_retry() {
    let (world, start, result, ctx) = ready().await;
    let delete = async |w: World| {
        w.write(Operation::Delete, vec![position("p", "x", Some("a"))]).await;
    };
    world.catalog.script([CommitFault::After(meanwhile(&world, delete))]);
    let error = refused(world.commit_as(&ctx, &start, &[result]).await);
    assert!(error.to_string().contains(&format!("delete file {} of snapshot", at("p"))), "{error}");
    assert_eq!(world.live().await, ["a", "b", "keep", "p"]);
    assert_eq!(world.left_by(&ctx), Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_answer_to_an_applied_commit_is_found_out() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script([CommitFault::UnknownApplied]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((done.unknown_outcomes, world.catalog.commits(), replaces(&world).await), (1, 1, 1));
    assert_eq!(done.snapshot_id, world.load().await.metadata.current_snapshot_id());
    assert_eq!(world.live().await, ["keep", "out"]);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
    only_the_winner_is_left(&world, &ctx).await;
}

#[tokio::test]
async fn a_foreign_append_after_a_lost_success_does_not_make_a_second_commit() {
    let (world, start, result, ctx) = ready().await;
    let append = async |w: World| {
        w.append(&[("new", "x", 1)]).await;
    };
    world.catalog.script([CommitFault::UnknownAppliedThen(meanwhile(&world, append))]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((world.catalog.commits(), replaces(&world).await), (1, 1));
    assert_ne!(done.snapshot_id, world.load().await.metadata.current_snapshot_id());
    assert_eq!(world.live().await, ["keep", "new", "out"]);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
}

#[tokio::test]
async fn an_answer_without_the_snapshot_is_not_believed() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script([CommitFault::Pretended]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((done.unknown_outcomes, world.catalog.commits()), (1, 2));
    assert_eq!(world.live().await, ["keep", "out"]);
}

/// A repeated delivery on the way: the first was applied, the second answers with a conflict.
#[tokio::test]
async fn a_conflict_with_ones_own_commit_is_a_success() {
    let (world, start, _, ctx) = ready().await;
    // No output whose presence could tell.
    let result = world.result(&["a"], vec![], 5).await;
    let deliver = async |w: World| {
        let (table, requirements, updates) = w.catalog.last().expect("a commit");
        let _ = w.catalog.commit_unscripted(&table, &requirements, updates).await;
    };
    world.catalog.script([CommitFault::After(meanwhile(&world, deliver))]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((done.conflicts, replaces(&world).await), (1, 1));
    assert_eq!(done.snapshot_id, world.load().await.metadata.current_snapshot_id());
    only_the_winner_is_left(&world, &ctx).await;
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_tried_again() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script([CommitFault::UnknownNotApplied]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!((done.unknown_outcomes, world.catalog.commits(), replaces(&world).await), (1, 2, 1));
    only_the_winner_is_left(&world, &ctx).await;
}

#[tokio::test]
async fn commits_that_arrive_late_cannot_apply_twice() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script([CommitFault::UnknownLate]);
    committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(world.catalog.deliver_late().await.expect("written"), 0);
    assert_eq!(replaces(&world).await, 1);
    only_the_winner_is_left(&world, &ctx).await;
}

#[tokio::test]
async fn what_stays_unknown_is_never_cleaned() {
    let (world, start, result, ctx) = ready().await;
    world.catalog.script(vec![CommitFault::UnknownLate; 5]);
    let error = unknown(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(error.kind(), ErrorKind::CommitUnknown);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
    // Any of them may still arrive, and then the table must be whole.
    assert_eq!(world.catalog.deliver_late().await.expect("written"), 1);
    assert_eq!(world.live().await, ["keep", "out"]);
}

#[tokio::test]
async fn a_refusal_after_an_open_request_is_unknown() {
    for second in [CommitFault::Refused, CommitFault::Conflict] {
        let (world, start, result, mut ctx) = ready().await;
        ctx.retries = 1;
        world.catalog.script([CommitFault::UnknownLate, second]);
        unknown(world.commit_as(&ctx, &start, &[result]).await);
        assert_eq!(world.store.deleted(), Vec::<String>::new());
        assert_eq!(world.catalog.deliver_late().await.expect("written"), 1);
        assert_eq!(world.live().await, ["keep", "out"]);
    }
}

/// A head that moved without a new snapshot may move back, and then a late request still applies.
#[tokio::test]
async fn a_head_that_moved_without_using_a_number_settles_nothing() {
    let (world, start, result, mut ctx) = ready().await;
    world.append(&[("new", "y", 1)]).await;
    let head = world.load().await.metadata.current_snapshot_id().expect("a head");
    ctx.retries = 0;
    let back = move |to: i64| {
        move |m: TableMetadata| {
            let reference = SnapshotReference::new(to, SnapshotRetention::branch(None, None, None));
            m.into_builder(None).set_ref("main", reference).expect("valid").build().expect("valid").metadata
        }
    };
    let roll_back = async move |w: World| w.catalog.tamper(&w.ident, back(start.snapshot_id));
    world.catalog.script([CommitFault::UnknownLateThen(meanwhile(&world, roll_back))]);
    unknown(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
    world.catalog.tamper(&world.ident, back(head));
    assert_eq!(world.catalog.deliver_late().await.expect("written"), 1, "it did apply in the end");
    assert_eq!(world.live().await, ["keep", "new", "out"]);
}

#[tokio::test]
async fn an_append_that_uses_the_number_up_settles_a_lost_request() {
    let (world, start, result, mut ctx) = ready().await;
    ctx.retries = 0;
    let append = async |w: World| {
        w.append(&[("new", "x", 1)]).await;
    };
    world.catalog.script([CommitFault::UnknownLateThen(meanwhile(&world, append))]);
    refused(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(world.left_by(&ctx), Vec::<String>::new());
    assert_eq!(world.catalog.deliver_late().await.expect("written"), 0);
    assert_eq!(world.live().await, ["a", "b", "keep", "new"]);
}

/// Numbers are what proves it: version 1 has none, and a number used up elsewhere leaves the head free.
#[tokio::test]
async fn without_a_moved_head_and_a_used_number_a_lost_request_stays_open() {
    let (world, start, result, mut ctx) = ready_in(World::new(FormatVersion::V1, true, &[])).await;
    ctx.retries = 0;
    let append = async |w: World| {
        w.append(&[("new", "x", 1)]).await;
    };
    world.catalog.script([CommitFault::UnknownLateThen(meanwhile(&world, append))]);
    unknown(world.commit_as(&ctx, &start, &[result]).await);
    let (world, start, result, mut ctx) = ready().await;
    ctx.retries = 0;
    let branch = async |w: World| {
        let head = w.load().await.current_snapshot().cloned().expect("a head");
        w.catalog.tamper(&w.ident, |m| {
            let snapshot = Snapshot::builder()
                .with_snapshot_id(4711)
                .with_sequence_number(m.next_sequence_number())
                .with_timestamp_ms(m.last_updated_ms())
                .with_manifest_list(head.manifest_list())
                .with_summary(head.summary().clone())
                .build();
            m.into_builder(None).set_branch_snapshot(snapshot, "dev").expect("valid").build().expect("valid").metadata
        });
    };
    world.catalog.script([CommitFault::UnknownLateThen(meanwhile(&world, branch))]);
    unknown(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
}

#[tokio::test]
async fn a_won_commit_whose_snapshot_has_been_expired_is_recognised_by_its_files() {
    let (world, start, result, ctx) = ready().await;
    let expired = async |w: World| {
        let ours = w.load().await.metadata.current_snapshot_id().expect("a head");
        w.append(&[("new", "x", 1)]).await;
        w.catalog.tamper(&w.ident, |m| m.into_builder(None).remove_snapshots(&[ours]).build().expect("valid").metadata);
    };
    world.catalog.script([CommitFault::UnknownAppliedThen(meanwhile(&world, expired))]);
    let done = committed(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(done.snapshot_id, None);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
    assert_eq!(world.live().await, ["keep", "new", "out"]);
}

#[tokio::test]
async fn missing_inputs_after_an_unknown_attempt_are_no_ground_to_clean() {
    let (world, start, result, ctx) = ready().await;
    // Our commit won, its output was rewritten by somebody else, and both snapshots have expired since.
    let buried = async |w: World| {
        let ours = w.load().await.metadata.current_snapshot_id().expect("a head");
        let theirs = w.result(&["out"], vec![data("theirs", "x", 11)], 0).await;
        let start = w.start().await;
        committed(w.commit(&start, &[theirs]).await);
        w.catalog.tamper(&w.ident, |m| m.into_builder(None).remove_snapshots(&[ours]).build().expect("valid").metadata);
    };
    world.catalog.script([CommitFault::UnknownAppliedThen(meanwhile(&world, buried))]);
    unknown(world.commit_as(&ctx, &start, &[result]).await);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
}

#[tokio::test]
async fn a_catalog_that_is_down_for_a_moment_is_asked_again() {
    let (world, start, result, ctx) = ready().await;
    world.store.put(&at("out"), "rows");
    let handle = world.handle().await;
    world.catalog.fail_loads(2);
    committed(crate::commit::commit_rewrite(&handle, &start, &[result], &ctx, world.clock.as_ref()).await);
    // And while a lost answer is being settled.
    let (world, start, result, ctx) = ready().await;
    let down = async |w: World| w.catalog.fail_loads(3);
    world.catalog.script([CommitFault::UnknownAppliedThen(meanwhile(&world, down))]);
    committed(world.commit_as(&ctx, &start, &[result]).await);
}

/// Runs are spawned onto other threads.
#[tokio::test]
async fn commits_can_be_spawned() {
    fn sendable<T: Send>(future: T) -> T {
        future
    }
    let (world, start, result, ctx) = ready().await;
    let (handle, results) = (world.handle().await, [result]);
    let plan = crate::plan::ExpirePlan::default();
    committed(sendable(crate::commit::commit_expire(&handle, &plan, &ctx, world.clock.as_ref())).await);
    committed(sendable(crate::commit::commit_rewrite(&handle, &start, &results, &ctx, world.clock.as_ref())).await);
}
