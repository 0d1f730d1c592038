//! A catalog under test, and the requests that the tests make again and again.

use std::path::Path;

use icewright::clock::{Clock, SystemClock};
use icewright::sandbox::catalog::CatalogServer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A catalog that serves a directory.
pub(super) struct Catalog {
    pub(super) uri: String,
    http: reqwest::Client,
    shutdown: CancellationToken,
    task: JoinHandle<icewright::error::Result<()>>,
}

impl Catalog {
    pub(super) async fn start(dir: &Path) -> Self {
        let server = CatalogServer::open(dir).expect("open catalog");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let uri = format!("http://{}", listener.local_addr().expect("address"));
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(server.serve(listener, shutdown.clone()));
        Self { uri, http: reqwest::Client::new(), shutdown, task }
    }

    /// Stops it, so that the directory can be opened again.
    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        drop(self.http);
        self.task.await.expect("join").expect("serve");
    }

    pub(super) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        call(&self.http, &self.uri, method, path, body).await.expect("an answer")
    }

    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, Some(&body)).await
    }

    pub(super) async fn namespace(&self, levels: &[&str]) {
        let (status, body) = self.post("/v1/namespaces", json!({"namespace": levels})).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Makes a table of `id long, kind string` and returns its metadata.
    pub(super) async fn table(&self, namespace: &str, name: &str, properties: Value) -> Value {
        let path = format!("/v1/namespaces/{namespace}/tables");
        let (status, body) = self.post(&path, create_request(name, properties)).await;
        assert_eq!(status, 200, "{body}");
        body["metadata"].clone()
    }

    /// Loads a table that must be there.
    pub(super) async fn load(&self, namespace: &str, name: &str) -> Value {
        let (status, body) = self.get(&format!("/v1/namespaces/{namespace}/tables/{name}")).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    pub(super) async fn commit(&self, table: &str, requirements: Value, updates: Value) -> (u16, Value) {
        let body = json!({"requirements": requirements, "updates": updates});
        self.post(&format!("/v1/namespaces/ns/tables/{table}"), body).await
    }
}

pub(super) async fn call(
    http: &reqwest::Client,
    uri: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Value), reqwest::Error> {
    let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
    let mut request = http.request(method, format!("{uri}{path}"));
    if let Some(body) = body {
        request = request.json(body);
    }
    let response = request.send().await?;
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok((status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") }))
}

pub(super) fn schema(columns: &[&str]) -> Value {
    let fields: Vec<Value> = columns
        .iter()
        .zip(1..)
        .map(|(name, id)| {
            let kind = if *name == "id" { "long" } else { "string" };
            json!({"id": id, "name": name, "required": false, "type": kind})
        })
        .collect();
    json!({"type": "struct", "schema-id": 0, "fields": fields})
}

pub(super) fn create_request(name: &str, properties: Value) -> Value {
    json!({"name": name, "schema": schema(&["id", "kind"]), "properties": properties})
}

/// The update that adds a snapshot.
pub(super) fn snapshot(id: i64, parent: Option<i64>, sequence_number: i64, at_ms: i64) -> Value {
    json!({"action": "add-snapshot", "snapshot": {
        "snapshot-id": id, "parent-snapshot-id": parent, "sequence-number": sequence_number, "timestamp-ms": at_ms,
        "manifest-list": format!("file:///nowhere/snap-{id}.avro"), "schema-id": 0,
        "summary": {"operation": "append", "added-records": "1"},
    }})
}

/// The update that points a ref at a snapshot.
pub(super) fn set_ref(name: &str, kind: &str, id: i64) -> Value {
    json!({"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": id})
}

/// The requirement that a ref is where it was.
pub(super) fn assert_ref(name: &str, id: Option<i64>) -> Value {
    json!({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": id})
}

/// The update that sets one property.
pub(super) fn set_property(key: &str, value: &str) -> Value {
    json!({"action": "set-properties", "updates": {key: value}})
}

pub(super) fn error_type(body: &Value) -> &str {
    body["error"]["type"].as_str().unwrap_or("no error")
}

/// The local path of a location.
pub(super) fn path(location: &Value) -> std::path::PathBuf {
    location.as_str().and_then(|l| l.strip_prefix("file://")).expect("a file location").into()
}

/// The time: a snapshot must not be older than its table.
pub(super) fn now_ms() -> i64 {
    SystemClock.now_ms()
}

/// A table's properties; the library leaves out an empty map.
pub(super) fn properties(metadata: &Value) -> Value {
    metadata.get("properties").cloned().unwrap_or_else(|| json!({}))
}
