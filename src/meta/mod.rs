//! Manifests and manifest lists: a reader that decodes only what is needed, and writers for what a commit changes.

use std::sync::Arc;

use iceberg::spec::{FormatVersion, Manifest, ManifestFile, ManifestList, Snapshot};

use crate::catalog::LoadedTable;
use crate::error::{Context, Error, Result};
use crate::storage::Store;
use crate::table::{FileEntry, PartitionTuple};

/// The manifests of a snapshot.
pub async fn read_manifest_list(
    store: &dyn Store,
    loaded: &LoadedTable,
    snapshot: &Snapshot,
) -> Result<Vec<ManifestFile>> {
    let path = snapshot.manifest_list();
    let bytes = store.read(path).await.context(|| format!("read manifest list {path}"))?;
    let version: FormatVersion = loaded.metadata.format_version();
    Ok(ManifestList::parse_with_version(&bytes, version)?.consume_entries().into_iter().collect())
}

/// Live entries of a manifest.
pub async fn read_manifest(
    store: &dyn Store,
    _loaded: &LoadedTable,
    manifest: &ManifestFile,
) -> Result<Vec<FileEntry>> {
    let path = &manifest.manifest_path;
    let bytes = store.read(path).await.context(|| format!("read manifest {path}"))?;
    let parsed = Manifest::parse_avro(&bytes)?;
    let shared: Arc<str> = path.as_str().into();
    let live = parsed.entries().iter().filter(|entry| entry.is_alive());
    let entries = live.map(|entry| {
        let file = entry.data_file();
        let sequence = entry.sequence_number().unwrap_or(manifest.sequence_number);
        FileEntry {
            content: file.content_type(),
            file_path: file.file_path().into(),
            file_format: file.file_format(),
            partition: Arc::new(PartitionTuple {
                spec_id: manifest.partition_spec_id,
                values: file.partition().clone(),
            }),
            record_count: file.record_count(),
            file_size_bytes: file.file_size_in_bytes(),
            data_sequence_number: sequence,
            file_sequence_number: Some(sequence),
            snapshot_id: entry.snapshot_id().unwrap_or(manifest.added_snapshot_id),
            equality_ids: file.equality_ids().unwrap_or_default(),
            referenced_data_file: file.referenced_data_file().map(Into::into),
            content_offset: file.content_offset(),
            content_size_bytes: file.content_size_in_bytes(),
            sort_order_id: file.sort_order_id(),
            first_row_id: file.first_row_id(),
            encrypted: file.key_metadata().is_some(),
            manifest_path: shared.clone(),
        }
    });
    let entries: Vec<FileEntry> = entries.collect();
    if entries.is_empty() && manifest.has_existing_files() && manifest.existing_files_count.is_some() {
        return Err(Error::invalid(format!("manifest {path} has fewer entries than its list says")));
    }
    Ok(entries)
}
