//! A table within reach.

use std::sync::Arc;

use iceberg::TableIdent;

use super::Catalog;
use crate::error::{Context, Result};
use crate::storage::StoreRef;
use crate::table::{LoadedTable, TableName};

/// A table within reach: its name, its catalog, its files, and the metadata last loaded. Cheap to clone.
#[derive(Clone)]
pub struct TableHandle {
    /// Name of the catalog in the configuration.
    pub catalog_name: String,
    pub ident: TableIdent,
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
