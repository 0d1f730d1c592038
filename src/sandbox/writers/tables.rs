//! Making the two tables over REST.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{NAMESPACE, ORDERS, SERVER_LOGS};
use crate::error::{Error, Result};

/// Makes the namespace and the tables in the catalog at `base_uri`, as far as they are not there yet.
pub async fn create_tables(base_uri: &str) -> Result<()> {
    let base = format!("{}/v1/namespaces", base_uri.trim_end_matches('/'));
    let http = reqwest::Client::new();
    create(&http, &base, json!({"namespace": [NAMESPACE]})).await?;
    let tables = format!("{base}/{NAMESPACE}/tables");
    for table in [orders(), server_logs()] {
        create(&http, &tables, table).await?;
    }
    Ok(())
}

async fn create(http: &reqwest::Client, url: &str, body: Value) -> Result<()> {
    let failed = |e: reqwest::Error| Error::unavailable(format!("create at {url}: {e}"));
    let response = http.post(url).json(&body).send().await.map_err(failed)?;
    let status = response.status();
    if status.is_success() || status == StatusCode::CONFLICT {
        return Ok(());
    }
    let text = response.text().await.unwrap_or_default();
    Err(Error::unavailable(format!("create at {url}: {status} {text}")))
}

fn field(id: i32, name: &str, kind: &str, required: bool) -> Value {
    json!({"id": id, "name": name, "type": kind, "required": required})
}

fn properties() -> Value {
    json!({
        "format-version": "2",
        "write.parquet.compression-codec": "zstd",
        // As long as the sandbox is meant to run for minutes, a few metadata files are enough.
        "write.metadata.previous-versions-max": "20",
        "write.metadata.delete-after-commit.enabled": "true",
    })
}

fn orders() -> Value {
    let mut properties = properties();
    properties["write.upsert.enabled"] = json!("true");
    json!({
        "name": ORDERS,
        "schema": {"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": [
            field(1, "id", "long", true),
            field(2, "customer", "string", false),
            field(3, "status", "string", false),
            field(4, "amount_cents", "long", false),
            field(5, "version", "long", false),
            field(6, "updated_at", "timestamptz", false),
            field(7, "note", "string", false),
        ]},
        "partition-spec": {"spec-id": 0, "fields": [
            {"source-id": 1, "field-id": 1000, "name": "id_bucket", "transform": "bucket[2]"}]},
        "properties": properties,
    })
}

fn server_logs() -> Value {
    json!({
        "name": SERVER_LOGS,
        "schema": {"type": "struct", "schema-id": 0, "fields": [
            field(1, "id", "long", true),
            field(2, "hour", "string", true),
            field(3, "at", "timestamptz", false),
            field(4, "host", "string", false),
            field(5, "level", "string", false),
            field(6, "status", "int", false),
            field(7, "latency_ms", "double", false),
            field(8, "message", "string", false),
        ]},
        "partition-spec": {"spec-id": 0, "fields": [
            {"source-id": 2, "field-id": 1000, "name": "hour", "transform": "identity"}]},
        "properties": properties(),
    })
}
