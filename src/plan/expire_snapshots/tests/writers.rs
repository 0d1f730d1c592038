//! What restarting writers find after expiry, and what those that are over let go.

use super::*;

/// An append with these summary entries.
fn by(id: i64, parent: Option<i64>, age_ms: i64, summary: &[(&'static str, &'static str)]) -> Snap {
    Snap(id, parent, age_ms, "append", summary.to_vec())
}

/// An append by the operator `sink` of a Flink job.
fn flink(id: i64, parent: Option<i64>, age_ms: i64, job: &'static str, checkpoint: &'static str) -> Snap {
    let ids = [("flink.job-id", job), ("flink.operator-id", "sink"), ("flink.max-committed-checkpoint-id", checkpoint)];
    by(id, parent, age_ms, &ids)
}

fn expired(snapshots: &[Snap], head: i64) -> Vec<i64> {
    plan(&table(snapshots, &main_at(head), &json!({})), 0, 1).remove_snapshots
}

const NONE: [i64; 0] = [];

#[test]
fn each_known_writer_finds_its_progress_after_a_compaction_and_expiry() {
    for (name, keys) in [
        ("Flink job j", vec![("flink.job-id", "j"), ("flink.max-committed-checkpoint-id", "7")]),
        ("Spark streaming query q", vec![("spark.sql.streaming.queryId", "q"), ("spark.sql.streaming.epochId", "3")]),
        ("Kafka Connect offsets control.group", vec![("kafka.connect.offsets.control.group", "{\"0\":7}")]),
        ("Materialize sink u1", vec![("mz-frontier", "[7]"), ("mz-sink-id", "u1"), ("mz-sink-version", "1")]),
        ("Fluss tiering service", vec![("commit-user", "__fluss_lake_tiering"), ("fluss-offsets", "[]")]),
        ("Redpanda topic", vec![("redpanda.commit-metadata", "{}")]),
        ("Flink conversion of equality deletes", vec![("equality-convert-staging-snapshot", "1")]),
    ] {
        let mut snapshots = vec![
            append(1, None, 9 * DAY),
            by(2, Some(1), 8 * DAY, &keys),
            append(3, Some(2), 2 * DAY),
            replace(4, Some(3), DAY),
        ];
        let kept = plan(&table(&snapshots, &main_at(4), &json!({})), 0, 1);
        let named = if name.contains("conversion") { vec![] } else { vec![1] };
        assert_eq!(kept.remove_snapshots, named, "{name} walks 4, 3, 2");
        let said = |reason, text: &str| kept.skipped.iter().any(|s| s.reason == reason && s.detail.contains(text));
        assert!(said("writer_state", &format!("newest of {name} on branch main")), "{:?}", kept.skipped);
        assert!(said("writer_state_way", "on the way from the head of branch main"), "{:?}", kept.skipped);
        snapshots.push(by(5, Some(4), MINUTE, &keys));
        let newer = expired(&snapshots, 5);
        let expected: &[i64] = if named.is_empty() { &[] } else { &[1, 2, 3, 4] };
        assert_eq!(newer, expected, "{name} has newer progress");
    }
}

#[test]
fn finished_jobs_keep_nothing_whatever_their_number() {
    let batch = |id: i64| flink(id, (id > 1).then(|| id - 1), MINUTE, text(id), "9223372036854775807");
    let mut snapshots: Vec<Snap> = (1..=30).map(batch).collect();
    assert_eq!(expired(&snapshots, 30), (1..30).collect::<Vec<i64>>());
    snapshots[2] = flink(3, Some(2), MINUTE, "stream", "5");
    assert_eq!(expired(&snapshots, 30), [1, 2], "batch jobs do not take over from a streaming job of the same graph");
}

