//! What is known of other tables when one is cleaned.

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use icewright::catalog::{Catalog, CommitOutcome, DeclaredPaths, LoadedTable, MaySend, NoObserver};
use icewright::config::Config;
use icewright::error::{Error, Result};
use icewright::permit::WritePermit;
use icewright::schedule::fleet::{ConfiguredStores, Fleet, Member, OpenStore};
use icewright::schedule::run_table::{Run, StepReport, Subject, clean_up_step};
use icewright::storage::StoreRef;
use serde_json::json;

use super::world::{Lake, MINUTE, ident};
use crate::support::http_server::{HttpServer, Reply};

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
    async fn commit_table(
        &self,
        _: &TableIdent,
        _: Vec<TableRequirement>,
        _: Vec<TableUpdate>,
        _: MaySend<'_>,
    ) -> CommitOutcome {
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
async fn nobody_is_asked_where_other_tables_lie_when_nothing_is_to_go() {
    let lake = Lake::new();
    lake.create("t");
    lake.create("u");
    let env = lake.env();
    let name = "lake.db.t".parse().expect("a name");
    for (expire, orphans, asked) in [(false, false, false), (true, false, true), (false, true, true)] {
        let policy = format!(
            "[policies.expire-snapshots]\nenabled = {expire}\n[policies.remove-orphan-files]\nenabled = {orphans}\n"
        );
        let fleet = lake.fleet(&policy);
        let subject = Subject::load(&fleet, &name).await.expect("a table");
        let before = lake.catalog.loads();
        let done = clean_up_step(&env, &fleet, &name, &subject, Run::start(&env), &|_| {}).await.expect("done");
        let StepReport::CleanUp(report) = done.report else { panic!("a clean-up was asked for") };
        assert_eq!((report.expire_snapshots.is_some(), report.remove_orphan_files.is_some()), (expire, orphans));
        assert_eq!(lake.catalog.loads() > before, asked, "{policy}");
    }
}

/// What the catalog insists on wins over the configuration, except over secrets, which are read anew at each opening.
#[tokio::test]
async fn properties_of_a_store_come_from_the_catalog_and_secrets_from_here() {
    let server = HttpServer::start(|_| Reply::status(404));
    let uri = server.uri();
    let catalog = HttpServer::start(move |_| {
        Reply::json(
            200,
            json!({
                "defaults": {"s3.region": "default-region", "s3.session-token": "default-token"},
                "overrides": {"s3.endpoint": uri, "s3.path-style-access": "true", "s3.access-key-id": "override"}
            }),
        )
    });
    let dir = tempfile::tempdir().expect("a folder");
    let text = format!(
        r#"[catalogs.lake]
        uri = "{}"
        auth = {{ type = "none" }}
        [catalogs.lake.properties]
        "s3.endpoint" = "http://localhost:1"
        "s3.region" = "our-region"
        "s3.access-key-id" = {{ file = "id" }}
        "s3.secret-access-key" = {{ file = "key" }}"#,
        catalog.uri()
    );
    let path = dir.path().join("icewright.toml");
    let config = Config::parse(&path.to_string_lossy(), &text).unwrap_or_else(|problems| panic!("{problems}"));
    std::fs::write(dir.path().join("id"), "first").expect("write");
    std::fs::write(dir.path().join("key"), "secret").expect("write");
    let config = config.config.catalogs["lake"].clone();
    let rest = RestCatalogConfig {
        name: "lake".into(),
        uri: config.uri.clone(),
        warehouse: None,
        properties: config.resolve_properties().expect("readable secrets"),
        auth: Auth::None,
    };
    let rest: Arc<dyn Catalog> = Arc::new(RestCatalog::connect(rest).await.expect("a catalog"));
    let stores = ConfiguredStores { config, observer: Arc::new(NoObserver), permit: WritePermit::always() };

    let lake = Lake::new();
    lake.create("t");
    let loaded = lake.load("t").await;
    for id in ["first", "second"] {
        std::fs::write(dir.path().join("id"), id).expect("write");
        let store = stores.open(&rest, &ident("t"), &loaded).await.expect("a store");
        assert!(store.read("s3://b/db/t/data/f").await.is_err(), "there is nothing");
        let request = server.received().pop().expect("a request");
        assert_eq!(request.target, "/b/db/t/data/f");
        let signed = request.header("authorization").expect("signed").to_owned();
        assert!(signed.contains(&format!("Credential={id}/")) && signed.contains("/our-region/s3/"), "{signed}");
        assert_eq!(request.header("x-amz-security-token"), Some("default-token"));
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
