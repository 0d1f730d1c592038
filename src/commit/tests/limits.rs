//! The time for a commit.

use std::sync::Arc;
use std::time::Duration;

use super::world::*;
use crate::catalog::TableHandle;
use crate::clock::{Clock, Deadline};
use crate::commit::{CommitContext, CommitLimit, RunLimit, StartSnapshot, commit_rewrite};
use crate::error::ErrorKind;
use crate::rewrite::RewriteResult;
use crate::testing::{CommitFault, FaultyStore, Operation, StoreFault};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3_600_000;

/// A rewrite of a run that began just now and may take an hour; its files are trusted for ten minutes.
async fn ready() -> (World, StartSnapshot, RewriteResult, CommitContext) {
    let world = World::v2();
    world.append(&[("a", "x", 5), ("b", "x", 6)]).await;
    let start = world.start().await;
    let result = world.result(&["a", "b"], vec![data("out", "x", 11)], 0).await;
    let mut ctx = world.ctx();
    let after = |time| Deadline::new(world.clock.as_ref(), world.clock.now_ms(), time);
    let run = RunLimit { until: after(HOUR), trusted_until: after(HOUR / 6) };
    ctx.limit = Some(CommitLimit { time: HOUR, request: HOUR / 2, run: Some(run) });
    // As large as its entry says.
    world.store.put(&at("out"), vec![0; 1100]);
    (world, start, result, ctx)
}

#[tokio::test(start_paused = true)]
async fn a_commit_held_up_beyond_the_time_of_its_run_is_not_sent() {
    let ways: [fn(&World); 2] = [|world| world.shift_clock(HOUR_MS), |world| world.clock.suspend(HOUR)];
    for pass in ways {
        for early in [true, false] {
            let (world, start, result, ctx) = ready().await;
            let store = FaultyStore::new(Arc::new(world.store.clone()));
            if early {
                pass(&world);
            } else {
                // Right before the request: while the manifest list is written.
                let held_up = world.clone();
                let fault = StoreFault::After(Arc::new(move || {
                    pass(&held_up);
                    Box::pin(async {})
                }));
                store.inject_on("/snap-", Operation::Close, 0..1, fault);
            }
            let table = TableHandle { store: Arc::new(store), ..world.handle().await };
            let error = refused(commit_rewrite(&table, &start, &[result], &ctx, world.clock.as_ref()).await);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("limits.run-timeout"), "{error}");
            assert_eq!((world.catalog.commits(), world.left_by(&ctx)), (0, Vec::new()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retries_end_with_the_time_for_the_commit() {
    let (world, start, result, mut ctx) = ready().await;
    ctx.retries = 100;
    (ctx.min_wait, ctx.max_wait) = (HOUR / 6, HOUR / 6);
    world.catalog.script(vec![CommitFault::Conflict; 101]);
    let began = tokio::time::Instant::now();
    denied(commit_rewrite(&world.handle().await, &start, &[result], &ctx, world.clock.as_ref()).await);
    assert!(world.catalog.commits() <= 7, "{}", world.catalog.commits());
    assert!(began.elapsed() < 2 * HOUR);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn files_that_have_been_lying_for_a_while_are_looked_at_before_the_commit() {
    let young = |_: &World| {};
    let old = |world: &World| world.shift_clock(HOUR_MS / 6);
    let gone = |world: &World| world.store.delete_now(&at("out"));
    let shorter = |world: &World| world.store.put(&at("out"), "rows");
    let there = |_: &World| {};
    type Change<'a> = &'a dyn Fn(&World);
    let cases: [(Change<'_>, Change<'_>, bool); 4] =
        [(&young, &gone, true), (&old, &there, true), (&old, &gone, false), (&old, &shorter, false)];
    for (n, (age, change, commits)) in cases.into_iter().enumerate() {
        let (world, start, result, ctx) = ready().await;
        age(&world);
        change(&world);
        let outcome = commit_rewrite(&world.handle().await, &start, &[result], &ctx, world.clock.as_ref()).await;
        if commits {
            committed(outcome);
            continue;
        }
        let error = refused(outcome);
        assert_eq!((error.kind(), world.catalog.commits()), (ErrorKind::Conflict, 0), "case {n}: {error}");
        assert!(error.to_string().contains(&at("out")), "{error}");
        assert_eq!(world.left_by(&ctx), Vec::<String>::new(), "case {n}");
    }
}

/// The manifests of an earlier attempt are used again by a later one.
#[tokio::test(start_paused = true)]
async fn manifests_of_an_earlier_attempt_are_looked_at_too() {
    let (world, start, result, ctx) = ready().await;
    let other = world.clone();
    let token = ctx.run_id.file_token();
    let fault = CommitFault::Told(
        crate::testing::Delivery::Lost,
        crate::testing::Answer::Conflict,
        Arc::new(move || {
            other.shift_clock(HOUR_MS / 6);
            let own = other.store.paths().into_iter();
            let manifests = own.filter(|p| p.contains(&token) && p.contains("/metadata/") && !p.contains("/snap-"));
            manifests.for_each(|path| other.store.delete_now(&path));
            Box::pin(async {})
        }),
    );
    world.catalog.script([fault]);
    let error = denied(commit_rewrite(&world.handle().await, &start, &[result], &ctx, world.clock.as_ref()).await);
    assert!(error.to_string().contains("is gone"), "{error}");
    assert_eq!(world.catalog.commits(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_given_up_and_nothing_is_deleted() {
    let (world, start, result, mut ctx) = ready().await;
    ctx.retries = 0;
    world.catalog.script([CommitFault::After(Arc::new(|| Box::pin(std::future::pending())))]);
    let began = tokio::time::Instant::now();
    let error = unknown(commit_rewrite(&world.handle().await, &start, &[result], &ctx, world.clock.as_ref()).await);
    assert!(error.to_string().contains("no answer within 1800 s"), "{error}");
    assert!(began.elapsed() >= HOUR / 2 && began.elapsed() < HOUR);
    assert_eq!(world.store.deleted(), Vec::<String>::new());
}
