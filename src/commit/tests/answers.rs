//! Every answer, whatever became of the request and whatever the next look at the table meets.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use iceberg::spec::*;

use super::world::*;
use crate::catalog::Catalog;
use crate::commit::{CommitResult, commit_dangling_deletes, commit_expire};
use crate::plan::ExpirePlan;
use crate::testing::{Answer, CommitFault, Delivery, Meanwhile};

const ANSWERS: [Answer; 3] = [Answer::Conflict, Answer::Refused, Answer::Unknown];
const DELIVERIES: [Delivery; 3] = [Delivery::Applied, Delivery::Lost, Delivery::Late];

/// What happens between the answer and the look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// Another writer commits.
    Append,
    /// `main` goes back to where the request began.
    RollBack,
    /// `main` goes back to where the request began, and what it went back from expires.
    RollBackAndExpire,
    /// The same, and then another writer commits.
    RollBackExpireAndAppend,
    /// Another writer commits, and all but its snapshot expire.
    AppendAndExpire,
    /// The catalog stops answering.
    Down,
    /// The table is dropped.
    Dropped,
    /// Another table takes its name.
    Replaced,
}

const THEN: [Then; 9] = [
    Then::Nothing,
    Then::Append,
    Then::RollBack,
    Then::RollBackAndExpire,
    Then::RollBackExpireAndAppend,
    Then::AppendAndExpire,
    Then::Down,
    Then::Dropped,
    Then::Replaced,
];

async fn happens(world: &World, then: Then, head: i64) {
    let set_main = |m: TableMetadata| {
        let reference = SnapshotReference::new(head, SnapshotRetention::branch(None, None, None));
        m.into_builder(None).set_ref("main", reference).expect("valid").build().expect("valid").metadata
    };
    match then {
        Then::Nothing => {}
        Then::Append => drop(world.append(&[("new", "x", 1)]).await),
        Then::RollBack => world.catalog.tamper(&world.ident, set_main),
        Then::RollBackAndExpire | Then::RollBackExpireAndAppend => {
            world.catalog.tamper(&world.ident, set_main);
            world.catalog.tamper(&world.ident, |m| {
                let gone: Vec<i64> = m.snapshots().map(|s| s.snapshot_id()).filter(|id| *id != head).collect();
                m.into_builder(None).remove_snapshots(&gone).build().expect("valid").metadata
            });
            if then == Then::RollBackExpireAndAppend {
                world.append(&[("new", "x", 1)]).await;
            }
        }
        Then::AppendAndExpire => {
            let kept = world.append(&[("new", "x", 1)]).await;
            world.catalog.tamper(&world.ident, |m| {
                let gone: Vec<i64> = m.snapshots().map(|s| s.snapshot_id()).filter(|id| *id != kept).collect();
                m.into_builder(None).remove_snapshots(&gone).build().expect("valid").metadata
            });
        }
        Then::Down => world.catalog.fail_loads(1000),
        Then::Dropped => world.catalog.drop_table(&world.ident),
        Then::Replaced => world.catalog.tamper(&world.ident, |m| {
            let gone: Vec<i64> = m.snapshots().map(|s| s.snapshot_id()).collect();
            let builder = m.into_builder(None).remove_ref("main").remove_snapshots(&gone);
            builder.assign_uuid(uuid::Uuid::from_u128(5)).build().expect("valid").metadata
        }),
    }
}

fn later(world: &World, then: Then, head: i64) -> Meanwhile {
    let world = world.clone();
    Arc::new(move || {
        // The doubles never wait for anything, so that the future is done at once.
        happens(&world, then, head).now_or_never().expect("no waiting");
        Box::pin(async {})
    })
}

/// Does with the outputs what the caller of the commit does.
async fn treat_outputs(world: &World, result: &CommitResult) {
    if matches!(result, CommitResult::NotCommitted(_)) {
        let proof = crate::storage::delete_files::Proof::Orphan;
        crate::storage::delete_files::delete_files(&world.store, &[at("out")], proof).await;
    }
}

