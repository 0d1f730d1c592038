//! The tables of all configured catalogs: found, matched with policies, opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt, TryStreamExt, stream};
use iceberg::{NamespaceIdent, TableIdent};

use crate::catalog::Catalog;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::policy::{PolicySet, ResolvedPolicy, TableName};
use crate::storage::Storages;
use crate::table::TableHandle;

/// Tables whose location is asked for at the same time.
const LOCATION_CONCURRENCY: usize = 16;
/// Namespaces of a catalog at most; more is taken for a loop.
const NAMESPACES_MAX: usize = 100_000;

/// All tables within reach.
pub struct Fleet {
    catalogs: BTreeMap<String, Member>,
    policies: PolicySet,
    /// Locations of tables seen. A table's location hardly ever changes, and a dropped table is forgotten.
    locations: Mutex<HashMap<TableName, String>>,
}

/// One catalog with the way to its tables' files.
pub struct Member {
    /// The catalog.
    pub catalog: Arc<dyn Catalog>,
    /// Opens stores for its tables.
    pub storages: Storages,
}

impl Fleet {
    /// A fleet of these catalogs, by their names in the configuration.
    pub fn new(catalogs: BTreeMap<String, Member>, policies: PolicySet) -> Self {
        Self { catalogs, policies, locations: Mutex::default() }
    }

    /// Names of the catalogs.
    pub fn catalog_names(&self) -> Vec<String> {
        self.catalogs.keys().cloned().collect()
    }

    /// What the policies say for a table; `None` if it is not maintained.
    pub fn policy(&self, name: &TableName) -> Result<Option<ResolvedPolicy>> {
        self.policies.resolve(name)
    }

    fn member(&self, catalog: &str) -> Result<&Member> {
        self.catalogs
            .get(catalog)
            .ok_or_else(|| Error::new(ErrorKind::Config, format!("no catalog `{catalog}` is configured")))
    }

    /// The tables of a catalog that a policy matches.
    pub async fn discover(&self, catalog: &str) -> Result<Vec<TableName>> {
        let all = self.all_tables(catalog).await?;
        Ok(all.into_iter().filter(|name| !matches!(self.policies.resolve(name), Ok(None))).collect())
    }

    /// Every table of a catalog, through all levels of namespaces.
    pub async fn all_tables(&self, catalog: &str) -> Result<Vec<TableName>> {
        let member = self.member(catalog)?;
        let mut open: Vec<NamespaceIdent> = member.catalog.list_namespaces(None).await?;
        let mut tables = Vec::new();
        let mut seen = 0;
        while let Some(namespace) = open.pop() {
            seen += 1;
            if seen > NAMESPACES_MAX {
                return Err(Error::invalid(format!("catalog `{catalog}` lists more than {NAMESPACES_MAX} namespaces")));
            }
            let (children, found) = tokio::join!(
                member.catalog.list_namespaces(Some(&namespace)),
                member.catalog.list_tables(&namespace)
            );
            // A namespace may vanish between the two requests.
            let gone_is_empty = |e: Error| if e.kind() == ErrorKind::NotFound { Ok(Vec::new()) } else { Err(e) };
            open.extend(children.or_else(gone_is_empty)?.into_iter().filter(|child| child.len() > namespace.len()));
            let gone_is_empty = |e: Error| if e.kind() == ErrorKind::NotFound { Ok(Vec::new()) } else { Err(e) };
            tables.extend(found.or_else(gone_is_empty)?.iter().map(|ident| TableName::new(catalog, ident)));
        }
        tables.sort();
        Ok(tables)
    }

    /// Loads a table and opens its store.
    pub async fn open(&self, name: &TableName) -> Result<TableHandle> {
        let member = self.member(&name.catalog)?;
        let ident = ident(name)?;
        let loaded = member.catalog.load_table(&ident).await.context(|| format!("load table {name}"))?;
        self.remember(name, loaded.metadata.location());
        let store = member.storages.for_table(&ident, &loaded, member.catalog.clone())?;
        Ok(TableHandle {
            name: name.clone(),
            ident,
            catalog: member.catalog.clone(),
            store,
            loaded: Arc::new(loaded),
        })
    }

    /// Names and locations of all other tables in the same catalog.
    pub async fn neighbours(&self, name: &TableName) -> Result<Vec<(String, String)>> {
        let member = self.member(&name.catalog)?;
        let others = self.all_tables(&name.catalog).await?.into_iter().filter(|other| other != name);
        let located = stream::iter(others)
            .map(|other| async move {
                if let Some(location) = self.location(&other) {
                    return Ok(Some((other.to_string(), location)));
                }
                match member.catalog.table_location(&ident(&other)?).await {
                    Ok(location) => {
                        self.remember(&other, &location);
                        Ok(Some((other.to_string(), location)))
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error.context(format!("load table {other}"))),
                }
            })
            .buffer_unordered(LOCATION_CONCURRENCY);
        located.try_filter_map(|found: Option<(String, String)>| async move { Ok(found) }).try_collect().await
    }

    /// Drops what is remembered of a table.
    pub fn forget(&self, name: &TableName) {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn remember(&self, name: &TableName, location: &str) {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), location.to_owned());
    }

    fn location(&self, name: &TableName) -> Option<String> {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// The catalog's identifier of a table.
fn ident(name: &TableName) -> Result<TableIdent> {
    let namespace = NamespaceIdent::from_vec(name.namespace.clone())?;
    Ok(TableIdent::new(namespace, name.table.clone()))
}
