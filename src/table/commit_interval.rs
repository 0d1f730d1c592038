//! How often a table's writer commits, as its snapshots tell.

use std::time::Duration;

use iceberg::spec::Operation;

use crate::table::LoadedTable;

/// What is assumed of a table whose snapshots do not tell: fewer than two that a writer made.
pub const COMMIT_INTERVAL_FALLBACK: Duration = Duration::from_secs(10 * 60);

/// Snapshots looked at.
const INFERRED_FROM: usize = 20;
const INFERRED_MIN: Duration = Duration::from_secs(10);
const INFERRED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The median time between the last up to 20 snapshots on `main` that are not compactions, at least 10 s and at most 24 h;
/// [`COMMIT_INTERVAL_FALLBACK`] where there are fewer than two.
pub fn infer_commit_interval(loaded: &LoadedTable) -> Duration {
    median_gap(&writer_commit_times(loaded))
}

/// Times of the last snapshots on `main` that a writer made, newest first, in milliseconds since the epoch.
fn writer_commit_times(loaded: &LoadedTable) -> Vec<i64> {
    let mut times = Vec::with_capacity(INFERRED_FROM);
    let mut next = loaded.current_snapshot();
    // Parents that form a ring are broken metadata; the number of snapshots bounds the walk.
    for _ in 0..loaded.metadata.snapshots().len() {
        let Some(snapshot) = next else { break };
        if snapshot.summary().operation != Operation::Replace {
            times.push(snapshot.timestamp_ms());
            if times.len() == INFERRED_FROM {
                break;
            }
        }
        next = snapshot.parent_snapshot_id().and_then(|id| loaded.metadata.snapshot_by_id(id));
    }
    times
}

fn median_gap(newest_first: &[i64]) -> Duration {
    // A clock that went back between two commits says nothing about their distance.
    let mut gaps: Vec<u64> =
        newest_first.windows(2).map(|pair| u64::try_from(pair[0].saturating_sub(pair[1])).unwrap_or(0)).collect();
    if gaps.is_empty() {
        return COMMIT_INTERVAL_FALLBACK;
    }
    gaps.sort_unstable();
    let (low, high) = (gaps[(gaps.len() - 1) / 2], gaps[gaps.len() / 2]);
    Duration::from_millis(low.midpoint(high)).clamp(INFERRED_MIN, INFERRED_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::builder::{loaded, main_at, snapshot};

    fn table(snapshots: &[(i64, &str)]) -> LoadedTable {
        let list = (1..).zip(snapshots).map(|(id, (time, operation))| {
            snapshot(id, (id > 1).then(|| id - 1), json!({"timestamp-ms": time, "summary": {"operation": operation}}))
        });
        let mut changes = json!({
            "last-sequence-number": snapshots.len(), "last-updated-ms": 1_800_000_000_000_i64,
            "snapshots": list.collect::<Vec<_>>(),
        });
        if !snapshots.is_empty() {
            changes["current-snapshot-id"] = json!(snapshots.len());
            changes["refs"] = main_at(i64::try_from(snapshots.len()).expect("few"));
        }
        loaded(changes)
    }

    #[test]
    fn the_commit_interval_is_the_median_gap_of_writers_commits() {
        let minute = 60_000;
        let start = 1_700_000_000_000;
        // Gaps of writers: 10 min, 10 min, 60 min; the compaction in between does not count.
        let snapshots = [
            (start, "append"),
            (start + 10 * minute, "overwrite"),
            (start + 12 * minute, "replace"),
            (start + 20 * minute, "append"),
            (start + 80 * minute, "append"),
        ];
        assert_eq!(infer_commit_interval(&table(&snapshots)), Duration::from_secs(600));
        assert_eq!(infer_commit_interval(&table(&[])), COMMIT_INTERVAL_FALLBACK);
        assert_eq!(infer_commit_interval(&table(&snapshots[..1])), COMMIT_INTERVAL_FALLBACK);
        assert_eq!(infer_commit_interval(&table(&[(start, "append"), (start + 50, "append")])), INFERRED_MIN);
        // Only the last 20 count: 30 slow commits long ago do not matter.
        let mut many: Vec<(i64, &str)> = (0..30).map(|i| (start + i * 60 * minute, "append")).collect();
        let last = many[29].0;
        many.extend((1..=20).map(|i| (last + i * minute, "append")));
        assert_eq!(infer_commit_interval(&table(&many)), Duration::from_secs(60));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_inferred_interval_lies_between_the_smallest_and_the_largest_gap(
            gaps in prop::collection::vec(-5_000_000i64..200_000_000, 0..25),
        ) {
            let mut times = vec![1_700_000_000_000i64];
            for gap in &gaps {
                times.push(times[times.len() - 1] - gap);
            }
            let inferred = median_gap(&times);
            prop_assert!((INFERRED_MIN..=INFERRED_MAX).contains(&inferred));
            let clamped = |ms: &i64| Duration::from_millis((*ms).max(0).unsigned_abs()).clamp(INFERRED_MIN, INFERRED_MAX);
            match (gaps.iter().min(), gaps.iter().max()) {
                (Some(min), Some(max)) => prop_assert!(clamped(min) <= inferred && inferred <= clamped(max)),
                _ => prop_assert_eq!(inferred, COMMIT_INTERVAL_FALLBACK),
            }
        }
    }
}
