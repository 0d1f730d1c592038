//! One table in memory, a writer, and rewrites without Parquet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use iceberg::spec::*;
use iceberg::{TableCreation, TableIdent};
use uuid::Uuid;

use crate::catalog::{Catalog, CommitOutcome, LoadedTable};
use crate::clock::{Clock, snapshot_id};
use crate::commit::*;
use crate::meta::doubles::{MemoryCatalog, MemoryStore};
use crate::meta::{Additions, SnapshotIdentity, prepare_additions, read_manifest, read_manifest_list};
use crate::rewrite::RewriteResult;
use crate::run_id::RunId;
use crate::table::{FileEntry, TableHandle, TableState};

pub(super) struct TestClock {
    now_ms: AtomicI64,
    uuids: AtomicU64,
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn uuid(&self) -> Uuid {
        let n = self.uuids.fetch_add(1, Ordering::SeqCst);
        Uuid::from_u64_pair(0x0190_0000_0000_7000, 0x8000_0000_0000_0000 | n)
    }
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) catalog: MemoryCatalog,
    pub(super) store: MemoryStore,
    pub(super) ident: TableIdent,
    pub(super) clock: Arc<TestClock>,
}

fn field(id: i32, name: &str, ty: PrimitiveType) -> NestedFieldRef {
    Arc::new(NestedField::optional(id, name, Type::Primitive(ty)))
}

pub(super) fn schema() -> Schema {
    let fields = [field(1, "id", PrimitiveType::Long), field(2, "p", PrimitiveType::String)];
    Schema::builder().with_fields(fields).build().expect("valid")
}

pub(super) fn spec(partitioned: bool) -> UnboundPartitionSpec {
    let spec = UnboundPartitionSpec::builder();
    match partitioned {
        true => spec.add_partition_field(2, "p", Transform::Identity).expect("valid").build(),
        false => spec.build(),
    }
}

impl World {
    pub(super) fn new(version: FormatVersion, partitioned: bool, properties: &[(&str, &str)]) -> Self {
        let properties = properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<HashMap<_, _>>();
        let creation = TableCreation::builder()
            .name("t".into())
            .location("mem://b/t".into())
            .schema(schema())
            .partition_spec(spec(partitioned))
            .properties(properties)
            .format_version(version)
            .build();
        let ident = TableIdent::from_strs(["ns", "t"]).expect("valid");
        let catalog = MemoryCatalog::default();
        let loaded = catalog.create_table(&ident, creation).expect("valid");
        let now_ms = AtomicI64::new(loaded.metadata.last_updated_ms() + 1000);
        let clock = Arc::new(TestClock { now_ms, uuids: AtomicU64::new(1) });
        Self { catalog, store: MemoryStore::new(), ident, clock }
    }

    pub(super) fn v2() -> Self {
        Self::new(FormatVersion::V2, true, &[])
    }

