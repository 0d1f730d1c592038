//! Compaction: inspect -> plan -> check -> rewrite groups -> commit batches.

mod report;
mod rewriting;

use std::sync::Arc;

use futures::FutureExt;
use serde::Serialize;
use tracing::Instrument;

pub use report::RewriteReport;
use rewriting::Rewriting;

use super::env::Env;
use super::report::{ActionDetail, ActionReport, RunCounts};
use super::subject::Subject;
use super::words::{LabelledLines, bytes, count, skipped_lines};
use super::{ActionContext, ActionPlan, Outline, Watcher, run_time};
use crate::action::{Action, Phase};
use crate::clean::clock_apart_from_one;
use crate::clock::{Deadline, Stopwatch};
use crate::commit::StartSnapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::inspect_table;
use crate::plan::{RewritePlan, Skipped, changed_since_last_rewrite, check_rewrite_plan, plan_rewrite_data_files};
use crate::policy::PartitionSelection;
use crate::rewrite::Progress;
use crate::run_id::RunId;
use crate::telemetry::phase_span;

const ACTION: Action = Action::RewriteDataFiles;
const NO_GROUP: &str = "no file group needs rewriting";

/// A rewrite plan without its file lists.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RewriteOutline {
    /// Live data files looked at.
    pub considered_data_files: usize,
    /// Groups to be rewritten.
    pub file_groups: usize,
    /// Data files in them.
    pub input_files: usize,
    pub input_bytes: u64,
    /// Data files that should come out.
    pub expected_output_files: u64,
    /// What is left alone, one entry per reason.
    pub skipped: Vec<Skipped>,
}

pub(super) async fn plan(context: &ActionContext<'_>) -> ActionPlan<Outline> {
    let planned = plan_timed(context.env, context.subject, &Progress::default(), &mut Stopwatch::start()).await;
    match planned {
        Ok(ActionPlan::Would(plan)) => outline(&plan),
        Ok(ActionPlan::Nothing(reason)) => ActionPlan::Nothing(reason),
        Err(error) => ActionPlan::Nothing(error.to_string()),
    }
}

async fn plan_timed(
    env: &Env,
    subject: &Subject,
    progress: &Progress,
    stopwatch: &mut Stopwatch,
) -> Result<ActionPlan<RewritePlan>> {
    let (table, policy) = (&subject.table, &subject.resolved.policy);
    let nothing = |why: &str| Ok(ActionPlan::Nothing(why.to_owned()));
    if !policy.is_enabled(ACTION) {
        return nothing("rewrite-data-files is disabled by the policy");
    }
    if table.loaded.current_snapshot().is_none() {
        return nothing("the table has no snapshot");
    }
    // Only a policy that takes every file leaves nothing to do in a table that did not change.
    let options = &policy.rewrite_data_files;
    let takes_all =
        options.rewrite_all && options.partitions == PartitionSelection::All && options.max_files_to_rewrite.is_none();
    if takes_all && !changed_since_last_rewrite(&table.loaded) {
        return nothing("no new snapshot since the last compaction");
    }
    let state = inspect_table(table, &env.manifests).instrument(phase_span!("inspect")).await;
    stopwatch.end(Phase::Inspect);
    let state = state?;
    progress.enter(Phase::Plan);
    let plan = phase_span!("plan").in_scope(|| {
        let plan = plan_rewrite_data_files(&state, policy, subject.commit_interval, env.clock.now_ms())?;
        check_rewrite_plan(&plan, &state, options).map(|()| plan)
    })?;
    stopwatch.end(Phase::Plan);
    Ok(ActionPlan::Would(plan))
}

/// The run stops when nine tenths of the run timeout are over; the rest is left to the last commit. How its time is divided
/// stands in `run_time.rs`.
pub(super) async fn run(context: &ActionContext<'_>, run_id: RunId, watcher: &dyn Watcher) -> ActionReport {
    let ActionContext { env, subject, .. } = context;
    let progress = Arc::new(Progress::default());
    watcher.rewriting(&progress);
    // Others tell by the run's id when the run began, and with it when its files are garbage.
    if let Some(detail) = clock_apart_from_one(&subject.table, env.clock.now_ms()).await {
        return report_of(RewriteReport::failed(&Error::unsupported(format!("refused (clock_skew): {detail}"))));
    }
    let _active = env.active.enter(run_id);
    let limited = Env { cancel: env.cancel.child_token(), ..(*env).clone() };
    let works_for = run_time::works_for(env.run_timeout);
    let over = Deadline::new(env.clock.as_ref(), run_id.started_ms(), works_for);
    let planned = |plan: &RewritePlan| watcher.planned(ACTION, &outline(plan));
    let mut rewriting = rewrite(&limited, subject, run_id, progress, &planned).boxed();
    let report = tokio::select! {
        report = &mut rewriting => report,
        () = run_time::until(over, env.clock.as_ref()) => {
            limited.cancel.cancel();
            let mut report = rewriting.await;
            report.time_is_up(env.run_timeout);
            report
        }
    };
    report_of(report)
}

