//! Reading a table's state and statistics from real manifests, and reading each of them once.

use std::sync::Arc;

use iceberg::TableIdent;
use iceberg::spec::{
    DataContentType, DataFile, FormatVersion, ManifestContentType, ManifestFile, ManifestStatus, Struct,
};
use iceberg::spec::{Literal, ManifestEntry};
use icewright::catalog::TableHandle;
use icewright::error::{Error, ErrorKind};
use icewright::inspect::{ManifestCache, collect_partition_stats, collect_stats, inspect_table};
use icewright::testing::builder::{content_file, library_manifest, library_manifest_list, manifest_entry};
use icewright::testing::{FaultyStore, MemoryCatalog, MemoryStore, Operation, StoreFault};
use serde_json::json;

use super::plan_support::{World, snapshot_json};

/// A store that notes what is read.
struct Noted {
    store: FaultyStore,
    seen: std::cell::Cell<usize>,
}

impl Noted {
    /// Names of the files read since this was last asked, sorted.
    fn reads(&self) -> Vec<String> {
        let paths = self.store.paths(Operation::Read);
        let new = &paths[self.seen.replace(paths.len())..];
        let mut names: Vec<_> = new.iter().map(|path| path.rsplit('/').next().unwrap_or(path).to_string()).collect();
        names.sort();
        names
    }
}

fn file(name: &str, content: DataContentType, region: i32, bytes: u64, rows: u64) -> DataFile {
    let partition = Struct::from_iter([Some(Literal::int(region))]);
    content_file(content, &format!("s3://b/t/data/{name}.parquet"), partition, rows, bytes).build().expect("complete")
}

struct Builder {
    store: MemoryStore,
    world: World,
}

impl Builder {
    async fn manifest(
        &self,
        name: &str,
        number: i64,
        content: ManifestContentType,
        entries: Vec<ManifestEntry>,
    ) -> ManifestFile {
        let loaded = self.world.loaded();
        let metadata = loaded.typed().expect("readable");
        let layout = (metadata.current_schema().clone(), metadata.default_partition_spec().as_ref().clone());
        let path = format!("s3://b/t/metadata/{name}.avro");
        let written = library_manifest(&path, (FormatVersion::V2, content), layout, (number, number), entries).await;
        let (manifest, bytes) = written.expect("the library takes the entries");
        self.store.put(&path, bytes);
        manifest
    }

    async fn list(&self, snapshot_id: i64, manifests: &[&ManifestFile]) {
        let manifests: Vec<_> = manifests.iter().map(|m| (*m).clone()).collect();
        let bytes = library_manifest_list(snapshot_id, None, snapshot_id, manifests).await.expect("a list");
        self.store.put(&format!("s3://b/t/metadata/snap-{snapshot_id}.avro"), bytes);
    }
}

/// Snapshot 1 adds a and b; 2 deletes by key; 3 replaces a by c and leaves b. Regions 1 and 2.
async fn table() -> (TableHandle, Noted) {
    let builder = Builder { store: MemoryStore::new(), world: World::new(&[&["region"]]) };
    let a = file("a", DataContentType::Data, 1, 100, 10);
    let b = file("b", DataContentType::Data, 2, 300, 30);
    let c = file("c", DataContentType::Data, 1, 90, 10);
    let e = file("e", DataContentType::EqualityDeletes, 1, 5, 1);
    let added =
        |snapshot: i64, file: &DataFile| manifest_entry(ManifestStatus::Added, snapshot, Some(snapshot), file.clone());
    let data = ManifestContentType::Data;
    let first = builder.manifest("m1", 1, data, vec![added(1, &a), added(1, &b)]).await;
    let deletes = builder.manifest("m2", 2, ManifestContentType::Deletes, vec![added(2, &e)]).await;
    let old = |status, file| manifest_entry(status, 1, Some(1), file);
    let entries = vec![added(3, &c), old(ManifestStatus::Existing, b), old(ManifestStatus::Deleted, a)];
    let third = builder.manifest("m3", 3, data, entries).await;
    builder.list(1, &[&first]).await;
    builder.list(2, &[&first, &deletes]).await;
    builder.list(3, &[&third, &deletes]).await;

    let snapshot = |id: i64, operation: &str| snapshot_json(id, (id > 1).then(|| id - 1), id, operation, &json!({}));
    let Builder { store, mut world } = builder;
    world.sequence_number = 3;
    let metadata = world.metadata_json(&[snapshot(1, "append"), snapshot(2, "delete"), snapshot(3, "replace")]);
    let noted = Noted { store: FaultyStore::new(Arc::new(store.clone())), seen: std::cell::Cell::default() };
    let (catalog, ident) = (MemoryCatalog::new(Arc::new(store)), TableIdent::from_strs(["db", "t"]).expect("valid"));
    catalog.register_json(&ident, "m.json".into(), metadata).expect("valid");
    (catalog.handle(&ident, Arc::new(noted.store.clone())).await.expect("there"), noted)
}