    pub(super) fn shift_clock(&self, by_ms: i64) {
        self.clock.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    pub(super) async fn load(&self) -> LoadedTable {
        self.catalog.load_table(&self.ident).await.expect("there")
    }

    pub(super) async fn handle(&self) -> TableHandle {
        TableHandle {
            catalog_name: "c".into(),
            ident: self.ident.clone(),
            catalog: Arc::new(self.catalog.clone()),
            store: Arc::new(self.store.clone()),
            loaded: Arc::new(self.load().await),
        }
    }

    /// An ordinary writer's commit, past any script. Returns the snapshot id.
    pub(super) async fn write(&self, operation: Operation, files: Vec<DataFile>) -> i64 {
        self.shift_clock(10);
        let snapshot_id = snapshot_id(self.clock.uuid());
        let identity = SnapshotIdentity { snapshot_id, commit_uuid: self.clock.uuid(), token: "writer".into() };
        let properties = HashMap::from([("flink.job-id".to_owned(), "j1".to_owned())]);
        let additions = Additions { operation, files, properties };
        let loaded = self.load().await;
        let prepared =
            prepare_additions(&self.store, &loaded, &additions, identity, self.clock.now_ms()).await.expect("prepared");
        let outcome = self.catalog.commit_unscripted(&self.ident, &prepared.requirements, prepared.updates);
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        snapshot_id
    }

    pub(super) async fn append(&self, files: &[(&str, &str, u64)]) -> i64 {
        let files = files.iter().map(|(path, partition, records)| data(path, partition, *records)).collect();
        self.write(Operation::Append, files).await
    }

    pub(super) async fn state(&self) -> TableState {
        let loaded = Arc::new(self.load().await);
        let snapshot = loaded.current_snapshot().cloned().expect("a head");
        let manifests = read_manifest_list(&self.store, &loaded, &snapshot).await.expect("valid");
        let mut entries = Vec::new();
        for manifest in &manifests {
            entries
                .extend(read_manifest(&self.store, &loaded, manifest).await.expect("valid").into_iter().map(Arc::new));
        }
        let (data_files, delete_files) = entries.into_iter().partition(|e| e.content == DataContentType::Data);
        TableState { loaded, snapshot: Some(snapshot), manifests, data_files, delete_files }
    }

    /// Live paths, sorted.
    pub(super) async fn live(&self) -> Vec<String> {
        let state = self.state().await;
        let mut paths: Vec<_> =
            state.data_files.iter().chain(&state.delete_files).map(|e| e.file_path.to_string()).collect();
        paths.sort();
        paths
    }

    pub(super) async fn start(&self) -> StartSnapshot {
        let loaded = self.load().await;
        StartSnapshot::of(&loaded, loaded.current_snapshot().expect("a head"))
    }

    /// The result of rewriting live files into `added`, all rows kept but `deleted`.
    pub(super) async fn result(&self, inputs: &[&str], added: Vec<DataFile>, deleted_rows: u64) -> RewriteResult {
        let state = self.state().await;
        let rewritten: Vec<Arc<FileEntry>> = inputs
            .iter()
            .map(|path| state.data_files.iter().find(|f| f.file_path.as_ref() == *path).cloned().expect("live"))
            .collect();
        RewriteResult {
            group: 0,
            input_rows: rewritten.iter().map(|f| f.record_count).sum(),
            input_bytes: rewritten.iter().map(|f| f.file_size_bytes).sum(),
            output_rows: added.iter().map(DataFile::record_count).sum(),
            output_bytes: added.iter().map(DataFile::file_size_in_bytes).sum(),
            deleted_rows,
            rewritten,
            added,
        }
    }

    pub(super) fn ctx(&self) -> CommitContext {
        let mut ctx = CommitContext::new(RunId(self.clock.uuid()));
        ctx.min_wait = Duration::from_micros(100);
        ctx
    }

    pub(super) async fn commit(&self, start: &StartSnapshot, results: &[RewriteResult]) -> CommitResult {
        self.commit_as(&self.ctx(), start, results).await
    }

    pub(super) async fn commit_as(
        &self,
        ctx: &CommitContext,
        start: &StartSnapshot,
        results: &[RewriteResult],
    ) -> CommitResult {
        for file in results.iter().flat_map(|r| &r.added) {
            self.store.put(file.file_path(), "rows");
        }
        commit_rewrite(&self.handle().await, start, results, ctx, self.clock.as_ref()).await
    }

    /// Metadata files that a run wrote and that are still there.
    pub(super) fn left_by(&self, ctx: &CommitContext) -> Vec<String> {
        let token = ctx.run_id.file_token();
        self.store.paths().into_iter().filter(|p| p.ends_with(".avro") && p.contains(&token)).collect()
    }
}

pub(super) fn built(content: DataContentType, path: &str, partition: Struct, records: u64) -> DataFileBuilder {
    let mut builder = DataFileBuilder::default();
    builder.content(content).file_path(path.to_owned()).file_format(DataFileFormat::Parquet);
    builder.partition(partition).record_count(records).file_size_in_bytes(records * 100);
    if content == DataContentType::EqualityDeletes {
        builder.equality_ids(Some(vec![1]));
    }
    builder
}

pub(super) fn in_partition(partition: &str) -> Struct {
    Struct::from_iter([Some(Literal::string(partition))])
}

pub(super) fn data(path: &str, partition: &str, records: u64) -> DataFile {
    built(DataContentType::Data, path, in_partition(partition), records).build().expect("complete")
}

pub(super) fn equality(path: &str, partition: &str) -> DataFile {
    built(DataContentType::EqualityDeletes, path, in_partition(partition), 1).build().expect("complete")
}

pub(super) fn position(path: &str, partition: &str, referenced: Option<&str>) -> DataFile {
    let mut builder = built(DataContentType::PositionDeletes, path, in_partition(partition), 1);
    builder.referenced_data_file(referenced.map(str::to_owned)).build().expect("complete")
}

pub(super) fn committed(result: CommitResult) -> Committed {
    match result {
        CommitResult::Committed(committed) => *committed,
        other => panic!("not committed: {other:?}"),
    }
}

pub(super) fn refused(result: CommitResult) -> crate::error::Error {
    match result {
        CommitResult::NotCommitted(error) => error,
        other => panic!("not refused: {other:?}"),
    }
}

pub(super) fn unknown(result: CommitResult) -> crate::error::Error {
    match result {
        CommitResult::Unknown(error) => error,
        other => panic!("not unknown: {other:?}"),
    }
}
