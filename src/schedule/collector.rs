//! Collects the numbers of every maintained table, on its own interval, apart from runs.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::actions::env::Env;
use crate::actions::subject::Subject;
use crate::error::{Error, ErrorKind, Result};
use crate::fleet::Fleet;
use crate::inspect::{TableStats, collect_partition_stats, collect_stats};
use crate::plan::sizes::Sizes;
use crate::schedule::observer::{Event, Observer, TableEvent};
use crate::schedule::settings::LiveSettings;
use crate::table::TableName;

/// Tables of a catalog looked at at the same time. One that is slow to answer does not hold up the others.
const TABLES_CONCURRENCY: usize = 4;
/// Partitions shown of a table.
const PARTITIONS_MAX: usize = 100;
/// How often the collector looks for tables that are due; a new table is seen this soon.
const TICK: Duration = Duration::from_secs(1);

/// What a look at a table found out.
#[derive(Debug, Clone)]
pub struct Collected {
    pub stats: Arc<TableStats>,
    /// Size that compaction gives to data files.
    pub target_file_size_bytes: u64,
    /// The schedule's period.
    pub period: Duration,
}

/// A table's numbers on their way to the scheduler.
pub(super) struct CollectedNumbers {
    pub(super) name: TableName,
    pub(super) stats: Arc<TableStats>,
    pub(super) at_ms: i64,
}

/// Looks at the tables that a scheduler maintains.
pub struct Collector {
    pub(super) env: Env,
    pub(super) settings: watch::Receiver<LiveSettings>,
    pub(super) maintained: watch::Receiver<BTreeSet<TableName>>,
    pub(super) numbers: mpsc::Sender<CollectedNumbers>,
    pub(super) observer: Arc<dyn Observer>,
}

impl Collector {
    /// Collects each table's numbers as often as the settings say until the process is told to stop.
    /// A table is not looked at again before the last look has ended.
    pub async fn run(self) {
        tokio::select! {
            () = self.env.cancel.cancelled() => {}
            () = self.rounds() => {}
        }
    }

    async fn rounds(&self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut begun: HashMap<TableName, Instant> = HashMap::new();
        let mut lanes: HashMap<String, Lane> = HashMap::new();
        let mut looks: FuturesUnordered<BoxFuture<'_, TableName>> = FuturesUnordered::new();
        loop {
            let looked = tokio::select! {
                _ = tick.tick() => None,
                Some(name) = looks.next() => Some(name),
            };
            let LiveSettings { fleet, collect_every: every, .. } = self.settings.borrow().clone();
            match looked {
                Some(name) => {
                    lanes.entry(name.catalog.clone()).or_default().busy.remove(&name);
                }
                None => {
                    let now = Instant::now();
                    let mut maintained = self.maintained.borrow().clone();
                    // Settings may be newer than what the scheduler has told.
                    maintained.retain(|name| fleet.maintains(name));
                    begun.retain(|name, _| maintained.contains(name));
                    lanes.retain(|_, lane| !lane.busy.is_empty() || !lane.due.is_empty());
                    lanes.values_mut().for_each(|lane| lane.due.retain(|name| maintained.contains(name)));
                    let is_due = |name: &TableName| begun.get(name).is_none_or(|at| now.duration_since(*at) >= every);
                    let due: Vec<TableName> = maintained.into_iter().filter(is_due).collect();
                    for name in due {
                        begun.insert(name.clone(), now);
                        lanes.entry(name.catalog.clone()).or_default().push(name);
                    }
                }
            }
            for lane in lanes.values_mut() {
                while let Some(name) = lane.next() {
                    looks.push(self.look(fleet.clone(), name).boxed());
                }
            }
        }
    }

    async fn look(&self, fleet: Arc<Fleet>, name: TableName) -> TableName {
        let panicked = |_| Err(Error::internal("panicked"));
        let collected = AssertUnwindSafe(self.collect(&fleet, &name)).catch_unwind().await.unwrap_or_else(panicked);
        match collected {
            Ok(()) => {}
            // The scheduler finds out by itself, and forgets the table.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.tell_of(&name, TableEvent::CollectionFailed(&error), self.env.clock.now_ms()),
        }
        name
    }

    async fn collect(&self, fleet: &Fleet, name: &TableName) -> Result<()> {
        let subject = Subject::load(fleet, name).await?;
        let collected = collect_of(&self.env, &subject).await?;
        // Its manifests were summarised just now.
        let partitions = collect_partition_stats(&subject.table, &self.env.manifests, PARTITIONS_MAX).await?;
        let at_ms = self.env.clock.now_ms();
        let looked = TableEvent::Looked { subject: &subject, collected: &collected, partitions: &partitions };
        self.tell_of(name, looked, at_ms);
        // A scheduler that has ended needs them no more.
        let _ = self.numbers.send(CollectedNumbers { name: name.clone(), stats: collected.stats, at_ms }).await;
        Ok(())
    }

    fn tell_of(&self, name: &TableName, event: TableEvent<'_>, now_ms: i64) {
        self.observer.observe(Event::Table(name, event), now_ms);
    }
}

/// What is due of one catalog.
#[derive(Debug, Default)]
struct Lane {
    due: VecDeque<TableName>,
    busy: HashSet<TableName>,
}

impl Lane {
    fn push(&mut self, name: TableName) {
        if !self.busy.contains(&name) && !self.due.contains(&name) {
            self.due.push_back(name);
        }
    }

    /// The next table to look at, if there is room for one.
    fn next(&mut self) -> Option<TableName> {
        if self.busy.len() >= TABLES_CONCURRENCY {
            return None;
        }
        let name = self.due.pop_front()?;
        self.busy.insert(name.clone());
        Some(name)
    }
}

pub async fn collect_of(env: &Env, subject: &Subject) -> Result<Collected> {
    let (table, policy) = (&subject.table, &subject.resolved.policy);
    let sizes = Sizes::resolve(&policy.rewrite_data_files, table.loaded.metadata.properties())?;
    let period = policy.schedule.period(env.clock.now_ms(), &policy.zone()?)?;
    let stats = collect_stats(table, &env.manifests, sizes.min_bytes).await?;
    Ok(Collected { stats: stats.into(), target_file_size_bytes: sizes.target_bytes, period })
}
