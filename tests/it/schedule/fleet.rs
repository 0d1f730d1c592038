//! What is known of other tables when one is cleaned.

use std::sync::Arc;

use icewright::action::RunStep;
use icewright::actions::subject::Subject;
use icewright::catalog::Catalog;
use icewright::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use icewright::config::Config;
use icewright::fleet::{ConfiguredStores, OpenStore};
use icewright::http_client::NoObserver;
use icewright::permit::WritePermit;
use icewright::schedule::run_table::{TableRun, run_step};
use serde_json::json;

use super::world::{Lake, ident};
use crate::support::http_server::{HttpServer, Reply};

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
        let done = run_step(&env, &fleet, &subject, TableRun::start(&env), RunStep::LAST, &()).await.expect("done");
        let begun: Vec<bool> = done.report.actions.iter().map(|action| action.detail.is_some()).collect();
        assert_eq!(begun, [expire, orphans]);
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
