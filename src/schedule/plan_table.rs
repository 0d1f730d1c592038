//! The plan of one table: what each action would do now, and why, and why not. Changes nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{due, run_table};
use crate::action::Action;
use crate::actions::env::Env;
use crate::actions::subject::Subject;
use crate::actions::{self, ActionContext, ActionPlan, Outline};
use crate::error::Result;
use crate::fleet::Fleet;
use crate::policy::SettingValue;
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
    /// What each action would do.
    #[serde(flatten)]
    pub actions: BTreeMap<Action, ActionPlan<Outline>>,
}

/// Plans every action of a table as it is now. What stands in an action's way is its plan's reason; an error says that the
/// table could not be looked at at all.
pub async fn plan_table(env: &Env, fleet: &Fleet, name: &TableName) -> Result<TablePlan> {
    let subject = Subject::load(fleet, name).await?;
    let next = run_table::first_step(&subject, env.clock.now_ms())?.next;
    let context = ActionContext::new(env, fleet, &subject);
    let mut plans = BTreeMap::new();
    for action in Action::ALL {
        plans.insert(action, actions::plan(action, &context).await);
    }
    Ok(TablePlan {
        table: name.to_string(),
        policies: subject.resolved.names.clone(),
        commit_interval_s: subject.commit_interval.as_secs(),
        delay_s: subject.delay().as_secs(),
        settings: subject.resolved.settings(),
        next_step: due::describe(&next, &subject.resolved.policy, env.clock.now_ms()),
        actions: plans,
    })
}
