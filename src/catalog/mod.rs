//! The catalog as this project sees it. [`rest`] is the one adapter for production.
//! It must own the classification of answers: anything not proven refused is unknown.

pub mod auth;
mod classify;
mod credentials;
mod handle;
mod names;
pub mod rest;
mod transport;

use std::collections::HashMap;

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};

pub use self::credentials::CatalogCredentials;
pub use self::handle::TableHandle;
use crate::error::{Error, Result};
use crate::table::{DeclaredPaths, LoadedTable, TableCredentials};

/// What became of a commit request. A value, not an error: each outcome asks for something else.
#[derive(Debug)]
pub enum CommitOutcome {
    /// The catalog applied it and said so.
    Committed(Box<LoadedTable>),
    /// The answer says that a requirement no longer held (409): refresh, revalidate, try again.
    ///
    /// It speaks of one delivery of the request. Something in between may have delivered it twice, and the other one may have
    /// been applied: only a look at the table made after this answer tells.
    Conflict(Error),
    /// The answer says no (400, 401, 403, 404 ...), and sending the same again now will not help. The error's kind says whether
    /// a later run may fare better. What holds for [`Self::Conflict`] holds here as well.
    Refused(Error),
    /// Nothing has left this machine.
    NotSent(Error),
    /// May have been applied: find out, delete nothing meanwhile.
    Unknown(Error),
}

/// Whether a commit may still be sent; the error says why not.
pub type MaySend<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// What maintenance needs from a catalog.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// Child namespaces of `parent`, or the top-level ones.
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>>;
    /// Tables directly in `namespace`.
    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>>;
    /// The table's current metadata. [`crate::error::ErrorKind::NotFound`] if it is gone.
    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable>;
    /// Where the table says its files lie, also of a table whose metadata cannot be read otherwise, where the catalog has a
    /// way. [`crate::error::ErrorKind::NotFound`] if it is gone.
    async fn declared_paths(&self, table: &TableIdent) -> Result<DeclaredPaths> {
        Ok(DeclaredPaths::of(&self.load_table(table).await?.metadata))
    }
    /// New credentials for the table's files; by loading the table again, unless the catalog has a shorter way.
    async fn load_credentials(&self, table: &TableIdent) -> Result<TableCredentials> {
        Ok(self.load_table(table).await?.vended)
    }
    /// Storage settings that hold for all its tables, for [`crate::storage::for_table`]. Without the catalog's own secrets.
    async fn storage_properties(&self) -> Result<HashMap<String, String>> {
        Ok(HashMap::new())
    }
    /// Asks the catalog to apply `updates` if all `requirements` hold. Never retried inside, except after an answer that says
    /// that it was not looked at. `may_send` is asked right before each sending; if it fails, nothing is sent any more.
    async fn commit_table(
        &self,
        table: &TableIdent,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        may_send: MaySend<'_>,
    ) -> CommitOutcome;
    /// What the catalog's clock shows now, milliseconds since the epoch, judged by its last answer; `None` if no answer told.
    fn time_ms(&self) -> Option<i64> {
        None
    }
}
