//! What the API may ask for, handed on to whoever does it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};

use crate::error::{Error, Result};
use crate::policy::TableName;
use crate::report::events::Reporter;
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::plan_table::plan_table;
use crate::server::Operate;

/// The daemon, as far as it can be asked for something.
pub(super) struct Operator {
    pub(super) env: Env,
    pub(super) fleet: Arc<Fleet>,
    pub(super) reporter: Arc<Reporter>,
}

#[async_trait]
impl Operate for Operator {
    async fn run_now(&self, _: &TableName) -> Result<()> {
        Err(not_yet())
    }

    async fn pause(&self, _: Option<&TableName>, _: String) -> Result<()> {
        Err(not_yet())
    }

    async fn resume(&self, _: Option<&TableName>) -> Result<()> {
        Err(not_yet())
    }

    async fn plan(&self, table: &TableName) -> Result<Box<RawValue>> {
        let plan = plan_table(&self.env, &self.fleet, table).await?;
        self.reporter.table_planned(table, &plan, self.env.clock.now_ms());
        Ok(to_raw_value(&plan)?)
    }
}

fn not_yet() -> Error {
    Error::unavailable("the scheduler takes no orders yet")
}
