//! What planning may know about a table. Pure data and pure functions over it.

pub mod delete_index;
pub mod file;
pub mod history;
pub mod label;
pub mod name;
pub mod partition_values;
pub mod path_set;
pub mod references;
pub mod writable_spec;

use std::sync::Arc;

use iceberg::TableIdent;
use iceberg::spec::ManifestFile;

use crate::catalog::{Catalog, LoadedTable, SnapshotRef};
use crate::error::{Context, Result};
use crate::storage::StoreRef;
pub use delete_index::{ApplicableDeletes, DeleteIndex};
pub use file::{FileEntry, PartitionTuple, name_referenced_files};
pub use name::TableName;
pub use partition_values::PartitionValues;
pub use writable_spec::unwritable_spec;

/// A table within reach: its name, its catalog, its files, and the metadata last loaded. Cheap to clone.
#[derive(Clone)]
pub struct TableHandle {
    /// Name of the catalog in the configuration.
    pub catalog_name: String,
    /// Namespace and table name.
    pub ident: TableIdent,
    /// The catalog.
    pub catalog: Arc<dyn Catalog>,
    /// The store for this table's files, with the table's credentials.
    pub store: StoreRef,
    /// Metadata as of the last load.
    pub loaded: Arc<LoadedTable>,
}

impl TableHandle {
    /// `catalog.namespace.table`, as logs, metrics and patterns name it.
    pub fn name(&self) -> String {
        TableName::new(self.catalog_name.as_str(), &self.ident).to_string()
    }

    /// The same table with metadata loaded anew.
    pub async fn refresh(&self) -> Result<Self> {
        let loaded = self.catalog.load_table(&self.ident).await.context(|| format!("load table {}", self.name()))?;
        Ok(Self { loaded: Arc::new(loaded), ..self.clone() })
    }
}

impl std::fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TableHandle").field(&self.name()).finish()
    }
}

/// A table's live files as of one snapshot.
#[derive(Debug, Clone)]
pub struct TableState {
    /// Metadata.
    pub loaded: Arc<LoadedTable>,
    /// The snapshot described; `None` for a table without one.
    pub snapshot: Option<SnapshotRef>,
    /// Its manifests, in manifest-list order.
    pub manifests: Vec<ManifestFile>,
    /// Live data files, in manifest order.
    pub data_files: Vec<Arc<FileEntry>>,
    /// Live delete files, in manifest order.
    pub delete_files: Vec<Arc<FileEntry>>,
}
