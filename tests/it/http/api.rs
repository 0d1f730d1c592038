//! Who may ask for what, what is refused, and how.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use icewright::inspect::ManifestCache;
use icewright::report::board::Board;
use icewright::report::events::Reporter;
use icewright::report::metrics::Metrics;
use icewright::report::probes::Probes;
use icewright::rewrite::MemoryBudget;
use icewright::schedule::observer::{Event, Observer, TableEvent};
use icewright::testing::SetClock;
use serde_json::json;

use super::client::{Api, Orders, TOKEN, path_of};

/// A board that knows these tables, and who tells it things.
pub(super) fn board(tables: &[&str]) -> (Arc<Board>, Reporter) {
    let memory = Arc::new(MemoryBudget::new(1 << 30));
    let board = Arc::new(Board::new(1_000, memory, Arc::new(ManifestCache::new(1 << 20))));
    let probes = Arc::new(Probes::new(0, Duration::from_secs(60), []));
    let reporter = Reporter::new(Arc::new(Metrics::new(10)), board.clone(), probes, false);
    for table in tables {
        reporter.observe(Event::Table(&table.parse().expect("a name"), TableEvent::Found), 0);
    }
    (board, reporter)
}

fn api(tables: &[&str], orders: Arc<Orders>, token: Option<&str>) -> Api {
    Api::new(board(tables).0, Arc::new(SetClock::new(5_000)), orders, token)
}

const ACTIONS: [(&str, &str); 7] = [
    ("POST", "/api/v1/tables/lake.db.t/plan"),
    ("POST", "/api/v1/tables/lake.db.t/run"),
    ("POST", "/api/v1/tables/lake.db.t/pause"),
    ("POST", "/api/v1/tables/lake.db.t/resume"),
    ("POST", "/api/v1/pause"),
    ("POST", "/api/v1/resume"),
    ("PUT", "/api/v1/log-filter"),
];

const VIEWS: [&str; 6] =
    ["/api/v1/status", "/api/v1/tables", "/api/v1/tables/lake.db.t", "/api/v1/log-filter", "/api/v1/openapi.json", "/"];

#[tokio::test]
async fn looking_is_free_and_acting_needs_the_token() {
    for token in [None, Some(TOKEN)] {
        let orders = Arc::new(Orders::default());
        let api = api(&["lake.db.t"], orders.clone(), token);
        for path in VIEWS {
            assert_eq!(api.get(path).await.status, 200, "{path}");
        }
        assert_eq!(api.view("/api/v1/status").await["admin"], token.is_some());
        for (method, path) in ACTIONS {
            let body = path.ends_with("filter").then(|| json!({"filter": "warn"}));
            let short = format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]);
            let basic = format!("Basic {TOKEN}");
            for wrong in [None, Some(""), Some("Bearer"), Some("Bearer "), Some(&short), Some(&basic), Some(TOKEN)] {
                let answer = api.act(method, path, wrong.map(|w| w as &str), body.clone()).await;
                if token.is_some() {
                    assert_eq!(answer.status, 401, "{method} {path} {wrong:?}");
                    assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"icewright\"");
                } else {
                    assert_eq!(answer.status, 403);
                    assert!(answer.text.contains("admin-token ="), "the cure: {}", answer.text);
                }
            }
            let right = api.act(method, path, Some(&format!("bearer {TOKEN}")), body).await;
            let wanted = if path.ends_with("/run") { 202 } else { 200 };
            assert_eq!(right.status, if token.is_some() { wanted } else { 403 }, "{method} {path} {}", right.text);
        }
        let taken = orders.taken.lock().expect("no panic").clone();
        assert_eq!(taken.len(), if token.is_some() { ACTIONS.len() - 1 } else { 0 }, "{taken:?}");
        let filter = api.view("/api/v1/log-filter").await;
        assert_eq!(filter, json!({"filter": if token.is_some() { "warn" } else { "info" }}));
    }
}

#[tokio::test]
async fn the_token_is_read_anew_each_time() {
    let reads = Arc::new(AtomicU32::new(0));
    let counted = reads.clone();
    let source = Arc::new(move || match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Ok("old".to_owned()),
        1 => Err(icewright::error::Error::unavailable("secret from file /secrets/admin: it is empty")),
        _ => Ok("new".to_owned()),
    });
    let api = api(&["lake.db.t"], Arc::default(), None).with_token_source(source);
    let run = async |token: &str| api.act("POST", ACTIONS[1].1, Some(&format!("Bearer {token}")), None).await;
    assert_eq!(run("old").await.status, 202);
    let unreadable = run("new").await;
    assert_eq!(unreadable.status, 503);
    assert!(!unreadable.text.contains("/secrets"), "paths are for the log");
    assert_eq!(run("old").await.status, 401);
    assert_eq!(run("new").await.status, 202);
}

#[tokio::test]
async fn orders_arrive_as_they_were_given() {
    let orders = Arc::new(Orders::default());
    let api = api(&["lake.db.t"], orders.clone(), Some(TOKEN));
    api.post(ACTIONS[2].1, Some(json!({"reason": "migration"}))).await;
    api.post(ACTIONS[2].1, None).await;
    api.post("/api/v1/pause", Some(json!({}))).await;
    api.post("/api/v1/resume", None).await;
    assert_eq!(api.post(ACTIONS[0].1, None).await.json(), json!({"table": "lake.db.t"}));
    let taken = orders.taken.lock().expect("no panic").clone();
    assert!(taken[0].starts_with("pause Some(") && taken[0].ends_with(" migration"), "{taken:?}");
    assert_eq!(taken[2..], ["pause None ".to_owned(), "resume all".into(), "plan lake.db.t".into()]);
}

