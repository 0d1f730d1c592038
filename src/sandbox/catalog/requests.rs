//! What clients send. Fields that clients add are ignored; parts that the library has types for stay JSON here and
//! are parsed where their error can name them.

use std::collections::BTreeMap;

use iceberg::{NamespaceIdent, TableIdent};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem::{Outcome, Problem};

/// Parses a request body.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Outcome<T> {
    serde_json::from_slice(body).map_err(|e| Problem::bad_request(format!("Malformed request: {e}")))
}

/// Create a namespace.
#[derive(Debug, Deserialize)]
pub(super) struct CreateNamespace {
    pub(super) namespace: Vec<String>,
    pub(super) properties: Option<BTreeMap<String, String>>,
}

/// Change a namespace's properties.
#[derive(Debug, Deserialize)]
pub(super) struct UpdateProperties {
    pub(super) removals: Option<Vec<String>>,
    pub(super) updates: Option<BTreeMap<String, String>>,
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
    pub(super) overwrite: Option<bool>,
}

/// Give a table another name.
#[derive(Debug, Deserialize)]
pub(super) struct RenameTable {
    pub(super) source: TableIdent,
    pub(super) destination: TableIdent,
}

/// Change one table. `identifier` is required only among several.
#[derive(Debug, Deserialize)]
pub(super) struct CommitTable {
    pub(super) identifier: Option<TableIdent>,
    pub(super) requirements: Option<Vec<Value>>,
    pub(super) updates: Vec<Value>,
}

/// Change several tables at once.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CommitTransaction {
    pub(super) table_changes: Vec<CommitTable>,
}

/// Query of the two listings.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListQuery {
    pub(super) parent: Option<String>,
    pub(super) page_token: Option<String>,
    pub(super) page_size: Option<String>,
}

impl ListQuery {
    /// The parent namespace; none, or an empty one, asks for the top level.
    pub(super) fn parent(&self) -> Outcome<Option<NamespaceIdent>> {
        self.parent.as_deref().filter(|p| !p.is_empty()).map(super::names::parse_namespace).transpose()
    }

    /// Cuts one page out of the sorted names. Its token is the last name on the page before.
    pub(super) fn page(&self, names: Vec<String>) -> Outcome<(Vec<String>, Option<String>)> {
        // A client that sends neither parameter does not know about pages and must get everything.
        let size = match self.page_size.as_deref() {
            None => usize::MAX,
            Some(text) => text
                .parse::<usize>()
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| Problem::bad_request(format!("pageSize must be a positive number, not {text:?}")))?,
        };
        let after = self.page_token.as_deref().unwrap_or_default();
        let mut page: Vec<String> = names.into_iter().filter(|n| n.as_str() > after).collect();
        if page.len() <= size {
            return Ok((page, None));
        }
        page.truncate(size);
        let token = page.last().cloned();
        Ok((page, token))
    }
}

/// Query of a table load.
#[derive(Debug, Default, Deserialize)]
pub(super) struct LoadQuery {
    pub(super) snapshots: Option<String>,
}

/// Query of a table drop.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DropQuery {
    pub(super) purge_requested: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(size: Option<&str>, token: Option<&str>) -> ListQuery {
        ListQuery { parent: None, page_size: size.map(Into::into), page_token: token.map(Into::into) }
    }

    #[test]
    fn pages_cover_everything_once() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).into();
        let mut seen = Vec::new();
        let mut token = Some(String::new());
        while let Some(t) = token {
            let (page, next) = query(Some("2"), Some(&t)).page(names.clone()).expect("page");
            assert!(page.len() <= 2);
            seen.extend(page);
            token = next;
        }
        assert_eq!(seen, names);
    }

    #[test]
    fn without_parameters_there_is_one_page() {
        let names: Vec<String> = (0..1000).map(|i| format!("{i:04}")).collect();
        assert_eq!(query(None, None).page(names.clone()).expect("page"), (names, None));
        for size in ["0", "-1", "x"] {
            assert!(query(Some(size), None).page(Vec::new()).is_err());
        }
    }
}