#[test]
fn two_jobs_of_the_same_graph_that_commit_by_turns_stay_alive_over_many_runs() {
    let mut snapshots: Vec<Snap> = Vec::new();
    let mut head = None;
    let mut checkpoints = BTreeMap::from([("slow", 0), ("quick", 0)]);
    for (round, id) in (1..60).enumerate() {
        let job = if round % 10 == 5 { "slow" } else { "quick" };
        let checkpoint = checkpoints.entry(job).or_default();
        *checkpoint += 1;
        snapshots.iter_mut().for_each(|s| s.2 += MINUTE);
        snapshots.push(flink(id, head, 0, job, text(*checkpoint)));
        head = Some(id);
        let gone = expired(&snapshots, id);
        snapshots.retain(|s| !gone.contains(&s.0));
        let newest = |job| snapshots.iter().filter(|s| s.4[0].1 == job).map(|s| s.0).max();
        let last_slow = (1..=id).rev().find(|n| (n - 1) % 10 == 5);
        assert_eq!((walk(&snapshots, id, "slow"), newest("slow")), (last_slow, last_slow), "after {id}");
        assert!(snapshots.len() <= 22, "{} after {id}", snapshots.len());
    }
}

/// What a writer finds on its way from the head, by the first entry of the summary.
fn walk(snapshots: &[Snap], head: i64, who: &str) -> Option<i64> {
    let mut next = Some(head);
    while let Some(snapshot) = next.and_then(|id| snapshots.iter().find(|s| s.0 == id)) {
        if snapshot.4.first().is_some_and(|(_, value)| *value == who) {
            return Some(snapshot.0);
        }
        next = snapshot.1;
    }
    None
}

#[test]
fn a_query_whose_commits_are_staged_and_published_keeps_a_bounded_number() {
    let mut snapshots = vec![append(1, None, 10 * DAY)];
    for n in 1..=1000 {
        let (staged, published, age) = (2 * n, 2 * n + 1, 9 * DAY - n * MINUTE);
        let head = Some(2 * n - 1);
        let id = text(n);
        snapshots.push(by(staged, head, age, &[("wap.id", id), ("spark.sql.streaming.queryId", "q")]));
        snapshots.push(by(published, head, age, &[("published-wap-id", id)]));
    }
    let kept = plan(&table(&snapshots, &main_at(2001), &json!({})), 0, 1);
    let gone = kept.remove_snapshots;
    assert!(!gone.contains(&2000) && !gone.contains(&1970), "the last sixteen that were staged stay");
    assert_eq!(gone.len(), 2001 - 17, "and the head");
}

#[test]
fn what_engines_say_of_their_commits_keeps_no_snapshot() {
    let spark = "spark.app.id app-id app-name engine-name engine-version iceberg-version changed-partition-count \
        added-dvs removed-dvs added-files-size deleted-duplicate-files replace-partitions partition-summaries-included \
        manifests-created manifests-kept manifests-replaced entries-processed source-snapshot-id published-wap-id";
    let trino = "trino_query_id trino_user trino_version trino-query-start-time dependsOnTables dependsOnTableFunctions \
        dependsOnNonDeterministicFunctions presto_query_id presto_version";
    let others = "dremio-job-id snapshot.producer environment-context kafka.connect.commit-id kafka.connect.task-id";
    let known = "added-data-files total-records partitions.day=3 icewright.run-id";
    for key in [spark, trino, others, known].iter().flat_map(|keys| keys.split_whitespace()) {
        let snapshots = [by(1, None, DAY, &[(key, "1")]), append(2, Some(1), MINUTE), append(3, Some(2), 0)];
        assert_eq!(expired(&snapshots, 3), [1, 2], "{key} only describes");
    }
}

#[test]
fn of_hundreds_of_unknown_keys_the_same_ones_count_each_time() {
    let keys: Vec<(&'static str, &'static str)> = (0..300).map(|n| (text(format!("key-{n:03}")), "1")).collect();
    let mut snapshots: Vec<Snap> = vec![by(1, None, DAY, &keys[200..]), by(2, Some(1), DAY, &keys[..200])];
    snapshots.push(append(3, Some(2), 0));
    let first = plan(&table(&snapshots, &main_at(3), &json!({})), 0, 1);
    assert_eq!(first.remove_snapshots, [1], "32 keys of the newer one count");
    for _ in 0..20 {
        assert_eq!(plan(&table(&snapshots, &main_at(3), &json!({})), 0, 1).skipped, first.skipped);
    }
}

