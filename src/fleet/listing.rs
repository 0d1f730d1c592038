//! Every table of a catalog, through all levels of namespaces. A catalog's answers are not believed beyond what they say: something is gone
//! only if its parent's listing does not name it any more. What contradicts that, or cannot be listed, is told beside the tables.

use std::collections::{BTreeSet, HashSet};

use futures::StreamExt;
use iceberg::{NamespaceIdent, TableIdent};

use crate::catalog::Catalog;
use crate::concurrent::concurrent;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::TablePattern;
use crate::table::TableName;

/// Namespaces looked into at the same time.
const NAMESPACES_AT_ONCE: usize = 8;
/// Namespaces of a catalog at most; more is taken for a loop.
const NAMESPACES_MAX: usize = 100_000;

/// What a catalog's listings told.
#[derive(Debug, Clone, Default)]
pub(super) struct Listed {
    /// Every table that they name, each once.
    pub(super) tables: BTreeSet<TableName>,
    /// Where they do not tell for sure.
    pub(super) unclear: Vec<Unclear>,
}

/// A part of a catalog of which it is not known which tables are in it.
#[derive(Debug, Clone)]
pub(super) struct Unclear {
    /// Name of the catalog in the configuration.
    pub(super) catalog: String,
    /// The namespace; `None`: the whole catalog.
    pub(super) namespace: Option<NamespaceIdent>,
    pub(super) error: Error,
}

impl Unclear {
    /// Whether every table that may be there fits one of the patterns.
    pub(super) fn is_covered_by(&self, patterns: &[TablePattern]) -> bool {
        let namespace = self.namespace.as_ref().map(|n| n.as_ref().as_slice()).unwrap_or_default();
        patterns.iter().any(|pattern| pattern.covers(&self.catalog, namespace))
    }

    /// Whether a table may be there.
    pub(super) fn may_hold(&self, name: &TableName) -> bool {
        self.catalog == name.catalog
            && self.namespace.as_ref().is_none_or(|namespace| name.namespace.starts_with(namespace.as_ref()))
    }
}

impl std::fmt::Display for Unclear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => {
                let name = TableName::new(self.catalog.as_str(), &TableIdent::new(namespace.clone(), String::new()));
                write!(f, "namespace {}.{}: {}", self.catalog, name.namespace_text(), self.error)
            }
            None => write!(f, "catalog {}: {}", self.catalog, self.error),
        }
    }
}

/// Lists a catalog. An error if not even its top-level namespaces can be listed.
pub(super) async fn list(name: &str, catalog: &dyn Catalog) -> Result<Listed> {
    let mut listed = Listed::default();
    let mut open = listed_once(|| catalog.list_namespaces(None)).await?;
    let mut seen: HashSet<NamespaceIdent> = open.iter().cloned().collect();
    let (mut any_children_told, mut unsupported) = (false, Vec::new());
    while !open.is_empty() {
        let looks = concurrent(NAMESPACES_AT_ONCE, open, |namespace| look_into(catalog, namespace));
        let looks: Vec<NamespaceContent> = looks.collect().await;
        open = Vec::new();
        for NamespaceContent { namespace, children, tables } in looks {
            let unclear = |error| Unclear { catalog: name.to_owned(), namespace: Some(namespace.clone()), error };
            match children {
                Ok(children) => {
                    any_children_told = true;
                    // Some catalogs list a namespace among its own children.
                    let deeper = children.into_iter().filter(|child| child.len() > namespace.len());
                    open.extend(deeper.filter(|child| seen.insert(child.clone())));
                }
                Err(error) if error.kind() == ErrorKind::Unsupported => unsupported.push(unclear(error)),
                Err(error) => listed.unclear.push(unclear(error)),
            }
            match tables {
                Ok(tables) => {
                    if let Some(odd) = tables.iter().find(|table| *table.namespace() != namespace) {
                        let text = format!("the catalog lists a table of another namespace: {odd}");
                        listed.unclear.push(unclear(Error::unavailable(text)));
                    }
                    listed.tables.extend(tables.iter().map(|ident| TableName::new(name, ident)));
                }
                Err(error) => listed.unclear.push(unclear(error)),
            }
        }
        if seen.len() > NAMESPACES_MAX {
            return Err(Error::invalid(format!("catalog `{name}` lists more than {NAMESPACES_MAX} namespaces")));
        }
    }
    // A catalog that knows no namespaces within namespaces says so of each.
    if any_children_told {
        listed.unclear.append(&mut unsupported);
    }
    Ok(listed)
}

/// What was found in a namespace.
struct NamespaceContent {
    namespace: NamespaceIdent,
    children: Result<Vec<NamespaceIdent>>,
    tables: Result<Vec<TableIdent>>,
}

async fn look_into(catalog: &dyn Catalog, namespace: NamespaceIdent) -> NamespaceContent {
    let (children, tables) = tokio::join!(
        listed_once(|| catalog.list_namespaces(Some(&namespace))),
        listed_once(|| catalog.list_tables(&namespace))
    );
    let missing = |error: Option<&Error>| error.is_some_and(|error| error.kind() == ErrorKind::NotFound);
    if missing(children.as_ref().err()) || missing(tables.as_ref().err()) {
        match namespace_is_gone(catalog, &namespace).await {
            Ok(true) => return NamespaceContent { namespace, children: Ok(Vec::new()), tables: Ok(Vec::new()) },
            Ok(false) => {}
            Err(error) => return NamespaceContent { namespace, children: Err(error.clone()), tables: Err(error) },
        }
    }
    let contradicted = |error: Error| match error.kind() {
        ErrorKind::NotFound => error.context("the catalog lists the namespace and says that it does not exist"),
        _ => error,
    };
    NamespaceContent { namespace, children: children.map_err(contradicted), tables: tables.map_err(contradicted) }
}

/// Whether a namespace that the catalog says does not exist has left its parent's listing, too.
async fn namespace_is_gone(catalog: &dyn Catalog, namespace: &NamespaceIdent) -> Result<bool> {
    let mut child = namespace.clone();
    loop {
        let parent = child.parent();
        match catalog.list_namespaces(parent.as_ref()).await {
            Ok(siblings) => return Ok(!siblings.contains(&child)),
            // Then the parent may be gone as well.
            Err(error) if error.kind() == ErrorKind::NotFound && parent.is_some() => child = parent.unwrap_or(child),
            Err(error) => return Err(error),
        }
    }
}

/// Whether a table that the catalog says does not exist has left the listing of its namespace, too.
pub(super) async fn table_is_gone(catalog: &dyn Catalog, table: &TableIdent) -> Result<bool> {
    match catalog.list_tables(table.namespace()).await {
        Ok(tables) => Ok(!tables.contains(table)),
        Err(error) if error.kind() == ErrorKind::NotFound => namespace_is_gone(catalog, table.namespace()).await,
        Err(error) => Err(error),
    }
}

/// A listing in which nothing stands twice: what does was moved from one page to the next while they were asked for, and something else may
/// have been moved past us. Asked for once more then.
async fn listed_once<T, F>(ask: impl Fn() -> F) -> Result<Vec<T>>
where
    T: Clone + Eq + std::hash::Hash,
    F: Future<Output = Result<Vec<T>>>,
{
    for _ in 0..2 {
        let items = ask().await?;
        let mut seen = HashSet::with_capacity(items.len());
        if items.iter().all(|item| seen.insert(item.clone())) {
            return Ok(items);
        }
    }
    Err(Error::unavailable("the catalog lists something twice: its pages do not fit together"))
}