#[tokio::test]
async fn what_is_malformed_is_refused_with_the_reason() {
    let api = api(&["lake.db.t"], Arc::default(), Some(TOKEN));
    for (path, status, why) in [
        ("/api/v1/nothing", 404, "openapi.json"),
        ("/api/v1/tables?limit=0", 400, "between 1 and 1000"),
        ("/api/v1/tables?limit=1001", 400, "between 1 and 1000"),
        ("/api/v1/tables?limit=many", 400, "limit"),
        ("/api/v1/tables?health=ill", 400, "ill"),
        ("/api/v1/tables?limt=1", 400, "limt"),
        ("/api/v1/tables/lake.db.other", 404, "not maintained"),
        ("/api/v1/tables/lake", 404, "fewer than three levels"),
        ("/api/v1/tables/%ff%fe", 404, "UTF-8"),
    ] {
        let answer = api.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text.contains(why), "{path}: {}", answer.text);
    }
    let wrong_method = api.act("DELETE", "/api/v1/status", None, None).await;
    assert_eq!((wrong_method.status, wrong_method.header("allow")), (405, "GET,HEAD"));
    for (body, status, why) in [
        (json!({"reason": 7}), 400, "invalid type"),
        (json!({"because": "x"}), 400, "unknown field `because`"),
        (json!([]), 400, "malformed"),
        (json!({"reason": "x".repeat(70_000)}), 413, "limit"),
    ] {
        let answer = api.post("/api/v1/pause", Some(body)).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.text.contains(why), "{}", answer.text);
    }
    let undeclared = Request::post("/api/v1/pause").header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(api.send(undeclared.body(Body::from("{}")).expect("a request")).await.status, 415);
    let bearer = format!("Bearer {TOKEN}");
    let bad = api.act("PUT", "/api/v1/log-filter", Some(&bearer), Some(json!({"filter": "loud"}))).await;
    assert_eq!(bad.status, 400);
    assert!(bad.text.contains("is no level"), "{}", bad.text);
}

#[tokio::test(start_paused = true)]
async fn plans_are_few_and_what_goes_wrong_in_one_stays_there() {
    let tables = ["lake.db.a", "lake.db.b", "lake.db.c", "lake.db.away", "lake.db.panics"];
    let orders = Arc::new(Orders { plan_takes: Duration::from_secs(60), ..Orders::default() });
    let api = api(&tables, orders, Some(TOKEN));
    let plan = |table: &str| {
        let (api, path) = (api.clone(), path_of(&format!("lake.db.{table}")) + "/plan");
        async move { api.post(&path, None).await }
    };
    let (first, second, same, third) = tokio::join!(plan("a"), plan("b"), plan("a"), plan("c"));
    assert_eq!((first.status, second.status, same.status, third.status), (200, 200, 409, 503));
    assert_eq!(third.header("retry-after"), "5");
    assert_eq!(plan("c").await.status, 200, "there is room again");
    let away = plan("away").await;
    assert_eq!(away.status, 503);
    assert!(away.text.contains("the catalog is away"), "{}", away.text);
    assert_eq!(plan("panics").await.status, 500);
    assert_eq!(plan("panics").await.status, 500, "not 409: its place is free again");
    assert_eq!(api.get("/api/v1/status").await.status, 200);
    // Whoever does not wait for the plan gives its place back.
    assert!(tokio::time::timeout(Duration::from_secs(1), plan("a")).await.is_err());
    assert_eq!(plan("a").await.status, 200);

    let endless = Arc::new(Orders { plan_takes: Duration::from_secs(3600), ..Orders::default() });
    let api = self::api(&["lake.db.a"], endless, Some(TOKEN));
    let late = api.post("/api/v1/tables/lake.db.a/plan", None).await;
    assert_eq!(late.status, 503);
    assert!(late.text.contains("longer than 300 s"), "{}", late.text);
}

#[tokio::test]
async fn browsers_are_told_to_be_careful() {
    let api = api(&["lake.db.t"], Arc::default(), None);
    for path in ["/", "/metrics", "/api/v1/status", "/api/v1/nothing"] {
        let answer = api.get(path).await;
        assert!(answer.header("content-security-policy").starts_with("default-src 'self';"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert!(answer.headers.get("set-cookie").is_none());
    }
    assert_eq!(api.get("/api/v1/status").await.header("cache-control"), "no-store");
    let page = api.get("/").await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    let again = api.get_unless("/", page.header("etag")).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
}

#[tokio::test]
async fn every_file_of_the_page_is_served_as_what_it_is() {
    let api = api(&[], Arc::default(), None);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/page");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
        let (_, ending) = name.rsplit_once('.').expect("an ending");
        let path = if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
        let answer = api.get(&path).await;
        assert_eq!(answer.status, 200, "{name} is missing in src/server/assets.rs");
        assert_eq!(answer.text, std::fs::read_to_string(folder.join(&name)).expect("text"), "{name}");
        let kind = match ending {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            other => panic!("what is {other}?"),
        };
        assert_eq!((answer.header("content-type"), answer.header("cache-control")), (kind, "no-cache"));
        seen += 1;
    }
    assert!(seen > 0);
}
