//! A catalog that takes requests and never answers, beside one that is well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::{Catalog, CommitOutcome, LoadedTable, MaySend};
use icewright::error::Result;
use icewright::schedule::fleet::Fleet;
use icewright::testing::MemoryCatalog;

use super::scheduler::{Daemon, grown, until};
use super::world::{HOUR, Lake, MINUTE, POLICY, policies};

/// Lists its tables, and tells of none while it is `silent`.
struct Silent {
    inner: MemoryCatalog,
    silent: Arc<AtomicBool>,
}

#[async_trait]
impl Catalog for Silent {
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        self.inner.list_namespaces(parent).await
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        self.inner.list_tables(namespace).await
    }

    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable> {
        if self.silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.inner.load_table(table).await
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

#[tokio::test(start_paused = true)]
async fn a_catalog_that_does_not_answer_holds_up_no_other() {
    let (lake, pond) = (Lake::new(), Lake::new());
    for table in ["a", "b", "c", "d", "e", "f"] {
        grown(&lake, table).await;
    }
    grown(&pond, "u").await;
    let silent = Arc::new(AtomicBool::new(true));
    let mut member = lake.member();
    member.catalog = Arc::new(Silent { inner: lake.catalog.clone(), silent: silent.clone() });
    let members = BTreeMap::from([("lake".to_owned(), member), ("pond".to_owned(), pond.member())]);
    let fleet = Arc::new(Fleet::new(members, policies(&["lake.db.*", "pond.db.*"], POLICY)));
    let daemon = Daemon::with_fleet(&lake, fleet, 2);
    // The silent one's tables come first and take both workers.
    until(MINUTE, "the other is compacted", || async { pond.files("u").await.len() == 2 }).await;
    assert_eq!(daemon.value("icewright_catalog_up", "lake"), 0.0);
    let files = || daemon.value("icewright_table_data_files", "table=\"u\"");
    until(6 * MINUTE, "its numbers are collected as well", || async { files() == 2.0 }).await;
    until(HOUR, "and cleaned", || async { pond.snapshots("u").await == 1 }).await;
    assert_eq!(lake.snapshots("a").await, 2);
    silent.store(false, Ordering::Relaxed);
    until(3 * HOUR, "all are done", || async {
        let mut done = 0;
        for table in ["a", "b", "c", "d", "e", "f"] {
            done += usize::from(lake.snapshots(table).await == 1);
        }
        done == 6
    })
    .await;
    assert_eq!(daemon.value("icewright_catalog_up", "lake"), 1.0);
    daemon.stop().await;
}
