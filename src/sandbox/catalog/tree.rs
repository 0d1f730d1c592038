//! Which namespaces and tables there are, in memory and on disk.
//!
//! ```text
//! DIR/catalog/<level>/<level>/namespace.json      properties of a namespace
//! DIR/catalog/<level>/<level>/<name>.table.json   where the current metadata of a table lies
//! ```
//! The file of a table is the commit: it is replaced at once, so a table is at its old metadata or at its new.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::{NamespaceIdent, TableIdent};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::files;
use super::names;
use super::problem::{CatalogError, CatalogResult};
use crate::error::{Error, Result};

const NAMESPACE_FILE: &str = "namespace.json";
const TABLE_SUFFIX: &str = ".table.json";

pub(super) type Properties = BTreeMap<String, String>;

/// Everything there is; the lock around it guards what exists, not what the tables hold.
#[derive(Debug, Default)]
pub(super) struct Tree {
    namespaces: BTreeMap<NamespaceIdent, NamespaceEntry>,
}

/// A namespace and its tables.
#[derive(Debug, Default)]
pub(super) struct NamespaceEntry {
    pub(super) properties: Properties,
    pub(super) tables: BTreeMap<String, Arc<TableSlot>>,
}

/// A table. Its lock is held for the whole of a commit, and taken after the tree's.
#[derive(Debug)]
pub(super) struct TableSlot(Mutex<SlotState>);

/// Where a table stands.
#[derive(Debug)]
pub(super) struct SlotState {
    /// Its name now; `None` once it is dropped.
    pub(super) ident: Option<TableIdent>,
    /// Its current metadata file, as clients see it.
    pub(super) metadata_location: String,
}

