//! When runs are due, and how long a commit interval is. Pure: `now` and metadata come in as parameters.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use iceberg::spec::Operation;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::{CommitInterval, Schedule, TablePolicy};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::table::LoadedTable;

/// The commit interval assumed of a table whose snapshots do not tell: fewer than two that a writer made.
pub const COMMIT_INTERVAL_FALLBACK: Duration = Duration::from_secs(10 * 60);

/// Snapshots looked at to infer the commit interval.
const INFERRED_FROM: usize = 20;
const INFERRED_MIN: Duration = Duration::from_secs(10);
const INFERRED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A time zone by its IANA name. [`ErrorKind::Config`] if there is none.
pub fn time_zone(name: &str) -> Result<TimeZone> {
    TimeZone::get(name).map_err(|_| Error::new(ErrorKind::Config, format!("there is no time zone `{name}`")))
}

impl Schedule {
    /// Reads a cron expression of five fields (minute, hour, day of month, month, day of week).
    /// [`ErrorKind::Config`] if it is malformed or names a time that never comes.
    pub fn cron(text: &str) -> Result<Self> {
        let cron = parse_cron(text)?;
        // Every calendar repeats within 400 years; a leap day on a given weekday comes within 40.
        let start = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        cron.find_next_occurrence(&start, false).map_err(|_| {
            Error::new(ErrorKind::Config, format!("the cron expression `{text}` names a time that never comes"))
        })?;
        Ok(Self::Cron(text.to_owned()))
    }

    /// The first due time after `now_ms` (milliseconds since the epoch). For [`Schedule::Every`] `now_ms` is the time of
    /// the last run. A cron time that the clock skips falls due when the clock has jumped; one that comes twice, once.
    /// [`ErrorKind::Config`] for an expression that [`Schedule::cron`] would refuse.
    pub fn next_after(&self, now_ms: i64, zone: &TimeZone) -> Result<i64> {
        match self {
            Self::Every(every) => {
                let every_ms = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
                Ok(now_ms.saturating_add(every_ms))
            }
            Self::Cron(text) => {
                let start = zoned(now_ms, zone)?;
                let next = parse_cron(text)?
                    .find_next_occurrence(&start, false)
                    .map_err(|e| Error::new(ErrorKind::Config, e.to_string()))
                    .context(|| format!("find when `{text}` is due next"))?;
                Ok(next.timestamp().as_millisecond())
            }
        }
    }

    /// The time between two runs: of a cron expression, between the next two due times after `now_ms`.
    pub fn period(&self, now_ms: i64, zone: &TimeZone) -> Result<Duration> {
        let next = self.next_after(now_ms, zone)?;
        let after = self.next_after(next, zone)?;
        Ok(Duration::from_millis(u64::try_from(after.saturating_sub(next)).unwrap_or(0)))
    }

    /// The last due time before `now_ms`; `None` for [`Schedule::Every`], whose due times follow from the last run alone,
    /// and where there was none.
    pub fn previous_before(&self, now_ms: i64, zone: &TimeZone) -> Result<Option<i64>> {
        let Self::Cron(text) = self else { return Ok(None) };
        // The search counts whole seconds, so a started second must count as over.
        let seconds = now_ms.div_euclid(1000) + i64::from(now_ms.rem_euclid(1000) > 0);
        let start = zoned(seconds.saturating_mul(1000), zone)?;
        let found = parse_cron(text)?.find_previous_occurrence(&start, false).ok();
        Ok(found.map(|previous| previous.timestamp().as_millisecond()))
    }
}

impl TablePolicy {
    /// The policy's time zone.
    pub fn zone(&self) -> Result<TimeZone> {
        time_zone(&self.time_zone)
    }
}

fn zoned(ms: i64, zone: &TimeZone) -> Result<Zoned> {
    let time = Timestamp::from_millisecond(ms).map_err(|e| Error::invalid(format!("time out of range: {e}")))?;
    Ok(time.to_zoned(zone.clone()))
}

fn parse_cron(text: &str) -> Result<Cron> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|e| {
        Error::new(ErrorKind::Config, format!("`{text}` is no cron expression of five fields: {}", decapitalised(&e)))
    })
}

