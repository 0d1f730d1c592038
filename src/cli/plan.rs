//! `icewright plan`: what each action would do now, and why, and why not. Changes nothing.
//!
//! With `--json` there is one object per line and table: `table`, `policies`, `commit-interval-s`, `delay-s`, `origins`,
//! `next-step`, and for each of `rewrite-data-files`, `expire-snapshots` and `remove-orphan-files` either
//! `{"would": {...}}` or `{"nothing": "<why>"}`; for a table that could not be looked at `table` and `error`.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::screen::Screen;
use super::{print, select, sheets};
use crate::clean::{OrphanReport, find_orphan_files};
use crate::config::Config;
use crate::daemon::{self, Parts};
use crate::error::Result;
use crate::plan::expire_snapshots::plan_expire_snapshots;
use crate::plan::{ExpirePlan, RewritePlan, Skipped};
use crate::policy::TableName;
use crate::report::run_report::RewriteReport;
use crate::schedule::due;
use crate::schedule::fleet::Others;
use crate::schedule::rewrite_data_files;
use crate::schedule::run_table::Subject;

/// The plan of one table. An action has a plan, or a text that says why it has none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct TablePlan {
    pub(super) table: String,
    pub(super) policies: Vec<String>,
    pub(super) commit_interval_s: u64,
    pub(super) delay_s: u64,
    /// Every setting with its value's origin.
    pub(super) origins: BTreeMap<String, String>,
    pub(super) next_step: String,
    pub(super) rewrite_data_files: ActionPlan<RewriteOutline>,
    pub(super) expire_snapshots: ActionPlan<ExpireOutline>,
    pub(super) remove_orphan_files: ActionPlan<OrphanReport>,
}

/// A table that could not be looked at.
#[derive(Debug, Serialize)]
struct NotPlanned {
    table: String,
    error: String,
}

/// A plan, or why there is none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ActionPlan<T> {
    Would(T),
    Nothing(String),
}

/// A rewrite plan without its file lists.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RewriteOutline {
    pub(super) considered_data_files: usize,
    pub(super) file_groups: usize,
    pub(super) input_files: usize,
    pub(super) input_bytes: u64,
    pub(super) expected_output_files: u64,
    pub(super) skipped: Vec<Skipped>,
    #[serde(skip)]
    pub(super) drawing: String,
}

/// An expire plan in numbers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ExpireOutline {
    pub(super) snapshots: usize,
    pub(super) refs: Vec<String>,
    pub(super) kept: Vec<Skipped>,
}

/// Prints the plans. Exit code 1 if a table could not be planned.
pub(super) async fn plan(config: Config, table: Option<&str>, json: bool, cancel: CancellationToken) -> Result<i32> {
    let parts = daemon::assemble(&config, cancel)?;
    let mut failed = false;
    for name in select::tables(&parts.fleet, table).await? {
        let planned = plan_table(&parts, &name).await;
        failed |= planned.is_err();
        let read = match planned {
            Ok(plan) if json => print::json(&plan)?,
            Ok(plan) => print::out(&sheets::plan(&plan).render(Screen::stdout())),
            Err(error) if json => print::json(&NotPlanned { table: name.to_string(), error: error.to_string() })?,
            Err(error) => {
                print::err(&format!("{name}: {error}"));
                true
            }
        };
        if !read {
            break;
        }
    }
    Ok(i32::from(failed))
}

async fn plan_table(parts: &Parts, name: &TableName) -> Result<TablePlan> {
    let env = &parts.env;
    let subject = Subject::load(&parts.fleet, name).await?;
    let policy = &subject.resolved.policy;
    let next = subject.first_step(env.clock.now_ms())?.next;
    let rewrite = rewrite_data_files::plan(env, &subject.table, policy, subject.commit_interval).await;
    let rewrite_data_files = match rewrite {
        Ok(Ok(plan)) if plan.groups.is_empty() => ActionPlan::Nothing(nothing_to_rewrite(&plan)),
        Ok(Ok(plan)) => ActionPlan::Would(outline(&plan)),
        Ok(Err(reason)) => ActionPlan::Nothing(reason),
        Err(error) => ActionPlan::Nothing(RewriteReport::failed(&error).reason.unwrap_or_default()),
    };
    Ok(TablePlan {
        table: name.to_string(),
        policies: subject.resolved.names.clone(),
        commit_interval_s: subject.commit_interval.as_secs(),
        delay_s: subject.delay().as_secs(),
        origins: subject.resolved.origins.iter().map(|(key, origin)| (key.clone(), origin.to_string())).collect(),
        next_step: due::describe(&next, policy, env.clock.now_ms()),
        rewrite_data_files,
        expire_snapshots: plan_expire(parts, &subject),
        remove_orphan_files: plan_orphans(parts, name, &subject).await,
    })
}

fn nothing_to_rewrite(plan: &RewritePlan) -> String {
    let reasons: Vec<String> =
        plan.skipped.iter().map(|s| format!("{} x {} ({})", s.files, s.reason, s.detail)).collect();
    format!(
        "no file group needs rewriting: {}",
        if reasons.is_empty() { "no data files".into() } else { reasons.join("; ") }
    )
}

fn outline(plan: &RewritePlan) -> RewriteOutline {
    RewriteOutline {
        considered_data_files: plan.considered_data_files,
        file_groups: plan.groups.len(),
        input_files: plan.groups.iter().map(|group| group.tasks.len()).sum(),
        input_bytes: plan.groups.iter().map(|group| group.input_bytes).sum(),
        expected_output_files: plan.groups.iter().map(|group| group.expected_output_files).sum(),
        skipped: plan.skipped.clone(),
        drawing: plan.to_string(),
    }
}

fn plan_expire(parts: &Parts, subject: &Subject) -> ActionPlan<ExpireOutline> {
    let policy = &subject.resolved.policy;
    if !policy.expire_snapshots.enabled {
        return ActionPlan::Nothing("disabled by the policy".into());
    }
    let now = parts.env.clock.now_ms();
    match plan_expire_snapshots(&subject.table.loaded, policy, subject.commit_interval, now, &[]) {
        Ok(ExpirePlan { remove_snapshots, remove_refs, skipped, .. }) => {
            ActionPlan::Would(ExpireOutline { snapshots: remove_snapshots.len(), refs: remove_refs, kept: skipped })
        }
        Err(error) => ActionPlan::Nothing(error.to_string()),
    }
}

async fn plan_orphans(parts: &Parts, name: &TableName, subject: &Subject) -> ActionPlan<OrphanReport> {
    let policy = &subject.resolved.policy;
    if !policy.remove_orphan_files.enabled {
        return ActionPlan::Nothing("disabled by the policy".into());
    }
    let neighbours = match parts.fleet.neighbours(name).await {
        Ok(neighbours) => neighbours,
        Err(error) => return ActionPlan::Nothing(error.to_string()),
    };
    let is_active = |run_id| parts.env.active.contains(run_id);
    let others = Others { fleet: &parts.fleet, name };
    ActionPlan::Would(
        find_orphan_files(&subject.table, &subject.orphan_request(&parts.env, &is_active, &neighbours, &others)).await,
    )
}
