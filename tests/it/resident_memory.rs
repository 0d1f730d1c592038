//! How much memory the process really takes: the binary on a table whose rewrites fill its budget, run after run.
//! An allocator that keeps for each thread what was freed there takes twice as much (`MALLOC_ARENA_MAX=16` shows it).

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Literal, Operation, Struct};
use iceberg::{NamespaceIdent, TableIdent, TableUpdate};
use icewright::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use icewright::catalog::{Catalog, CommitOutcome};
use icewright::clock::{Clock, SystemClock, snapshot_id};
use icewright::meta::{Additions, SnapshotIdentity, prepare_additions};
use icewright::storage::{self, StoreRef};
use icewright::table::LoadedTable;

use crate::interop::process::{Process, wait_for};
use crate::rewrite::table::{batch, longs, parquet};
use crate::support::command::{Lake, icewright};

const MIB: u64 = 1 << 20;
/// What the process takes beside the budget, in MiB: its code, its threads, connections, metadata.
const BESIDE: u64 = 64;
/// How much the peak may rise after the second run.
const GROWTH: u64 = 32;
/// Data files of about [`ROWS`] KiB each.
const FILES: usize = 40;
const ROWS: i64 = 4_000;
const RUNS: usize = 6;
const HOUR: &str = "2025-04-01 00";

/// The sandbox's table of log lines, and its writer.
struct Logs {
    catalog: Arc<dyn Catalog>,
    store: StoreRef,
    table: TableIdent,
    runtime: tokio::runtime::Runtime,
}

impl Logs {
    fn of(lake: &Lake) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let config = RestCatalogConfig {
            name: "lake".into(),
            uri: lake.uri().to_owned(),
            warehouse: None,
            properties: HashMap::default(),
            auth: Auth::None,
        };
        let catalog = runtime.block_on(RestCatalog::connect(config)).expect("connect");
        let table = TableIdent::new(NamespaceIdent::new("shop".into()), "server_logs".into());
        Self { catalog: Arc::new(catalog), store: storage::open(&HashMap::default()), table, runtime }
    }

    fn load(&self) -> LoadedTable {
        self.runtime.block_on(self.catalog.load_table(&self.table)).expect("the table")
    }

    fn set(&self, key: &str, value: &str) {
        let updates = HashMap::from([(key.to_owned(), value.to_owned())]);
        let update = TableUpdate::SetProperties { updates };
        let outcome = self.runtime.block_on(self.catalog.commit_table(&self.table, vec![], vec![update], &|| Ok(())));
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    }

    /// One snapshot with so many more files of so many rows.
    fn append(&self, files: usize, rows: i64) {
        let loaded = self.load();
        let clock = SystemClock::shared();
        let files = (0..files).map(|_| self.data_file(&loaded, rows, &*clock)).collect();
        let additions = Additions { operation: Operation::Append, files, properties: HashMap::new() };
        let (snapshot_id, commit_uuid) = (snapshot_id(clock.uuid()), clock.uuid());
        let identity = SnapshotIdentity { snapshot_id, commit_uuid, token: "writer".into() };
        let outcome = self.runtime.block_on(async {
            let now_ms = clock.now_ms().max(loaded.metadata.last_updated_ms());
            let prepared = prepare_additions(&*self.store, &loaded, &additions, identity, now_ms).await;
            let prepared = prepared.expect("an append");
            self.catalog.commit_table(&self.table, prepared.requirements, prepared.updates, &|| Ok(())).await
        });
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    }

    fn data_file(&self, loaded: &LoadedTable, rows: i64, clock: &dyn Clock) -> DataFile {
        let name = clock.uuid();
        let mut noise = name.as_u128() as u64 | 1;
        let lines = (0..rows).map(|_| line(&mut noise));
        let messages: ArrayRef = Arc::new(StringArray::from_iter_values(lines));
        let hours: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|_| HOUR)));
        let content = parquet(&batch(vec![(1, "id", longs(0..rows)), (2, "hour", hours), (8, "message", messages)]));
        let path = format!("{}/data/hour=2025-04-01+00/{name}.parquet", loaded.metadata.location());
        let mut file = DataFileBuilder::default();
        file.content(DataContentType::Data).file_path(path.clone()).file_format(DataFileFormat::Parquet);
        file.partition(Struct::from_iter([Some(Literal::string(HOUR))])).partition_spec_id(0);
        file.record_count(rows.unsigned_abs()).file_size_in_bytes(content.len() as u64);
        self.runtime.block_on(self.store.write(&path, content)).expect("a new file");
        file.build().expect("a data file")
    }

    /// Waits until the head is a compaction.
    fn wait_compacted(&self, daemon: &mut Process) {
        wait_for("a compaction", || {
            daemon.assert_running();
            let loaded = self.load();
            let head = loaded.metadata.current_snapshot().expect("a snapshot");
            if head.summary().operation == Operation::Replace { Ok(()) } else { Err("not compacted yet".into()) }
        });
    }
}

/// A kibibyte that no codec makes much shorter.
fn line(noise: &mut u64) -> String {
    let mut text = String::with_capacity(1024);
    for _ in 0..128 {
        *noise ^= *noise << 13;
        *noise ^= *noise >> 7;
        *noise ^= *noise << 17;
        text.extend(noise.to_le_bytes().map(|byte| char::from(b'0' + byte % 64)));
    }
    text
}

/// The most that was resident at any time, in bytes.
fn peak(daemon: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a high-water mark");
    let kib = line.trim().strip_suffix(" kB").expect("in KiB").trim();
    kib.parse::<u64>().expect("a number") * 1024
}

fn stays_within(budget: u64, row_group: u64) {
    let lake = Lake::start();
    let logs = Logs::of(&lake);
    logs.set("write.parquet.row-group-size-bytes", &row_group.to_string());
    logs.append(FILES, ROWS);
    let config = lake.dir().join("daemon.toml");
    let text = format!(
        r#"[limits]
memory = "{}MiB"
[catalogs.lake]
uri = "{}"
[[policies]]
name = "logs"
tables = ["lake.shop.server_logs"]
commit-interval = "1s"
every = "1s"
delay = "0s"
rewrite-data-files = {{ rewrite-all = true, target-file-size = "8MiB" }}
"#,
        budget / MIB,
        lake.uri()
    );
    std::fs::write(&config, text).expect("write a configuration");
    let config = config.to_str().expect("a path of text");
    let mut run = icewright(&["run", "--config", config, "--listen", "127.0.0.1:0"]);
    let mut daemon = Process::start("icewright", &mut run, lake.dir().join("daemon.log"));
    let mut peaks = Vec::new();
    for _ in 0..RUNS {
        logs.wait_compacted(&mut daemon);
        peaks.push(peak(&daemon) / MIB);
        logs.append(1, 10);
    }
    let (second, last) = (peaks[1], peaks[RUNS - 1]);
    assert!(last <= budget / MIB + BESIDE, "{peaks:?} MiB, budget {} MiB", budget / MIB);
    assert!(last <= second + GROWTH, "each run does the same, and yet it grows: {peaks:?} MiB");
    assert_eq!(daemon.terminate(), Some(0));
}

#[test]
fn a_small_budget_and_64_mebibytes_are_the_most_that_is_ever_resident() {
    stays_within(152 * MIB, 8 * MIB);
}

#[test]
fn a_larger_budget_and_64_mebibytes_are_the_most_that_is_ever_resident() {
    stays_within(432 * MIB, 128 * MIB);
}
