//! What holds for every change, whatever mix of answers it meets.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use iceberg::spec::*;

use super::expire::{appends, many, plan, snapshots};
use super::settle::meanwhile;
use super::world::*;
use crate::commit::{CommitLimit, CommitResult, commit_expire};
use crate::storage::delete_files::{Proof, delete_files};
use crate::testing::{Answer, CommitFault, Delivery, Meanwhile};

const HOUR: Duration = Duration::from_secs(3600);

/// A conflict because `main` has moved.
fn moved(world: &World) -> CommitFault {
    let name = Arc::new(std::sync::atomic::AtomicU32::new(0));
    CommitFault::After(meanwhile(world, async move |w: World| {
        let n = name.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        w.append(&[(&format!("new-{}-{n}", w.catalog.commits()), "x", 1)]).await;
    }))
}

fn applied() -> CommitFault {
    CommitFault::After(Arc::new(|| async {}.boxed()))
}

#[tokio::test(start_paused = true)]
async fn a_step_sends_one_request_and_its_retries_whatever_moves() {
    for mix in 0..32_u32 {
        let faults = |world: &World| {
            let world = world.clone();
            (0..20).map(move |n| if mix >> (n % 5) & 1 == 1 { moved(&world) } else { CommitFault::Conflict })
        };
        let world = World::v2();
        world.append(&[("a", "x", 5)]).await;
        let start = world.start().await;
        let result = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
        world.catalog.script(faults(&world));
        let result = world.commit(&start, &[result]).await;
        assert!(matches!(result, CommitResult::NotCommitted(_) | CommitResult::Denied(_)), "mix {mix}: {result:?}");
        assert_eq!(world.catalog.commits(), 5, "mix {mix}: rewrite");

        let (world, ids) = appends(3).await;
        let planned = plan(&world, &[ids[0]]).await;
        world.catalog.script(faults(&world));
        refused(commit_expire(&world.handle().await, &planned, &world.ctx(), world.clock.as_ref()).await);
        assert_eq!(world.catalog.commits(), 5, "mix {mix}: expiry");
        assert!(snapshots(&world).await.contains(&ids[0]));
    }
}

#[tokio::test(start_paused = true)]
async fn parts_share_the_retries_of_their_step() {
    let (world, mut ids) = many(2500).await;
    ids.pop();
    let planned = plan(&world, &ids).await;
    let conflict = || CommitFault::Conflict;
    let parts = [conflict(), moved(&world), applied(), conflict(), applied(), moved(&world)];
    world.catalog.script(parts.into_iter().chain((0..20).map(|_| CommitFault::Conflict)));
    let done = committed(commit_expire(&world.handle().await, &planned, &world.ctx(), world.clock.as_ref()).await);
    assert!(done.incomplete.is_some());
    assert_eq!((done.expired_snapshots, done.conflicts), (2000, 5));
    assert_eq!(world.catalog.commits(), 4 + 3, "four retries, and one request for each of three parts");
}

