//! Collects the numbers of every maintained table, on its own interval, apart from runs.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};

use crate::error::Result;
use crate::inspect::collect_stats;
use crate::plan::sizes::Sizes;
use crate::policy::TableName;
use crate::report::events::{self, Reporter};
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::rewrite_data_files::INSPECT_CONCURRENCY;
use crate::schedule::run_table::Subject;

/// Tables looked at at the same time.
const TABLES_CONCURRENCY: usize = 4;

/// Collects again and again.
pub async fn collect_forever(env: Env, fleet: Arc<Fleet>, reporter: Arc<Reporter>, every: Duration) {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        for catalog in fleet.catalog_names() {
            // A catalog that is down is reported by the scheduler's own look.
            let Ok(names) = fleet.discover(&catalog).await else { continue };
            stream::iter(names)
                .for_each_concurrent(TABLES_CONCURRENCY, |name| {
                    let (env, fleet, reporter) = (&env, &fleet, &reporter);
                    async move {
                        if let Err(error) = collect(env, fleet, reporter, &name).await {
                            events::collection_failed(&name, &error);
                        }
                    }
                })
                .await;
        }
    }
}

async fn collect(env: &Env, fleet: &Fleet, reporter: &Reporter, name: &TableName) -> Result<()> {
    let subject = Subject::load(fleet, name).await?;
    let min_file_size =
        Sizes::resolve(&subject.resolved.policy.rewrite_data_files, subject.table.loaded.metadata.properties())?
            .min_bytes;
    let stats = collect_stats(&subject.table, &env.manifests, min_file_size, INSPECT_CONCURRENCY).await?;
    reporter.stats(name, &stats);
    Ok(())
}
