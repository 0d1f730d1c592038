//! The tables of all configured catalogs: found, matched with policies, opened.

mod known;
mod listing;
pub mod neighbours;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::TableIdent;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::catalog::Catalog;
use crate::catalog::CatalogCredentials;
use crate::catalog::TableHandle;
use crate::config::CatalogConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::http_client::RequestObserver;
use crate::permit::WritePermit;
use crate::policy::{PolicySet, ResolvedPolicy};
use crate::storage::{self, StoreRef};
use crate::table::LoadedTable;
use crate::table::TableName;
use known::{Known, ident};
use neighbours::{Inquiries, KnownCatalogs, Own, Surroundings, surroundings};

/// All tables within reach. It never changes: a new configuration makes a new fleet, which shares the catalogs that stay.
pub struct Fleet {
    catalogs: KnownCatalogs,
    policies: PolicySet,
    inquiries: Inquiries,
}

/// What another fleet means for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetChange {
    /// It has another policy.
    Policy,
    /// Its catalog is reached in another way; it may even be another table.
    Catalog,
    /// Its catalog is not configured any more, or no policy matches it.
    Left,
}

/// One catalog with the way to its tables' files.
pub struct Member {
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
        let known = |(name, member): (String, Member)| (name.clone(), Arc::new(Known::new(name, member)));
        Self { catalogs: catalogs.into_iter().map(known).collect(), policies, inquiries: Inquiries::default() }
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
            Some(member) => Some((name.clone(), Arc::new(Known::new(name.clone(), member)))),
            None => self.catalogs.get(name).map(|known| (name.clone(), known.clone())),
        };
        // Who waits for an answer waits for one about the catalogs of its own fleet.
        Self { catalogs: names.into_iter().filter_map(known).collect(), policies, inquiries: Inquiries::default() }
    }

    /// What a table that `before` maintained has to do with this fleet; `None`: all is as it was.
    pub fn change_since(&self, before: &Self, name: &TableName) -> Option<FleetChange> {
        let Some(catalog) = self.catalogs.get(&name.catalog) else { return Some(FleetChange::Left) };
        if !self.maintains(name) {
            return Some(FleetChange::Left);
        }
        if !before.catalogs.get(&name.catalog).is_some_and(|known| Arc::ptr_eq(known, catalog)) {
            return Some(FleetChange::Catalog);
        }
        let policy = |fleet: &Self| fleet.policies.resolve(name).ok().flatten().map(|resolved| resolved.policy);
        (policy(before) != policy(self)).then_some(FleetChange::Policy)
    }

    /// Whether a policy matches a table, be it one that contradicts another.
    pub fn maintains(&self, name: &TableName) -> bool {
        !matches!(self.policies.resolve(name), Ok(None))
    }

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

    /// The tables of a catalog that a policy matches. An error if the catalog cannot be listed at all.
    pub async fn discover(&self, catalog: &str) -> Result<Discovered> {
        let listed = self.known(catalog)?.listed(Instant::now()).await?;
        let names = listed.tables.iter().filter(|name| self.maintains(name)).cloned().collect();
        let unclear = listed.unclear.first().map(|unclear| Error::unavailable(unclear.to_string()));
        Ok(Discovered { names, unclear })
    }

    /// Loads a table and opens its store. [`ErrorKind::NotFound`] only if it has left its catalog's listing as well.
    pub async fn open(&self, name: &TableName) -> Result<TableHandle> {
        let known = self.known(&name.catalog)?;
        let member = &known.member;
        let ident = ident(name)?;
        let loaded = known.load(name, &ident).await?;
        let store = member.stores.open(&member.catalog, &ident, &loaded).await?;
        Ok(TableHandle {
            catalog_name: name.catalog.clone(),
            ident,
            catalog: member.catalog.clone(),
            store,
            loaded: Arc::new(loaded),
        })
    }

    /// Where the other tables of all catalogs lie.
    pub async fn surroundings(&self, own: Own<'_>) -> Surroundings {
        surroundings(&self.catalogs, own).await
    }

    /// How many clean-ups wait until it is known what other tables need. They do no work meanwhile.
    pub fn waiting(&self) -> watch::Receiver<usize> {
        self.inquiries.waiting()
    }

    fn catalogs(&self) -> &KnownCatalogs {
        &self.catalogs
    }

    fn inquiries(&self) -> &Inquiries {
        &self.inquiries
    }
}

/// The maintained tables of a catalog.
#[derive(Debug, Clone, Default)]
pub struct Discovered {
    /// Their names, sorted.
    pub names: Vec<TableName>,
    /// What is wrong with a part of the catalog. The tables known in that part are among the names.
    pub unclear: Option<Error>,
}
