//! What is known of other tables when one is cleaned.

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::{Catalog, CommitOutcome, DeclaredPaths, LoadedTable};
use icewright::error::{Error, Result};
use icewright::schedule::fleet::{Fleet, Member, OpenStore};
use icewright::storage::StoreRef;

use super::world::{Lake, MINUTE, ident};

/// Table `strange` cannot be loaded; where it lies is known.
struct Strange(Lake);

#[async_trait]
impl Catalog for Strange {
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        self.0.catalog.list_namespaces(parent).await
    }
    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        let mut tables = self.0.catalog.list_tables(namespace).await?;
        tables.extend([ident("strange"), ident("just-dropped")]);
        Ok(tables)
    }
    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable> {
        if table.name() == "strange" {
            return Err(Error::unsupported("a type from the future"));
        }
        self.0.catalog.load_table(table).await
    }
    async fn declared_paths(&self, table: &TableIdent) -> Result<DeclaredPaths> {
        if table.name() == "strange" {
            return Ok(DeclaredPaths { location: "s3://b/strange".into(), further: vec!["s3://other/strange".into()] });
        }
        self.0.catalog.declared_paths(table).await
    }
    async fn commit_table(&self, _: &TableIdent, _: Vec<TableRequirement>, _: Vec<TableUpdate>) -> CommitOutcome {
        CommitOutcome::Refused(Error::internal("nobody commits here"))
    }
}

struct NoStore;

#[async_trait]
impl OpenStore for NoStore {
    async fn open(&self, _: &Arc<dyn Catalog>, _: &TableIdent, _: &LoadedTable) -> Result<StoreRef> {
        Err(Error::internal("no store is needed"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_cannot_be_read_is_located_and_one_that_is_gone_is_nowhere() {
    let lake = Lake::new();
    lake.create("t");
    lake.create("u");
    let catalog = lake.catalog.clone();
    let member = Member { catalog: Arc::new(Strange(lake)), stores: Arc::new(NoStore) };
    let fleet = Fleet::new([("lake".to_owned(), member)].into(), Default::default());
    let name = "lake.db.t".parse().expect("a name");
    let expected: Vec<(String, String)> = [
        ("lake.db.strange", "s3://b/strange"),
        ("lake.db.strange", "s3://other/strange"),
        ("lake.db.u", "s3://b/db/u"),
    ]
    .map(|(table, directory)| (table.to_owned(), directory.to_owned()))
    .into();
    for loads in [2, 1, 2] {
        // `just-dropped` is asked for each time; `u` anew after a quarter of an hour.
        let before = catalog.loads();
        let mut neighbours = fleet.neighbours(&name).await.expect("all located");
        neighbours.sort();
        assert_eq!(neighbours, expected);
        assert_eq!(catalog.loads() - before, loads);
        if loads == 1 {
            tokio::time::sleep(16 * MINUTE).await;
        }
    }
}
