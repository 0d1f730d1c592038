//! Catalog and manifests -> [`crate::table::TableState`] and [`TableStats`]. Reads only; manifests are immutable, so each is read once and its
//! summary kept.

mod cache;
mod sizes;
mod stats;
mod summary;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::TryStreamExt;
use iceberg::spec::ManifestFile;

pub use cache::ManifestCache;
pub use sizes::{SIZE_BOUNDS, SizeBucket, SizeHistogram};
pub use stats::PartitionStats;
use stats::StatsBuilder;
use summary::ManifestSummary;

use crate::catalog::TableHandle;
use crate::concurrent::concurrent;
use crate::error::Result;
use crate::meta;
use crate::meta::snapshot::{READS, SnapshotReader};
use crate::table::{SnapshotRef, TableState};

/// A table's health in numbers, as metrics, `inspect` and the page show it.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TableStats {
    /// Live data files of the current snapshot.
    pub data_files: u64,
    /// Their bytes.
    pub data_file_bytes: u64,
    /// Their rows (before deletes).
    pub data_records: u64,
    /// Data files smaller than the minimum file size of the policy.
    pub small_data_files: u64,
    /// Live position delete files (not deletion vectors).
    pub position_delete_files: u64,
    /// Live equality delete files.
    pub equality_delete_files: u64,
    /// Live deletion vectors.
    pub deletion_vectors: u64,
    /// Manifests with data files.
    pub data_manifests: u64,
    /// Manifests with delete files.
    pub delete_manifests: u64,
    /// Bytes of all manifests of the current snapshot.
    pub manifest_bytes: u64,
    /// Retained snapshots.
    pub snapshots: u64,
    /// Partitions with live data files.
    pub partitions: u64,
    /// Population standard deviation over mean of records per partition, as a ratio (1 = 100 %).
    pub partition_records_rsd_ratio: f64,
    /// The same of bytes per partition.
    pub partition_bytes_rsd_ratio: f64,
    /// Mean bytes per partition.
    pub partition_bytes_mean: f64,
    /// Content files (data, delete) reachable from any retained snapshot.
    pub all_files: u64,
    /// Their bytes.
    pub all_file_bytes: u64,
    /// The live data files of the current snapshot by size.
    #[schema(value_type = Vec<SizeBucket>)]
    pub size_histogram: SizeHistogram,
}

impl TableStats {
    /// Live delete files of every kind.
    pub fn delete_files(&self) -> u64 {
        self.position_delete_files + self.equality_delete_files + self.deletion_vectors
    }
}

/// The table's live files as of the snapshot that `table` was loaded with, in manifest order. What its manifests hold is
/// summarised into `cache` on the way.
pub async fn inspect_table(table: &TableHandle, cache: &ManifestCache) -> Result<TableState> {
    let loaded = table.loaded.clone();
    let Some(snapshot) = loaded.current_snapshot().cloned() else {
        let (manifests, data_files, delete_files) = (Vec::new(), Vec::new(), Vec::new());
        return Ok(TableState { loaded, snapshot: None, manifests, data_files, delete_files });
    };
    let mut reader = SnapshotReader::default();
    let state = reader.state(&table.store, &loaded, snapshot).await?;
    for manifest in &state.manifests {
        if cache.summary(manifest).is_none() {
            let files = reader.files_of(manifest).iter().map(Arc::as_ref);
            cache.put_summary(manifest, Arc::new(ManifestSummary::of(files)));
        }
    }
    Ok(state)
}

/// Statistics of the current snapshot and of everything that retained snapshots reach. `min_file_size_bytes` is the policy's:
/// smaller data files count as small. Reads only manifest lists and manifests that `cache` does not hold.
pub async fn collect_stats(table: &TableHandle, cache: &ManifestCache, min_file_size_bytes: u64) -> Result<TableStats> {
    let metadata = &table.loaded.metadata;
    let mut builder = StatsBuilder::new(min_file_size_bytes);
    let current: HashSet<Arc<str>> = match metadata.current_snapshot() {
        Some(snapshot) => list(table, cache, snapshot).await?.iter().map(|m| m.manifest_path.as_str().into()).collect(),
        None => HashSet::new(),
    };
    let lists = concurrent(READS, metadata.snapshots(), |snapshot| list(table, cache, snapshot));
    let lists: Vec<_> = lists.try_collect().await?;
    let mut manifests: HashMap<&str, &ManifestFile> = HashMap::new();
    for manifest in lists.iter().flat_map(|list| list.iter()) {
        manifests.entry(&manifest.manifest_path).or_insert(manifest);
    }
    let mut summaries = concurrent(READS, manifests.into_values(), |manifest| summarised(table, cache, manifest));
    while let Some((manifest, summary)) = summaries.try_next().await? {
        builder.add_reachable(&summary);
        if current.contains(manifest.manifest_path.as_str()) {
            builder.add_current(manifest, &summary);
        }
    }
    Ok(builder.finish(metadata.snapshots().len()))
}

/// The `top` largest partitions of the current snapshot by bytes of data files, largest first. All of them are counted by
/// [`collect_stats`]; this list is for people.
pub async fn collect_partition_stats(
    table: &TableHandle,
    cache: &ManifestCache,
    top: usize,
) -> Result<Vec<PartitionStats>> {
    let metadata = &table.loaded.metadata;
    let Some(snapshot) = metadata.current_snapshot() else {
        return Ok(Vec::new());
    };
    let manifests = list(table, cache, snapshot).await?;
    let mut builder = StatsBuilder::new(0);
    let mut summaries = concurrent(READS, manifests.iter(), |manifest| summarised(table, cache, manifest));
    while let Some((manifest, summary)) = summaries.try_next().await? {
        builder.add_current(manifest, &summary);
    }
    Ok(builder.largest_partitions(table.loaded.typed().ok().map(Arc::as_ref), top))
}

/// The manifests of a snapshot, from the cache or the store.
async fn list(table: &TableHandle, cache: &ManifestCache, snapshot: &SnapshotRef) -> Result<Arc<[Arc<ManifestFile>]>> {
    let path = snapshot.manifest_list();
    if let Some(list) = cache.list(path) {
        return Ok(list);
    }
    let (manifests, _) = meta::read_manifests_of(table.store.as_ref(), snapshot).await?;
    // What a snapshot names itself is read already.
    if path.is_empty() {
        return Ok(manifests.into_iter().map(Arc::new).collect());
    }
    Ok(cache.put_list(path, manifests))
}

/// A manifest with its summary, from the cache or the store.
async fn summarised<'a>(
    table: &TableHandle,
    cache: &ManifestCache,
    manifest: &'a ManifestFile,
) -> Result<(&'a ManifestFile, Arc<ManifestSummary>)> {
    if let Some(summary) = cache.summary(manifest) {
        return Ok((manifest, summary));
    }
    let entries = meta::read_manifest(table.store.as_ref(), &table.loaded, manifest).await?;
    let summary = Arc::new(ManifestSummary::of(&entries));
    cache.put_summary(manifest, summary.clone());
    Ok((manifest, summary))
}

#[cfg(test)]
mod tests;
