//! Reading a table's state and statistics from real manifests, and reading each of them once.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Literal, ManifestFile, ManifestListWriter,
    ManifestWriterBuilder, Struct,
};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::{Catalog, CommitOutcome, LoadedTable};
use icewright::error::{Error, ErrorKind, Result};
use icewright::inspect::{ManifestCache, collect_partition_stats, collect_stats, inspect_table};
use icewright::storage::{ListedFile, Store, StoreWriter};
use icewright::table::TableHandle;
use serde_json::json;

use super::plan_support::{World, snapshot_json};

/// A store over the library's memory files that notes what is read.
struct MemoryStore {
    files: FileIO,
    reads: Mutex<Vec<String>>,
}

impl MemoryStore {
    fn reads(&self) -> Vec<String> {
        let mut reads = std::mem::take(&mut *self.reads.lock().expect("not poisoned"));
        reads.sort();
        reads
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.reads.lock().expect("not poisoned").push(path.rsplit('/').next().unwrap_or(path).to_string());
        let input = self.files.new_input(path)?;
        if !input.exists().await? {
            return Err(Error::new(ErrorKind::NotFound, format!("no file {path}")));
        }
        Ok(input.read().await?)
    }
    async fn read_range(&self, _: &str, _: Range<u64>) -> Result<Bytes> {
        unreachable!("manifests are read whole")
    }
    async fn stat(&self, _: &str) -> Result<Option<ListedFile>> {
        unreachable!("inspection only reads")
    }
    async fn writer(&self, _: &str) -> Result<Box<dyn StoreWriter>> {
        unreachable!("inspection only reads")
    }
    fn list(&self, _: &str) -> BoxStream<'static, Result<ListedFile>> {
        unreachable!("inspection only reads")
    }
    async fn delete_batch(&self, _: &[String]) -> Vec<Result<()>> {
        unreachable!("inspection only reads")
    }
}

/// A catalog that is not asked anything.
struct NoCatalog;

#[async_trait]
impl Catalog for NoCatalog {
    async fn list_namespaces(&self, _: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        unreachable!("not asked")
    }
    async fn list_tables(&self, _: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        unreachable!("not asked")
    }
    async fn load_table(&self, _: &TableIdent) -> Result<LoadedTable> {
        unreachable!("not asked")
    }
    async fn commit_table(&self, _: &TableIdent, _: Vec<TableRequirement>, _: Vec<TableUpdate>) -> CommitOutcome {
        unreachable!("not asked")
    }
}

enum Entry {
    Added(DataFile),
    Existing(DataFile),
    Deleted(DataFile),
}

fn file(name: &str, content: DataContentType, region: i32, bytes: u64, rows: u64) -> DataFile {
    let mut builder = DataFileBuilder::default();
    builder
        .content(content)
        .file_path(format!("memory:///t/data/{name}.parquet"))
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::from_iter([Some(Literal::int(region))]))
        .partition_spec_id(0)
        .record_count(rows)
        .file_size_in_bytes(bytes);
    if content == DataContentType::EqualityDeletes {
        builder.equality_ids(Some(vec![1]));
    }
    builder.build().expect("complete")
}

struct Builder {
    files: FileIO,
    world: World,
}

impl Builder {
    async fn manifest(&self, name: &str, sequence: i64, deletes: bool, entries: Vec<Entry>) -> ManifestFile {
        let loaded = self.world.loaded();
        let schema = loaded.metadata.current_schema().clone();
        let spec = loaded.metadata.default_partition_spec().as_ref().clone();
        let output = self.files.new_output(format!("memory:///t/metadata/{name}.avro")).expect("valid path");
        let builder = ManifestWriterBuilder::new(output, Some(sequence), schema, spec);
        let mut writer = if deletes { builder.build_v2_deletes() } else { builder.build_v2_data() };
        for entry in entries {
            match entry {
                Entry::Added(file) => writer.add_file(file, sequence),
                Entry::Existing(file) => writer.add_existing_file(file, 1, 1, Some(1)),
                Entry::Deleted(file) => writer.add_delete_file(file, 1, Some(1)),
            }
            .expect("valid entry");
        }
        let mut manifest = writer.write_manifest_file().await.expect("written");
        manifest.sequence_number = sequence;
        manifest.min_sequence_number = 1;
        manifest
    }

    async fn list(&self, snapshot_id: i64, manifests: &[&ManifestFile]) {
        let output =
            self.files.new_output(format!("memory:///t/metadata/snap-{snapshot_id}.avro")).expect("valid path");
        let mut writer = ManifestListWriter::v2(output.writer().await.expect("writer"), snapshot_id, None, snapshot_id);
        writer.add_manifests(manifests.iter().map(|m| (*m).clone())).expect("valid");
        writer.close().await.expect("written");
    }
}

