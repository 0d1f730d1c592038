//! What clients send. Fields that clients add are ignored; parts that the library has types for stay JSON here and
//! are parsed where their error can name them.

use std::collections::BTreeMap;

use iceberg::{NamespaceIdent, TableIdent};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem::{CatalogError, CatalogResult};

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> CatalogResult<T> {
    serde_json::from_slice(body).map_err(|e| CatalogError::bad_request(format!("Malformed request: {e}")))
}

#[derive(Debug, Deserialize)]
pub(super) struct CreateNamespace {
    pub(super) namespace: Vec<String>,
    pub(super) properties: Option<BTreeMap<String, String>>,
}

/// Create a table, now or by a later commit.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CreateTable {
    pub(super) name: String,
    pub(super) location: Option<String>,
    pub(super) schema: Value,
    pub(super) partition_spec: Option<Value>,
    pub(super) write_order: Option<Value>,
    pub(super) stage_create: Option<bool>,
    pub(super) properties: Option<BTreeMap<String, String>>,
}

/// Take in a table by its metadata file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RegisterTable {
    pub(super) name: String,
    pub(super) metadata_location: String,
}

/// Change one table. `identifier` is required only in a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct CommitTable {
    pub(super) identifier: Option<TableIdent>,
    pub(super) requirements: Option<Vec<Value>>,
    pub(super) updates: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CommitTransaction {
    pub(super) table_changes: Vec<CommitTable>,
}

/// Query of a listing of namespaces. Pages are for catalogs with more names than a response holds.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    parent: Option<String>,
}

impl ListQuery {
    /// The parent namespace; none, or an empty one, asks for the top level.
    pub(super) fn parent(&self) -> CatalogResult<Option<NamespaceIdent>> {
        self.parent.as_deref().filter(|p| !p.is_empty()).map(super::names::parse_namespace).transpose()
    }
}
