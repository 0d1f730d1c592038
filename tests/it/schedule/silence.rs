//! Catalogs that take requests and do not answer some or all of them, beside one that is well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::{Catalog, CommitOutcome, MaySend};
use icewright::error::{Error, ErrorKind, Result};
use icewright::fleet::Fleet;
use icewright::table::LoadedTable;
use icewright::table::TableName;
use icewright::testing::MemoryCatalog;

use super::scheduler::{Daemon, grown, until};
use super::world::{HOUR, Lake, MINUTE, POLICY, policies};

/// Lists its tables. While it is `silent`, it tells nothing of some of them, or `refusal`.
struct Silent {
    inner: MemoryCatalog,
    silent: Arc<AtomicBool>,
    concerns: fn(&str) -> bool,
    refusal: Option<Error>,
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
        if self.silent.load(Ordering::Relaxed) && (self.concerns)(table.name()) {
            if let Some(error) = &self.refusal {
                return Err(error.clone());
            }
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
    let (inner, silent_too) = (lake.catalog.clone(), silent.clone());
    member.catalog = Arc::new(Silent { inner, silent: silent_too, concerns: |_| true, refusal: None });
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

fn name(table: &str) -> TableName {
    format!("lake.db.{table}").parse().expect("a name")
}

/// Two workers, and a few tables whose loads hang or are refused, which come first.
async fn with_bad_tables(bad: &[&str], refusal: Option<Error>) {
    let lake = Lake::new();
    for table in bad.iter().chain(&["t", "u", "v", "w"]) {
        grown(&lake, table).await;
    }
    let silent = Arc::new(AtomicBool::new(true));
    let mut member = lake.member();
    let (inner, silent_too) = (lake.catalog.clone(), silent.clone());
    let told = refusal.clone();
    member.catalog = Arc::new(Silent { inner, silent: silent_too, concerns: |table| table < "t", refusal });
    let members = BTreeMap::from([("lake".to_owned(), member)]);
    let daemon = Daemon::with_fleet(&lake, Arc::new(Fleet::new(members, policies(&["lake.db.*"], POLICY))), 2);
    let up = || daemon.value("icewright_catalog_up", "lake");
    until(3 * MINUTE, "the others are compacted", || async {
        let mut done = 0;
        for table in ["t", "u", "v", "w"] {
            done += usize::from(lake.files(table).await.len() == 2);
        }
        done == 4
    })
    .await;
    for _ in 0..600 {
        tokio::time::sleep(MINUTE / 10).await;
        assert_eq!(up(), 1.0, "the catalog tells of its other tables");
    }
    let reasons = daemon.board.table(&name("a"), lake.clock.now_ms()).expect("known").summary.reasons;
    let expected = told.map_or("has not answered within 120 s".to_owned(), |error| error.to_string());
    assert!(reasons.iter().any(|reason| reason.detail.contains(&expected)), "{reasons:?}");
    silent.store(false, Ordering::Relaxed);
    until(3 * HOUR, "these as well", || async {
        let mut done = 0;
        for table in bad {
            done += usize::from(lake.files(table).await.len() == 2);
        }
        done == bad.len()
    })
    .await;
    assert_eq!(up(), 1.0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tables_that_hang_neither_take_the_workers_nor_bring_their_catalog_down() {
    with_bad_tables(&["a", "b"], None).await;
}

#[tokio::test(start_paused = true)]
async fn however_many_tables_hang_they_do_not_speak_for_those_that_were_told_of() {
    with_bad_tables(&["a", "b", "c", "d", "e"], None).await;
}

#[tokio::test(start_paused = true)]
async fn tables_that_are_refused_or_fail_do_not_bring_their_catalog_down() {
    for kind in [ErrorKind::Forbidden, ErrorKind::Unavailable, ErrorKind::DataInvalid] {
        with_bad_tables(&["a", "b"], Some(Error::new(kind, "HTTP 4711 for this table"))).await;
    }
}
