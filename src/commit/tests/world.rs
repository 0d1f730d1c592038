//! One table in memory, a writer, and rewrites without Parquet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::*;
use iceberg::{TableCreation, TableIdent};

use crate::catalog::TableHandle;
use crate::catalog::{Catalog, CommitOutcome};
use crate::clock::Clock;
use crate::commit::*;
use crate::meta::{Additions, read_manifest, read_manifest_list};
use crate::rewrite::RewriteResult;
use crate::run_id::RunId;
use crate::table::LoadedTable;
use crate::table::{FileEntry, TableState, name_referenced_files};
use crate::testing::{MemoryCatalog, MemoryStore, SetClock, builder};

const LOCATION: &str = "mem://b/t";

/// The path of a content file by its name.
pub(super) fn at(name: &str) -> String {
    format!("{LOCATION}/data/{name}")
}

/// The name of a content file.
pub(super) fn name_of(path: &str) -> &str {
    path.strip_prefix(LOCATION).and_then(|p| p.strip_prefix("/data/")).expect("a content file of the table")
}

/// A live data file by its name.
pub(super) fn find<'a>(state: &'a TableState, name: &str) -> &'a Arc<FileEntry> {
    state.data_files.iter().find(|f| name_of(&f.file_path) == name).expect("live")
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) catalog: MemoryCatalog,
    pub(super) store: MemoryStore,
    pub(super) ident: TableIdent,
    pub(super) clock: Arc<SetClock>,
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
            .location(LOCATION.into())
            .schema(schema())
            .partition_spec(spec(partitioned))
            .properties(properties)
            .format_version(version)
            .build();
        let ident = TableIdent::from_strs(["ns", "t"]).expect("valid");
        // Metadata files lie apart: `store` holds what the table's writers and icewright put there, and nothing else.
        let catalog = MemoryCatalog::new(Arc::new(MemoryStore::new()));
        let loaded = catalog.create_table(&ident, creation).expect("valid");
        let clock = Arc::new(SetClock::new(loaded.metadata.last_updated_ms() + 1000));
        Self { catalog, store: MemoryStore::new(), ident, clock }
    }

    pub(super) fn v2() -> Self {
        Self::new(FormatVersion::V2, true, &[])
    }

    pub(super) fn shift_clock(&self, by_ms: i64) {
        self.clock.advance(by_ms);
    }

    pub(super) async fn load(&self) -> LoadedTable {
        self.catalog.load_table(&self.ident).await.expect("there")
    }

    pub(super) async fn handle(&self) -> TableHandle {
        self.catalog.handle(&self.ident, Arc::new(self.store.clone())).await.expect("there")
    }

    /// An ordinary writer's commit, past any script. Returns the snapshot id.
    pub(super) async fn write(&self, operation: Operation, files: Vec<DataFile>) -> i64 {
        self.shift_clock(10);
        let properties = HashMap::from([("flink.job-id".to_owned(), "j1".to_owned())]);
        let additions = Additions { operation, files, properties };
        let loaded = self.load().await;
        let prepared = builder::prepare_write(&self.store, self.clock.as_ref(), &loaded, &additions).await;
        let (snapshot_id, prepared) = prepared.expect("prepared");
        let outcome = self.catalog.commit_unscripted(&self.ident, &prepared.requirements, prepared.updates).await;
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        snapshot_id
    }

    pub(super) async fn append(&self, files: &[(&str, &str, u64)]) -> i64 {
        let files = files.iter().map(|(name, partition, records)| data(name, partition, *records)).collect();
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
        let (data_files, mut delete_files): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|e| e.content == DataContentType::Data);
        name_referenced_files(&data_files, &mut delete_files);
        TableState { loaded, snapshot: Some(snapshot), manifests, data_files, delete_files }
    }

    /// Names of the live files, sorted.
    pub(super) async fn live(&self) -> Vec<String> {
        let state = self.state().await;
        let mut paths: Vec<_> =
            state.data_files.iter().chain(&state.delete_files).map(|e| name_of(&e.file_path).to_owned()).collect();
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
        let rewritten: Vec<Arc<FileEntry>> = inputs.iter().map(|name| find(&state, name).clone()).collect();
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

pub(super) fn built(content: DataContentType, name: &str, partition: Struct, records: u64) -> DataFileBuilder {
    builder::content_file(content, &at(name), partition, records, records * 100)
}

pub(super) fn in_partition(partition: &str) -> Struct {
    Struct::from_iter([Some(Literal::string(partition))])
}

pub(super) fn data(name: &str, partition: &str, records: u64) -> DataFile {
    built(DataContentType::Data, name, in_partition(partition), records).build().expect("complete")
}

pub(super) fn equality(name: &str, partition: &str) -> DataFile {
    built(DataContentType::EqualityDeletes, name, in_partition(partition), 1).build().expect("complete")
}

pub(super) fn position(name: &str, partition: &str, referenced: Option<&str>) -> DataFile {
    let mut builder = built(DataContentType::PositionDeletes, name, in_partition(partition), 1);
    builder.referenced_data_file(referenced.map(at)).build().expect("complete")
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

pub(super) fn denied(result: CommitResult) -> crate::error::Error {
    match result {
        CommitResult::Denied(error) => error,
        other => panic!("not denied: {other:?}"),
    }
}

pub(super) fn unknown(result: CommitResult) -> crate::error::Error {
    match result {
        CommitResult::Unknown(error) => error,
        other => panic!("not unknown: {other:?}"),
    }
}
