//! What a snapshot holds: its live files, or only the paths that its manifests name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use iceberg::spec::{ManifestContentType, ManifestFile};

use super::list::{read_manifest_list, read_manifests_of};
use super::read::{PathEntry, read_all_manifest_paths, read_manifest};
use crate::concurrent::concurrent;
use crate::error::{Context, Error, Result};
use crate::storage::StoreRef;
use crate::table::{FileEntry, LoadedTable, PartitionTuple, Snapshot, SnapshotRef, TableState, name_referenced_files};

/// Manifests or manifest lists that are read at the same time.
pub const READS: usize = 16;

/// Reads the live files of one table's snapshots, each manifest once. Partition values have the types that the table had when
/// their manifest was read: whoever goes on after a change of its schema takes a new reader.
#[derive(Debug, Default)]
pub struct SnapshotReader {
    /// By manifest path.
    files: HashMap<String, Vec<Arc<FileEntry>>>,
    /// Shared between manifests.
    partitions: HashSet<Arc<PartitionTuple>>,
}

impl SnapshotReader {
    /// The table as of `snapshot`, its files in the order of the manifests.
    ///
    /// Errors are those of reading manifests; one bad manifest fails the whole, since a state with files missing would lose rows.
    pub async fn state(
        &mut self,
        store: &StoreRef,
        loaded: &Arc<LoadedTable>,
        snapshot: SnapshotRef,
    ) -> Result<TableState> {
        let manifests = read_manifest_list(store.as_ref(), loaded, &snapshot).await?;
        self.read(store, loaded, &manifests).await?;
        let (mut data_files, mut delete_files) = (Vec::new(), Vec::new());
        for manifest in &manifests {
            let is_data = manifest.content == ManifestContentType::Data;
            let files = if is_data { &mut data_files } else { &mut delete_files };
            files.extend_from_slice(self.files_of(manifest));
        }
        name_referenced_files(&data_files, &mut delete_files);
        Ok(TableState { loaded: loaded.clone(), snapshot: Some(snapshot), manifests, data_files, delete_files })
    }

    /// The delete files of `snapshot`. None is named after its bounds, since its data files are not read.
    pub async fn delete_files(
        &mut self,
        store: &StoreRef,
        loaded: &Arc<LoadedTable>,
        snapshot: &Snapshot,
    ) -> Result<Vec<Arc<FileEntry>>> {
        let mut manifests = read_manifest_list(store.as_ref(), loaded, snapshot).await?;
        manifests.retain(|m| m.content == ManifestContentType::Deletes);
        self.read(store, loaded, &manifests).await?;
        Ok(manifests.iter().flat_map(|m| self.files_of(m)).cloned().collect())
    }

    /// The live files of a manifest that has been read.
    pub fn files_of(&self, manifest: &ManifestFile) -> &[Arc<FileEntry>] {
        self.files.get(&manifest.manifest_path).map(Vec::as_slice).unwrap_or_default()
    }

    /// The live files of all manifests that have been read, of whichever snapshot.
    pub fn all_files(&self) -> impl Iterator<Item = &Arc<FileEntry>> {
        self.files.values().flatten()
    }

    async fn read(&mut self, store: &StoreRef, loaded: &Arc<LoadedTable>, manifests: &[ManifestFile]) -> Result<()> {
        let missing = manifests.iter().filter(|m| !self.files.contains_key(&m.manifest_path));
        let mut read = concurrent(READS, missing, |manifest| async move {
            Ok::<_, Error>((manifest, read_manifest(store.as_ref(), loaded, manifest).await?))
        });
        while let Some((manifest, entries)) = read.try_next().await? {
            let files = entries.into_iter().map(|entry| Arc::new(self.with_shared_partition(entry))).collect();
            self.files.insert(manifest.manifest_path.clone(), files);
        }
        Ok(())
    }

    fn with_shared_partition(&mut self, mut entry: FileEntry) -> FileEntry {
        match self.partitions.get(&entry.partition) {
            Some(known) => entry.partition = known.clone(),
            None => drop(self.partitions.insert(entry.partition.clone())),
        }
        entry
    }
}

/// Each snapshot with its manifests and the bytes of the list that names them (0 if it names them itself), as they come in.
pub fn manifests_of(
    store: &StoreRef,
    snapshots: Vec<SnapshotRef>,
) -> impl Stream<Item = (SnapshotRef, Result<(Vec<ManifestFile>, u64)>)> + use<> {
    let store = store.clone();
    let read = move |snapshot: SnapshotRef| {
        let store = store.clone();
        async move {
            let read = read_manifests_of(store.as_ref(), &snapshot).await;
            let read = read.context(|| format!("read the manifest list of snapshot {}", snapshot.snapshot_id()));
            (snapshot, read)
        }
    };
    stream::iter(snapshots).map(read).buffer_unordered(READS)
}

/// Each manifest with the files that it names, also those that it only says have left, as they come in: of millions of paths
/// only those of a few manifests are in memory.
pub fn paths_of(
    store: &StoreRef,
    manifests: Vec<ManifestFile>,
) -> impl Stream<Item = Result<(ManifestFile, Vec<PathEntry>)>> + use<> {
    let store = store.clone();
    let read = move |manifest: ManifestFile| {
        let store = store.clone();
        async move {
            let entries = read_all_manifest_paths(store.as_ref(), &manifest).await?;
            Ok((manifest, entries))
        }
    };
    stream::iter(manifests).map(read).buffer_unordered(READS)
}
