//! The operations of the catalog on its directory. They block: handlers call them on blocking threads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::{NamespaceIdent, TableIdent};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::change::{self, NewMetadata};
use super::files;
use super::names;
use super::problem::{CatalogError, CatalogResult};
use super::requests::{CreateNamespace, CreateTable, ListQuery, RegisterTable};
use super::tree::{Properties, TableSlot, Tree, TreeFiles};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// A catalog over a directory that it has to itself.
pub(super) struct CatalogState {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tree: RwLock<Tree>,
    pub(super) files: TreeFiles,
    warehouse: PathBuf,
    /// Held for its lock; the system frees it when the process dies in whatever way.
    _lock: File,
}

/// A table as it is handed to clients.
#[derive(Debug)]
pub(super) struct StoredTable {
    /// Its metadata file; none while a create is only staged.
    pub(super) metadata_location: Option<String>,
    /// The metadata document, as the file has it.
    pub(super) metadata: String,
}

impl CatalogState {
    /// Opens or makes the catalog in `dir`.
    pub(super) fn open(dir: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let failed = |e: std::io::Error| Error::internal(format!("open catalog directory {}: {e}", dir.display()));
        fs::create_dir_all(dir).map_err(failed)?;
        let dir = dir.canonicalize().map_err(failed)?;
        // Some readers decode locations as URIs and some do not: only names that mean the same to both will do.
        if dir.to_str().is_none_or(|text| text.contains(['%', '?', '#'])) {
            let text = format!("directory {} must not contain %, ? or #: locations are URIs", dir.display());
            return Err(Error::new(ErrorKind::Config, text));
        }
        let lock = File::create(dir.join("lock")).map_err(failed)?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Error::new(ErrorKind::Config, format!("catalog directory {} is in use by another process", dir.display()))
        })?;
        let warehouse = dir.join("warehouse");
        fs::create_dir_all(&warehouse).map_err(failed)?;
        let files = TreeFiles::new(dir.join("catalog")).map_err(failed)?;
        let tree = files.read()?;
        Ok(Self { clock, tree: RwLock::new(tree), files, warehouse, _lock: lock })
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write()
    }

    /// Full names of the namespaces directly below one, or at the top.
    pub(super) fn list_namespaces(&self, query: &ListQuery) -> CatalogResult<Vec<Vec<String>>> {
        let parent = query.parent()?;
        let tree = self.read();
        if let Some(parent) = &parent {
            tree.namespace(parent)?;
        }
        let children = tree.children(parent.as_ref()).into_iter();
        let prefix = parent.map(NamespaceIdent::inner).unwrap_or_default();
        Ok(children.map(|name| prefix.iter().cloned().chain([name]).collect()).collect())
    }

    /// Makes a namespace; its parent must be there.
    pub(super) fn create_namespace(&self, request: CreateNamespace) -> CatalogResult<(NamespaceIdent, Properties)> {
        let namespace = names::namespace(request.namespace)?;
        let properties = request.properties.unwrap_or_default();
        let mut tree = self.write();
        if let Some(parent) = namespace.parent() {
            tree.namespace(&parent)?;
        }
        if tree.namespace(&namespace).is_ok() {
            return Err(CatalogError::already_exists(format!("namespace {namespace}")));
        }
        self.files
            .write_namespace(&namespace, &properties, self.clock.uuid())
            .map_err(|e| CatalogError::internal(format!("create namespace {namespace}"), e))?;
        tree.insert(namespace.clone(), properties.clone());
        Ok((namespace, properties))
    }

    pub(super) fn load_namespace(&self, namespace: &NamespaceIdent) -> CatalogResult<Properties> {
        Ok(self.read().namespace(namespace)?.properties.clone())
    }

    /// Drops a namespace that holds nothing.
    pub(super) fn drop_namespace(&self, namespace: &NamespaceIdent) -> CatalogResult<()> {
        let mut tree = self.write();
        if !tree.namespace(namespace)?.tables.is_empty() || !tree.children(Some(namespace)).is_empty() {
            return Err(CatalogError::not_empty(namespace));
        }
        self.files
            .remove_namespace(namespace)
            .map_err(|e| CatalogError::internal(format!("drop namespace {namespace}"), e))?;
        tree.remove(namespace);
        Ok(())
    }

    /// Names of a namespace's tables.
    pub(super) fn list_tables(&self, namespace: &NamespaceIdent) -> CatalogResult<Vec<String>> {
        Ok(self.read().namespace(namespace)?.tables.keys().cloned().collect())
    }

    /// Whether the table is there, as a 404 if not.
    pub(super) fn check_table(&self, table: &TableIdent) -> CatalogResult<()> {
        self.read().table(table).map(|_| ())
    }

    /// The table's metadata.
    pub(super) fn load_table(&self, table: &TableIdent) -> CatalogResult<StoredTable> {
        let slot = self.read().table(table)?;
        // The lock keeps `write.metadata.delete-after-commit.enabled` from deleting the file under the reader.
        let state = slot.lock();
        if state.ident.as_ref() != Some(table) {
            return Err(CatalogError::no_such_table(table));
        }
        let metadata_location = state.metadata_location.clone();
        let metadata = read_document(&metadata_location)?;
        Ok(StoredTable { metadata_location: Some(metadata_location), metadata })
    }

    /// Makes a table, or only its first metadata if the client will commit it later.
    pub(super) fn create_table(&self, namespace: NamespaceIdent, request: CreateTable) -> CatalogResult<StoredTable> {
        let table = names::table(namespace, request.name.clone())?;
        let mut tree = self.write();
        tree.check_vacant(&table)?;
        let (location, reserved) = match &request.location {
            Some(location) => (location.trim_end_matches('/').to_string(), false),
            None => (self.reserve_location(&table)?, true),
        };
        let dir = files::local_path(&location)?;
        let staged = request.stage_create == Some(true);
        let metadata = change::create(request, location, self.clock.uuid()).inspect_err(|_| {
            if reserved {
                release_location(&dir);
            }
        })?;
        if staged {
            return Ok(StoredTable { metadata_location: None, metadata: metadata.json });
        }
        let metadata_location = self.write_metadata(&metadata, 0)?;
        self.files
            .write_table(&table, &metadata_location, self.clock.uuid())
            .map_err(|e| CatalogError::internal(format!("create table {table}"), e))?;
        self.insert(&mut tree, &table, &metadata_location)?;
        Ok(StoredTable { metadata_location: Some(metadata_location), metadata: metadata.json })
    }

    /// Takes in a table by its metadata file, which is left as it is.
    pub(super) fn register_table(
        &self,
        namespace: NamespaceIdent,
        request: RegisterTable,
    ) -> CatalogResult<StoredTable> {
        let table = names::table(namespace, request.name)?;
        let metadata_location = request.metadata_location;
        let metadata = read_document(&metadata_location)
            .map_err(|e| CatalogError::bad_request(format!("Cannot register {metadata_location}: {}", e.message())))?;
        let document: serde_json::Value = serde_json::from_str(&metadata)
            .map_err(|e| CatalogError::bad_request(format!("Cannot register {metadata_location}: {e}")))?;
        // Tables with types the library does not know can be served though not changed, so no more is asked.
        if document.get("format-version").is_none() || document.get("location").is_none() {
            return Err(CatalogError::bad_request(format!("{metadata_location} is no table metadata")));
        }
        let mut tree = self.write();
        tree.check_vacant(&table)?;
        self.files
            .write_table(&table, &metadata_location, self.clock.uuid())
            .map_err(|e| CatalogError::internal(format!("register table {table}"), e))?;
        self.insert(&mut tree, &table, &metadata_location)?;
        Ok(StoredTable { metadata_location: Some(metadata_location), metadata })
    }

    pub(super) fn drop_table(&self, table: &TableIdent) -> CatalogResult<()> {
        let mut tree = self.write();
        let slot = tree.table(table)?;
        let mut state = slot.lock();
        fs::remove_file(self.files.table_file(table))
            .map_err(|e| CatalogError::internal(format!("drop table {table}"), e))?;
        state.ident = None;
        tree.namespace_mut(&table.namespace)?.tables.remove(&table.name);
        Ok(())
    }

    /// A location that no table has or had. The directory is made at once, so that it can be given out only once:
    /// a dropped table's files must never lie among another table's.
    pub(super) fn reserve_location(&self, table: &TableIdent) -> CatalogResult<String> {
        let failed = |e: std::io::Error| CatalogError::internal(format!("make a directory for {table}"), e);
        let parent = self.warehouse.join(names::namespace_dir(&table.namespace));
        let name = names::encode(&table.name);
        let mut dir = parent.join(&name);
        if !files::reserve_dir(&dir).map_err(failed)? {
            dir = parent.join(format!("{name}-{}", self.clock.uuid().simple()));
            if !files::reserve_dir(&dir).map_err(failed)? {
                return Err(CatalogError::internal(format!("make a directory for {table}"), "name is taken"));
            }
        }
        // Some clients take a store where directories need not be made for granted.
        for inner in ["data", "metadata"] {
            fs::create_dir_all(dir.join(inner)).map_err(failed)?;
        }
        Ok(format!("file://{}", dir.display()))
    }

    /// Writes a metadata file under a name that was never used, and returns its location.
    pub(super) fn write_metadata(&self, metadata: &NewMetadata, version: u64) -> CatalogResult<String> {
        let location = format!("{}/{version:05}-{}.metadata.json", metadata.directory, self.clock.uuid());
        let failed = |e: std::io::Error| CatalogError::internal(format!("write {location}"), e);
        let path = files::local_path(&location)?;
        files::local_path(&metadata.location)?;
        files::write_new(&path, metadata.json.as_bytes()).map_err(failed)?;
        Ok(location)
    }

    pub(super) fn insert(&self, tree: &mut Tree, table: &TableIdent, metadata_location: &str) -> CatalogResult<()> {
        let slot = TableSlot::new(table.clone(), metadata_location.to_string());
        tree.namespace_mut(&table.namespace)?.tables.insert(table.name.clone(), slot);
        Ok(())
    }
}

/// Takes a reservation back. Only empty directories go, whatever may have happened meanwhile.
fn release_location(dir: &Path) {
    for inner in ["data", "metadata", ""] {
        let _ = fs::remove_dir(dir.join(inner));
    }
}

/// Reads the document at a metadata location. It goes out word for word, so a file that was cut off must show here.
pub(super) fn read_document(metadata_location: &str) -> CatalogResult<String> {
    let path = files::local_path(metadata_location)?;
    let failed = |e: &dyn std::fmt::Display| CatalogError::internal(format!("read {metadata_location}"), e);
    let text = files::read_metadata(&path).map_err(|e| failed(&e))?;
    serde_json::from_str::<serde::de::IgnoredAny>(&text)
        .map_err(|e| failed(&format!("it is no JSON document: {e}")))?;
    Ok(text)
}
