//! What the API may ask for, handed on to whoever does it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;

use crate::error::Result;
use crate::policy::TableName;
use crate::report::events::Reporter;
use crate::schedule::control::Control;
use crate::schedule::env::Env;
use crate::schedule::plan_table::plan_table;
use crate::schedule::settings::Settings;
use crate::server::Operate;

/// The daemon, as far as it can be asked for something.
pub(super) struct Operator {
    pub(super) env: Env,
    pub(super) settings: watch::Receiver<Settings>,
    pub(super) control: Control,
    pub(super) reporter: Arc<Reporter>,
}

#[async_trait]
impl Operate for Operator {
    async fn run_now(&self, table: &TableName) -> Result<()> {
        self.control.run_now(table).await
    }

    async fn pause(&self, table: Option<&TableName>, reason: String) -> Result<()> {
        self.control.pause(table, reason).await
    }

    async fn resume(&self, table: Option<&TableName>) -> Result<()> {
        self.control.resume(table).await
    }

    async fn plan(&self, table: &TableName) -> Result<Box<RawValue>> {
        let fleet = self.settings.borrow().fleet.clone();
        let plan = plan_table(&self.env, &fleet, table).await?;
        self.reporter.table_planned(table, &plan, self.env.clock.now_ms());
        Ok(to_raw_value(&plan)?)
    }
}
