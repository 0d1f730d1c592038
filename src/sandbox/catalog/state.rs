//! The operations of the catalog on its directory. They block: handlers call them on blocking threads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::{NamespaceIdent, TableIdent};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::change::{self, NewMetadata};
use super::files;
use super::intent::Intents;
use super::names;
use super::problem::{Outcome, Problem};
use super::requests::{CreateNamespace, CreateTable, ListQuery, RegisterTable, RenameTable, UpdateProperties};
use super::tree::{Properties, Slot, Tree, TreeFiles};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// A catalog over a directory that it has to itself.
pub(super) struct State {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tree: RwLock<Tree>,
    pub(super) files: TreeFiles,
    pub(super) intents: Intents,
    warehouse: PathBuf,
    /// Held for its lock; the system frees it when the process dies in whatever way.
    _lock: File,
}

/// A table as it is handed to clients.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Its metadata file; none while a create is only staged.
    pub(super) metadata_location: Option<String>,
    /// The metadata document, as the file has it.
    pub(super) metadata: String,
}

impl State {
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
        files::create_dirs(&warehouse).map_err(failed)?;
        let files = TreeFiles::new(dir.join("catalog")).map_err(failed)?;
        let intents = Intents::new(dir.join("catalog").join("transaction.json"));
        intents.redo(&files.read()?, &files, clock.as_ref())?;
        let tree = files.read()?;
        Ok(Self { clock, tree: RwLock::new(tree), files, intents, warehouse, _lock: lock })
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write()
    }

    /// Full names of the namespaces directly below one, or at the top.
    pub(super) fn list_namespaces(&self, query: &ListQuery) -> Outcome<(Vec<Vec<String>>, Option<String>)> {
        let parent = query.parent()?;
        let tree = self.read();
        if let Some(parent) = &parent {
            tree.namespace(parent)?;
        }
        let (page, token) = query.page(tree.children(parent.as_ref()))?;
        let prefix = parent.map(NamespaceIdent::inner).unwrap_or_default();
        Ok((page.into_iter().map(|name| prefix.iter().cloned().chain([name]).collect()).collect(), token))
    }

    /// Makes a namespace; its parent must be there.
    pub(super) fn create_namespace(&self, request: CreateNamespace) -> Outcome<(NamespaceIdent, Properties)> {
        let namespace = names::namespace(request.namespace)?;
        let properties = request.properties.unwrap_or_default();
        let mut tree = self.write();
        if let Some(parent) = namespace.parent() {
            tree.namespace(&parent)?;
        }
        if tree.namespace(&namespace).is_ok() {
            return Err(Problem::already_exists(format!("namespace {namespace}")));
        }
        self.files
            .write_namespace(&namespace, &properties, self.clock.uuid())
            .map_err(|e| Problem::internal(format!("create namespace {namespace}"), e))?;
        tree.insert(namespace.clone(), properties.clone());
        Ok((namespace, properties))
    }

    /// A namespace's properties.
    pub(super) fn load_namespace(&self, namespace: &NamespaceIdent) -> Outcome<Properties> {
        Ok(self.read().namespace(namespace)?.properties.clone())
    }

    /// Drops a namespace that holds nothing.
    pub(super) fn drop_namespace(&self, namespace: &NamespaceIdent) -> Outcome<()> {
        let mut tree = self.write();
        if !tree.namespace(namespace)?.tables.is_empty() || !tree.children(Some(namespace)).is_empty() {
            return Err(Problem::not_empty(namespace));
        }
        self.files
            .remove_namespace(namespace)
            .map_err(|e| Problem::internal(format!("drop namespace {namespace}"), e))?;
        tree.remove(namespace);
        Ok(())
    }

    /// Changes a namespace's properties: what was set, removed, and not there to remove.
    pub(super) fn update_namespace(
        &self,
        namespace: &NamespaceIdent,
        request: UpdateProperties,
    ) -> Outcome<(Vec<String>, Vec<String>, Vec<String>)> {
        let mut tree = self.write();
        let entry = tree.namespace_mut(namespace)?;
        let mut properties = entry.properties.clone();
        let (removals, updates) = (request.removals.unwrap_or_default(), request.updates.unwrap_or_default());
        let changed = change::update_properties(&mut properties, removals, updates)?;
        self.files
            .write_namespace(namespace, &properties, self.clock.uuid())
            .map_err(|e| Problem::internal(format!("update namespace {namespace}"), e))?;
        entry.properties = properties;
        Ok(changed)
    }

    /// Names of a namespace's tables.
    pub(super) fn list_tables(
        &self,
        namespace: &NamespaceIdent,
        query: &ListQuery,
    ) -> Outcome<(Vec<String>, Option<String>)> {
        query.page(self.read().namespace(namespace)?.tables.keys().cloned().collect())
    }

    /// Whether the table is there, as a 404 if not.
    pub(super) fn check_table(&self, table: &TableIdent) -> Outcome<()> {
        self.read().table(table).map(|_| ())
    }

    /// The table's metadata.
    pub(super) fn load_table(&self, table: &TableIdent) -> Outcome<Loaded> {
        let slot = self.read().table(table)?;
        // The lock keeps `write.metadata.delete-after-commit.enabled` from deleting the file under the reader.
        let state = slot.lock();
        if state.ident.as_ref() != Some(table) {
            return Err(Problem::no_such_table(table));
        }
        let metadata_location = state.metadata_location.clone();
        let metadata = read_document(&metadata_location)?;
        Ok(Loaded { metadata_location: Some(metadata_location), metadata })
    }

    /// Makes a table, or only its first metadata if the client will commit it later.
    pub(super) fn create_table(&self, namespace: NamespaceIdent, request: CreateTable) -> Outcome<Loaded> {
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
            return Ok(Loaded { metadata_location: None, metadata: metadata.json });
        }
        let metadata_location = self.write_metadata(&metadata, 0)?;
        self.files
            .write_table(&table, &metadata_location, self.clock.uuid())
            .map_err(|e| Problem::internal(format!("create table {table}"), e))?;
        self.insert(&mut tree, &table, &metadata_location)?;
        Ok(Loaded { metadata_location: Some(metadata_location), metadata: metadata.json })
    }

    /// Takes in a table by its metadata file, which is left as it is.
    pub(super) fn register_table(&self, namespace: NamespaceIdent, request: RegisterTable) -> Outcome<Loaded> {
        let table = names::table(namespace, request.name)?;
        let metadata_location = request.metadata_location;
        let metadata = read_document(&metadata_location)
            .map_err(|e| Problem::bad_request(format!("Cannot register {metadata_location}: {}", e.message())))?;
        let document: serde_json::Value = serde_json::from_str(&metadata)
            .map_err(|e| Problem::bad_request(format!("Cannot register {metadata_location}: {e}")))?;
        // Tables with types the library does not know can be served though not changed, so no more is asked.
        if document.get("format-version").is_none() || document.get("location").is_none() {
            return Err(Problem::bad_request(format!("{metadata_location} is no table metadata")));
        }
        let mut tree = self.write();
        let existing = tree.namespace(&table.namespace)?.tables.get(&table.name).cloned();
        if existing.is_some() && request.overwrite != Some(true) {
            return Err(Problem::already_exists(format!("table {table}")));
        }
        // A commit on its way to the old table must be over, or find it gone.
        let mut old = existing.as_ref().map(|slot| slot.lock());
        self.files
            .write_table(&table, &metadata_location, self.clock.uuid())
            .map_err(|e| Problem::internal(format!("register table {table}"), e))?;
        if let Some(old) = &mut old {
            old.ident = None;
        }
        self.insert(&mut tree, &table, &metadata_location)?;
        Ok(Loaded { metadata_location: Some(metadata_location), metadata })
    }

    /// Gives a table another name; its files stay where they are.
    pub(super) fn rename_table(&self, request: RenameTable) -> Outcome<()> {
        let RenameTable { source, destination } = request;
        names::check_table(&destination)?;
        let mut tree = self.write();
        let slot = tree.table(&source)?;
        tree.check_vacant(&destination)?;
        let mut state = slot.lock();
        files::rename(&self.files.table_file(&source), &self.files.table_file(&destination))
            .map_err(|e| Problem::internal(format!("rename table {source} to {destination}"), e))?;
        state.ident = Some(destination.clone());
        drop(state);
        tree.namespace_mut(&source.namespace)?.tables.remove(&source.name);
        tree.namespace_mut(&destination.namespace)?.tables.insert(destination.name, slot);
        Ok(())
    }

    /// Forgets a table; with `purge`, deletes its directory too, if it is this catalog's and no other table's.
    pub(super) fn drop_table(&self, table: &TableIdent, purge: bool) -> Outcome<()> {
        let mut tree = self.write();
        let slot = tree.table(table)?;
        let mut state = slot.lock();
        files::remove(&self.files.table_file(table))
            .map_err(|e| Problem::internal(format!("drop table {table}"), e))?;
        state.ident = None;
        let metadata_location = state.metadata_location.clone();
        drop(state);
        tree.namespace_mut(&table.namespace)?.tables.remove(&table.name);
        if purge {
            self.purge(&tree, &metadata_location);
        }
        Ok(())
    }

    /// Deletes a dropped table's directory. Doubts leave it there: the drop itself has succeeded.
    fn purge(&self, tree: &Tree, metadata_location: &str) {
        let Some(dir) = table_dir(metadata_location).filter(|dir| self.owns(dir)) else { return };
        for slot in tree.tables() {
            let other = slot.lock().metadata_location.clone();
            let Ok(other_file) = files::local_path(&other) else { return };
            match table_dir(&other) {
                Some(other_dir) if !other_dir.starts_with(&dir) && !dir.starts_with(&other_dir) => {}
                _ => return,
            }
            if other_file.starts_with(&dir) {
                return;
            }
        }
        if let Err(e) = fs::remove_dir_all(&dir) {
            tracing::warn!(directory = %dir.display(), error = %e, "purge did not delete everything");
        }
    }

    /// Whether a directory lies inside the warehouse, at least one namespace deep.
    fn owns(&self, dir: &Path) -> bool {
        dir.strip_prefix(&self.warehouse).is_ok_and(|rest| rest.components().count() >= 2)
    }

    /// A location that no table has or had. The directory is made at once, so that it can be given out only once:
    /// a dropped table's files, and those of a renamed one, must never lie among another table's.
    pub(super) fn reserve_location(&self, table: &TableIdent) -> Outcome<String> {
        let failed = |e: std::io::Error| Problem::internal(format!("make a directory for {table}"), e);
        let parent = self.warehouse.join(names::namespace_dir(&table.namespace));
        let name = names::encode(&table.name);
        let mut dir = parent.join(&name);
        if !files::reserve_dir(&dir).map_err(failed)? {
            dir = parent.join(format!("{name}-{}", self.clock.uuid().simple()));
            if !files::reserve_dir(&dir).map_err(failed)? {
                return Err(Problem::internal(format!("make a directory for {table}"), "name is taken"));
            }
        }
        // Some clients take a store where directories need not be made for granted.
        for inner in ["data", "metadata"] {
            files::create_dirs(&dir.join(inner)).map_err(failed)?;
        }
        Ok(format!("file://{}", dir.display()))
    }

    /// Writes a metadata file under a name that was never used, and returns its location.
    pub(super) fn write_metadata(&self, metadata: &NewMetadata, version: u64) -> Outcome<String> {
        let suffix = if metadata.gzip { ".gz.metadata.json" } else { ".metadata.json" };
        let location = format!("{}/{version:05}-{}{suffix}", metadata.directory, self.clock.uuid());
        let failed = |e: std::io::Error| Problem::internal(format!("write {location}"), e);
        let path = files::local_path(&location)?;
        files::local_path(&metadata.location)?;
        match metadata.gzip {
            true => files::write_new(&path, &files::gzip(&metadata.json).map_err(failed)?),
            false => files::write_new(&path, metadata.json.as_bytes()),
        }
        .map_err(failed)?;
        Ok(location)
    }

    /// Adds a table to the tree.
    pub(super) fn insert(&self, tree: &mut Tree, table: &TableIdent, metadata_location: &str) -> Outcome<()> {
        let slot = Slot::new(table.clone(), metadata_location.to_string());
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
pub(super) fn read_document(metadata_location: &str) -> Outcome<String> {
    let path = files::local_path(metadata_location)?;
    let failed = |e: &dyn std::fmt::Display| Problem::internal(format!("read {metadata_location}"), e);
    let text = files::read_metadata(&path).map_err(|e| failed(&e))?;
    serde_json::from_str::<serde::de::IgnoredAny>(&text)
        .map_err(|e| failed(&format!("it is no JSON document: {e}")))?;
    Ok(text)
}

/// The directory of the table whose metadata this is; `None` if that cannot be told.
fn table_dir(metadata_location: &str) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_str(&read_document(metadata_location).ok()?).ok()?;
    files::local_path(metadata.get("location")?.as_str()?).ok()
}
