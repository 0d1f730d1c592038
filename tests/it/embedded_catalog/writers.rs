//! The sandbox's writers against the embedded catalog, read back row by row by rules of this test's own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use iceberg::io::{FileIO, FileIOBuilder, LocalFsStorageFactory};
use iceberg::spec::{DataContentType, DataFile, Datum, FormatVersion, ManifestList, Struct};
use iceberg::{NamespaceIdent, TableIdent};
use icewright::catalog::Catalog as _;
use icewright::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use icewright::sandbox::catalog::CatalogServer;
use icewright::sandbox::writers::{
    Expected, NAMESPACE, ORDERS, SERVER_LOGS, begin, committed, create_tables, expected_orders, expected_server_logs,
    write_once,
};
use icewright::storage::{self, StoreRef};
use icewright::table::LoadedTable;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio_util::sync::CancellationToken;

use super::client::Catalog;

struct Tables {
    catalog: Arc<RestCatalog>,
    store: StoreRef,
    files: FileIO,
}

impl Tables {
    async fn open(uri: &str) -> Self {
        create_tables(uri).await.expect("create tables");
        let config = RestCatalogConfig {
            name: "test".into(),
            uri: uri.into(),
            warehouse: None,
            properties: HashMap::new(),
            auth: Auth::None,
        };
        let catalog = Arc::new(RestCatalog::connect(config).await.expect("connect"));
        let files = FileIOBuilder::new(Arc::new(LocalFsStorageFactory)).build();
        Self { catalog, store: storage::open(&HashMap::new()), files }
    }

    async fn write(&self) {
        write_once(self.catalog.clone(), self.store.clone()).await.expect("write");
    }

    async fn load(&self, table: &str) -> LoadedTable {
        let ident = TableIdent::new(NamespaceIdent::new(NAMESPACE.into()), table.into());
        self.catalog.load_table(&ident).await.expect("load")
    }

    /// Every live file of the current snapshot with its data sequence number.
    async fn live_files(&self, loaded: &LoadedTable) -> Vec<(DataFile, i64)> {
        let snapshot = loaded.current_snapshot().expect("a snapshot");
        let bytes = std::fs::read(snapshot.manifest_list().trim_start_matches("file://")).expect("manifest list");
        let list = ManifestList::parse_with_version(&bytes, FormatVersion::V2).expect("manifest list");
        let mut files = Vec::new();
        for manifest in list.entries() {
            let manifest = manifest.load_manifest(&self.files).await.expect("manifest");
            for entry in manifest.entries().iter().filter(|e| e.is_alive()) {
                files.push((entry.data_file().clone(), entry.sequence_number().expect("a sequence number")));
            }
        }
        files
    }

    /// Asserts that both tables hold what so many commits of their writers make.
    async fn check(&self, checkpoint: u64) {
        let orders = self.load(ORDERS).await;
        assert_eq!(committed(&orders.metadata).expect("a number"), checkpoint);
        assert_eq!(sums(&self.live_files(&orders).await), expected_orders(checkpoint));
        let logs = self.load(SERVER_LOGS).await;
        assert_eq!(committed(&logs.metadata).expect("a number"), checkpoint);
        assert_eq!(sums(&self.live_files(&logs).await), expected_server_logs(checkpoint));
    }
}

fn rows(path: &str) -> Vec<RecordBatch> {
    let file = std::fs::File::open(path.strip_prefix("file://").expect("a file URI")).expect("open");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet").build().expect("reader");
    reader.map(|batch| batch.expect("a batch")).collect()
}

fn longs(path: &str, column: &str) -> Vec<i64> {
    let values = |batch: &RecordBatch| -> Option<Vec<i64>> {
        Some(batch.column_by_name(column)?.as_primitive::<Int64Type>().values().to_vec())
    };
    rows(path).iter().filter_map(values).flatten().collect()
}

/// Applies the deletes as the specification says, the slow and plain way.
fn sums(files: &[(DataFile, i64)]) -> Expected {
    let mut removed_keys: HashMap<(Struct, i64), i64> = HashMap::new();
    let mut removed_positions: HashSet<(String, i64)> = HashSet::new();
    for (file, sequence) in files {
        match file.content_type() {
            DataContentType::Data => {}
            DataContentType::EqualityDeletes => {
                assert_eq!(file.equality_ids(), Some(vec![1]));
                for id in longs(file.file_path(), "id") {
                    let newest = removed_keys.entry((file.partition().clone(), id)).or_insert(*sequence);
                    *newest = (*newest).max(*sequence);
                }
            }
            DataContentType::PositionDeletes => {
                for batch in rows(file.file_path()) {
                    let (paths, positions) = (batch.column(0).as_string::<i32>(), batch.column(1));
                    let positions = positions.as_primitive::<Int64Type>();
                    removed_positions
                        .extend((0..batch.num_rows()).map(|i| (paths.value(i).into(), positions.value(i))));
                }
            }
        }
    }
    let mut sums = Expected::default();
    for (file, sequence) in files.iter().filter(|(f, _)| f.content_type() == DataContentType::Data) {
        check_bounds(file);
        let ids = longs(file.file_path(), "id");
        let versions = longs(file.file_path(), "version");
        for (position, id) in ids.iter().enumerate() {
            let place = (file.file_path().to_string(), i64::try_from(position).expect("a position"));
            let removed = removed_keys.get(&(file.partition().clone(), *id)).is_some_and(|s| s > sequence);
            if !removed && !removed_positions.contains(&place) {
                sums.rows += 1;
                sums.id_sum += id;
                sums.version_sum += versions.get(position).copied().unwrap_or(0);
            }
        }
    }
    sums
}