#[tokio::test]
async fn no_answer_and_no_look_makes_a_rewrite_delete_what_is_or_may_come_into_the_table() {
    let versions = [FormatVersion::V1, FormatVersion::V2];
    for (version, (answer, delivery, then, retries)) in
        versions.iter().flat_map(|v| cases().into_iter().map(move |c| (*v, c)))
    {
        let case = format!("{version}, {answer:?}, {delivery:?}, then {then:?}, {retries} retries");
        let world = World::new(version, true, &[]);
        world.append(&[("a", "x", 5), ("b", "x", 6), ("keep", "x", 1)]).await;
        let start = world.start().await;
        let rewritten = world.result(&["a", "b"], vec![data("out", "x", 11)], 0).await;
        let mut ctx = world.ctx();
        ctx.retries = retries;
        world.catalog.script([CommitFault::Told(delivery, answer, later(&world, then, start.snapshot_id))]);
        let result = world.commit_as(&ctx, &start, &[rewritten]).await;
        treat_outputs(&world, &result).await;

        world.catalog.fail_loads(0);
        let arrived = world.catalog.deliver_late().await.expect("written");
        if then == Then::Down || then == Then::Dropped || then == Then::Replaced {
            assert!(matches!(result, CommitResult::Unknown(_)), "{case}: {result:?}");
            assert_eq!(world.store.deleted(), Vec::<String>::new(), "{case}");
        }
        if then == Then::Dropped || then == Then::Replaced {
            continue;
        }
        // Reading the state reads the head's list and manifests.
        let live = world.live().await;
        if live.contains(&"out".to_owned()) {
            assert!(world.store.paths().contains(&at("out")), "{case}");
        }
        let loaded = world.load().await;
        for snapshot in loaded.metadata.snapshots() {
            assert!(world.store.content(snapshot.manifest_list()).is_some(), "{case}: {}", snapshot.manifest_list());
        }
        match result {
            CommitResult::Committed(_) => assert!(then == Then::RollBack || live.contains(&"out".to_owned()), "{case}"),
            CommitResult::NotCommitted(_) => {
                assert!(!live.contains(&"out".to_owned()) && arrived == 0, "{case}");
                assert_eq!(world.left_by(&ctx), Vec::<String>::new(), "{case}");
            }
            CommitResult::Denied(_) | CommitResult::Unknown(_) => {
                assert_eq!(world.store.deleted(), Vec::<String>::new(), "{case}");
            }
        }
    }
}

/// Nothing but metadata files is written for it, and nothing but delete files leaves.
#[tokio::test]
async fn no_answer_and_no_look_makes_a_removal_of_dangling_deletes_harm_the_table() {
    for (answer, delivery, then, retries) in cases() {
        let case = format!("{answer:?}, {delivery:?}, then {then:?}, {retries} retries");
        let world = World::v2();
        world.write(Operation::Delete, vec![equality("older", "x")]).await;
        world.append(&[("a", "x", 5)]).await;
        world.write(Operation::Delete, vec![equality("eq-a", "x"), position("pos-a", "x", None)]).await;
        let start = world.start().await;
        let mut ctx = world.ctx();
        ctx.retries = retries;
        world.catalog.script([CommitFault::Told(delivery, answer, later(&world, then, start.snapshot_id))]);
        let handle = world.handle().await;
        let result = commit_dangling_deletes(&handle, &start, &ctx, world.clock.as_ref()).await;
        world.catalog.fail_loads(0);
        world.catalog.deliver_late().await.expect("written");
        let doubt = matches!(result, CommitResult::Denied(_) | CommitResult::Unknown(_));
        assert!(!doubt || world.store.deleted().is_empty(), "{case}: {result:?}");
        if matches!(then, Then::Dropped | Then::Replaced) {
            continue;
        }
        // Reading the state reads the head's list and manifests.
        let live = world.live().await;
        for needed in ["a", "eq-a", "pos-a"] {
            assert!(live.contains(&needed.to_owned()), "{case}: {live:?}");
        }
        for snapshot in world.load().await.metadata.snapshots() {
            assert!(world.store.content(snapshot.manifest_list()).is_some(), "{case}: {}", snapshot.manifest_list());
        }
        if matches!(result, CommitResult::Committed(_)) && then != Then::RollBack {
            assert!(!live.contains(&"older".to_owned()), "{case}: {live:?}");
        }
    }
}

