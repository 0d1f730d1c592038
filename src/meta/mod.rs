//! Manifests and manifest lists: a reader that decodes only what is needed, and writers for what a commit changes.

use std::sync::Arc;

use iceberg::spec::{DataContentType, FormatVersion, Manifest, ManifestFile, ManifestList, Snapshot};

use crate::catalog::LoadedTable;
use crate::error::{Context, Error, Result};
use crate::storage::Store;

/// A live content file of a manifest, as far as reachability needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    /// Path, verbatim.
    pub file_path: Arc<str>,
    /// Bytes.
    pub file_size_bytes: u64,
    /// Data, position deletes or equality deletes.
    pub content: DataContentType,
}

/// The manifests of a snapshot, in manifest-list order.
pub async fn read_manifest_list(
    store: &dyn Store,
    loaded: &LoadedTable,
    snapshot: &Snapshot,
) -> Result<Vec<ManifestFile>> {
    let path = snapshot.manifest_list();
    let bytes = store.read(path).await.context(|| format!("read manifest list {path}"))?;
    let current = loaded.metadata.format_version();
    let versions = [current, FormatVersion::V3, FormatVersion::V2, FormatVersion::V1];
    let parsed = versions.into_iter().find_map(|v| ManifestList::parse_with_version(&bytes, v).ok());
    let list = parsed.ok_or_else(|| Error::invalid(format!("manifest list {path} cannot be read")))?;
    Ok(list.consume_entries().into_iter().collect())
}

/// The live files of a manifest.
pub async fn read_manifest_paths(store: &dyn Store, manifest: &ManifestFile) -> Result<Vec<PathEntry>> {
    let path = &manifest.manifest_path;
    let bytes = store.read(path).await.context(|| format!("read manifest {path}"))?;
    let parsed = Manifest::parse_avro(&bytes).context(|| format!("read manifest {path}"))?;
    let live = parsed.entries().iter().filter(|e| e.is_alive());
    Ok(live
        .map(|e| PathEntry {
            file_path: e.file_path().into(),
            file_size_bytes: e.file_size_in_bytes(),
            content: e.content_type(),
        })
        .collect())
}