fn decapitalised(error: &croner::errors::CronError) -> String {
    let text = error.to_string();
    let mut chars = text.trim_end_matches('.').chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// How often the table's writer commits: as configured, or the median time between the last up to 20 snapshots on `main`
/// that are not compactions, at least 10 s and at most 24 h; [`COMMIT_INTERVAL_FALLBACK`] where there are fewer than two.
pub fn commit_interval(loaded: &LoadedTable, policy: &TablePolicy) -> Duration {
    match policy.commit_interval {
        CommitInterval::Fixed(interval) => interval,
        CommitInterval::Auto => infer_commit_interval(&writer_commit_times(loaded)),
    }
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

fn infer_commit_interval(newest_first: &[i64]) -> Duration {
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
    use crate::testing::builder::metadata;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().expect(text).as_millisecond()
    }

    #[test]
    fn the_period_is_the_time_between_the_next_two_runs() {
        let (hour, noon) = (Duration::from_secs(3600), at("2026-03-01T12:00:00Z"));
        let period = |schedule: &Schedule| schedule.period(noon, &TimeZone::UTC).expect("a period");
        assert_eq!(period(&Schedule::Every(hour)), hour);
        assert_eq!(period(&Schedule::cron("0 6,18 * * *").expect("cron")), 12 * hour);
        assert_eq!(period(&Schedule::cron("0 17,18 * * *").expect("cron")), hour);
    }

    fn next(cron: &str, zone: &str, from: &str) -> String {
        let zone = time_zone(zone).expect("zone");
        let ms = Schedule::cron(cron).expect(cron).next_after(at(from), &zone).expect("next");
        Timestamp::from_millisecond(ms).expect("in range").to_string()
    }

    fn previous(cron: &str, zone: &str, from: &str) -> String {
        let zone = time_zone(zone).expect("zone");
        let ms = Schedule::cron(cron).expect(cron).previous_before(at(from), &zone).expect("search").expect("found");
        Timestamp::from_millisecond(ms).expect("in range").to_string()
    }

    #[test]
    fn cron_counts_in_the_policys_zone() {
        assert_eq!(next("0 6,18 * * *", "Asia/Seoul", "2026-11-29T00:00:00Z"), "2026-11-29T09:00:00Z");
        assert_eq!(next("0 6,18 * * *", "UTC", "2026-11-29T00:00:00Z"), "2026-11-29T06:00:00Z");
        assert_eq!(next("0 6 * * *", "UTC", "2026-11-29T06:00:00Z"), "2026-11-30T06:00:00Z", "after, not at");
        assert_eq!(previous("0 6 * * *", "UTC", "2026-11-29T06:00:00Z"), "2026-11-28T06:00:00Z", "before, not at");
        assert_eq!(previous("0 6 * * *", "UTC", "2026-11-29T06:00:00.5Z"), "2026-11-29T06:00:00Z");
        assert_eq!(next("0 6 * * *", "UTC", "2026-11-29T05:59:59.999Z"), "2026-11-29T06:00:00Z");
    }

    #[test]
    fn a_skipped_time_runs_at_the_jump_and_a_repeated_time_runs_once() {
        // Berlin: 2026-03-29 02:00 -> 03:00, 2026-10-25 03:00 -> 02:00.
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z"), "2026-03-29T01:00:00Z");
        assert_eq!(previous("30 2 * * *", "Europe/Berlin", "2026-03-29T12:00:00Z"), "2026-03-29T01:00:00Z");
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z");
        // An hourly schedule runs in both of the repeated hours.
        assert_eq!(next("0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z"), "2026-10-25T01:00:00Z");
    }

    #[test]
    fn malformed_and_impossible_expressions_are_refused() {
        for text in ["", "* * * *", "0 0 * * * *", "61 * * * *", "0 0 30 2 *", "x * * * *"] {
            assert_eq!(Schedule::cron(text).expect_err(text).kind(), ErrorKind::Config);
        }
        assert!(Schedule::cron("0 0 29 2 *").is_ok(), "leap days come");
    }

    #[test]
    fn every_counts_from_the_last_run() {
        let every = Schedule::Every(Duration::from_secs(60));
        assert_eq!(every.next_after(5, &TimeZone::UTC).expect("sum"), 60_005);
        assert_eq!(every.previous_before(5, &TimeZone::UTC).expect("none"), None);
        assert_eq!(Schedule::Every(Duration::MAX).next_after(5, &TimeZone::UTC).expect("sum"), i64::MAX);
    }

    fn table(snapshots: &[(i64, &str)]) -> LoadedTable {
        let list: Vec<_> = snapshots
            .iter()
            .enumerate()
            .map(|(i, (time, operation))| {
                let mut snapshot = json!({
                    "snapshot-id": i + 1, "sequence-number": i + 1, "timestamp-ms": time, "schema-id": 0,
                    "manifest-list": format!("s3://b/t/metadata/snap-{i}.avro"), "summary": {"operation": operation},
                });
                if i > 0 {
                    snapshot["parent-snapshot-id"] = json!(i);
                }
                snapshot
            })
            .collect();
        let mut metadata = metadata(json!({
            "last-sequence-number": snapshots.len(), "last-updated-ms": 1_800_000_000_000_i64, "snapshots": list,
        }));
        if !snapshots.is_empty() {
            metadata["current-snapshot-id"] = json!(snapshots.len());
            metadata["refs"] = json!({"main": {"snapshot-id": snapshots.len(), "type": "branch"}});
        }
        LoadedTable::from_metadata_json("s3://b/t/metadata/1.json".into(), &metadata).expect("valid metadata")
    }

    #[test]
    fn the_commit_interval_is_the_median_gap_of_writers_commits() {
        let policy = TablePolicy::default();
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
        assert_eq!(commit_interval(&table(&snapshots), &policy), Duration::from_secs(600));
        assert_eq!(commit_interval(&table(&[]), &policy), COMMIT_INTERVAL_FALLBACK);
        assert_eq!(commit_interval(&table(&snapshots[..1]), &policy), COMMIT_INTERVAL_FALLBACK);
        assert_eq!(commit_interval(&table(&[(start, "append"), (start + 50, "append")]), &policy), INFERRED_MIN);
        let fixed = CommitInterval::Fixed(Duration::from_secs(7));
        let fixed = TablePolicy { commit_interval: fixed, ..TablePolicy::default() };
        assert_eq!(commit_interval(&table(&snapshots), &fixed), Duration::from_secs(7));
        // Only the last 20 count: 30 slow commits long ago do not matter.
        let mut many: Vec<(i64, &str)> = (0..30).map(|i| (start + i * 60 * minute, "append")).collect();
        let last = many[29].0;
        many.extend((1..=20).map(|i| (last + i * minute, "append")));
        assert_eq!(commit_interval(&table(&many), &policy), Duration::from_secs(60));
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
            let inferred = infer_commit_interval(&times);
            prop_assert!((INFERRED_MIN..=INFERRED_MAX).contains(&inferred));
            let clamped = |ms: &i64| Duration::from_millis((*ms).max(0).unsigned_abs()).clamp(INFERRED_MIN, INFERRED_MAX);
            match (gaps.iter().min(), gaps.iter().max()) {
                (Some(min), Some(max)) => prop_assert!(clamped(min) <= inferred && inferred <= clamped(max)),
                _ => prop_assert_eq!(inferred, COMMIT_INTERVAL_FALLBACK),
            }
        }

        /// Going back from any time and forth again finds no due time in between, also around clock changes.
        #[test]
        fn previous_and_next_agree(
            ms in 1_760_000_000_000i64..1_830_000_000_000,
            near_change in prop::option::of((0usize..4, -7_500_000i64..7_500_000)),
            cron in prop::sample::select(vec![
                "0 6,18 * * *", "30 2 * * *", "*/15 * * * *", "5 1-3 * * *", "0 0 * * MON", "15 2 29 * *", "0 3 1 */2 *",
            ]),
            zone in prop::sample::select(vec![
                "UTC", "Asia/Seoul", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
            ]),
        ) {
            let changes = ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T15:00:00Z"];
            let ms = near_change.map_or(ms, |(which, off)| at(changes[which]) + off);
            let zone = time_zone(zone).expect("zone");
            let schedule = Schedule::cron(cron).expect("cron");
            let next = schedule.next_after(ms, &zone).expect("next");
            prop_assert!(next > ms);
            prop_assert_eq!(next % 1000, 0);
            let previous = schedule.previous_before(ms, &zone).expect("search").expect("found");
            prop_assert!(previous < ms);
            prop_assert!(schedule.next_after(previous, &zone).expect("next") >= ms, "a due time was skipped");
            prop_assert_eq!(schedule.next_after(previous - 1, &zone).expect("next"), previous);
        }
    }
}