fn check_bounds(file: &DataFile) {
    let ids = longs(file.file_path(), "id");
    assert_eq!(ids.len() as u64, file.record_count());
    assert_eq!(file.lower_bounds().get(&1), ids.iter().min().map(|id| Datum::long(*id)).as_ref());
    assert_eq!(file.upper_bounds().get(&1), ids.iter().max().map(|id| Datum::long(*id)).as_ref());
    let size = std::fs::metadata(file.file_path().trim_start_matches("file://")).expect("a file").len();
    assert_eq!(size, file.file_size_in_bytes());
    let mut nulls: HashMap<i32, u64> = HashMap::new();
    for batch in rows(file.file_path()) {
        for (column, id) in batch.columns().iter().zip(1..) {
            *nulls.entry(id).or_default() += column.null_count() as u64;
        }
    }
    assert_eq!(file.null_value_counts(), &nulls);
}

#[tokio::test]
async fn writers_go_on_after_a_restart() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    let tables = Tables::open(&catalog.uri).await;
    for _ in 0..3 {
        tables.write().await;
    }
    tables.check(3).await;
    drop(tables);
    catalog.stop().await;

    let catalog = Catalog::start(dir.path()).await;
    let tables = Tables::open(&catalog.uri).await;
    tables.write().await;
    tables.check(4).await;

    let orders = tables.load(ORDERS).await;
    let summary = &orders.current_snapshot().expect("a snapshot").summary().additional_properties;
    assert_eq!(summary.get("flink.max-committed-checkpoint-id").map(String::as_str), Some("4"));
    assert_eq!(summary.get("flink.job-id"), Some(&orders.metadata.uuid().simple().to_string()));
    assert_eq!(summary.get("added-equality-delete-files").map(String::as_str), Some("2"));
    assert_eq!(summary.get("added-position-delete-files").map(String::as_str), Some("2"));
    assert_eq!(summary.get("total-data-files").map(String::as_str), Some("8"));
    let buckets: HashSet<Struct> =
        tables.live_files(&orders).await.iter().map(|(f, _)| f.partition().clone()).collect();
    assert_eq!(buckets.len(), 2);
}

/// What goes wrong with a commit.
#[derive(Debug, Clone, Copy)]
enum Fault {
    FailBefore(StatusCode),
    FailAfter(StatusCode),
    /// Applied, then the connection is closed without a byte of answer.
    DropAfter,
}

type Faults = Arc<Mutex<Vec<Fault>>>;

async fn spoil(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    let commit = request.method() == Method::POST && request.uri().path().contains("/tables/");
    let fault = commit.then(|| faults.lock().expect("no panic under the lock").pop()).flatten();
    if let Some(Fault::FailBefore(status)) = fault {
        return status.into_response();
    }
    let response = next.run(request).await;
    match fault {
        Some(Fault::FailAfter(status)) => status.into_response(),
        Some(Fault::DropAfter) => {
            let lost = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("response lost")) });
            Response::new(Body::from_stream(lost))
        }
        _ => response,
    }
}

#[tokio::test]
async fn no_commit_is_lost_or_doubled_when_answers_are() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::default();
    let server = CatalogServer::open(dir.path()).expect("open catalog");
    let router = server.router().layer(from_fn_with_state(Arc::clone(&faults), spoil));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let uri = format!("http://{}", listener.local_addr().expect("address"));
    tokio::spawn(async { axum::serve(listener, router).await });
    let tables = Tables::open(&uri).await;
    let cases = [
        Fault::FailBefore(StatusCode::CONFLICT),
        Fault::FailAfter(StatusCode::INTERNAL_SERVER_ERROR),
        Fault::FailBefore(StatusCode::SERVICE_UNAVAILABLE),
        Fault::FailAfter(StatusCode::GATEWAY_TIMEOUT),
        Fault::DropAfter,
    ];
    for (fault, checkpoint) in cases.into_iter().zip(1..) {
        faults.lock().expect("lock").extend([fault; 2]);
        tables.write().await;
        tables.check(checkpoint).await;
        assert!(faults.lock().expect("lock").is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn writers_run_side_by_side_until_they_are_told_to_stop() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    let tables = Tables::open(&catalog.uri).await;
    let shutdown = CancellationToken::new();
    let writers = begin(catalog.uri.clone()).await.expect("a first commit");
    let done = async |table| committed(&tables.load(table).await.metadata).expect("a number");
    assert_eq!((done(ORDERS).await, done(SERVER_LOGS).await), (1, 1), "before anybody else looks");
    let running = tokio::spawn(writers.run(Duration::from_millis(10), shutdown.clone()));
    while done(ORDERS).await < 3 || done(SERVER_LOGS).await < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    shutdown.cancel();
    running.await.expect("join").expect("run");
    let (orders, logs) = (tables.load(ORDERS).await, tables.load(SERVER_LOGS).await);
    let (n, m) = (committed(&orders.metadata).expect("a number"), committed(&logs.metadata).expect("a number"));
    assert_eq!(sums(&tables.live_files(&orders).await), expected_orders(n));
    assert_eq!(sums(&tables.live_files(&logs).await), expected_server_logs(m));
}
