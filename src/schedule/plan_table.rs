//! The plan of one table: what each action would do now, and why, and why not. Changes nothing.

use serde::Serialize;

use crate::clean::{OrphanReport, find_orphan_files, shared_location};
use crate::error::Result;
use crate::plan::expire_snapshots::plan_expire_snapshots;
use crate::plan::{ExpirePlan, RewritePlan, Skipped};
use crate::policy::SettingValue;
use crate::schedule::due;
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::neighbours::{Others, Own, Surroundings};
use crate::schedule::rewrite_data_files;
use crate::schedule::run_report::RewriteReport;
use crate::schedule::run_table::Subject;
use crate::table::TableName;

/// The plan of one table. An action has a plan, or a text that says why it has none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TablePlan {
    /// `catalog.namespace.table`.
    pub table: String,
    /// The policies that match, least specific first.
    pub policies: Vec<String>,
    /// Seconds between the writer's commits, configured or inferred.
    pub commit_interval_s: u64,
    /// Seconds between compaction and the clean-ups.
    pub delay_s: u64,
    /// Every setting with its value and that one's origin.
    pub settings: Vec<SettingValue>,
    /// What the daemon would do next, and when.
    pub next_step: String,
    /// Compaction.
    pub rewrite_data_files: ActionPlan<RewriteOutline>,
    /// Snapshot expiry.
    pub expire_snapshots: ActionPlan<ExpireOutline>,
    /// Orphan removal.
    pub remove_orphan_files: ActionPlan<OrphanReport>,
}

/// A plan, or why there is none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionPlan<T> {
    /// What would be done.
    Would(T),
    /// Why nothing would be done.
    Nothing(String),
}

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
    /// Their bytes.
    pub input_bytes: u64,
    /// Data files that should come out.
    pub expected_output_files: u64,
    /// What is left alone, one entry per reason.
    pub skipped: Vec<Skipped>,
    /// The groups, for a terminal.
    #[serde(skip)]
    pub drawing: String,
}

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

/// Plans every action of a table as it is now. What stands in an action's way is its plan's reason; an error says that the
/// table could not be looked at at all.
pub async fn plan_table(env: &Env, fleet: &Fleet, name: &TableName) -> Result<TablePlan> {
    let subject = Subject::load(fleet, name).await?;
    let policy = &subject.resolved.policy;
    let next = subject.first_step(env.clock.now_ms())?.next;
    let rewrite = rewrite_data_files::plan(env, &subject.table, policy, subject.commit_interval).await;
    let rewrite_data_files = match rewrite {
        Ok(Ok(plan)) if plan.groups.is_empty() => ActionPlan::Nothing(nothing_to_rewrite(&plan)),
        Ok(Ok(plan)) => ActionPlan::Would(outline(&plan)),
        Ok(Err(reason)) => ActionPlan::Nothing(reason),
        Err(error) => ActionPlan::Nothing(RewriteReport::failed(&error).reason.unwrap_or_default()),
    };
    let own = subject.own(name);
    let around = fleet.surroundings(own).await;
    Ok(TablePlan {
        table: name.to_string(),
        policies: subject.resolved.names.clone(),
        commit_interval_s: subject.commit_interval.as_secs(),
        delay_s: subject.delay().as_secs(),
        settings: subject.resolved.settings(),
        next_step: due::describe(&next, policy, env.clock.now_ms()),
        rewrite_data_files,
        expire_snapshots: plan_expire(env, &subject, name, &around),
        remove_orphan_files: plan_orphans(env, fleet, &subject, own, &around).await,
    })
}

/// Why a plan holds no group.
pub fn nothing_to_rewrite(plan: &RewritePlan) -> String {
    let reasons: Vec<String> =
        plan.skipped.iter().map(|s| format!("{} x {} ({})", s.files, s.reason, s.detail)).collect();
    let reasons = if reasons.is_empty() { "no data files".into() } else { reasons.join("; ") };
    match plan.dangling_delete_files {
        0 => format!("no file group needs rewriting: {reasons}"),
        deletes => {
            format!("no file group needs rewriting, and {deletes} delete files that apply to nothing leave: {reasons}")
        }
    }
}

/// A rewrite plan in numbers.
pub fn outline(plan: &RewritePlan) -> RewriteOutline {
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

fn plan_expire(env: &Env, subject: &Subject, name: &TableName, around: &Surroundings) -> ActionPlan<ExpireOutline> {
    let policy = &subject.resolved.policy;
    if !policy.expire_snapshots.enabled {
        return ActionPlan::Nothing("disabled by the policy".into());
    }
    let now = env.clock.now_ms();
    match plan_expire_snapshots(&subject.table.loaded, policy, subject.commit_interval, now, &[]) {
        Ok(ExpirePlan { remove_snapshots, remove_refs, skipped, .. }) => {
            let files_stay = match &around.unclear {
                Some(refused) => Ok(Some(refused.detail.clone())),
                None => shared_location(&subject.table.loaded, &name.to_string(), &around.directories)
                    .map(|shared| shared.map(|refused| refused.detail)),
            };
            let files_stay = files_stay.unwrap_or_else(|error| Some(error.to_string()));
            let snapshots = remove_snapshots.len();
            ActionPlan::Would(ExpireOutline { snapshots, refs: remove_refs, kept: skipped, files_stay })
        }
        Err(error) => ActionPlan::Nothing(error.to_string()),
    }
}

async fn plan_orphans(
    env: &Env,
    fleet: &Fleet,
    subject: &Subject,
    own: Own<'_>,
    around: &Surroundings,
) -> ActionPlan<OrphanReport> {
    let policy = &subject.resolved.policy;
    if !policy.remove_orphan_files.enabled {
        return ActionPlan::Nothing("disabled by the policy".into());
    }
    if let Some(refused) = around.shared() {
        return ActionPlan::Would(OrphanReport { refused: Some(refused.clone()), ..OrphanReport::default() });
    }
    let is_active = |run_id| env.active.contains(run_id);
    let others = Others { fleet, own, plan: true };
    let request = subject.orphan_request(env, &is_active, &around.directories, &others);
    ActionPlan::Would(find_orphan_files(&subject.table, &request).await)
}
