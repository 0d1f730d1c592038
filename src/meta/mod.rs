//! Manifests and manifest lists: a reader that decodes only what is needed, and writers for what a commit changes.

use std::sync::Arc;

use iceberg::spec::{DataContentType, FormatVersion, Manifest, ManifestFile, ManifestList};

use crate::error::{Context, Error, Result};
use crate::storage::Store;

/// A content file as reachability needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    /// Path, verbatim.
    pub file_path: Arc<str>,
    /// Bytes.
    pub file_size_bytes: u64,
    /// Data, position deletes or equality deletes.
    pub content: DataContentType,
    /// Whether the file is live in this manifest; `false`: the entry only records that the file left.
    pub live: bool,
}

/// The manifests that the manifest list at `path` names. Needs no table metadata.
pub async fn read_manifest_list_at(store: &dyn Store, path: &str) -> Result<Vec<ManifestFile>> {
    let bytes = store.read(path).await.context(|| format!("read manifest list {path}"))?;
    let versions = [FormatVersion::V2, FormatVersion::V1, FormatVersion::V3];
    let parsed = versions.into_iter().find_map(|v| ManifestList::parse_with_version(&bytes, v).ok());
    let list = parsed.ok_or_else(|| Error::invalid(format!("manifest list {path} cannot be read")))?;
    Ok(list.consume_entries().into_iter().collect())
}

/// Content files of a manifest, also those whose entry says that they were deleted. Needs no schema.
pub async fn read_all_manifest_paths(store: &dyn Store, manifest: &ManifestFile) -> Result<Vec<PathEntry>> {
    let path = &manifest.manifest_path;
    let bytes = store.read(path).await.context(|| format!("read manifest {path}"))?;
    let parsed = Manifest::parse_avro(&bytes).context(|| format!("read manifest {path}"))?;
    let entry = |e: &iceberg::spec::ManifestEntryRef| PathEntry {
        file_path: e.file_path().into(),
        file_size_bytes: e.file_size_in_bytes(),
        content: e.content_type(),
        live: e.is_alive(),
    };
    Ok(parsed.entries().iter().map(entry).collect())
}
