//! A lake in memory whose clock is tokio's: with paused time hours pass at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use iceberg::spec::{DataContentType, DataFile, Literal, Operation};
use iceberg::{NamespaceIdent, TableIdent};
use icewright::action::RunStep;
use icewright::actions::env::{ActiveRuns, Env, Longest};
use icewright::actions::report::ActionDetail;
use icewright::actions::rewrite_data_files::RewriteReport;
use icewright::actions::subject::Subject;
use icewright::catalog::{Catalog, CommitOutcome};
use icewright::clock::{Clock, SystemClock};
use icewright::config::Config;
use icewright::error::Result;
use icewright::fleet::{Fleet, Member, OpenStore};
use icewright::inspect::{ManifestCache, inspect_table};
use icewright::meta::Additions;
use icewright::policy::PolicySet;
use icewright::rewrite::MemoryBudget;
use icewright::run_id::RunId;
use icewright::schedule::run_table::{TableRun, run_step};
use icewright::storage::{Store, StoreRef};
use icewright::table::LoadedTable;
use icewright::testing::builder::{content_file, prepare_write};
use icewright::testing::{FaultyStore, MemoryCatalog, MemoryStore};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rewrite::table::{batch, longs, parquet, rows_of};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Begins this long ago, since the library dates some things by the machine's clock and refuses a past that comes later.
const THIRTY_DAYS_MS: i64 = 30 * 24 * 3_600_000;

/// A policy as operators have it: clean up half an hour after compaction, every six hours.
pub(crate) const POLICY: &str = r#"
commit-interval = "10m"
every = "6h"
delay = "3x"
[policies.rewrite-data-files]
rewrite-all = true
[policies.expire-snapshots]
older-than = "2x"
[policies.remove-orphan-files]
older-than = "2x"
"#;

/// Clocks made so far.
static CLOCKS: AtomicU16 = AtomicU16::new(0);

/// Tokio's time, and identifiers that count up.
struct SimulatedClock {
    start: Instant,
    start_ms: i64,
    ahead_ms: Arc<AtomicI64>,
    made: AtomicU64,
    /// Tells the identifiers of clocks apart that started at the same time.
    number: u16,
}

impl Clock for SimulatedClock {
    fn now_ms(&self) -> i64 {
        let passed = i64::try_from(self.start.elapsed().as_millis()).expect("a short test");
        self.start_ms + passed + self.ahead_ms.load(Ordering::Relaxed)
    }

    fn suspended(&self) -> Duration {
        Duration::ZERO
    }

    fn uuid(&self) -> uuid::Uuid {
        let mut bytes = [0; 10];
        bytes[..2].copy_from_slice(&self.number.to_be_bytes());
        bytes[2..].copy_from_slice(&self.made.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(self.now_ms().unsigned_abs(), &bytes).into_uuid()
    }
}

struct OneStore(StoreRef);

#[async_trait]
impl OpenStore for OneStore {
    async fn open(&self, _: &Arc<dyn Catalog>, _: &TableIdent, _: &LoadedTable) -> Result<StoreRef> {
        Ok(self.0.clone())
    }
}

/// One policy for the tables that these patterns match.
pub(crate) fn policies(tables: &[&str], policy: &str) -> PolicySet {
    let catalog = |name| format!("[catalogs.{name}]\nuri = \"http://localhost:1\"\nauth = {{ type = \"none\" }}\n");
    let (lake, pond) = (catalog("lake"), catalog("pond"));
    let text = format!("{lake}{pond}[[policies]]\nname = \"all\"\ntables = {tables:?}\n{policy}");
    Config::parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}")).config.policies
}

/// Catalog `lake` with namespace `db`.
pub(crate) struct Lake {
    pub(crate) store: MemoryStore,
    pub(crate) faulty: FaultyStore,
    pub(crate) catalog: MemoryCatalog,
    pub(crate) clock: Arc<dyn Clock>,
    /// By how much the wall clock is wrong.
    pub(crate) ahead_ms: Arc<AtomicI64>,
}

