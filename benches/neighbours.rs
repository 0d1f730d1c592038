//! Orphan removal of every table of a catalog, each with one orphan: how often the other tables are asked.
//!
//! `cargo bench --bench neighbours`; `ICEWRIGHT_BENCH_TABLES` sets the numbers of tables (`100,300,1000`). All tables are cleaned at the
//! same time, twice: in the second round what was read of the others before is still known. Catalog and store are in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures::future::join_all;
use iceberg::spec::{DataContentType, DataFile, Operation as Change, Struct};
use iceberg::{NamespaceIdent, TableIdent};
use icewright::action::RunStep;
use icewright::actions::env::{ActiveRuns, Env, Longest};
use icewright::actions::subject::Subject;
use icewright::catalog::Catalog;
use icewright::clock::{Clock, SystemClock};
use icewright::config::Config;
use icewright::error::Result;
use icewright::fleet::{Fleet, Member, OpenStore};
use icewright::inspect::ManifestCache;
use icewright::meta::Additions;
use icewright::rewrite::MemoryBudget;
use icewright::schedule::run_table::{TableRun, run_step};
use icewright::storage::StoreRef;
use icewright::table::LoadedTable;
use icewright::table::TableName;
use icewright::testing::builder::{content_file, prepare_write};
use icewright::testing::{FaultyStore, MemoryCatalog, MemoryStore, Operation};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const DAY_MS: i64 = 24 * 3_600_000;
const RUN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(6 * 3600);

const CONFIG: &str = r#"
[catalogs.lake]
uri = "http://localhost:1"
[[policies]]
name = "all"
tables = ["lake.**"]
commit-interval = "1s"
expire-snapshots.enabled = false
"#;

struct OneStore(StoreRef);

#[async_trait]
impl OpenStore for OneStore {
    async fn open(&self, _: &Arc<dyn Catalog>, _: &TableIdent, _: &LoadedTable) -> Result<StoreRef> {
        Ok(self.0.clone())
    }
}

struct Lake {
    store: MemoryStore,
    counting: FaultyStore,
    catalog: MemoryCatalog,
    tables: Vec<TableIdent>,
}

#[tokio::main]
async fn main() {
    let sizes = std::env::var("ICEWRIGHT_BENCH_TABLES").unwrap_or_else(|_| "100,300,1000".into());
    println!(
        "{:>8}{:>8}{:>10}{:>8}{:>12}{:>12}{:>12}{:>9}",
        "tables", "round", "loads", "reads", "loads each", "reads each", "left", "wall s"
    );
    for size in sizes.split(',').map(str::trim) {
        let lake = Lake::new(size.parse().expect("a number of tables")).await;
        let config = Config::parse("bench.toml", CONFIG).unwrap_or_else(|problems| panic!("{problems}"));
        let stores = Arc::new(OneStore(Arc::new(lake.counting.clone())));
        let member = Member { catalog: Arc::new(lake.catalog.clone()), stores };
        let fleet = Fleet::new([("lake".to_owned(), member)].into(), config.config.policies);
        for round in 1..=2 {
            lake.round(&fleet, round).await;
        }
    }
}

impl Lake {
    async fn new(tables: usize) -> Self {
        let store = MemoryStore::new();
        let counting = FaultyStore::new(Arc::new(store.clone()));
        let catalog = MemoryCatalog::new(Arc::new(store.clone()));
        let mut lake = Self { store, counting, catalog, tables: Vec::new() };
        for number in 0..tables {
            lake.create(number).await;
        }
        lake
    }

    /// A table of one snapshot with one file.
    async fn create(&mut self, number: usize) {
        let table = TableIdent::new(NamespaceIdent::new("db".into()), format!("t{number:05}"));
        let location = format!("s3://b/db/{}", table.name());
        let loaded = self.catalog.create(&table, json!({"location": location})).expect("a table");
        let data = format!("{location}/data/f.parquet");
        self.store.put(&data, "0123456789");
        let file: DataFile =
            content_file(DataContentType::Data, &data, Struct::empty(), 1, 10).build().expect("a data file");
        let additions = Additions { operation: Change::Append, files: vec![file], properties: HashMap::new() };
        let (_, prepared) = prepare_write(&self.store, &SystemClock, &loaded, &additions).await.expect("an append");
        self.catalog.commit_table(&table, prepared.requirements, prepared.updates, &|| Ok(())).await;
        self.tables.push(table);
    }

    async fn round(&self, fleet: &Fleet, round: usize) {
        let orphan = |table: &TableIdent| format!("s3://b/db/{}/data/orphan-{round}.parquet", table.name());
        for table in &self.tables {
            self.store.put(&orphan(table), "orphan");
            self.store.set_last_modified(&orphan(table), Some(SystemClock.now_ms() - 2 * DAY_MS));
        }
        let env = Env {
            clock: SystemClock::shared(),
            memory: Arc::new(MemoryBudget::new(256 << 20)),
            manifests: Arc::new(ManifestCache::new(16 << 20)),
            threads: 1,
            active: ActiveRuns::default(),
            run_timeout: RUN_TIMEOUT,
            run_over_after: Longest::new(RUN_TIMEOUT),
            cancel: CancellationToken::new(),
        };
        let before = (self.catalog.loads(), self.counting.count(Operation::Read));
        let start = Instant::now();
        let names: Vec<TableName> = self.tables.iter().map(|table| TableName::new("lake", table)).collect();
        join_all(names.iter().map(|name| clean(&env, fleet, name))).await;
        let wall = start.elapsed().as_secs_f64();
        let (loads, reads) = (self.catalog.loads() - before.0, self.counting.count(Operation::Read) - before.1);
        let paths: std::collections::HashSet<String> = self.store.paths().into_iter().collect();
        let left = self.tables.iter().filter(|table| paths.contains(&orphan(table))).count();
        let tables = self.tables.len();
        let each = |count: usize| format!("{:.1}", count as f64 / tables as f64);
        println!(
            "{tables:>8}{round:>8}{loads:>10}{reads:>8}{:>12}{:>12}{left:>12}{wall:>9.2}",
            each(loads),
            each(reads)
        );
    }
}

async fn clean(env: &Env, fleet: &Fleet, name: &TableName) {
    let subject = Subject::load(fleet, name).await.expect("a table");
    run_step(env, fleet, &subject, TableRun::start(env), RunStep::LAST, &()).await.expect("cleaned");
}
