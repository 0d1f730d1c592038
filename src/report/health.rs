//! Whether a table is healthy, and if not, why. Pure: what is known of the table and the time -> reasons.
//!
//! | reason | what it means |
//! |---|---|
//! | `failing` | the last run of a step failed |
//! | `quarantined` | the table's metadata is invalid, so it is not compacted until that changes |
//! | `overdue` | a due step has waited longer than one schedule period, and longer than [`OVERDUE_MIN`] |
//! | `refused` | the last clean-up left files alone since deleting was not safe: above all, what other tables need is not known |
//! | `unreadable` | the table's numbers could not be collected when that was last tried |
//! | `small_files` | more than half of the data files are small, and these are more than [`SMALL_FILES_PER_PARTITION`] a partition on average or more than [`SMALL_FILES`] in all |
//! | `delete_files` | more delete files than data files, and more than [`DELETE_FILES`] |

use std::time::Duration;

use serde::Serialize;

use crate::inspect::TableStats;
use crate::report::kept::kept;
use crate::report::vitals::Vital;

/// A step that waits is not overdue before this, however short the schedule's period.
pub const OVERDUE_MIN: Duration = Duration::from_secs(10 * 60);
/// Small data files per partition, on average, that are too many.
pub const SMALL_FILES_PER_PARTITION: u64 = 100;
/// Small data files in all that are too many.
pub const SMALL_FILES: u64 = 10_000;
/// Delete files that are nothing to worry about.
pub const DELETE_FILES: u64 = 100;

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// Steps fail.
    Failing,
    /// Not compacted until its metadata changes.
    Quarantined,
    /// A due step is not done.
    Overdue,
    /// A clean-up was refused.
    Refused,
    /// Its numbers could not be collected.
    Unreadable,
    /// Too many small data files.
    SmallFiles,
    /// Too many delete files.
    DeleteFiles,
}

impl ReasonKind {
    /// All kinds, the gravest first.
    pub const ALL: [Self; 7] = [
        Self::Quarantined,
        Self::Failing,
        Self::Refused,
        Self::Unreadable,
        Self::Overdue,
        Self::SmallFiles,
        Self::DeleteFiles,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Quarantined => "quarantined",
            Self::Overdue => "overdue",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
            Self::SmallFiles => "small_files",
            Self::DeleteFiles => "delete_files",
        }
    }
}

/// Why a table is unhealthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Reason {
    /// Which kind of trouble.
    #[serde(rename = "reason")]
    pub kind: ReasonKind,
    /// For a person: the numbers behind it; 1 KiB at most.
    pub detail: String,
}

/// The judgement in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// There is no reason against it.
    Healthy,
    /// There is at least one.
    Unhealthy,
    /// The table was not looked at yet.
    Unknown,
}

impl Health {
    /// The judgement that follows from the reasons found.
    pub fn of(vital: &Vital, reasons: &[Reason]) -> Self {
        match (reasons, &vital.stats) {
            ([_, ..], _) => Self::Unhealthy,
            ([], Some(_)) => Self::Healthy,
            ([], None) => Self::Unknown,
        }
    }
}

/// Every reason why the table is unhealthy now, the gravest first, each kind once at most; `now_ms` is milliseconds since
/// the epoch.
pub fn reasons(vital: &Vital, now_ms: i64) -> Vec<Reason> {
    let found = ReasonKind::ALL.map(|kind| {
        let detail = match kind {
            ReasonKind::Quarantined => vital.quarantined.then(|| {
                let cure = "repair it, or take the table out of the policies";
                format!("its metadata is invalid and it is not compacted until that changes: {cure}")
            }),
            ReasonKind::Failing => failing(vital),
            ReasonKind::Refused => vital.refused.clone(),
            ReasonKind::Unreadable => vital.unreadable.clone(),
            ReasonKind::Overdue => overdue(vital, now_ms),
            ReasonKind::SmallFiles => vital.stats.as_deref().and_then(small_files),
            ReasonKind::DeleteFiles => vital.stats.as_deref().and_then(delete_files),
        };
        detail.map(|detail| Reason { kind, detail: kept(detail) })
    });
    found.into_iter().flatten().collect()
}

fn failing(vital: &Vital) -> Option<String> {
    let runs = match vital.consecutive_failures {
        0 => return None,
        1 => "the last run failed".to_owned(),
        n => format!("the last {n} runs failed"),
    };
    Some(vital.last_failure.as_ref().map_or_else(|| runs.clone(), |error| format!("{runs}: {error}")))
}

fn overdue(vital: &Vital, now_ms: i64) -> Option<String> {
    let waited_ms = now_ms.saturating_sub(vital.due_since_ms.filter(|_| !vital.running)?);
    let waited = Duration::from_millis(u64::try_from(waited_ms).ok()?);
    let allowed = vital.period?.max(OVERDUE_MIN);
    (waited > allowed).then(|| {
        let (waited, allowed) = (waited.as_secs() / 60, allowed.as_secs() / 60);
        format!("the next step has been due for {waited} min, more than {allowed} min")
    })
}

fn small_files(stats: &TableStats) -> Option<String> {
    let (small, partitions) = (stats.small_data_files, stats.partitions.max(1));
    let many = small > SMALL_FILES || small > partitions.saturating_mul(SMALL_FILES_PER_PARTITION);
    let most = small.saturating_mul(2) > stats.data_files;
    (many && most).then(|| format!("{small} of {} data files are small, in {partitions} partitions", stats.data_files))
}