/// A plain conflict leaves no doubt and no garbage, and what was applied is told so.
#[tokio::test]
async fn doubt_is_left_only_where_there_is_some() {
    for (answer, delivery, then, committed) in [
        (Answer::Conflict, Delivery::Applied, Then::Nothing, true),
        (Answer::Refused, Delivery::Applied, Then::Nothing, true),
        (Answer::Refused, Delivery::Applied, Then::Append, true),
        (Answer::Refused, Delivery::Applied, Then::RollBack, true),
        (Answer::Unknown, Delivery::Applied, Then::Append, true),
        (Answer::Conflict, Delivery::Lost, Then::Append, false),
        (Answer::Refused, Delivery::Late, Then::Append, false),
        (Answer::Unknown, Delivery::Lost, Then::Append, false),
    ] {
        let world = World::v2();
        world.append(&[("a", "x", 5)]).await;
        let start = world.start().await;
        let rewritten = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
        let mut ctx = world.ctx();
        ctx.retries = 0;
        world.catalog.script([CommitFault::Told(delivery, answer, later(&world, then, start.snapshot_id))]);
        let result = world.commit_as(&ctx, &start, &[rewritten]).await;
        let case = format!("{answer:?}, {delivery:?}, then {then:?}: {result:?}");
        let as_expected = match result {
            CommitResult::Committed(_) => committed,
            CommitResult::NotCommitted(_) => !committed,
            CommitResult::Denied(_) | CommitResult::Unknown(_) => false,
        };
        assert!(as_expected, "{case}");
    }
}

#[tokio::test]
async fn an_expiry_counts_only_what_has_left_this_very_table() {
    for (answer, delivery, then, retries) in cases() {
        let case = format!("{answer:?}, {delivery:?}, then {then:?}, {retries} retries");
        let world = World::v2();
        let first = world.append(&[("a", "x", 1)]).await;
        let head = world.append(&[("b", "x", 1)]).await;
        let refs = BTreeMap::from([("main".to_owned(), head)]);
        let plan = ExpirePlan { remove_snapshots: vec![first], refs_seen: refs, ..ExpirePlan::default() };
        let mut ctx = world.ctx();
        ctx.retries = retries;
        world.catalog.script([CommitFault::Told(delivery, answer, later(&world, then, head))]);
        let result = commit_expire(&world.handle().await, &plan, &ctx, world.clock.as_ref()).await;
        world.catalog.fail_loads(0);
        let here = !matches!(then, Then::Down | Then::Dropped | Then::Replaced);
        match &result {
            CommitResult::Committed(done) => {
                assert!(here && done.expired_snapshots == 1, "{case}: {result:?}");
                let loaded = world.catalog.load_table(&world.ident).await.expect("there");
                assert!(loaded.metadata.snapshot_by_id(first).is_none(), "{case}");
            }
            CommitResult::NotCommitted(_) => assert!(then != Then::Down && answer != Answer::Unknown, "{case}"),
            CommitResult::Unknown(_) => assert!(!here || answer == Answer::Unknown, "{case}"),
            CommitResult::Denied(_) => panic!("{case}: an expiry has no files of its own"),
        }
        if delivery == Delivery::Applied && here {
            assert!(matches!(result, CommitResult::Committed(_)), "{case}: {result:?}");
        }
    }
}

#[tokio::test]
async fn what_somebody_else_has_expired_is_not_counted() {
    let world = World::v2();
    let first = world.append(&[("a", "x", 1)]).await;
    let head = world.append(&[("b", "x", 1)]).await;
    let refs = BTreeMap::from([("main".to_owned(), head)]);
    let plan = ExpirePlan { remove_snapshots: vec![first], refs_seen: refs, ..ExpirePlan::default() };
    world
        .catalog
        .tamper(&world.ident, |m| m.into_builder(None).remove_snapshots(&[first]).build().expect("valid").metadata);
    let done = committed(commit_expire(&world.handle().await, &plan, &world.ctx(), world.clock.as_ref()).await);
    assert_eq!((done.expired_snapshots, world.catalog.commits()), (0, 0));
}

fn cases() -> Vec<(Answer, Delivery, Then, u32)> {
    let mut cases = Vec::new();
    for answer in ANSWERS {
        for delivery in DELIVERIES {
            for then in THEN {
                cases.extend([0, 2].map(|retries| (answer, delivery, then, retries)));
            }
        }
    }
    cases
}