/// A data file with ten rows of a partition.
fn data_file(path: &str, part: i64, bytes: u64) -> DataFile {
    let partition = std::iter::once(Some(Literal::long(part))).collect();
    content_file(DataContentType::Data, path, partition, 10, bytes).build().expect("a data file")
}

pub(crate) fn ident(table: &str) -> TableIdent {
    TableIdent::new(NamespaceIdent::new("db".into()), table.into())
}

impl Lake {
    pub(crate) fn new() -> Self {
        let start_ms = SystemClock.now_ms() - THIRTY_DAYS_MS;
        let ahead_ms = Arc::<AtomicI64>::default();
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock {
            start: Instant::now(),
            start_ms,
            ahead_ms: ahead_ms.clone(),
            made: AtomicU64::new(0),
            number: CLOCKS.fetch_add(1, Ordering::Relaxed),
        });
        let store = MemoryStore::new();
        store.set_now_ms(start_ms);
        let faulty = FaultyStore::new(Arc::new(store.clone()));
        let catalog = MemoryCatalog::with_clock(Arc::new(store.clone()), clock.clone());
        Self { store, faulty, catalog, clock, ahead_ms }
    }

    /// A table partitioned by `part`, without snapshots.
    pub(crate) fn create(&self, table: &str) {
        self.create_at(&ident(table), &format!("s3://b/db/{table}"));
    }

    /// The same anywhere.
    pub(crate) fn create_at(&self, table: &TableIdent, location: &str) {
        let changes = json!({
            "location": location, "last-column-id": 2, "last-partition-id": 1000,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": [
                {"id": 1, "name": "id", "required": false, "type": "long"},
                {"id": 2, "name": "part", "required": false, "type": "long"}]}],
            "partition-specs": [{"spec-id": 0, "fields": [
                {"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}]}],
        });
        self.catalog.create(table, changes).expect("a valid table");
    }

    /// Adds one file with ten rows to each of the partitions, in one snapshot.
    pub(crate) async fn append(&self, table: &str, parts: std::ops::Range<i64>) {
        let mut files = Vec::new();
        for part in parts {
            files.push(self.data_file(table, part).await);
        }
        self.add(table, files).await;
    }

    /// Adds a file where it lies, whichever table it is of.
    pub(crate) async fn import(&self, table: &str, path: &str) {
        self.add(table, vec![data_file(path, 0, 6)]).await;
    }

    /// Adds these files in one snapshot.
    pub(crate) async fn add(&self, table: &str, files: Vec<DataFile>) {
        let loaded = self.load(table).await;
        let all_data = files.iter().all(|file| file.content_type() == DataContentType::Data);
        let operation = if all_data { Operation::Append } else { Operation::Delete };
        let additions = Additions { operation, files, properties: HashMap::new() };
        let prepared = prepare_write(&self.store, self.clock.as_ref(), &loaded, &additions).await;
        let (_, prepared) = prepared.expect("an append");
        let outcome =
            self.catalog.commit_table(&ident(table), prepared.requirements, prepared.updates, &|| Ok(())).await;
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    }

    /// A file with ten rows of a partition, in the store only.
    pub(crate) async fn data_file(&self, table: &str, part: i64) -> DataFile {
        let first = i64::try_from(self.clock.uuid().as_u128() & 0xffff_ffff).expect("a small number") * 10;
        let rows = batch(vec![(1, "id", longs(first..first + 10)), (2, "part", longs([part; 10]))]);
        let content = parquet(&rows);
        let path = format!("s3://b/db/{table}/data/part={part}/{}.parquet", self.clock.uuid());
        let file = data_file(&path, part, content.len() as u64);
        self.store.write(&path, content).await.expect("a new file");
        file
    }

    /// Puts a file that nothing refers to into the table, two days old.
    pub(crate) fn litter(&self, table: &str) -> String {
        let path = format!("s3://b/db/{table}/data/part=0/litter-{}.parquet", self.clock.uuid());
        self.store.put(&path, "litter");
        self.store.set_last_modified(&path, Some(self.clock.now_ms() - 2 * 24 * 3_600_000));
        path
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.store.paths().iter().any(|p| p == path)
    }

    pub(crate) async fn load(&self, table: &str) -> LoadedTable {
        self.catalog.load_table(&ident(table)).await.expect("the table is there")
    }

    /// Retained snapshots.
    pub(crate) async fn snapshots(&self, table: &str) -> usize {
        self.load(table).await.metadata.snapshots().len()
    }

    /// When the newest snapshot was made.
    pub(crate) async fn newest_ms(&self, table: &str) -> i64 {
        self.load(table).await.current_snapshot().expect("a snapshot").timestamp_ms()
    }

    /// Live data files, in manifest order.
    pub(crate) async fn files(&self, table: &str) -> Vec<String> {
        let handle = self.catalog.handle(&ident(table), Arc::new(self.store.clone())).await.expect("there");
        let state = inspect_table(&handle, &ManifestCache::new(1 << 20)).await.expect("a readable table");
        assert!(state.delete_files.is_empty());
        state.data_files.iter().map(|file| file.file_path.to_string()).collect()
    }

    /// All rows, sorted.
    pub(crate) async fn rows(&self, table: &str) -> Vec<String> {
        let mut rows = Vec::new();
        for path in self.files(table).await {
            let bytes = self.store.read(&path).await.expect("a live file exists");
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a Parquet file").build();
            for batch in reader.expect("a readable file") {
                rows.extend(rows_of(&batch.expect("readable rows")));
            }
        }
        rows.sort_unstable();
        rows
    }

    /// Data files of any run of ours that are in no current snapshot.
    pub(crate) async fn left_outputs(&self, table: &str) -> Vec<String> {
        let live = self.files(table).await;
        let folder = format!("/db/{table}/data/");
        let ours = |path: &String| path.contains(&folder) && RunId::from_file_name(path).is_some();
        self.store.paths().into_iter().filter(|path| ours(path) && !live.contains(path)).collect()
    }

    /// Snapshots made by us, oldest first: run id and whether the run was complete.
    pub(crate) async fn own_snapshots(&self, table: &str) -> Vec<(String, String)> {
        let loaded = self.load(table).await;
        let mut snapshots: Vec<_> = loaded.metadata.snapshots().collect();
        snapshots.sort_by_key(|s| s.sequence_number());
        let properties = snapshots.iter().map(|s| &s.summary().additional_properties);
        properties
            .filter_map(|p| Some((p.get("icewright.run-id")?.clone(), p.get("icewright.run-complete")?.clone())))
            .collect()
    }

    pub(crate) fn env(&self) -> Env {
        Env {
            clock: self.clock.clone(),
            memory: Arc::new(MemoryBudget::new(256 << 20)),
            manifests: Arc::new(ManifestCache::new(16 << 20)),
            threads: 2,
            active: ActiveRuns::default(),
            run_timeout: 6 * HOUR,
            run_over_after: Longest::new(6 * HOUR),
            cancel: CancellationToken::new(),
        }
    }

    /// All tables of `db` under one policy.
    pub(crate) fn fleet(&self, policy: &str) -> Arc<Fleet> {
        Arc::new(Fleet::new([("lake".to_owned(), self.member())].into(), policies(&["lake.db.*"], policy)))
    }

    /// A client of the catalog; each counts as another one.
    pub(crate) fn member(&self) -> Member {
        let stores = Arc::new(OneStore(Arc::new(self.faulty.clone())));
        Member { catalog: Arc::new(self.catalog.clone()), stores }
    }

    /// Compacts once.
    pub(crate) async fn compact(&self, env: &Env, table: &str, policy: &str) -> RewriteReport {
        let name = format!("lake.db.{table}").parse().expect("a name");
        let subject = Subject::load(&self.fleet(policy), &name).await.expect("a table");
        let fleet = self.fleet(policy);
        let done = run_step(env, &fleet, &subject, TableRun::start(env), RunStep::FIRST, &()).await.expect("done");
        match done.report.actions.into_iter().next().and_then(|action| action.detail) {
            Some(ActionDetail::RewriteReport(report)) => *report,
            other => panic!("a compaction was asked for: {other:?}"),
        }
    }
}
