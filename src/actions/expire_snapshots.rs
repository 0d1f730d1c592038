//! Snapshot expiry: [`crate::plan::expire_snapshots`] says which snapshots go, [`crate::clean`] lets them go and deletes what
//! only they reached.

use std::fmt::Write as _;

use serde::Serialize;

use super::report::{ActionDetail, ActionReport, RunCounts};
use super::words::{bytes, count, file_lines, total};
use super::{ActionContext, ActionPlan, DISABLED, Outline, run_time};
use crate::action::{Action, Outcome};
use crate::clean::{ExpireOutcome, ExpireReport, Refused, expire_snapshots, shared_location};
use crate::commit::CommitContext;
use crate::error::Result;
use crate::fleet::neighbours::Surroundings;
use crate::plan::expire_snapshots::plan_expire_snapshots;
use crate::plan::{ExpirePlan, Skipped};
use crate::run_id::RunId;

const ACTION: Action = Action::ExpireSnapshots;

/// An expire plan in numbers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExpireOutline {
    /// Snapshots that would leave.
    pub snapshots: usize,
    /// Branches and tags that would leave.
    pub refs: Vec<String>,
    /// What is kept, one entry per reason.
    pub kept: Vec<Skipped>,
    /// Why no file of the expired snapshots would be deleted.
    pub files_stay: Option<String>,
}

fn plan_now(context: &ActionContext<'_>) -> Result<ExpirePlan> {
    let (subject, now_ms) = (context.subject, context.env.clock.now_ms());
    plan_expire_snapshots(&subject.table.loaded, &subject.resolved.policy, subject.commit_interval, now_ms)
}

pub(super) async fn plan(context: &ActionContext<'_>) -> ActionPlan<Outline> {
    let subject = context.subject;
    if !subject.resolved.policy.is_enabled(ACTION) {
        return ActionPlan::Nothing(DISABLED.into());
    }
    let around = context.around().await;
    let ExpirePlan { remove_snapshots, remove_refs, skipped, .. } = match plan_now(context) {
        Ok(plan) => plan,
        Err(error) => return ActionPlan::Nothing(error.to_string()),
    };
    let files_stay = match &around.unclear {
        Some(refused) => Ok(Some(refused.detail.clone())),
        None => shared_location(&subject.table.loaded, &subject.name.to_string(), &around.directories)
            .map(|shared| shared.map(|refused| refused.detail)),
    };
    let files_stay = files_stay.unwrap_or_else(|error| Some(error.to_string()));
    let refs = if remove_refs.is_empty() { String::new() } else { format!(", refs {}", remove_refs.join(", ")) };
    let mut lines = vec![(ACTION.to_string(), format!("{}{refs}", count(remove_snapshots.len(), "snapshot")))];
    lines.extend(skipped.iter().map(|kept| (format!("  kept ({})", kept.reason), kept.detail.clone())));
    lines.extend(files_stay.iter().map(|why| ("  files stay".to_owned(), why.clone())));
    let snapshots = remove_snapshots.len();
    let detail = ActionDetail::ExpireOutline(ExpireOutline { snapshots, refs: remove_refs, kept: skipped, files_stay });
    ActionPlan::Would(Outline { detail, lines, drawing: String::new() })
}

pub(super) async fn run(context: &ActionContext<'_>, run_id: RunId) -> ActionReport {
    let (env, subject) = (context.env, context.subject);
    if !subject.resolved.policy.is_enabled(ACTION) {
        return ActionReport::skipped(ACTION, DISABLED);
    }
    let around = context.around().await;
    let plan = match plan_now(context) {
        Ok(plan) => plan,
        Err(error) => return ActionReport::refused(ACTION, &error),
    };
    let mut commit = CommitContext::of_table(run_id, &subject.table.loaded.metadata);
    commit.limit = Some(run_time::commit_limit(env.run_timeout, None));
    let report = expire_snapshots(&subject.table, &plan, &commit, env.clock.as_ref(), around.for_expiry()).await;
    report_of(report, around)
}

/// The report of an expiry of a table in these surroundings.
pub fn report_of(report: ExpireReport, around: &Surroundings) -> ActionReport {
    let outcome = match (&report.error, report.outcome) {
        (_, ExpireOutcome::Unknown) => Outcome::Unknown,
        (Some(error), _) => Outcome::of(error.kind()),
        (None, _) if !report.failed.is_empty() => Outcome::Failed,
        (None, _) => Outcome::Success,
    };
    let refusal = left_files(&report, around).cloned();
    let (summary, deleted) = (summary(&report), total(&report.deleted));
    let mut lines = vec![(ACTION.to_string(), summary.clone())];
    lines.extend(file_lines(&report.kept, &report.failures));
    ActionReport {
        outcome,
        reason: report.error.as_ref().map(ToString::to_string).or(refusal.as_ref().map(|r| r.detail.clone())),
        failure: report.failures.first().cloned(),
        refused: report.refused || refusal.is_some(),
        refusal,
        phases: report.phases_ms.clone(),
        counts: RunCounts {
            expired_snapshots: report.expired_snapshots as u64,
            deleted_files: deleted.files,
            deleted_bytes: deleted.bytes,
            commit_conflicts: u64::from(report.conflicts),
            commit_unknown: u64::from(report.unknown_outcomes),
            ..RunCounts::default()
        },
        span_counts: vec![("expired_snapshots", report.expired_snapshots as u64), ("deleted_files", deleted.files)],
        summary,
        lines,
        detail: Some(ActionDetail::ExpireReport(Box::new(report))),
        ..ActionReport::new(ACTION)
    }
}

/// Why files of expired snapshots were left where they are, for fear that something needs them.
fn left_files<'a>(report: &'a ExpireReport, around: &'a Surroundings) -> Option<&'a Refused> {
    let unclear = ["neighbours-unknown", "registered-twice"].iter().any(|reason| report.kept.contains_key(reason));
    report.files_stay.as_ref().or_else(|| around.unclear.as_ref().filter(|_| unclear))
}

fn summary(report: &ExpireReport) -> String {
    if let Some(error) = &report.error {
        return format!("failed: {error}");
    }
    if report.outcome == ExpireOutcome::Nothing {
        return format!("nothing to expire: {}", report.reason.as_deref().unwrap_or_default());
    }
    let (deleted, failed) = (total(&report.deleted), total(&report.failed));
    let mut text = format!(
        "{} expired, {} ({}) deleted",
        count(report.expired_snapshots, "snapshot"),
        count(deleted.files, "file"),
        bytes(deleted.bytes)
    );
    if failed.files > 0 {
        let _ = write!(text, ", {} could not be deleted", failed.files);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        let report =
            ExpireReport { outcome: ExpireOutcome::Committed, expired_snapshots: 1, ..ExpireReport::default() };
        assert_eq!(summary(&report), "1 snapshot expired, 0 files (0 B) deleted");
        assert_eq!([count(1_usize, "commit"), count(2_u64, "commit")], ["1 commit", "2 commits"]);
    }
}
