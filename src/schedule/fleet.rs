//! The tables of all configured catalogs: found, matched with policies, opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use iceberg::{NamespaceIdent, TableIdent};
use tokio::time::Instant;

use crate::catalog::{Catalog, LoadedTable, RequestObserver};
use crate::clean::{Elsewhere, note_referenced};
use crate::config::CatalogConfig;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::permit::WritePermit;
use crate::policy::{PolicySet, ResolvedPolicy, TableName};
use crate::storage::credentials::CatalogCredentials;
use crate::storage::{self, StoreRef};
use crate::table::TableHandle;
use crate::table::references::{directories, own_directories};

/// Tables whose directories are asked for at the same time.
const LOOK_UP_CONCURRENCY: usize = 16;
/// Namespaces of a catalog at most; more is taken for a loop.
const NAMESPACES_MAX: usize = 100_000;

/// How long a table's directories are remembered. They hardly ever change, and each load of the table renews them.
const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);

type Directories = HashMap<TableName, (Instant, Vec<String>)>;

/// All tables within reach. It never changes: a new configuration makes a new fleet, which shares the catalogs that stay.
pub struct Fleet {
    catalogs: BTreeMap<String, Arc<Known>>,
    policies: PolicySet,
}

/// A catalog, and what is remembered of its tables.
struct Known {
    member: Member,
    /// Directories of tables seen, and when.
    directories: Mutex<Directories>,
}

/// What another fleet means for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It has another policy.
    Policy,
    /// Its catalog is reached in another way; it may even be another table.
    Catalog,
    /// Its catalog is not configured any more, or no policy matches it.
    Left,
}

/// One catalog with the way to its tables' files.
pub struct Member {
    /// The catalog.
    pub catalog: Arc<dyn Catalog>,
    /// Opens the stores of its tables.
    pub stores: Arc<dyn OpenStore>,
}

/// The way to the files of a catalog's tables.
#[async_trait]
pub trait OpenStore: Send + Sync {
    /// The store for a table's files.
    async fn open(&self, catalog: &Arc<dyn Catalog>, table: &TableIdent, loaded: &LoadedTable) -> Result<StoreRef>;
}

/// Stores as the configuration and the catalog describe them.
pub struct ConfiguredStores {
    /// The catalog's configuration, for its properties.
    pub config: CatalogConfig,
    /// Learns of the stores' requests.
    pub observer: Arc<dyn RequestObserver>,
    /// Asked before anything is deleted.
    pub permit: WritePermit,
}

#[async_trait]
impl OpenStore for ConfiguredStores {
    /// The catalog has merged the properties with its own; secrets among them are read anew, so that rotated ones take effect.
    async fn open(&self, catalog: &Arc<dyn Catalog>, table: &TableIdent, loaded: &LoadedTable) -> Result<StoreRef> {
        let mut properties = catalog.storage_properties().await?;
        properties.extend(self.config.resolve_secret_properties()?);
        let source = CatalogCredentials { catalog: catalog.clone(), table: table.clone() };
        storage::for_table(&properties, loaded, Arc::new(source), self.observer.clone(), self.permit.clone())
    }
}

impl Fleet {
    /// A fleet of these catalogs, by their names in the configuration.
    pub fn new(catalogs: BTreeMap<String, Member>, policies: PolicySet) -> Self {
        let catalogs = catalogs.into_iter().map(|(name, member)| (name, Arc::new(Known::new(member)))).collect();
        Self { catalogs, policies }
    }

