//! Conversations of the REST client with a catalog that behaves as told.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iceberg::spec::{NestedField, PrimitiveType, Schema, TableMetadataBuilder, Type};
use iceberg::{NamespaceIdent, TableCreation, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::rest::{Auth, MAX_RETRIES, REQUEST_TIMEOUT_MS, RestCatalog, RestCatalogConfig};
use icewright::catalog::{Catalog, CommitOutcome};
use icewright::error::{Error, ErrorKind};
use icewright::table::references::directories;
use serde_json::{Value, json};

use crate::support::http_server::{HttpServer, Received, Reply};

pub(crate) fn ident() -> TableIdent {
    TableIdent::new(NamespaceIdent::new("db".into()), "t".into())
}

fn metadata() -> Value {
    let id = NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long));
    let schema = Schema::builder().with_fields([id.into()]).build().unwrap();
    let creation = TableCreation::builder().name("t".into()).location("s3://b/t".into()).schema(schema).build();
    serde_json::to_value(TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata)
        .unwrap()
}

pub(crate) fn table_answer() -> Value {
    json!({"metadata-location": "s3://b/t/metadata/1.json", "metadata": metadata()})
}

pub(crate) fn error_body(kind: &str) -> Value {
    json!({"error": {"type": kind, "message": "because", "code": 0}})
}

/// A catalog: `config` for its configuration, tokens `t1`, `t2`, ... that live `expires_in` seconds, and the replies in
/// their order for everything else; the last one is repeated.
pub(crate) fn catalog_server(config: Value, expires_in: Option<f64>, replies: Vec<Reply>) -> HttpServer {
    let mut replies = VecDeque::from(replies);
    let mut tokens = 0;
    HttpServer::start(move |request: &Received| {
        if request.target.starts_with("/v1/config") {
            return Reply::json(200, config.clone());
        }
        if request.target.starts_with("/v1/oauth/tokens") {
            tokens += 1;
            return Reply::json(
                200,
                json!({"access_token": format!("t{tokens}"), "token_type": "bearer", "expires_in": expires_in}),
            );
        }
        if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
    })
}

pub(crate) fn empty_config() -> Value {
    json!({"defaults": {}, "overrides": {}})
}

pub(crate) fn oauth() -> Auth {
    Auth::OAuth2 { credential: Arc::new(|| Ok("id:se:cret".into())), scope: None, server_uri: None }
}

pub(crate) fn config_for(uri: &str, auth: Auth, properties: &[(&str, &str)]) -> RestCatalogConfig {
    let mut all =
        HashMap::from([(REQUEST_TIMEOUT_MS.to_owned(), "400".to_owned()), (MAX_RETRIES.to_owned(), "3".to_owned())]);
    all.extend(properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    RestCatalogConfig { name: "lake".into(), uri: uri.into(), warehouse: None, properties: all, auth }
}

pub(crate) async fn connect(server: &HttpServer, auth: Auth) -> RestCatalog {
    RestCatalog::connect(config_for(&server.uri(), auth, &[])).await.unwrap()
}

pub(crate) async fn commit(catalog: &RestCatalog) -> (&'static str, Option<Error>) {
    let requirements = vec![TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: None }];
    let updates = vec![TableUpdate::RemoveProperties { removals: vec!["x".into()] }];
    match catalog.commit_table(&ident(), requirements, updates, &|| Ok(())).await {
        CommitOutcome::Committed(_) => ("committed", None),
        CommitOutcome::Conflict(e) => ("conflict", Some(e)),
        CommitOutcome::Refused(e) => ("refused", Some(e)),
        CommitOutcome::NotSent(e) => ("not sent", Some(e)),
        CommitOutcome::Unknown(e) => ("unknown", Some(e)),
    }
}

/// What commits end as when the catalog replies like this, and how many times they are sent.
async fn commit_against(replies: Vec<Reply>) -> (&'static str, Option<ErrorKind>, usize) {
    let server = catalog_server(empty_config(), None, replies);
    let catalog = connect(&server, oauth()).await;
    let (outcome, error) = commit(&catalog).await;
    (outcome, error.map(|e| e.kind()), server.targets("/tables/t").len())
}

