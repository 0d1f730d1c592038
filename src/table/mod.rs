//! What planning may know about a table. Pure data and pure functions over it.

pub mod commit_interval;
pub mod delete_index;
pub mod delete_rule;
pub mod file;
pub mod file_names;
pub mod history;
pub mod label;
mod loaded;
mod metadata;
pub mod name;
pub mod partition_values;
pub mod path;
pub mod path_set;
pub mod references;
pub mod scope;
mod stored_file;
pub mod supports;
mod typed;

use std::sync::Arc;

use iceberg::spec::ManifestFile;

pub use delete_index::{ApplicableDeletes, DeleteIndex};
pub use file::{FileEntry, PartitionTuple, name_referenced_files};
pub use loaded::{DeclaredPaths, LoadedTable, StorageCredential, TableCredentials};
pub use metadata::{Metadata, Snapshot, SnapshotRef, StatisticsFile};
pub use name::TableName;
pub use partition_values::PartitionValues;
pub use stored_file::{FileIdentity, ListedFile};

/// A table's live files as of one snapshot.
#[derive(Debug, Clone)]
pub struct TableState {
    pub loaded: Arc<LoadedTable>,
    /// The snapshot described; `None` for a table without one.
    pub snapshot: Option<SnapshotRef>,
    pub manifests: Vec<ManifestFile>,
    /// Live data files, in manifest order.
    pub data_files: Vec<Arc<FileEntry>>,
    /// Live delete files, in manifest order.
    pub delete_files: Vec<Arc<FileEntry>>,
}