    /// A fleet of the catalogs `names`: those in `rebuilt`, and this fleet's own for the rest.
    /// A name that neither knows is left out.
    #[must_use]
    pub fn successor<'n>(
        &self,
        names: impl IntoIterator<Item = &'n String>,
        mut rebuilt: BTreeMap<String, Member>,
        policies: PolicySet,
    ) -> Self {
        let known = |name: &String| match rebuilt.remove(name) {
            Some(member) => Some((name.clone(), Arc::new(Known::new(member)))),
            None => self.catalogs.get(name).map(|known| (name.clone(), known.clone())),
        };
        Self { catalogs: names.into_iter().filter_map(known).collect(), policies }
    }

    /// What a table that `before` maintained has to do with this fleet; `None`: all is as it was.
    pub fn change_since(&self, before: &Self, name: &TableName) -> Option<Change> {
        let Some(catalog) = self.catalogs.get(&name.catalog) else { return Some(Change::Left) };
        if !self.maintains(name) {
            return Some(Change::Left);
        }
        if !before.catalogs.get(&name.catalog).is_some_and(|known| Arc::ptr_eq(known, catalog)) {
            return Some(Change::Catalog);
        }
        let policy = |fleet: &Self| fleet.policies.resolve(name).ok().flatten().map(|resolved| resolved.policy);
        (policy(before) != policy(self)).then_some(Change::Policy)
    }

    /// Whether a policy matches a table, be it one that contradicts another.
    pub fn maintains(&self, name: &TableName) -> bool {
        !matches!(self.policies.resolve(name), Ok(None))
    }

    /// Names of the catalogs.
    pub fn catalog_names(&self) -> Vec<String> {
        self.catalogs.keys().cloned().collect()
    }

    /// Whether there is a catalog of this name.
    pub fn has_catalog(&self, name: &str) -> bool {
        self.catalogs.contains_key(name)
    }

    /// What the policies say for a table. [`ErrorKind::Config`] if none names it.
    pub fn policy(&self, name: &TableName) -> Result<ResolvedPolicy> {
        self.policies.resolve(name)?.ok_or_else(|| {
            let message = format!("no policy matches {name}: add it to the `tables` of a [[policies]] entry");
            Error::new(ErrorKind::Config, message)
        })
    }

    fn known(&self, catalog: &str) -> Result<&Known> {
        self.catalogs
            .get(catalog)
            .map(Arc::as_ref)
            .ok_or_else(|| Error::new(ErrorKind::Config, format!("no catalog `{catalog}` is configured")))
    }

    /// The tables of a catalog that a policy matches.
    pub async fn discover(&self, catalog: &str) -> Result<Vec<TableName>> {
        let all = self.all_tables(catalog).await?;
        Ok(all.into_iter().filter(|name| self.maintains(name)).collect())
    }

    /// Every table of a catalog, through all levels of namespaces.
    pub async fn all_tables(&self, catalog: &str) -> Result<Vec<TableName>> {
        let member = &self.known(catalog)?.member;
        let mut open: Vec<NamespaceIdent> = member.catalog.list_namespaces(None).await?;
        let mut tables = Vec::new();
        let mut seen = 0;
        while let Some(namespace) = open.pop() {
            seen += 1;
            if seen > NAMESPACES_MAX {
                return Err(Error::invalid(format!("catalog `{catalog}` lists more than {NAMESPACES_MAX} namespaces")));
            }
            let (children, found) =
                tokio::join!(member.catalog.list_namespaces(Some(&namespace)), member.catalog.list_tables(&namespace));
            let children = gone_is_empty(children)?;
            // Some catalogs list a namespace among its own children.
            open.extend(children.into_iter().filter(|child| child.len() > namespace.len()));
            tables.extend(gone_is_empty(found)?.iter().map(|ident| TableName::new(catalog, ident)));
        }
        tables.sort();
        Ok(tables)
    }

    /// Loads a table and opens its store.
    pub async fn open(&self, name: &TableName) -> Result<TableHandle> {
        let known = self.known(&name.catalog)?;
        let member = &known.member;
        let ident = ident(name)?;
        let loaded = member.catalog.load_table(&ident).await.context(|| format!("load table {name}"))?;
        known.remember(name, own_directories(&loaded)?);
        let store = member.stores.open(&member.catalog, &ident, &loaded).await?;
        Ok(TableHandle {
            catalog_name: name.catalog.clone(),
            ident,
            catalog: member.catalog.clone(),
            store,
            loaded: Arc::new(loaded),
        })
    }

    /// Names and directories of all other tables in the same catalog.
    pub async fn neighbours(&self, name: &TableName) -> Result<Vec<(String, String)>> {
        let known = self.known(&name.catalog)?;
        let others = self.all_tables(&name.catalog).await?.into_iter().filter(|other| other != name);
        // Collected first: a stream over a closure that borrows is not provably `Send`.
        let look_ups: Vec<_> = others.map(|other| known.directories_of(other)).collect();
        let located: Vec<Vec<(String, String)>> =
            stream::iter(look_ups).buffer_unordered(LOOK_UP_CONCURRENCY).try_collect().await?;
        Ok(located.into_iter().flatten().collect())
    }

    /// Drops what is remembered of a table.
    pub fn forget(&self, name: &TableName) {
        if let Ok(known) = self.known(&name.catalog) {
            known.directories().remove(name);
        }
    }
}

impl Known {
    fn new(member: Member) -> Self {
        Self { member, directories: Mutex::default() }
    }

    async fn directories_of(&self, other: TableName) -> Result<Vec<(String, String)>> {
        let directories = match self.remembered(&other) {
            Some(directories) => directories,
            None => self.look_up(&other).await?,
        };
        Ok(directories.into_iter().map(|directory| (other.to_string(), directory)).collect())
    }

    /// A table that is gone meanwhile has no directories.
    async fn look_up(&self, other: &TableName) -> Result<Vec<String>> {
        match self.member.catalog.declared_paths(&ident(other)?).await {
            Ok(declared) => {
                let directories = directories(&declared)?;
                self.remember(other, directories.clone());
                Ok(directories)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.context(format!("locate table {other}"))),
        }
    }

    fn remember(&self, name: &TableName, directories: Vec<String>) {
        self.directories().insert(name.clone(), (Instant::now(), directories));
    }

    fn remembered(&self, name: &TableName) -> Option<Vec<String>> {
        let known = self.directories();
        let (seen, directories) = known.get(name)?;
        (seen.elapsed() < REMEMBERED_FOR).then(|| directories.clone())
    }

    fn directories(&self) -> MutexGuard<'_, Directories> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A namespace may vanish between the listing and the look into it.
fn gone_is_empty<T>(listed: Result<Vec<T>>) -> Result<Vec<T>> {
    match listed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// All other tables of a table's catalog.
pub struct Others<'a> {
    /// The tables.
    pub fleet: &'a Fleet,
    /// The one that is not meant.
    pub name: &'a TableName,
}

#[async_trait]
impl Elsewhere for Others<'_> {
    async fn referenced(&self, paths: &[String]) -> Result<Vec<bool>> {
        let mut referenced = vec![false; paths.len()];
        for other in self.fleet.all_tables(&self.name.catalog).await?.iter().filter(|other| *other != self.name) {
            let table = match self.fleet.open(other).await {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let noted = note_referenced(&table.store, &table.loaded, paths, &mut referenced).await;
            noted.context(|| format!("find out which files table {other} needs"))?;
        }
        Ok(referenced)
    }
}

/// The catalog's identifier of a table.
fn ident(name: &TableName) -> Result<TableIdent> {
    let namespace = NamespaceIdent::from_vec(name.namespace.clone())?;
    Ok(TableIdent::new(namespace, name.table.clone()))
}