#[tokio::test]
async fn an_applied_commit_is_committed() {
    let server = catalog_server(empty_config(), None, vec![Reply::json(200, table_answer())]);
    let catalog = connect(&server, oauth()).await;
    assert_eq!(commit(&catalog).await.0, "committed");
    let sent = server.received().pop().unwrap();
    assert_eq!((sent.method.as_str(), sent.target.as_str()), ("POST", "/v1/namespaces/db/tables/t"));
    assert_eq!(sent.header("authorization"), Some("Bearer t1"));
    assert_eq!(sent.header("x-iceberg-access-delegation"), Some("vended-credentials"));
    let body: Value = serde_json::from_slice(&sent.body).unwrap();
    assert_eq!(body["identifier"], json!({"namespace": ["db"], "name": "t"}));
    assert_eq!(body["requirements"][0], json!({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": null}));
    assert_eq!(body["updates"][0]["action"], "remove-properties");
}

#[tokio::test]
async fn definite_answers_are_definite() {
    let conflict = commit_against(vec![Reply::json(409, error_body("CommitFailedException"))]).await;
    assert_eq!(conflict, ("conflict", Some(ErrorKind::Conflict), 1));
    let gone = commit_against(vec![Reply::json(404, error_body("NoSuchTableException"))]).await;
    assert_eq!(gone, ("refused", Some(ErrorKind::NotFound), 1));
    for (status, kind) in [(400, ErrorKind::DataInvalid), (422, ErrorKind::DataInvalid), (501, ErrorKind::Unsupported)]
    {
        assert_eq!(commit_against(vec![Reply::status(status)]).await, ("refused", Some(kind), 1), "{status}");
    }
}

#[tokio::test]
async fn whatever_may_have_been_applied_is_unknown_and_is_not_sent_again() {
    let mut not_a_table = table_answer();
    not_a_table["metadata"] = json!({"format-version": 99});
    let replies = [
        Reply::status(500),
        Reply::status(502),
        Reply::status(503).with("retry-after", "0"),
        Reply::status(504),
        Reply::status(408),
        Reply::status(302).with("location", "/elsewhere"),
        Reply::status(204),
        Reply::Answer(200, vec![], b"<html>".to_vec()),
        Reply::json(200, not_a_table),
        Reply::json(200, json!({"metadata": metadata()})),
        Reply::Drop,
        Reply::Truncated,
        Reply::Silent(Duration::from_millis(600)),
    ];
    for reply in replies {
        let outcome = commit_against(vec![reply.clone()]).await;
        assert_eq!(outcome, ("unknown", Some(ErrorKind::CommitUnknown), 1), "{reply:?}");
    }
}

#[tokio::test]
async fn a_commit_is_sent_again_where_it_was_not_looked_at() {
    let ok = || Reply::json(200, table_answer());
    let busy = || Reply::status(429).with("retry-after", "0");
    assert_eq!(commit_against(vec![busy(), busy(), ok()]).await, ("committed", None, 3));
    assert_eq!(commit_against(vec![busy()]).await, ("refused", Some(ErrorKind::Unavailable), 4), "bounded");
    assert_eq!(commit_against(vec![busy(), Reply::status(500)]).await, ("unknown", Some(ErrorKind::CommitUnknown), 2));
    for (status, kind) in [(401, ErrorKind::Unavailable), (419, ErrorKind::Unavailable), (403, ErrorKind::Forbidden)] {
        assert_eq!(commit_against(vec![Reply::status(status), ok()]).await, ("committed", None, 2), "{status}");
        let outcome = commit_against(vec![Reply::status(status)]).await;
        assert_eq!(outcome, ("refused", Some(kind), 2), "renewed once, then {status} again");
    }
    let conflict = commit_against(vec![Reply::status(401), Reply::status(409)]).await;
    assert_eq!(conflict, ("conflict", Some(ErrorKind::Conflict), 2));
}

#[tokio::test]
async fn a_commit_that_never_left_leaves_no_doubt() {
    let server = catalog_server(empty_config(), None, vec![Reply::status(500)]);
    let catalog = RestCatalog::connect(config_for(&server.uri(), Auth::None, &[(MAX_RETRIES, "1")])).await.unwrap();
    drop(server);
    let (outcome, error) = commit(&catalog).await;
    assert_eq!((outcome, error.unwrap().kind()), ("not sent", ErrorKind::Unavailable));
}

#[tokio::test]
async fn one_idempotency_key_covers_all_attempts_of_a_commit() {
    let replies = || vec![Reply::status(429).with("retry-after", "0"), Reply::json(200, table_answer())];
    let config = json!({"defaults": {}, "overrides": {}, "idempotency-key-lifetime": "PT30M"});
    let server = catalog_server(config, None, replies());
    let catalog = connect(&server, Auth::None).await;
    assert_eq!(commit(&catalog).await.0, "committed");
    assert_eq!(commit(&catalog).await.0, "committed");
    let posts: Vec<_> = server.received().into_iter().filter(|r| r.method == "POST").collect();
    let keys: Vec<_> =
        posts.iter().map(|r| r.header("idempotency-key").unwrap().parse::<uuid::Uuid>().unwrap()).collect();
    assert_eq!((keys.len(), keys[0].get_version_num()), (3, 7));
    assert!(keys[0] == keys[1] && keys[1] != keys[2]);

    let server = catalog_server(empty_config(), None, replies());
    assert_eq!(commit(&connect(&server, Auth::None).await).await.0, "committed");
    assert_eq!(server.received().pop().unwrap().header("idempotency-key"), None, "not announced, not sent");
}

#[tokio::test]
async fn reads_are_tried_again_and_honour_retry_after() {
    let replies = vec![
        Reply::status(503),
        Reply::Drop,
        Reply::status(429).with("retry-after", "1"),
        Reply::json(200, table_answer()),
    ];
    let server = catalog_server(empty_config(), None, replies);
    let catalog = connect(&server, Auth::None).await;
    let start = Instant::now();
    let table = catalog.load_table(&ident()).await.unwrap();
    assert_eq!(table.metadata_location, "s3://b/t/metadata/1.json");
    assert_eq!(server.targets("/tables/t").len(), 4);
    assert!(start.elapsed() >= Duration::from_secs(1), "the wait that the catalog asked for was kept");
}

#[tokio::test]
async fn reads_end_with_the_catalog_s_own_words() {
    for (reply, kind, requests, words) in [
        (Reply::json(404, error_body("NoSuchTableException")), ErrorKind::NotFound, 1, "NoSuchTableException: because"),
        (Reply::status(404), ErrorKind::Unavailable, 1, "HTTP 404"),
        (Reply::json(400, error_body("BadRequestException")), ErrorKind::DataInvalid, 1, "BadRequestException"),
        (Reply::json(403, error_body("ForbiddenException")), ErrorKind::Forbidden, 2, "ForbiddenException"),
        (Reply::json(500, error_body("Oops")), ErrorKind::Unavailable, 4, "HTTP 500 Oops: because"),
        (Reply::Answer(200, vec![], b"{}".to_vec()), ErrorKind::Unavailable, 1, "not what the protocol says"),
    ] {
        let server = catalog_server(empty_config(), None, vec![reply.clone()]);
        let catalog = connect(&server, oauth()).await;
        let error = catalog.load_table(&ident()).await.unwrap_err();
        assert_eq!((error.kind(), server.targets("/tables/t").len()), (kind, requests), "{reply:?}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("/namespaces/db/tables/t") && text.contains("lake"), "{text}");
    }
}

#[tokio::test]
async fn tokens_are_used_until_shortly_before_they_expire() {
    for (expires_in, tokens) in [(None, 1), (Some(3600.0), 1), (Some(1e-9), 4)] {
        let server = catalog_server(empty_config(), expires_in, vec![Reply::json(200, table_answer())]);
        let catalog = connect(&server, oauth()).await;
        for _ in 0..3 {
            catalog.load_table(&ident()).await.unwrap();
        }
        let sent = server.received();
        let asked: Vec<_> = sent.iter().filter(|r| r.target == "/v1/oauth/tokens").collect();
        assert_eq!(asked.len(), tokens, "{expires_in:?}");
        let mut fields: Vec<_> = asked[0].body_text().split('&').map(str::to_owned).collect();
        fields.sort();
        assert_eq!(
            fields,
            ["client_id=id", "client_secret=se%3Acret", "grant_type=client_credentials", "scope=catalog"]
        );
        assert_eq!(sent.last().unwrap().header("authorization"), Some(format!("Bearer t{tokens}").as_str()));
    }
}

#[tokio::test]
async fn rejected_tokens_are_renewed_once_for_all_requests() {
    let server = HttpServer::start({
        let mut tokens = 1;
        move |request: &Received| match request.target.as_str() {
            "/v1/config" => Reply::json(200, empty_config()),
            "/v1/oauth/tokens" => {
                tokens += 1;
                Reply::json(200, json!({"access_token": format!("t{tokens}")}))
            }
            _ if request.header("authorization") == Some("Bearer t2") => Reply::status(401),
            _ => Reply::json(200, table_answer()),
        }
    });
    let catalog = connect(&server, oauth()).await;
    let table = ident();
    let loads = futures::future::join_all((0..5).map(|_| catalog.load_table(&table))).await;
    assert!(loads.iter().all(Result::is_ok), "{loads:?}");
    assert_eq!(server.targets("/v1/oauth/tokens").len(), 2, "one at the start, one for all five");
}

#[tokio::test]
async fn a_failed_renewal_is_tried_again_later_without_a_restart() {
    let up = Arc::new(Mutex::new(false));
    let server = HttpServer::start({
        let up = Arc::clone(&up);
        move |request: &Received| match request.target.as_str() {
            "/v1/oauth/tokens" if *up.lock().unwrap() => Reply::json(200, json!({"access_token": "t"})),
            "/v1/oauth/tokens" => Reply::status(503),
            "/v1/config" => Reply::json(200, empty_config()),
            _ => Reply::json(200, table_answer()),
        }
    });
    let catalog = connect(&server, oauth()).await;
    assert!(!catalog.connected().await);
    assert_eq!(server.targets("tokens").len(), 3, "three tries");
    let error = catalog.load_table(&ident()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(server.targets("tokens").len(), 3, "just failed: not asked again at once");
    let (outcome, _) = commit(&catalog).await;
    assert_eq!(outcome, "not sent", "nothing was sent");
    *up.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(catalog.load_table(&ident()).await.is_ok());
    assert!(catalog.connected().await);
}

#[tokio::test]
async fn a_wrong_credential_is_not_tried_again_and_not_shown() {
    let server = HttpServer::start(|_: &Received| {
        Reply::json(401, json!({"error": "invalid_client", "error_description": "unknown client"}))
    });
    let catalog = connect(&server, oauth()).await;
    let error = catalog.load_table(&ident()).await.unwrap_err().to_string();
    assert!(error.contains("invalid_client: unknown client") && !error.contains("cret"), "{error}");
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_bearer_token_is_read_again_when_it_is_rejected() {
    let server = HttpServer::start(|request: &Received| match request.header("authorization") {
        Some("Bearer second") => {
            Reply::json(200, if request.target == "/v1/config" { empty_config() } else { table_answer() })
        }
        _ => Reply::status(401),
    });
    let reads = Arc::new(Mutex::new(vec!["second\n", "first\n"]));
    let source = Arc::clone(&reads);
    let auth = Auth::Bearer(Arc::new(move || Ok(source.lock().unwrap().pop().unwrap_or("third").to_owned())));
    let catalog = connect(&server, auth).await;
    assert!(catalog.load_table(&ident()).await.is_ok());
    assert_eq!(server.targets("/v1/config").len(), 2);

    let same = Auth::Bearer(Arc::new(|| Ok("first".into())));
    let server = HttpServer::start(|_: &Received| Reply::status(401));
    let catalog = connect(&server, same).await;
    assert!(!catalog.connected().await);
    assert_eq!(server.received().len(), 1, "the same token is not sent twice");
}

#[tokio::test]
async fn odd_names_arrive_as_they_are() {
    let server = catalog_server(empty_config(), None, vec![Reply::json(200, table_answer())]);
    let catalog = connect(&server, Auth::None).await;
    let namespace = NamespaceIdent::from_strs(["a b", "c/d", "é"]).unwrap();
    catalog.load_table(&TableIdent::new(namespace, "t x/y?z%41#h+".into())).await.unwrap();
    let expected = "GET /v1/namespaces/a%20b%1Fc%2Fd%1F%C3%A9/tables/t%20x%2Fy%3Fz%2541%23h%2B";
    assert_eq!(server.targets("/tables/"), [expected]);
    let dots = TableIdent::new(NamespaceIdent::new("db".into()), "..".into());
    assert_eq!(catalog.load_table(&dots).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn the_catalog_s_configuration_is_honoured() {
    let config = json!({
        "defaults": {"header.x-a": "default", "s3.region": "default", "s3.endpoint": "default", "gone": null},
        "overrides": {"prefix": "ws/one", "namespace-separator": "%2E", "s3.endpoint": "override"},
    });
    let server = catalog_server(config, None, vec![Reply::json(200, json!({"namespaces": [["a", "b"]]}))]);
    let mut settings = config_for(&format!("{}/", server.uri()), Auth::None, &[("s3.region", "own"), ("token", "x")]);
    settings.warehouse = Some("my warehouse&x".into());
    let catalog = RestCatalog::connect(settings).await.unwrap();
    let parent = NamespaceIdent::from_strs(["a", "é"]).unwrap();
    assert_eq!(catalog.list_namespaces(Some(&parent)).await.unwrap(), [NamespaceIdent::from_strs(["a", "b"]).unwrap()]);
    let expected =
        ["GET /v1/config?warehouse=my%20warehouse%26x", "GET /v1/ws/one/namespaces?parent=a.%C3%A9&pageToken="];
    assert_eq!(server.targets(""), expected);
    assert_eq!(server.received()[1].header("x-a"), Some("default"));
    let properties = catalog.storage_properties().await.unwrap();
    assert_eq!((properties["s3.endpoint"].as_str(), properties["s3.region"].as_str()), ("override", "own"));
    assert!(!properties.contains_key("token") && !properties.contains_key("gone"));
}

#[tokio::test]
async fn listings_follow_pages_but_not_in_circles() {
    let page = |names: &[&str], next: Value| {
        let found: Vec<_> = names.iter().map(|n| json!({"namespace": ["db"], "name": n})).collect();
        Reply::json(200, json!({"identifiers": found, "next-page-token": next}))
    };
    let replies = vec![page(&["a"], json!("p&2")), page(&["b"], json!("p3")), page(&["c"], json!(""))];
    let server = catalog_server(empty_config(), None, replies);
    let tables = connect(&server, Auth::None).await.list_tables(ident().namespace()).await.unwrap();
    assert_eq!(tables.iter().map(|t| t.name()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(server.targets("tables")[1], "GET /v1/namespaces/db/tables?pageToken=p%262");

    let server = catalog_server(
        empty_config(),
        None,
        vec![page(&["a"], json!("x")), page(&["b"], json!("y")), page(&["a"], json!("x"))],
    );
    let error = connect(&server, Auth::None).await.list_tables(ident().namespace()).await.unwrap_err();
    assert!(error.to_string().contains("same page token"), "{error}");
    assert_eq!(server.targets("tables").len(), 3);
}

#[tokio::test]
async fn a_catalog_that_is_down_at_first_is_used_once_it_is_up() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = config_for(&format!("http://{address}"), Auth::None, &[(MAX_RETRIES, "0")]);
    let catalog = RestCatalog::connect(settings).await.unwrap();
    assert_eq!(catalog.load_table(&ident()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let server = HttpServer::start_at(address, |request: &Received| {
        Reply::json(200, if request.target == "/v1/config" { empty_config() } else { table_answer() })
    });
    assert!(catalog.load_table(&ident()).await.is_ok());
    assert_eq!(server.targets("/v1/config").len(), 1);
    for uri in ["localhost:8181", "ftp://x", "http://"] {
        let refused = RestCatalog::connect(config_for(uri, Auth::None, &[])).await;
        assert!(refused.is_err_and(|e| e.kind() == ErrorKind::Config), "{uri}");
    }
}

#[tokio::test]
async fn requests_that_wait_for_a_catalog_that_is_down_fail_together() {
    let server = HttpServer::start(|_: &Received| Reply::status(503));
    let catalog = RestCatalog::new(config_for(&server.uri(), Auth::None, &[(MAX_RETRIES, "1")])).unwrap();
    let table = ident();
    let loads = futures::future::join_all((0..20).map(|_| catalog.load_table(&table))).await;
    assert!(loads.iter().all(|l| l.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unavailable)));
    assert_eq!(server.received().len(), 2, "one request and its repetition, not twenty");
}

#[tokio::test]
async fn what_a_table_brings_along_is_kept_and_used() {
    let mut answer = table_answer();
    answer["config"] = json!({"token": "of-table", "s3.region": "x"});
    answer["storage-credentials"] = json!([{"prefix": "s3://b/t", "config": {"s3.access-key-id": "k"}}]);
    let replies = vec![
        Reply::json(200, answer.clone()),
        Reply::json(200, answer),
        Reply::status(401),
        Reply::json(200, json!({"storage-credentials": [{"prefix": "s3://b", "config": {}}]})),
    ];
    let endpoints = [
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    ];
    let config = json!({"defaults": {}, "overrides": {}, "endpoints": endpoints});
    let server = catalog_server(config, None, replies);
    let catalog = connect(&server, oauth()).await;
    let table = catalog.load_table(&ident()).await.unwrap();
    let vended = &table.vended;
    assert_eq!((vended.config["s3.region"].as_str(), vended.storage_credentials[0].prefix.as_str()), ("x", "s3://b/t"));
    assert!(!format!("{table:?}").contains("of-table"), "secrets are not shown");
    assert_eq!(commit(&catalog).await.0, "committed");
    let fresh = catalog.load_credentials(&ident()).await.unwrap();
    assert_eq!(fresh.storage_credentials[0].prefix, "s3://b");
    let sent = server.received();
    let tokens: Vec<_> =
        sent.iter().filter(|r| r.target.contains("/tables/")).map(|r| r.header("authorization").unwrap()).collect();
    assert_eq!(
        tokens,
        ["Bearer t1", "Bearer of-table", "Bearer of-table", "Bearer t1"],
        "rejected: back to the catalog's"
    );
    assert!(sent.last().unwrap().target.ends_with("/tables/t/credentials"));

    let config = json!({"defaults": {}, "overrides": {}, "endpoints": ["GET /v1/{prefix}/namespaces"]});
    let server = catalog_server(config, None, vec![Reply::json(200, table_answer())]);
    let catalog = connect(&server, Auth::None).await;
    let (outcome, error) = commit(&catalog).await;
    assert_eq!((outcome, error.unwrap().kind()), ("not sent", ErrorKind::Unsupported), "it announces no commits");
    catalog.load_credentials(&ident()).await.unwrap();
    assert_eq!(
        server.targets("/tables"),
        ["GET /v1/namespaces/db/tables/t"],
        "without the endpoint the table is loaded"
    );
}

#[tokio::test]
async fn a_table_of_a_version_to_come_is_located_although_it_cannot_be_loaded() {
    let mut answer = table_answer();
    answer["metadata"]["format-version"] = json!(9);
    answer["metadata"]["schemas"][0]["fields"][0]["type"] = json!("hologram");
    answer["metadata"]["properties"] =
        json!({"write.data.path": "s3://data/t", "write.metadata.path": "s3://b/t/meta"});
    let mut nowhere = answer.clone();
    nowhere["metadata"]["location"] = json!(null);
    let gone = Reply::json(404, error_body("NoSuchTableException"));
    let replies = vec![Reply::json(200, answer.clone()), Reply::json(200, answer), Reply::json(200, nowhere), gone];
    let server = catalog_server(empty_config(), None, replies);
    let catalog = connect(&server, Auth::None).await;
    assert_eq!(catalog.load_table(&ident()).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let declared = catalog.declared_paths(&ident()).await.unwrap();
    assert_eq!((declared.location.as_str(), declared.further.len()), ("s3://b/t", 2));
    assert_eq!(directories(&declared).unwrap(), ["s3://b/t", "s3://data/t"]);
    assert_eq!(catalog.declared_paths(&ident()).await.unwrap_err().kind(), ErrorKind::DataInvalid);
    assert_eq!(catalog.declared_paths(&ident()).await.unwrap_err().kind(), ErrorKind::NotFound);
}
