//! A catalog whose answers are wrong, partial, or inconsistent with each other.

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::{Catalog, CommitOutcome, MaySend};
use icewright::error::{Error, ErrorKind, Result};
use icewright::fleet::{Member, OpenStore};
use icewright::storage::StoreRef;
use icewright::table::LoadedTable;
use icewright::testing::MemoryCatalog;

use super::world::{Lake, ident};

/// What a catalog is asked.
pub(super) enum Ask<'a> {
    Namespaces(Option<&'a NamespaceIdent>),
    Tables(&'a NamespaceIdent),
    Load(&'a TableIdent),
}

/// What it answers instead of the truth.
pub(super) enum Told {
    Namespaces(Vec<NamespaceIdent>),
    Tables(Vec<TableIdent>),
    Table(Box<LoadedTable>),
    /// Nothing, for ever.
    Never,
}

pub(super) type Lie = Arc<dyn Fn(&Ask<'_>, &MemoryCatalog) -> Option<Result<Told>> + Send + Sync>;

/// A catalog that answers some questions wrongly.
pub(super) struct Lying {
    inner: MemoryCatalog,
    lie: Lie,
}

#[async_trait]
impl Catalog for Lying {
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        match (self.lie)(&Ask::Namespaces(parent), &self.inner) {
            Some(Ok(Told::Namespaces(told))) => Ok(told),
            Some(Err(error)) => Err(error),
            _ => self.inner.list_namespaces(parent).await,
        }
    }
    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        match (self.lie)(&Ask::Tables(namespace), &self.inner) {
            Some(Ok(Told::Tables(told))) => Ok(told),
            Some(Err(error)) => Err(error),
            _ => self.inner.list_tables(namespace).await,
        }
    }
    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable> {
        match (self.lie)(&Ask::Load(table), &self.inner) {
            Some(Ok(Told::Table(told))) => Ok(*told),
            Some(Ok(Told::Never)) => std::future::pending().await,
            Some(Err(error)) => Err(error),
            _ => self.inner.load_table(table).await,
        }
    }
    async fn commit_table(
        &self,
        table: &TableIdent,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        may_send: MaySend<'_>,
    ) -> CommitOutcome {
        self.inner.commit_table(table, requirements, updates, may_send).await
    }
}

/// Opens the lake's store for paths of S3, and nothing else.
pub(super) struct OnlyS3(StoreRef);

#[async_trait]
impl OpenStore for OnlyS3 {
    async fn open(&self, _: &Arc<dyn Catalog>, _: &TableIdent, loaded: &LoadedTable) -> Result<StoreRef> {
        if loaded.metadata.location().starts_with("s3:") {
            return Ok(self.0.clone());
        }
        Err(Error::unsupported("no store for this scheme"))
    }
}

pub(super) fn member(
    lake: &Lake,
    lie: impl Fn(&Ask<'_>, &MemoryCatalog) -> Option<Result<Told>> + Send + Sync + 'static,
) -> Member {
    let catalog = Lying { inner: lake.catalog.clone(), lie: Arc::new(lie) };
    Member { catalog: Arc::new(catalog), stores: Arc::new(OnlyS3(Arc::new(lake.faulty.clone()))) }
}

pub(super) fn other_namespace(table: &str) -> TableIdent {
    TableIdent::new(NamespaceIdent::new("db2".into()), table.into())
}

pub(super) fn missing(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("HTTP 404 {what}"))
}

/// A namespace by its name.
pub(super) fn space(name: &str) -> NamespaceIdent {
    NamespaceIdent::new(name.into())
}

/// A wrong answer: what it is, whom the refusal must name, and the answer.
pub(super) type Case = (&'static str, &'static str, Lie);

/// Every wrong answer.
pub(super) fn lies() -> Vec<Case> {
    let mut lies = about_things_that_are_missing();
    lies.extend(about_what_there_is());
    lies
}

fn about_things_that_are_missing() -> Vec<Case> {
    let unreadable = || Some(Err(Error::invalid("HTTP 404 NotFoundException: no metadata file")));
    vec![
        (
            "no metadata file",
            "lake.db2.v",
            Arc::new(move |ask, _| match ask {
                Ask::Load(table) if table.name() == "v" => unreadable(),
                _ => None,
            }),
        ),
        (
            "listed, and not there",
            "lake.db2.v",
            Arc::new(|ask, _| match ask {
                Ask::Load(table) if table.name() == "v" => Some(Err(missing("NoSuchTableException"))),
                _ => None,
            }),
        ),
        (
            "a namespace listed, and not there",
            "namespace lake.db2",
            Arc::new(|ask, _| match ask {
                Ask::Tables(namespace) if **namespace == space("db2") => Some(Err(missing("NoSuchNamespaceException"))),
                _ => None,
            }),
        ),
        (
            "another thing is missing",
            "namespace lake.db2",
            Arc::new(|ask, _| match ask {
                Ask::Tables(namespace) if **namespace == space("db2") => Some(Err(Error::unavailable("HTTP 404"))),
                _ => None,
            }),
        ),
        (
            "namespaces within one cannot be listed",
            "namespace lake.db2",
            Arc::new(|ask, _| match ask {
                Ask::Namespaces(Some(parent)) if **parent == space("db2") => Some(Err(Error::invalid("HTTP 400"))),
                _ => None,
            }),
        ),
        (
            "namespaces within one are not known, and within another they are",
            "namespace lake.db2",
            Arc::new(|ask, _| match ask {
                Ask::Namespaces(Some(parent)) if **parent == space("db2") => Some(Err(Error::unsupported("HTTP 501"))),
                _ => None,
            }),
        ),
    ]
}

fn about_what_there_is() -> Vec<Case> {
    vec![
        (
            "no namespace at all",
            "does not list lake.db.t itself",
            Arc::new(|ask, _| match ask {
                Ask::Namespaces(None) => Some(Ok(Told::Namespaces(Vec::new()))),
                _ => None,
            }),
        ),
        (
            "all tables but this one",
            "does not list lake.db.t itself",
            Arc::new(|ask, _| match ask {
                Ask::Tables(namespace) if **namespace == space("db") => Some(Ok(Told::Tables(vec![ident("u")]))),
                _ => None,
            }),
        ),
        (
            "a table twice",
            "namespace lake.db:",
            Arc::new(|ask, _| match ask {
                Ask::Tables(namespace) if **namespace == space("db") => {
                    Some(Ok(Told::Tables(vec![ident("t"), ident("u"), ident("t")])))
                }
                _ => None,
            }),
        ),
        (
            "a table of another namespace",
            "namespace lake.db2",
            Arc::new(|ask, _| match ask {
                Ask::Tables(namespace) if **namespace == space("db2") => Some(Ok(Told::Tables(vec![ident("u")]))),
                _ => None,
            }),
        ),
        (
            "a table that is none",
            "lake.db.view",
            Arc::new(|ask, _| match ask {
                Ask::Tables(namespace) if **namespace == space("db") => {
                    Some(Ok(Told::Tables(vec![ident("t"), ident("u"), ident("view")])))
                }
                _ => None,
            }),
        ),
    ]
}