/// Snapshot 1 adds a and b; 2 deletes by key; 3 replaces a by c and leaves b. Regions 1 and 2.
async fn table() -> (TableHandle, Arc<MemoryStore>) {
    let files = FileIO::new_with_memory();
    let builder = Builder { files: files.clone(), world: World::new(&[&["region"]]) };
    let a = file("a", DataContentType::Data, 1, 100, 10);
    let b = file("b", DataContentType::Data, 2, 300, 30);
    let c = file("c", DataContentType::Data, 1, 90, 10);
    let e = file("e", DataContentType::EqualityDeletes, 1, 5, 1);
    let first = builder.manifest("m1", 1, false, vec![Entry::Added(a.clone()), Entry::Added(b.clone())]).await;
    let deletes = builder.manifest("m2", 2, true, vec![Entry::Added(e)]).await;
    let entries = vec![Entry::Added(c), Entry::Existing(b), Entry::Deleted(a)];
    let third = builder.manifest("m3", 3, false, entries).await;
    builder.list(1, &[&first]).await;
    builder.list(2, &[&first, &deletes]).await;
    builder.list(3, &[&third, &deletes]).await;

    let snapshot = |id: i64, operation: &str| {
        let mut json = snapshot_json(id, (id > 1).then(|| id - 1), id, operation, &json!({}));
        json["manifest-list"] = json!(format!("memory:///t/metadata/snap-{id}.avro"));
        json
    };
    let mut world = builder.world;
    world.sequence_number = 3;
    let metadata = world.metadata_json(&[snapshot(1, "append"), snapshot(2, "delete"), snapshot(3, "replace")]);
    let store = Arc::new(MemoryStore { files, reads: Mutex::default() });
    let handle = TableHandle {
        catalog_name: "lake".into(),
        ident: TableIdent::from_strs(["db", "t"]).expect("valid"),
        catalog: Arc::new(NoCatalog),
        store: store.clone(),
        loaded: Arc::new(LoadedTable::from_metadata_json("m.json".into(), &metadata).expect("valid")),
    };
    (handle, store)
}

#[tokio::test]
async fn state_holds_the_live_files_of_the_current_snapshot() {
    let (table, store) = table().await;
    let cache = ManifestCache::new(1 << 20);
    let state = inspect_table(&table, &cache, 4).await.expect("readable");
    let names = |files: &[Arc<icewright::table::FileEntry>]| -> Vec<String> {
        files.iter().map(|f| f.file_path.rsplit('/').next().unwrap_or_default().to_string()).collect()
    };
    assert_eq!(names(&state.data_files), ["c.parquet", "b.parquet"]);
    assert_eq!(names(&state.delete_files), ["e.parquet"]);
    assert_eq!(state.manifests.len(), 2);
    assert_eq!(state.data_files.iter().map(|f| f.data_sequence_number).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(state.snapshot.as_ref().map(|s| s.snapshot_id()), Some(3));
    assert!(
        Arc::ptr_eq(&state.data_files[0].partition, &state.delete_files[0].partition),
        "entries of one partition share it, also between manifests"
    );
    assert_eq!(store.reads(), ["m2.avro", "m3.avro", "snap-3.avro"]);
    // What was read for the state serves the statistics.
    collect_stats(&table, &cache, 0, 4).await.expect("readable");
    assert_eq!(store.reads(), ["m1.avro", "snap-1.avro", "snap-2.avro", "snap-3.avro"]);
}

#[tokio::test]
async fn stats_read_each_manifest_once() {
    let (table, store) = table().await;
    let cache = ManifestCache::new(1 << 20);
    let stats = collect_stats(&table, &cache, 100, 4).await.expect("readable");
    assert_eq!(store.reads(), ["m1.avro", "m2.avro", "m3.avro", "snap-1.avro", "snap-2.avro", "snap-3.avro"]);
    assert_eq!((stats.data_files, stats.data_file_bytes, stats.data_records, stats.small_data_files), (2, 390, 40, 1));
    assert_eq!((stats.equality_delete_files, stats.position_delete_files, stats.deletion_vectors), (1, 0, 0));
    assert_eq!((stats.data_manifests, stats.delete_manifests, stats.snapshots, stats.partitions), (1, 1, 3, 2));
    assert_eq!((stats.all_files, stats.all_file_bytes), (4, 495));
    // Records 10 and 30: deviation 10, mean 20.
    assert!((stats.partition_records_rsd_ratio - 0.5).abs() < 1e-12);
    assert_eq!(stats.partition_bytes_mean.to_bits(), 195.0_f64.to_bits());

    let again = collect_stats(&table, &cache, 100, 4).await.expect("readable");
    assert_eq!(again, stats);
    let partitions = collect_partition_stats(&table, &cache, 1, 4).await.expect("readable");
    assert_eq!(partitions.len(), 1);
    let largest = &partitions[0];
    assert_eq!((largest.partition.as_str(), largest.data_files, largest.data_file_bytes), ("region=2", 1, 300));
    assert!(store.reads().is_empty(), "everything was summarised before");

    let none = ManifestCache::new(0);
    assert_eq!(collect_stats(&table, &none, 100, 1).await.expect("readable"), stats);
    assert_eq!(store.reads().iter().filter(|path| path.starts_with('m')).count(), 3, "once, even without a cache");
}

#[tokio::test]
async fn a_missing_manifest_is_an_error() {
    let (table, store) = table().await;
    store.files.delete("memory:///t/metadata/m1.avro").await.expect("deleted");
    let cache = ManifestCache::new(1 << 20);
    let error = collect_stats(&table, &cache, 0, 4).await.expect_err("m1 is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("m1.avro"), "{error}");
    inspect_table(&table, &cache, 4).await.expect("the current snapshot does not need it");
}
