//! The catalog as this project sees it. [`rest`] is the one adapter for production.
//! It must own the classification of answers: anything not proven refused is unknown.

pub mod auth;
mod classify;
mod names;
pub mod rest;
mod transport;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::spec::{SnapshotRef, SnapshotReference, TableMetadata};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
pub use iceberg_catalog_rest::StorageCredential;

use crate::error::{Context, Error, Result};

/// Table metadata as a catalog served it, with what the library's type hides.
#[derive(Clone)]
pub struct LoadedTable {
    /// Where the metadata file lies.
    pub metadata_location: String,
    /// The parsed metadata.
    pub metadata: Arc<TableMetadata>,
    /// Every branch and tag. Since the library gives no access to all refs, they are read from the JSON.
    pub refs: BTreeMap<String, SnapshotReference>,
    /// The catalog's settings for this table (may hold vended credentials).
    pub config: HashMap<String, String>,
    /// Vended credentials by location prefix.
    pub storage_credentials: Vec<StorageCredential>,
}

impl std::fmt::Debug for LoadedTable {
    /// Without settings and credentials: they hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("LoadedTable");
        shown.field("metadata_location", &self.metadata_location).field("metadata", &self.metadata);
        shown.field("refs", &self.refs).finish_non_exhaustive()
    }
}

impl LoadedTable {
    /// Parses a metadata document. A schema with types the library cannot parse is [`crate::error::ErrorKind::Unsupported`].
    pub fn from_metadata_json(metadata_location: String, json: &serde_json::Value) -> Result<Self> {
        let mut refs: BTreeMap<String, SnapshotReference> = match json.get("refs") {
            Some(refs) if !refs.is_null() => serde_json::from_value(refs.clone()).context(|| "parse refs")?,
            _ => BTreeMap::new(),
        };
        let metadata: TableMetadata = serde_json::from_value(json.clone()).map_err(|e| {
            Error::unsupported(format!("table metadata {metadata_location} cannot be read by this version: {e}"))
        })?;
        // Version 1 metadata may name its current snapshot without a `main` ref.
        if let (false, Some(id)) = (refs.contains_key("main"), metadata.current_snapshot_id()) {
            let retention = iceberg::spec::SnapshotRetention::branch(None, None, None);
            refs.insert("main".into(), SnapshotReference::new(id, retention));
        }
        Ok(Self {
            metadata_location,
            metadata: Arc::new(metadata),
            refs,
            config: HashMap::new(),
            storage_credentials: Vec::new(),
        })
    }

    /// The head of `main`.
    pub fn current_snapshot(&self) -> Option<&SnapshotRef> {
        self.metadata.current_snapshot()
    }
}

/// What a catalog lends for reaching a table's files.
#[derive(Clone, Default)]
pub struct TableCredentials {
    /// The catalog's settings for the table.
    pub config: HashMap<String, String>,
    /// Vended credentials by location prefix.
    pub storage_credentials: Vec<StorageCredential>,
}

/// What became of a commit request. A value, not an error: each outcome asks for something else.
#[derive(Debug)]
pub enum CommitOutcome {
    /// The catalog applied it and said so.
    Committed(Box<LoadedTable>),
    /// A requirement no longer held (409): refresh, revalidate, try again. Nothing was applied.
    Conflict(Error),
    /// Definitely not applied, and sending the same again now will not help (400, 401, 403, 404 ..., or the request never
    /// left). The error's kind says whether a later run may fare better.
    Refused(Error),
    /// May have been applied: find out, delete nothing meanwhile.
    Unknown(Error),
}

/// Learns of every request to a catalog or a store, for metrics.
pub trait RequestObserver: Send + Sync {
    /// A request of this kind ended like this after this many seconds. Names come from small fixed sets.
    fn observe(&self, operation: &'static str, outcome: &'static str, seconds: f64);
    /// So many bytes came from a store.
    fn bytes_read(&self, _bytes: u64) {}
    /// So many bytes were handed to a store.
    fn bytes_written(&self, _bytes: u64) {}
}

/// What maintenance needs from a catalog.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// Child namespaces of `parent`, or the top-level ones.
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>>;
    /// Tables directly in `namespace`.
    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>>;
    /// The table's current metadata. [`crate::error::ErrorKind::NotFound`] if it is gone.
    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable>;
    /// The directories that hold the table's files ([`crate::table::references::own_directories`]), also of a table whose
    /// metadata cannot be read otherwise, where the catalog has a way. [`crate::error::ErrorKind::NotFound`] if it is gone.
    async fn table_directories(&self, table: &TableIdent) -> Result<Vec<String>> {
        crate::table::references::own_directories(&self.load_table(table).await?)
    }
    /// New credentials for the table's files; by loading the table again, unless the catalog has a shorter way.
    async fn load_credentials(&self, table: &TableIdent) -> Result<TableCredentials> {
        let loaded = self.load_table(table).await?;
        Ok(TableCredentials { config: loaded.config, storage_credentials: loaded.storage_credentials })
    }
    /// Storage settings that hold for all its tables, for [`crate::storage::for_table`]. Without the catalog's own secrets.
    async fn storage_properties(&self) -> Result<HashMap<String, String>> {
        Ok(HashMap::new())
    }
    /// Asks the catalog to apply `updates` if all `requirements` hold. Never retried inside, except where provably not applied.
    async fn commit_table(
        &self,
        table: &TableIdent,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome;
}