/// Compacts the table once. Never fails as a whole: the report says what happened.
async fn rewrite(
    env: &Env,
    subject: &Subject,
    run_id: RunId,
    progress: Arc<Progress>,
    told: &(dyn Fn(&RewritePlan) + Sync),
) -> RewriteReport {
    let started = env.clock.now_ms();
    let mut stopwatch = Stopwatch::start();
    let planned = tokio::select! {
        biased;
        // Planning only reads, so it may end anywhere.
        () = env.cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled, "stopped while planning")),
        planned = plan_timed(env, subject, &progress, &mut stopwatch) => planned,
    };
    let mut report = match planned {
        Err(error) => RewriteReport::failed(&error),
        Ok(ActionPlan::Nothing(reason)) => RewriteReport::skipped(reason),
        Ok(ActionPlan::Would(plan)) => {
            told(&plan);
            progress.planned(&plan.groups);
            let doubtful = plan.leaves_out_doubtful_files();
            let mut report = match plan.snapshot.as_deref() {
                Some(snapshot) if !plan.groups.is_empty() || plan.dangling_delete_files > 0 => {
                    let start = StartSnapshot::of(&subject.table.loaded, snapshot);
                    let run = Rewriting::new(env, subject, run_id, start, &plan, progress, stopwatch);
                    let report;
                    (report, stopwatch) = run.carry_out(plan.groups).await;
                    report
                }
                Some(_) | None => RewriteReport {
                    considered_data_files: plan.considered_data_files,
                    skipped: plan.skipped,
                    ..RewriteReport::skipped(NO_GROUP)
                },
            };
            report.refused |= doubtful;
            report
        }
    };
    report.duration_ms = env.clock.now_ms() - started;
    report.phases_ms = stopwatch.times();
    report
}

/// A rewrite plan in numbers, or why it holds no group.
fn outline(plan: &RewritePlan) -> ActionPlan<Outline> {
    if plan.groups.is_empty() {
        return ActionPlan::Nothing(nothing_to_rewrite(plan));
    }
    let outline = RewriteOutline {
        considered_data_files: plan.considered_data_files,
        file_groups: plan.groups.len(),
        input_files: plan.groups.iter().map(|group| group.tasks.len()).sum(),
        input_bytes: plan.groups.iter().map(|group| group.input_bytes).sum(),
        expected_output_files: plan.groups.iter().map(|group| group.expected_output_files).sum(),
        skipped: plan.skipped.clone(),
    };
    let summary = format!(
        "{} of {} ({}) in {} -> about {}",
        outline.input_files,
        count(outline.considered_data_files, "data file"),
        bytes(outline.input_bytes),
        count(outline.file_groups, "group"),
        count(outline.expected_output_files, "file")
    );
    let lines = vec![(ACTION.to_string(), summary)];
    ActionPlan::Would(Outline { detail: ActionDetail::RewriteOutline(outline), lines, drawing: plan.to_string() })
}

fn nothing_to_rewrite(plan: &RewritePlan) -> String {
    let reasons: Vec<String> =
        plan.skipped.iter().map(|s| format!("{} x {} ({})", s.files, s.reason, s.detail)).collect();
    let reasons = if reasons.is_empty() { "no data files".into() } else { reasons.join("; ") };
    match plan.dangling_delete_files {
        0 => format!("{NO_GROUP}: {reasons}"),
        deletes => format!("{NO_GROUP}, and {deletes} delete files that apply to nothing leave: {reasons}"),
    }
}

fn report_of(report: RewriteReport) -> ActionReport {
    ActionReport {
        outcome: report.outcome,
        reason: report.reason.clone(),
        refused: report.refused,
        metadata_invalid: report.metadata_invalid,
        last_commit_ms: report.last_commit_ms,
        phases: report.phases_ms.clone(),
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
        span_counts: vec![
            ("rewritten_data_files", report.rewritten_data_files as u64),
            ("rewritten_bytes", report.rewritten_bytes),
            ("added_data_files", report.added_data_files as u64),
            ("added_bytes", report.added_bytes),
            ("commits", report.commits as u64),
            ("conflicts", u64::from(report.conflicts)),
        ],
        summary: summary(&report),
        lines: lines(&report),
        detail: Some(ActionDetail::RewriteReport(Box::new(report))),
        ..ActionReport::new(ACTION)
    }
}

fn lines(report: &RewriteReport) -> LabelledLines {
    let mut lines = vec![(ACTION.to_string(), format!("{}: {}", report.outcome.as_str(), summary(report)))];
    lines.extend(skipped_lines(&report.skipped));
    lines.extend(report.errors.iter().map(|error| ("  error".to_owned(), error.clone())));
    lines
}

fn summary(report: &RewriteReport) -> String {
    if report.planned_groups == 0 {
        return report.reason.clone().unwrap_or_else(|| "nothing to do".into());
    }
    let reason = report.reason.as_ref().map(|reason| format!("; {reason}")).unwrap_or_default();
    format!(
        "{} ({}) -> {} ({}), {} in, {} deleted, {} out; {} removed; {} of {}, {}, {:.1} s{reason}",
        count(report.rewritten_data_files, "data file"),
        bytes(report.rewritten_bytes),
        report.added_data_files,
        bytes(report.added_bytes),
        count(report.input_rows, "row"),
        report.deleted_rows,
        report.output_rows,
        count(report.removed_delete_files, "delete file"),
        report.committed_groups,
        count(report.planned_groups, "group"),
        count(report.commits, "commit"),
        report.duration_ms as f64 / 1000.0,
    )
}
