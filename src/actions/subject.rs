//! A table with the policy that applies to it.

use std::time::Duration;

use super::env::Env;
use super::run_time;
use crate::action::Action;
use crate::catalog::TableHandle;
use crate::clean::{CANDIDATES_PER_RUN, Elsewhere, OrphanRequest};
use crate::error::{Error, Result};
use crate::fleet::Fleet;
use crate::fleet::neighbours::Own;
use crate::policy::ResolvedPolicy;
use crate::run_id::RunId;
use crate::table::TableName;
use crate::table::commit_interval::infer_commit_interval;
use crate::table::history::{OwnRun, last_own_run};

/// Longest wait for a catalog to tell of a table, with all attempts.
const LOAD_WITHIN: Duration = Duration::from_secs(120);

/// The table with the policy that applies to it, at the time of the step.
pub struct Subject {
    pub name: TableName,
    pub table: TableHandle,
    pub resolved: ResolvedPolicy,
    /// Its commit interval, configured or inferred.
    pub commit_interval: Duration,
}

impl Subject {
    /// Loads the table. [`crate::error::ErrorKind::NotFound`] if it is gone, [`crate::error::ErrorKind::Unavailable`] also if
    /// the catalog is silent for long: who waits holds a place that tables of other catalogs could use.
    pub async fn load(fleet: &Fleet, name: &TableName) -> Result<Self> {
        let resolved = fleet.policy(name)?;
        let table = tokio::time::timeout(LOAD_WITHIN, fleet.open(name)).await.unwrap_or_else(|_| {
            let (catalog, seconds) = (&name.catalog, LOAD_WITHIN.as_secs());
            Err(Error::unavailable(format!("load table {name}: catalog {catalog} has not answered within {seconds} s")))
        })?;
        let commit_interval = resolved.policy.commit_interval.resolve(infer_commit_interval(&table.loaded));
        Ok(Self { name: name.clone(), table, resolved, commit_interval })
    }

    /// The wait between the steps of a run.
    pub fn delay(&self) -> Duration {
        self.resolved.policy.delay.resolve(self.commit_interval)
    }

    /// The last compaction, as far as the table tells.
    pub fn last_run(&self) -> Option<OwnRun> {
        last_own_run(&self.table.loaded, Action::RewriteDataFiles)
    }

    /// The table as it stands among others.
    pub fn own(&self) -> Own<'_> {
        let ignore_unreadable = &self.resolved.policy.remove_orphan_files.ignore_unreadable.0;
        Own { name: &self.name, uuid: self.table.loaded.metadata.uuid(), ignore_unreadable }
    }

    /// What orphan removal is asked for on this table.
    pub(super) fn orphan_request<'a>(
        &'a self,
        env: &Env,
        is_active: &'a (dyn Fn(RunId) -> bool + Sync),
        neighbours: &'a [(String, String)],
        elsewhere: &'a dyn Elsewhere,
    ) -> OrphanRequest<'a> {
        OrphanRequest {
            policy: &self.resolved.policy,
            commit_interval: self.commit_interval,
            run_timeout: run_time::over_after(env.run_over_after.get()),
            now_ms: env.clock.now_ms(),
            is_active,
            neighbours,
            elsewhere,
            candidates_max: CANDIDATES_PER_RUN,
        }
    }
}
