//! New credentials for a table's files, from the catalog that vended them.

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::TableIdent;

use super::Catalog;
use crate::error::Result;
use crate::storage::credentials::CredentialSource;
use crate::table::TableCredentials;

/// Asks the catalog that vended them.
pub struct CatalogCredentials {
    pub catalog: Arc<dyn Catalog>,
    pub table: TableIdent,
}

#[async_trait]
impl CredentialSource for CatalogCredentials {
    async fn fetch(&self) -> Result<TableCredentials> {
        self.catalog.load_credentials(&self.table).await
    }
}
