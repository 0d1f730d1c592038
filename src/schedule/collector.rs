//! Collects the numbers of every maintained table, on its own interval, apart from runs.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{collect_partition_stats, collect_stats};
use crate::plan::sizes::Sizes;
use crate::policy::TableName;
use crate::report::events::{Collected, Reporter};
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::rewrite_data_files::INSPECT_CONCURRENCY;
use crate::schedule::run_table::Subject;
use crate::schedule::settings::Settings;

/// Tables looked at at the same time.
const TABLES_CONCURRENCY: usize = 4;
/// Partitions shown of a table.
const PARTITIONS_MAX: usize = 100;
/// How often the collector looks for tables that are due; a new table is seen this soon.
const TICK: Duration = Duration::from_secs(1);

/// Collects each maintained table's numbers as often as the settings say until the process is told to stop.
/// A round begins only after the one before has ended, and keeps the settings it began with.
pub async fn collect_forever(env: Env, settings: watch::Receiver<Settings>, reporter: Arc<Reporter>) {
    let cancel = env.cancel.clone();
    tokio::select! {
        () = cancel.cancelled() => {}
        () = rounds(&env, &settings, &reporter) => {}
    }
}

async fn rounds(env: &Env, settings: &watch::Receiver<Settings>, reporter: &Reporter) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut begun: HashMap<TableName, Instant> = HashMap::new();
    loop {
        tick.tick().await;
        let now = Instant::now();
        let Settings { fleet, collect_every: every, .. } = settings.borrow().clone();
        let mut maintained = reporter.maintained();
        // Settings may be newer than what the scheduler has told.
        maintained.retain(|name| fleet.maintains(name));
        begun.retain(|name, _| maintained.contains(name));
        let is_due = |name: &TableName| begun.get(name).is_none_or(|at| now.duration_since(*at) >= every);
        let due: Vec<TableName> = maintained.into_iter().filter(is_due).collect();
        begun.extend(due.iter().map(|name| (name.clone(), now)));
        // Collected first: a stream over a closure that borrows is not provably `Send`.
        let looks: Vec<_> = due.into_iter().map(|name| look(env, &fleet, reporter, name)).collect();
        stream::iter(looks).buffer_unordered(TABLES_CONCURRENCY).collect::<()>().await;
    }
}

async fn look(env: &Env, fleet: &Fleet, reporter: &Reporter, name: TableName) {
    let panicked = |_| Err(Error::internal("panicked"));
    let collected =
        AssertUnwindSafe(collect(env, fleet, reporter, &name)).catch_unwind().await.unwrap_or_else(panicked);
    match collected {
        Ok(()) => {}
        // The scheduler finds out by itself, and forgets the table.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => reporter.collection_failed(&name, &error),
    }
}

async fn collect(env: &Env, fleet: &Fleet, reporter: &Reporter, name: &TableName) -> Result<()> {
    let subject = Subject::load(fleet, name).await?;
    let collected = collect_of(env, &subject).await?;
    // Its manifests were summarised just now.
    let partitions =
        collect_partition_stats(&subject.table, &env.manifests, PARTITIONS_MAX, INSPECT_CONCURRENCY).await?;
    reporter.looked(name, &subject, collected, partitions, env.clock.now_ms());
    Ok(())
}

/// Looks at a table.
pub async fn collect_of(env: &Env, subject: &Subject) -> Result<Collected> {
    let (table, policy) = (&subject.table, &subject.resolved.policy);
    let sizes = Sizes::resolve(&policy.rewrite_data_files, table.loaded.metadata.properties())?;
    let period = policy.schedule.period(env.clock.now_ms(), &policy.zone()?)?;
    let stats = collect_stats(table, &env.manifests, sizes.min_bytes, INSPECT_CONCURRENCY).await?;
    Ok(Collected { stats, target_file_size_bytes: sizes.target_bytes, period })
}
