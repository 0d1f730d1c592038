//! What a step did, as its actions are counted and shown.

use std::time::Duration;

use serde_json::value::to_raw_value;

use crate::action::Action;
use crate::clean::{ExpireReport, OrphanReport};
use crate::clock::PhaseTimes;
use crate::error::{Error, ErrorKind};
use crate::report::board::Ran;
use crate::report::metrics::{Metrics, RunCounts, RunRecord, Stored};
use crate::report::words::total;
use crate::schedule::due::Step;
use crate::schedule::run_report::{RewriteReport, outcome_of};
use crate::schedule::run_table::{CleanUpReport, StepReport};
use crate::table::TableName;

/// Counts what a step did.
pub fn record_step(metrics: &Metrics, name: &TableName, report: &StepReport, finished_ms: i64) {
    for ran in records(report, finished_ms) {
        metrics.record_run(name, &ran.record);
    }
    let StepReport::CleanUp(report) = report else { return };
    let orphans = report.remove_orphan_files.as_ref();
    let removed = orphans.map(orphan_counts).unwrap_or_default();
    if let Some(found) = orphans.filter(|r| r.error.is_none() && r.refused.is_none()) {
        let left = |all: u64, deleted: u64| all.saturating_sub(deleted);
        let stored = Stored {
            files: left(found.listed.files, removed.deleted_files),
            bytes: left(found.listed.bytes, removed.deleted_bytes),
            orphan_files: left(found.orphans.files, removed.deleted_files),
            orphan_bytes: left(found.orphans.bytes, removed.deleted_bytes),
        };
        metrics.record_stored(name, stored);
    }
}

/// The actions of a step, in order.
pub(super) fn records(report: &StepReport, finished_ms: i64) -> Vec<Ran> {
    match report {
        StepReport::RewriteDataFiles(report) => {
            let record = rewrite_record(report, finished_ms);
            vec![Ran { record, reason: report.reason.clone(), report: to_raw_value(report).ok() }]
        }
        StepReport::CleanUp(report) => vec![expire_record(report, finished_ms), orphan_record(report, finished_ms)],
    }
}

/// What could not be done at all.
pub(super) fn failed_record(step: Step, error: &Error, finished_ms: i64) -> RunRecord {
    RunRecord {
        action: match step {
            Step::RewriteDataFiles => Action::RewriteDataFiles,
            Step::CleanUp => Action::ExpireSnapshots,
        },
        outcome: outcome_of(error.kind()),
        duration: Duration::ZERO,
        finished_ms,
        counts: RunCounts::default(),
        phases: PhaseTimes::default(),
        refused: error.kind() == ErrorKind::Unsupported,
    }
}

fn expire_record(report: &CleanUpReport, finished_ms: i64) -> Ran {
    let (action, expiry) = (Action::ExpireSnapshots, report.expire_snapshots.as_ref());
    let record = RunRecord {
        action,
        outcome: report.expire_outcome(),
        duration: report.expire_duration,
        finished_ms,
        counts: expiry.map(expire_counts).unwrap_or_default(),
        phases: expiry.map(|report| report.phases_ms.clone()).unwrap_or_default(),
        refused: report.is_refused(action),
    };
    let error = expiry.and_then(|report| report.error.as_ref()).map(ToString::to_string);
    let left = report.left_files().map(|refused| refused.detail.clone());
    let reason = error.or(left).or_else(|| report.not_begun(action));
    Ran { record, reason, report: expiry.and_then(|report| to_raw_value(report).ok()) }
}

fn orphan_record(report: &CleanUpReport, finished_ms: i64) -> Ran {
    let (action, orphans) = (Action::RemoveOrphanFiles, report.remove_orphan_files.as_ref());
    let record = RunRecord {
        action,
        outcome: report.orphan_outcome(),
        duration: report.orphan_duration,
        finished_ms,
        counts: orphans.map(orphan_counts).unwrap_or_default(),
        phases: orphans.map(|report| report.phases_ms.clone()).unwrap_or_default(),
        refused: report.is_refused(action),
    };
    let error = orphans.and_then(|report| report.error.as_ref()).map(ToString::to_string);
    let refused = orphans.and_then(|report| report.refused.as_ref()).map(|refused| refused.detail.clone());
    let reason = error.or(refused).or_else(|| report.not_begun(action));
    Ran { record, reason, report: orphans.and_then(|report| to_raw_value(report).ok()) }
}

fn rewrite_record(report: &RewriteReport, finished_ms: i64) -> RunRecord {
    RunRecord {
        action: Action::RewriteDataFiles,
        outcome: report.outcome,
        duration: Duration::from_millis(report.duration_ms.max(0).unsigned_abs()),
        finished_ms,
        counts: RunCounts {
            rewritten_data_files: report.rewritten_data_files as u64,
            rewritten_bytes: report.rewritten_bytes,
            added_data_files: report.added_data_files as u64,
            added_bytes: report.added_bytes,
            removed_delete_files: report.removed_delete_files as u64,
            commit_conflicts: u64::from(report.conflicts),
            commit_unknown: u64::from(report.unknown_commits),
            ..RunCounts::default()
        },
        phases: report.phases_ms.clone(),
        refused: report.refused,
    }
}

fn expire_counts(report: &ExpireReport) -> RunCounts {
    let deleted = total(&report.deleted);
    RunCounts {
        expired_snapshots: report.expired_snapshots as u64,
        deleted_files: deleted.files,
        deleted_bytes: deleted.bytes,
        commit_conflicts: u64::from(report.conflicts),
        commit_unknown: u64::from(report.unknown_outcomes),
        ..RunCounts::default()
    }
}

fn orphan_counts(report: &OrphanReport) -> RunCounts {
    let deleted = total(&report.deleted);
    RunCounts { deleted_files: deleted.files, deleted_bytes: deleted.bytes, ..RunCounts::default() }
}