fn delete_files(stats: &TableStats) -> Option<String> {
    let deletes = stats.delete_files();
    (deletes > DELETE_FILES && deletes > stats.data_files)
        .then(|| format!("{deletes} delete files for {} data files", stats.data_files))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const MINUTE_MS: i64 = 60_000;

    fn kinds(vital: &Vital, now_ms: i64) -> Vec<ReasonKind> {
        reasons(vital, now_ms).into_iter().map(|reason| reason.kind).collect()
    }

    fn of_stats(stats: &TableStats) -> Vec<ReasonKind> {
        kinds(&Vital { stats: Some(Arc::new(stats.clone())), ..Vital::default() }, 0)
    }

    #[test]
    fn a_table_is_healthy_once_its_numbers_say_nothing_against_it() {
        let unknown = Vital::default();
        assert_eq!(Health::of(&unknown, &reasons(&unknown, 0)), Health::Unknown);
        let healthy = Vital { stats: Some(Arc::default()), ..unknown.clone() };
        assert_eq!(Health::of(&healthy, &reasons(&healthy, 0)), Health::Healthy);
        let failing = Vital { consecutive_failures: 1, ..unknown };
        assert_eq!(Health::of(&failing, &reasons(&failing, 0)), Health::Unhealthy);
    }

    #[test]
    fn failures_are_told_with_their_number_and_cause() {
        let view = Vital { consecutive_failures: 1, ..Vital::default() };
        let detail = |vital: &Vital| reasons(vital, 0).into_iter().map(|r| r.detail).collect::<Vec<_>>();
        assert_eq!(detail(&view), ["the last run failed"]);
        let view = Vital { consecutive_failures: 3, last_failure: Some("no such bucket".into()), ..view };
        assert_eq!(detail(&view), ["the last 3 runs failed: no such bucket"]);
    }

    #[test]
    fn every_reason_is_told_the_gravest_first() {
        let stats = TableStats {
            data_files: 1000,
            small_data_files: 1000,
            position_delete_files: 1001,
            partitions: 1,
            ..Default::default()
        };
        let view = Vital {
            consecutive_failures: 1,
            quarantined: true,
            due_since_ms: Some(0),
            period: Some(Duration::from_secs(60)),
            stats: Some(Arc::new(stats)),
            refused: Some("a neighbour is unreadable".into()),
            unreadable: Some("no answer".into()),
            ..Vital::default()
        };
        assert_eq!(kinds(&view, 60 * MINUTE_MS), ReasonKind::ALL);
        let json = serde_json::to_value(&reasons(&view, 60 * MINUTE_MS)[5]).expect("JSON");
        let detail = "1000 of 1000 data files are small, in 1 partitions";
        assert_eq!(json, serde_json::json!({"reason": "small_files", "detail": detail}));
        for kind in ReasonKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.as_str());
        }
    }

    #[test]
    fn a_step_is_overdue_after_one_period_and_ten_minutes_at_least() {
        let view = |period_min: u64| Vital {
            due_since_ms: Some(5 * MINUTE_MS),
            period: Some(Duration::from_secs(60 * period_min)),
            ..Vital::default()
        };
        assert_eq!(kinds(&view(1), 15 * MINUTE_MS), []);
        assert_eq!(kinds(&view(1), 15 * MINUTE_MS + 1), [ReasonKind::Overdue]);
        assert_eq!(kinds(&view(60), 65 * MINUTE_MS), []);
        assert_eq!(kinds(&view(60), 65 * MINUTE_MS + 1), [ReasonKind::Overdue]);
        assert_eq!(kinds(&view(1), 0), [], "due later");
        assert_eq!(kinds(&Vital { running: true, ..view(1) }, i64::MAX), [], "running");
        assert_eq!(kinds(&Vital { period: None, ..view(1) }, i64::MAX), [], "the schedule is not known");
    }

    #[test]
    fn small_files_are_too_many_per_partition_or_in_all_and_the_most() {
        let stats = |data_files, small_data_files, partitions| TableStats {
            data_files,
            small_data_files,
            partitions,
            ..TableStats::default()
        };
        assert_eq!(of_stats(&stats(1000, 1000, 10)), [], "100 each");
        assert_eq!(of_stats(&stats(1001, 1001, 10)), [ReasonKind::SmallFiles]);
        assert_eq!(of_stats(&stats(2002, 1001, 10)), [], "half of them");
        assert_eq!(of_stats(&stats(2001, 1001, 10)), [ReasonKind::SmallFiles]);
        assert_eq!(of_stats(&stats(10_000, 10_000, 1000)), []);
        assert_eq!(of_stats(&stats(10_001, 10_001, 1000)), [ReasonKind::SmallFiles]);
        assert_eq!(of_stats(&stats(101, 101, 0)), [ReasonKind::SmallFiles]);
    }

    #[test]
    fn delete_files_are_too_many_beyond_a_hundred_and_one_per_data_file() {
        let stats = |position_delete_files, deletion_vectors, data_files| TableStats {
            position_delete_files,
            deletion_vectors,
            data_files,
            ..TableStats::default()
        };
        assert_eq!(of_stats(&stats(50, 50, 1)), []);
        assert_eq!(of_stats(&stats(51, 50, 1)), [ReasonKind::DeleteFiles]);
        assert_eq!(of_stats(&stats(100, 100, 200)), []);
        assert_eq!(of_stats(&stats(101, 100, 200)), [ReasonKind::DeleteFiles]);
    }
}