/// Requests that are applied, lost or late, and answers that say anything of them, one after the other.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % sides
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }

    fn then(&mut self, world: &World) -> Meanwhile {
        match self.roll(6) {
            0..=2 => Arc::new(|| async {}.boxed()),
            3 => meanwhile(world, async |w: World| {
                w.append(&[(&format!("new-{}", w.catalog.commits()), "x", 1)]).await;
            }),
            4 => meanwhile(world, async |w: World| {
                let _ = w.catalog.deliver_late().await;
            }),
            _ => meanwhile(world, async |w: World| w.catalog.fail_loads(3)),
        }
    }

    fn fault(&mut self, world: &World) -> CommitFault {
        let delivery = self.one(&[Delivery::Applied, Delivery::Lost, Delivery::Late]);
        let answer = self.one(&[Answer::Conflict, Answer::Conflict, Answer::Unknown, Answer::Refused]);
        match self.roll(8) {
            0 => CommitFault::Pretended,
            1 => moved(world),
            // No request is sent any more after this.
            2 => CommitFault::Told(delivery, answer, meanwhile(world, async |w: World| w.clock.suspend(HOUR))),
            _ => CommitFault::Told(delivery, answer, self.then(world)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_sequence_of_answers_makes_a_rewrite_enter_twice_or_leaves_the_table_without_a_file() {
    let mut ends = [0; 4];
    for seed in 1..=400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let world = World::v2();
        world.append(&[("a", "x", 5), ("keep", "x", 1)]).await;
        let start = world.start().await;
        let rewritten = world.result(&["a"], vec![data("out", "x", 5)], 0).await;
        let mut ctx = world.ctx();
        ctx.limit = Some(CommitLimit { time: HOUR, request: HOUR / 2, run: None });
        let faults: Vec<_> = (0..dice.roll(7)).map(|_| dice.fault(&world)).collect();
        world.catalog.script(faults);
        let result = world.commit_as(&ctx, &start, &[rewritten]).await;
        assert!(world.catalog.commits() <= 5, "seed {seed}");
        let doubt = matches!(result, CommitResult::Denied(_) | CommitResult::Unknown(_));
        assert!(!doubt || world.store.deleted().is_empty(), "seed {seed}: {result:?}");
        if matches!(result, CommitResult::NotCommitted(_)) {
            assert_eq!(world.left_by(&ctx), Vec::<String>::new(), "seed {seed}");
            delete_files(&world.store, &[at("out")], Proof::Orphan).await;
        }
        world.catalog.fail_loads(0);
        let arrived = world.catalog.deliver_late().await.expect("written");

        // Reading the state reads the head's list and manifests.
        let live = world.live().await;
        let is_in = live.contains(&"out".to_owned());
        assert!(!is_in || world.store.paths().contains(&at("out")), "seed {seed}: {result:?}");
        let loaded = world.load().await;
        let replaces = loaded.metadata.snapshots().filter(|s| s.summary().operation == Operation::Replace);
        assert_eq!(replaces.count(), usize::from(is_in), "seed {seed}: {result:?}");
        for snapshot in loaded.metadata.snapshots() {
            assert!(world.store.content(snapshot.manifest_list()).is_some(), "seed {seed}: {result:?}");
        }
        let end = match result {
            CommitResult::Committed(done) => {
                assert!(is_in && done.snapshot_id.is_some() && arrived == 0, "seed {seed}");
                0
            }
            CommitResult::NotCommitted(_) => {
                assert!(!is_in && arrived == 0, "seed {seed}");
                1
            }
            CommitResult::Denied(_) => 2,
            CommitResult::Unknown(_) => 3,
        };
        ends[end] += 1;
    }
    assert!(ends.iter().all(|n| *n >= 5), "each end is met: {ends:?}");
}

#[tokio::test(start_paused = true)]
async fn no_sequence_of_answers_makes_an_expiry_tell_what_is_not_so() {
    for seed in 1..=200_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (world, ids) = appends(3).await;
        let planned = plan(&world, &ids[..2]).await;
        let faults: Vec<_> = (0..dice.roll(7)).map(|_| dice.fault(&world)).collect();
        world.catalog.script(faults);
        let mut ctx = world.ctx();
        ctx.limit = Some(CommitLimit { time: HOUR, request: HOUR / 2, run: None });
        let result = commit_expire(&world.handle().await, &planned, &ctx, world.clock.as_ref()).await;
        world.catalog.fail_loads(0);
        assert!(world.catalog.commits() <= 5, "seed {seed}");
        let left = snapshots(&world).await;
        match result {
            CommitResult::Committed(done) => {
                assert_eq!(done.expired_snapshots, 2, "seed {seed}");
                assert!(!left.contains(&ids[0]) && !left.contains(&ids[1]), "seed {seed}");
            }
            CommitResult::NotCommitted(_) => assert!(left.contains(&ids[0]), "seed {seed}"),
            CommitResult::Unknown(_) => {}
            CommitResult::Denied(_) => panic!("seed {seed}: an expiry has no files of its own"),
        }
        assert_eq!(world.store.deleted(), Vec::<String>::new(), "seed {seed}");
    }
}