#[test]
fn what_unknown_keys_keep_is_bounded() {
    let mut snapshots: Vec<Snap> = (1..=5000)
        .map(|id| by(id, (id > 1).then(|| id - 1), (5000 - id) * 1000, &[("loader.offset", text(id))]))
        .collect();
    assert_eq!(expired(&snapshots, 5000).len(), 5000 - 16, "the newest of sixteen values");
    snapshots.iter_mut().skip(1).for_each(|s| s.4.clear());
    assert_eq!(expired(&snapshots, 5000).len(), 5000 - 1001, "a way of a thousand");
    for snapshot in &mut snapshots {
        snapshot.4 = vec![(text(snapshot.0), "x")];
    }
    assert_eq!(expired(&snapshots, 5000).len(), 5000 - 32, "thirty-two keys");
}

#[test]
fn ten_thousand_jobs_are_planned_at_once_and_told_of_on_a_few_lines() {
    let snapshots: Vec<Snap> =
        (1..=10_000).map(|id| flink(id, (id > 1).then(|| id - 1), (10_000 - id) * 1000, text(id), "1")).collect();
    let kept = plan(&table(&snapshots, &main_at(10_000), &json!({})), 0, 1);
    assert_eq!(kept.remove_snapshots, NONE, "each began anew, and may run still");
    assert!(kept.skipped.len() < 50, "{}", kept.skipped.len());
    let old: Vec<Snap> = snapshots.into_iter().map(|s| Snap(s.0, s.1, s.2 + 15 * DAY, s.3, s.4)).collect();
    assert_eq!(expired(&old, 10_000).len(), 9_999);
}

/// What happens next, so many hours later: a commit of one of three sinks, two of them on one operator; of one of two
/// queries; of nobody known; a compaction; or a restart of a sink from its state.
fn events() -> impl Strategy<Value = Vec<(usize, i64, i64)>> {
    prop::collection::vec((0..10usize, 1..4i64, 0..5i64), 1..60)
}

fn text(text: impl ToString) -> &'static str {
    Box::leak(text.to_string().into_boxed_str())
}

proptest! {
    #[test]
    fn who_is_not_over_finds_the_same_progress_after_any_expiry(events in events(), last in 1..4usize) {
        let mut snapshots: Vec<Snap> = Vec::new();
        let mut sinks = [("a", "x"), ("b", "x"), ("c", "y")].map(|(job, operator)| (job, operator, 0));
        // By sink or query: who to look for, and what must be found.
        let mut progress: BTreeMap<usize, (&'static str, i64)> = BTreeMap::new();
        for (id, (what, step, hours)) in (1..).zip(events) {
            let parent = snapshots.iter().map(|s| s.0).max();
            snapshots.iter_mut().for_each(|s| s.2 += hours * 60 * MINUTE);
            snapshots.push(match what {
                0..=2 => {
                    let (job, operator, checkpoint) = &mut sinks[what];
                    // Who begins anew commits its first checkpoint.
                    *checkpoint += if *checkpoint == 0 { 1 } else { step };
                    let ids = [("flink.job-id", *job), ("flink.operator-id", *operator), ("flink.max-committed-checkpoint-id", text(*checkpoint))];
                    by(id, parent, 0, &ids)
                }
                3 => by(id, parent, 0, &[("spark.sql.streaming.queryId", "q")]),
                4 => by(id, parent, 0, &[("spark.sql.streaming.queryId", "r")]),
                5 => append(id, parent, 0),
                6 => replace(id, parent, 0),
                restarted => {
                    sinks[restarted - 7].0 = text(format!("{}-{id}", sinks[restarted - 7].1));
                    continue;
                }
            });
            if let (0..=4, Some((_, who))) = (what, snapshots.last().and_then(|s| s.4.first())) {
                progress.insert(what, (who, id));
            }
            let gone = plan(&table(&snapshots, &main_at(id), &json!({})), 0, last).remove_snapshots;
            snapshots.retain(|s| !gone.contains(&s.0));
            for (who, at) in progress.values() {
                prop_assert_eq!(walk(&snapshots, id, who), Some(*at), "{} after {}", who, id);
            }
        }
    }
}
