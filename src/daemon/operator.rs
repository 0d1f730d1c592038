//! What the API may ask for, handed on to whoever does it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::actions::env::Env;
use crate::error::{Error, Result};
use crate::permit::WritePermit;
use crate::schedule::control::Control;
use crate::schedule::observer::{Event, Observer, TableEvent};
use crate::schedule::plan_table::plan_table;
use crate::schedule::settings::LiveSettings;
use crate::server::Operate;
use crate::table::TableName;

/// The daemon, as far as it can be asked for something.
pub(super) struct Operator {
    pub(super) env: Env,
    pub(super) settings: watch::Receiver<LiveSettings>,
    pub(super) control: Control,
    pub(super) observer: Arc<dyn Observer>,
    /// Holds while this process leads.
    pub(super) permit: WritePermit,
    /// Where plans are made: not where the server answers.
    pub(super) runtime: Handle,
}

impl Operator {
    /// Where orders go. Nobody takes them in a replica that stands by.
    fn control(&self) -> Result<&Control> {
        if self.permit.holds() {
            return Ok(&self.control);
        }
        Err(Error::unavailable(
            "this replica does not lead: ask the one that does, where `/api/v1/status` has `\"leader\": true`",
        ))
    }
}

#[async_trait]
impl Operate for Operator {
    async fn run_now(&self, table: &TableName) -> Result<()> {
        self.control()?.run_now(table).await
    }

    async fn pause(&self, table: Option<&TableName>, reason: String) -> Result<()> {
        self.control()?.pause(table, reason).await
    }

    async fn resume(&self, table: Option<&TableName>) -> Result<()> {
        self.control()?.resume(table).await
    }

    async fn plan(&self, table: &TableName) -> Result<Box<RawValue>> {
        let fleet = self.settings.borrow().fleet.clone();
        let (env, observer, table) = (self.env.clone(), self.observer.clone(), table.clone());
        let planning = self.runtime.spawn(async move {
            let plan = plan_table(&env, &fleet, &table).await?;
            observer.observe(Event::Table(&table, TableEvent::Planned(&plan)), env.clock.now_ms());
            Ok(to_raw_value(&plan)?)
        });
        // Who goes away ends it.
        AbortOnDropHandle::new(planning).await.map_err(|e| Error::internal(format!("plan: {e}")))?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::Config;
    use crate::daemon::{Parts, assemble};
    use crate::error::ErrorKind;
    use crate::report::board::Board;
    use crate::report::events::Reporter;
    use crate::report::probes::Probes;
    use crate::schedule::control::control;

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_stands_by_refuses_orders_at_once_however_many_come() {
        let text = "[catalogs.lake]\nuri = 'http://localhost:1'\nauth = { type = 'none' }";
        let config = Config::parse("test.toml", text).expect("a configuration").config;
        let Parts { env, fleet, metrics } = assemble(&config, CancellationToken::new()).expect("parts");
        let board = Arc::new(Board::new(0, env.memory.clone(), env.manifests.clone()));
        let probes = Arc::new(Probes::new(0, Duration::from_secs(60), []));
        let observer = Arc::new(Reporter::new(metrics, board, probes, false));
        let (_publish, settings) = watch::channel(LiveSettings::of(&config, fleet));
        let ((control, orders), permit) = (control(), WritePermit::withheld());
        let runtime = Handle::current();
        let operator = Operator { env, settings, control, observer, permit: permit.clone(), runtime };
        let (table, start) = ("lake.db.t".parse().expect("a name"), Instant::now());
        for _ in 0..100 {
            let answers = [
                operator.run_now(&table).await,
                operator.pause(Some(&table), "why".into()).await,
                operator.resume(None).await,
            ];
            for answer in answers {
                let error = answer.expect_err("nobody takes it");
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(error.to_string().contains("does not lead: ask the one that does"), "{error}");
            }
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        permit.grant(start + Duration::from_secs(60));
        drop(orders);
        let error = operator.resume(None).await.expect_err("no scheduler");
        assert!(error.to_string().contains("stopping"), "a leader hands it on: {error}");
    }
}