#[tokio::test]
async fn state_holds_the_live_files_of_the_current_snapshot() {
    let (table, store) = table().await;
    let cache = ManifestCache::new(1 << 20);
    let state = inspect_table(&table, &cache).await.expect("readable");
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
    collect_stats(&table, &cache, 0).await.expect("readable");
    assert_eq!(store.reads(), ["m1.avro", "snap-1.avro", "snap-2.avro", "snap-3.avro"]);
}

#[tokio::test]
async fn stats_read_each_manifest_once() {
    let (table, store) = table().await;
    let cache = ManifestCache::new(1 << 20);
    let stats = collect_stats(&table, &cache, 100).await.expect("readable");
    assert_eq!(store.reads(), ["m1.avro", "m2.avro", "m3.avro", "snap-1.avro", "snap-2.avro", "snap-3.avro"]);
    assert_eq!((stats.data_files, stats.data_file_bytes, stats.data_records, stats.small_data_files), (2, 390, 40, 1));
    assert_eq!((stats.equality_delete_files, stats.position_delete_files, stats.deletion_vectors), (1, 0, 0));
    assert_eq!((stats.data_manifests, stats.delete_manifests, stats.snapshots, stats.partitions), (1, 1, 3, 2));
    assert_eq!((stats.all_files, stats.all_file_bytes), (4, 495));
    // Records 10 and 30: deviation 10, mean 20.
    assert!((stats.partition_records_rsd_ratio - 0.5).abs() < 1e-12);
    assert_eq!(stats.partition_bytes_mean.to_bits(), 195.0_f64.to_bits());

    let again = collect_stats(&table, &cache, 100).await.expect("readable");
    assert_eq!(again, stats);
    let partitions = collect_partition_stats(&table, &cache, 1).await.expect("readable");
    assert_eq!(partitions.len(), 1);
    let largest = &partitions[0];
    assert_eq!((largest.partition.as_str(), largest.data_files, largest.data_file_bytes), ("region=2", 1, 300));
    assert!(store.reads().is_empty(), "everything was summarised before");

    let none = ManifestCache::new(0);
    assert_eq!(collect_stats(&table, &none, 100).await.expect("readable"), stats);
    assert_eq!(store.reads().iter().filter(|path| path.starts_with('m')).count(), 3, "once, even without a cache");
}

#[tokio::test]
async fn a_missing_manifest_is_an_error() {
    let (table, store) = table().await;
    let gone = Error::new(ErrorKind::NotFound, "read s3://b/t/metadata/m1.avro: no such file");
    store.store.inject_on("m1.avro", Operation::Read, 0..usize::MAX, StoreFault::Fail(gone));
    let cache = ManifestCache::new(1 << 20);
    let error = collect_stats(&table, &cache, 0).await.expect_err("m1 is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("m1.avro"), "{error}");
    inspect_table(&table, &cache).await.expect("the current snapshot does not need it");
}