impl TableSlot {
    /// A table that is at this metadata.
    pub(super) fn new(ident: TableIdent, metadata_location: String) -> Arc<Self> {
        Arc::new(Self(Mutex::new(SlotState { ident: Some(ident), metadata_location })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock()
    }
}

impl Tree {
    /// The namespace's entry, or the 404.
    pub(super) fn namespace(&self, namespace: &NamespaceIdent) -> CatalogResult<&NamespaceEntry> {
        self.namespaces.get(namespace).ok_or_else(|| CatalogError::no_such_namespace(namespace))
    }

    /// The namespace's entry to be changed, or the 404.
    pub(super) fn namespace_mut(&mut self, namespace: &NamespaceIdent) -> CatalogResult<&mut NamespaceEntry> {
        self.namespaces.get_mut(namespace).ok_or_else(|| CatalogError::no_such_namespace(namespace))
    }

    pub(super) fn table(&self, table: &TableIdent) -> CatalogResult<Arc<TableSlot>> {
        let namespace = self.namespaces.get(&table.namespace);
        let slot = namespace.and_then(|n| n.tables.get(&table.name)).cloned();
        slot.ok_or_else(|| CatalogError::no_such_table(table))
    }

    /// The 409 if the table exists, the 404 if its namespace does not.
    pub(super) fn check_vacant(&self, table: &TableIdent) -> CatalogResult<()> {
        match self.namespace(&table.namespace)?.tables.contains_key(&table.name) {
            true => Err(CatalogError::already_exists(format!("table {table}"))),
            false => Ok(()),
        }
    }

    /// Names of the namespaces directly below `parent`, sorted.
    pub(super) fn children(&self, parent: Option<&NamespaceIdent>) -> Vec<String> {
        let depth = parent.map_or(0, |p| p.len());
        let children = self.namespaces.keys().filter(|n| n.len() == depth + 1 && n.parent().as_ref() == parent);
        children.filter_map(|n| n.last().cloned()).collect()
    }

    pub(super) fn insert(&mut self, namespace: NamespaceIdent, properties: Properties) {
        self.namespaces.insert(namespace, NamespaceEntry { properties, tables: BTreeMap::new() });
    }

    pub(super) fn remove(&mut self, namespace: &NamespaceIdent) {
        self.namespaces.remove(namespace);
    }
}

#[derive(Debug)]
pub(super) struct TreeFiles {
    root: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct NamespaceFile {
    properties: Properties,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct TableFile {
    metadata_location: String,
}

impl TreeFiles {
    /// The files below `root`, which is made if it is not there.
    pub(super) fn new(root: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&root)?;
        Ok(Self { root })
    }

    /// Reads everything back. Files on their way at a crash are removed.
    pub(super) fn read(&self) -> Result<Tree> {
        let mut tree = Tree::default();
        self.read_dir(&self.root, &[], &mut tree)?;
        Ok(tree)
    }

    fn read_dir(&self, dir: &Path, levels: &[String], tree: &mut Tree) -> Result<()> {
        let failed = |e: io::Error| Error::internal(format!("read catalog directory {}: {e}", dir.display()));
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let file_name = entry.file_name();
            let name = file_name.to_str().unwrap_or_default();
            if name.starts_with(files::TEMP_PREFIX) {
                fs::remove_file(entry.path()).map_err(failed)?;
            } else if entry.file_type().map_err(failed)?.is_dir()
                && let Some(level) = names::decode(name)
            {
                let levels: Vec<String> = levels.iter().cloned().chain([level]).collect();
                self.read_namespace(&entry.path(), levels, tree)?;
            }
        }
        Ok(())
    }

    fn read_namespace(&self, dir: &Path, levels: Vec<String>, tree: &mut Tree) -> Result<()> {
        // A namespace is there when its file is: a directory alone was left by a crash.
        let file = dir.join(NAMESPACE_FILE);
        if !file.is_file() {
            return Ok(());
        }
        let namespace = NamespaceIdent::from_vec(levels.clone())?;
        tree.insert(namespace.clone(), read_json::<NamespaceFile>(&file)?.properties);
        let failed = |e: io::Error| Error::internal(format!("read catalog directory {}: {e}", dir.display()));
        let mut tables = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let file_name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if let Some(name) = file_name.strip_suffix(TABLE_SUFFIX).and_then(names::decode) {
                let ident = TableIdent::new(namespace.clone(), name.clone());
                tables.insert(name, TableSlot::new(ident, read_json::<TableFile>(&path)?.metadata_location));
            }
        }
        if let Ok(entry) = tree.namespace_mut(&namespace) {
            entry.tables = tables;
        }
        self.read_dir(dir, &levels, tree)
    }

    fn namespace_dir(&self, namespace: &NamespaceIdent) -> PathBuf {
        self.root.join(names::namespace_dir(namespace))
    }

    /// The file that says where a table's metadata lies.
    pub(super) fn table_file(&self, table: &TableIdent) -> PathBuf {
        self.namespace_dir(&table.namespace).join(format!("{}{TABLE_SUFFIX}", names::encode(&table.name)))
    }

    pub(super) fn write_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: &Properties,
        unique: uuid::Uuid,
    ) -> io::Result<()> {
        let json = serde_json::to_vec(&NamespaceFile { properties: properties.clone() })?;
        let dir = self.namespace_dir(namespace);
        fs::create_dir_all(&dir)?;
        files::replace(&dir.join(NAMESPACE_FILE), &json, unique)
    }

    pub(super) fn remove_namespace(&self, namespace: &NamespaceIdent) -> io::Result<()> {
        let dir = self.namespace_dir(namespace);
        fs::remove_file(dir.join(NAMESPACE_FILE))?;
        // What is left is at most a temporary file of a crash, and harmless.
        let _ = fs::remove_dir(&dir);
        Ok(())
    }

    /// Moves a table to its new metadata: the moment of a commit.
    pub(super) fn write_table(
        &self,
        table: &TableIdent,
        metadata_location: &str,
        unique: uuid::Uuid,
    ) -> io::Result<()> {
        let json = serde_json::to_vec(&TableFile { metadata_location: metadata_location.to_string() })?;
        files::replace(&self.table_file(table), &json, unique)
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let failed = |e: &dyn std::fmt::Display| Error::internal(format!("read catalog file {}: {e}", path.display()));
    let bytes = fs::read(path).map_err(|e| failed(&e))?;
    serde_json::from_slice(&bytes).map_err(|e| failed(&e))
}
