//! What a real run tells: its log lines, its spans, and none of the secrets that it works with.

use std::collections::{BTreeMap, HashMap};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use prost::Message;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::interop::process::{Process, free_port, wait_for};
use crate::support::command::{Lake, icewright};
use crate::support::http_server::{HttpServer, Reply};

const CLIENT_SECRET: &str = "client-hush-1";
const TOKEN: &str = "token-hush-2";
const TABLE_TOKEN: &str = "table-token-hush-3";
const VENDED_KEY: &str = "vended-key-hush-4";
const VENDED_TOKEN: &str = "session-token-hush-5";
const HEADER: &str = "collector-key-hush-6";

/// A door before the catalog: asks for tokens, gives them, and vends keys with each table.
fn guarded(lake: &Lake) -> (Runtime, String) {
    let runtime = Runtime::new().expect("a runtime");
    let uri = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let uri = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(forward).with_state((reqwest::Client::new(), lake.uri.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        uri
    });
    (runtime, uri)
}

async fn forward(State((client, upstream)): State<(reqwest::Client, String)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = to_bytes(body, 64 << 20).await.expect("a body");
    let target = parts.uri.path_and_query().expect("a path").as_str().to_owned();
    if target == "/v1/oauth/tokens" {
        assert!(String::from_utf8_lossy(&body).contains(CLIENT_SECRET));
        let answer = json!({"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600});
        return Response::new(answer.to_string().into());
    }
    let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if ![TOKEN, TABLE_TOKEN].iter().any(|token| authorization == format!("Bearer {token}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let sent = client.request(parts.method, format!("{upstream}{target}")).header("content-type", "application/json");
    let answer = sent.body(body).send().await.expect("the catalog answers");
    let (status, text) = (answer.status(), answer.text().await.expect("text"));
    let mut value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    if value["metadata"].is_object() {
        let keys =
            json!({"s3.access-key-id": "id", "s3.secret-access-key": VENDED_KEY, "s3.session-token": VENDED_TOKEN});
        value["config"] = keys.clone();
        value["config"]["token"] = TABLE_TOKEN.into();
        value["storage-credentials"] = json!([{"prefix": "s3://elsewhere/", "config": keys}]);
    }
    (status, if value.is_null() { text } else { value.to_string() }).into_response()
}

/// A span as a collector sees it.
#[derive(Debug, Clone)]
struct Span {
    name: String,
    trace: String,
    id: Vec<u8>,
    parent: Vec<u8>,
    attributes: BTreeMap<String, String>,
}

fn spans(collector: &HttpServer) -> Vec<Span> {
    let mut found = Vec::new();
    for request in collector.received() {
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/traces"));
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(request.header("authorization"), Some(HEADER));
        let request = ExportTraceServiceRequest::decode(request.body.as_slice()).expect("protobuf");
        for span in request.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans) {
            let text = |value: Option<AnyValue>| match value {
                Some(AnyValue::StringValue(text)) => text,
                Some(AnyValue::IntValue(number)) => number.to_string(),
                other => format!("{other:?}"),
            };
            let attributes = span.attributes.into_iter();
            found.push(Span {
                name: span.name,
                trace: span.trace_id.iter().map(|b| format!("{b:02x}")).collect(),
                id: span.span_id,
                parent: span.parent_span_id,
                attributes: attributes.map(|a| (a.key, text(a.value.and_then(|v| v.value)))).collect(),
            });
        }
    }
    found
}

/// The daemon's log of one whole run of both tables, and what the collector received.
fn one_run(filter: &str) -> (String, Vec<Span>) {
    let lake = Lake::start();
    let (_runtime, uri) = guarded(&lake);
    let collector = HttpServer::start(|_| Reply::Answer(200, vec![], vec![]));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (config, log, port) = (dir.path().join("icewright.toml"), dir.path().join("log"), free_port());
    let text = format!(
        r#"
        server.listen = "127.0.0.1:{port}"
        limits.memory = "512MiB"
        [traces]
        endpoint = "{}"
        headers = {{ authorization = {{ env = "COLLECTOR_KEY" }} }}
        [catalogs.lake]
        uri = "{uri}"
        auth = {{ type = "oauth2", credential = {{ env = "LAKE_CREDENTIAL" }} }}
        [[policies]]
        name = "shop"
        tables = ["lake.shop.*"]
        commit-interval = "1s"
        delay = "1s"
        # The delay alone makes what was compacted that old.
        expire-snapshots.older-than = "1s"
        rewrite-data-files.rewrite-all = true
        "#,
        collector.uri()
    );
    std::fs::write(&config, text).expect("write a configuration");
    let mut command = icewright(&["run", "--config", &config.to_string_lossy(), "--log-filter", filter]);
    command.env("LAKE_CREDENTIAL", format!("client:{CLIENT_SECRET}")).env("COLLECTOR_KEY", HEADER);
    let mut daemon = Process::start("run", &mut command, log.clone());
    let read = || String::from_utf8_lossy(&std::fs::read(&log).expect("the log")).into_owned();
    wait_for("both tables' clean-up", || {
        daemon.assert_running();
        let is_end = |line: &&str| line.contains("step ended") && line.contains(r#""step":"clean-up""#);
        let ended = read().lines().filter(is_end).count();
        if ended >= 2 { Ok(()) } else { Err(format!("{ended} steps ended")) }
    });
    assert_eq!(daemon.terminate(), Some(0));
    (read(), spans(&collector))
}

#[test]
fn a_run_is_told_in_log_and_trace_and_its_secrets_are_not() {
    let (log, spans) = one_run("trace");
    for secret in [CLIENT_SECRET, TOKEN, TABLE_TOKEN, VENDED_KEY, VENDED_TOKEN, HEADER] {
        assert!(!log.contains(secret), "{secret} in the log: {:?}", log.lines().find(|line| line.contains(secret)));
    }
    let told = format!("{spans:?}");
    assert!(!told.contains("hush"), "{told}");

    let lines: Vec<Value> =
        log.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    for line in &lines {
        assert!(line["timestamp"].as_str().is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok()), "{line}");
        assert!(line["level"].is_string() && line["target"].is_string(), "{line}");
    }
    let of = |message: &str| lines.iter().filter(|line| line["message"] == message).collect::<Vec<_>>();
    let (started, ended) = (of("step started"), of("step ended"));
    assert_eq!((started.len(), ended.len()), (4, 4), "two steps of two tables");
    for line in started.iter().chain(&ended) {
        let (catalog, namespace) = (line["catalog"].as_str(), line["namespace"].as_str());
        assert_eq!((catalog, namespace), (Some("lake"), Some("shop")), "{line}");
    }
    for end in &ended {
        let begin = started.iter().find(|s| s["run-id"] == end["run-id"] && s["step"] == end["step"]);
        assert_eq!(begin.expect("its start")["table"], end["table"]);
        assert_eq!((&end["outcome"], &end["report"]["step"]), (&"success".into(), &end["step"]));
    }
    // Lower layers know no run, and their lines have it all the same.
    let below = lines.iter().find(|l| l["target"] == "icewright::storage::delete_files").expect("a file was deleted");
    for field in ["catalog", "namespace", "table", "action", "run-id"] {
        assert!(below[field].is_string(), "{field} of {below}");
    }
    assert_traced(&spans);
}

fn assert_traced(spans: &[Span]) {
    let mut by_trace: HashMap<&str, Vec<&Span>> = HashMap::new();
    for span in spans {
        by_trace.entry(&span.trace).or_default().push(span);
    }
    assert_eq!(by_trace.len(), 2, "a trace for each run");
    for (trace, spans) in by_trace {
        let named = |name: &str| spans.iter().filter(|span| span.name == name).copied().collect::<Vec<_>>();
        let only = |name: &str| {
            let found = named(name);
            assert_eq!(found.len(), 1, "{name} in {spans:#?}");
            found[0]
        };
        let runs = named("run");
        assert_eq!(runs.len(), 2, "before and after the delay");
        for run in &runs {
            assert_eq!(run.attributes["run_id"].replace('-', ""), trace);
            assert_eq!((run.parent.as_slice(), run.attributes["outcome"].as_str()), (&[][..], "success"));
            assert!(run.attributes["table"].starts_with("lake.shop."));
        }
        let rewrite = only("rewrite-data-files");
        assert!(runs.iter().any(|run| run.id == rewrite.parent));
        assert!(rewrite.attributes["rewritten_data_files"].parse::<u64>().expect("a count") >= 3);
        for part in ["inspect", "plan", "file-group", "commit"] {
            let inside = named(part).into_iter().filter(|span| span.parent == rewrite.id);
            assert!(inside.count() >= 1, "{part} in {spans:#?}");
        }
        for (action, part) in [("expire-snapshots", "delete"), ("remove-orphan-files", "list")] {
            let action = only(action);
            assert!(runs.iter().any(|run| run.id == action.parent && run.id != rewrite.parent));
            assert!(named(part).iter().any(|span| span.parent == action.id), "{part} in {spans:#?}");
        }
    }
}

#[test]
fn a_collector_that_is_down_disturbs_nothing_and_is_told_once() {
    let lake = Lake::start();
    let config = lake.config("1s", 1);
    let text = std::fs::read_to_string(&config).expect("the file");
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    std::fs::write(&config, format!("traces.endpoint = \"{endpoint}\"\n{text}")).expect("write");
    let output = icewright(&["once", "--config", &config.to_string_lossy()]).output().expect("start icewright");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(err.matches("spans could not be sent and are lost").count(), 1, "{err}");
}
