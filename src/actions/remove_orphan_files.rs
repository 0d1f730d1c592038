//! Orphan removal: [`crate::clean`] lists, compares, asks and deletes.

use std::fmt::Write as _;

use super::report::{ActionDetail, ActionReport, RunCounts, StoredFiles};
use super::words::{bytes, count, file_lines, total};
use super::{ActionContext, ActionPlan, DISABLED, LabelledLines, Outline};
use crate::action::{Action, Outcome};
use crate::clean::{OrphanReport, find_orphan_files, remove_orphan_files};
use crate::error::{Error, ErrorKind};
use crate::fleet::neighbours::Others;

const ACTION: Action = Action::RemoveOrphanFiles;

/// Finds orphans, and unless it is only a plan removes them.
async fn look(context: &ActionContext<'_>, plan: bool) -> OrphanReport {
    let ActionContext { env, fleet, subject, .. } = context;
    let around = context.around().await;
    if let Some(refused) = around.shared() {
        return OrphanReport { refused: Some(refused.clone()), ..OrphanReport::default() };
    }
    let is_active = |run_id| env.active.contains(run_id);
    let others = Others { fleet, own: subject.own(), plan };
    let request = subject.orphan_request(env, &is_active, &around.directories, &others);
    if plan {
        find_orphan_files(&subject.table, &request).await
    } else {
        remove_orphan_files(&subject.table, &request).await
    }
}

pub(super) async fn plan(context: &ActionContext<'_>) -> ActionPlan<Outline> {
    if !context.subject.resolved.policy.is_enabled(ACTION) {
        return ActionPlan::Nothing(DISABLED.into());
    }
    let report = look(context, true).await;
    let lines = lines(&report);
    ActionPlan::Would(Outline { detail: ActionDetail::OrphanReport(Box::new(report)), lines, drawing: String::new() })
}

pub(super) async fn run(context: &ActionContext<'_>) -> ActionReport {
    if !context.subject.resolved.policy.is_enabled(ACTION) {
        return ActionReport::skipped(ACTION, DISABLED);
    }
    // Deleting may stop between any two files; what is left is found again.
    tokio::select! {
        biased;
        () = context.env.cancel.cancelled() => {
            ActionReport::refused(ACTION, &Error::new(ErrorKind::Cancelled, "the process is stopping"))
        }
        report = look(context, false) => report_of(report),
    }
}

fn report_of(report: OrphanReport) -> ActionReport {
    let outcome = match &report.error {
        Some(error) => Outcome::of(error.kind()),
        None if !report.failed.is_empty() => Outcome::Failed,
        None if report.refused.is_some() => Outcome::Skipped,
        None => Outcome::Success,
    };
    let wanted = |reason: &str| !matches!(reason, "disabled" | "gc_disabled");
    let why = report.error.as_ref().map(ToString::to_string);
    let deleted = total(&report.deleted);
    let left = |all: u64, deleted: u64| all.saturating_sub(deleted);
    let stored = StoredFiles {
        files: left(report.listed.files, deleted.files),
        bytes: left(report.listed.bytes, deleted.bytes),
        orphan_files: left(report.orphans.files, deleted.files),
        orphan_bytes: left(report.orphans.bytes, deleted.bytes),
    };
    ActionReport {
        outcome,
        reason: why.or(report.refused.as_ref().map(|refused| refused.detail.clone())),
        failure: report.failures.first().cloned(),
        refused: report.refused.is_some(),
        refusal: report.refused.clone().filter(|refused| wanted(refused.reason)),
        phases: report.phases_ms.clone(),
        counts: RunCounts { deleted_files: deleted.files, deleted_bytes: deleted.bytes, ..RunCounts::default() },
        stored: (report.error.is_none() && report.refused.is_none()).then_some(stored),
        span_counts: vec![("orphan_files", report.orphans.files), ("deleted_files", deleted.files)],
        summary: summary(&report),
        lines: lines(&report),
        detail: Some(ActionDetail::OrphanReport(Box::new(report))),
        ..ActionReport::new(ACTION)
    }
}

fn lines(report: &OrphanReport) -> LabelledLines {
    let mut lines = vec![(ACTION.to_string(), summary(report))];
    lines.extend(file_lines(&report.kept, &report.failures));
    lines
}

fn summary(report: &OrphanReport) -> String {
    if let Some(error) = &report.error {
        return format!("failed: {error}");
    }
    if let Some(refused) = &report.refused {
        return format!("refused ({}): {}", refused.reason, refused.detail);
    }
    let (removable, deleted, failed) = (total(&report.removable), total(&report.deleted), total(&report.failed));
    let mut text = format!(
        "{} listed, {} unreferenced ({}): {} may go, {} kept for now; {} deleted ({})",
        count(report.listed.files, "file"),
        report.orphans.files,
        bytes(report.orphans.bytes),
        removable.files,
        report.orphans.files.saturating_sub(removable.files),
        deleted.files,
        bytes(deleted.bytes),
    );
    if failed.files > 0 {
        let _ = write!(text, ", {} could not be deleted", failed.files);
    }
    // These are no orphans, although nothing refers to them.
    let protected: u64 = report.kept.iter().filter(|(why, _)| why.is_protection()).map(|(_, tally)| tally.files).sum();
    if protected > 0 {
        let _ = write!(text, "; {protected} more protected");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::{FileKind, Tally};
    use crate::plan::remove_orphan_files::{Garbage, KeepReason};

    #[test]
    fn what_is_protected_is_told_apart_from_what_waits() {
        let tally = |files| Tally { files, bytes: files * 1024 };
        let mut report = OrphanReport { listed: tally(40), orphans: tally(23), ..OrphanReport::default() };
        report.removable.insert(Garbage::RunOver, tally(21));
        report.kept.insert(KeepReason::TooYoung, tally(2));
        let counted = "40 files listed, 23 unreferenced (23.0 KiB): 21 may go, 2 kept for now";
        assert_eq!(summary(&report), format!("{counted}; 0 deleted (0 B)"));
        report.deleted.insert(FileKind::Other, tally(20));
        report.failed.insert(FileKind::Other, tally(1));
        report.kept.insert(KeepReason::VersionHint, tally(1));
        let done = "20 deleted (20.0 KiB), 1 could not be deleted; 1 more protected";
        assert_eq!(summary(&report), format!("{counted}; {done}"));
    }
}
