//! The routes of the REST specification that this catalog answers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State as Extract};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use iceberg::{NamespaceIdent, TableIdent};
use serde_json::json;

use super::names;
use super::problem::{CatalogError, CatalogResult};
use super::requests::{self, CommitTable, CommitTransaction, ListQuery};
use super::state::{CatalogState, StoredTable};

/// Largest request body: a commit that removes some hundred thousand snapshots.
const REQUEST_BYTES_MAX: usize = 64 << 20;

type Shared = Extract<Arc<CatalogState>>;
type RouteAnswer = Result<Response, CatalogError>;

pub(super) fn router(state: Arc<CatalogState>) -> Router {
    Router::new()
        .route("/v1/config", get(config))
        .route("/v1/namespaces", get(list_namespaces).post(create_namespace))
        .route("/v1/namespaces/{namespace}", get(load_namespace).head(head_namespace).delete(drop_namespace))
        .route("/v1/namespaces/{namespace}/tables", get(list_tables).post(create_table))
        .route("/v1/namespaces/{namespace}/register", post(register_table))
        .route(
            "/v1/namespaces/{namespace}/tables/{table}",
            get(load_table).head(head_table).post(commit_table).delete(drop_table),
        )
        .route("/v1/namespaces/{namespace}/tables/{table}/metrics", post(report_metrics))
        .route("/v1/transactions/commit", post(commit_transaction))
        .fallback(|uri: Uri| async move { CatalogError::no_such_route(uri.path()) })
        .method_not_allowed_fallback(|uri: Uri| async move { CatalogError::method_not_allowed(uri.path()) })
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(state)
}

/// Routes as clients look them up in the configuration.
const ENDPOINTS: [&str; 15] = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/transactions/commit",
    "GET /v1/config",
];

/// Runs an operation to its end on a blocking thread, even if the client goes away meanwhile.
async fn run<T: Send + 'static>(
    state: Arc<CatalogState>,
    operation: impl FnOnce(&CatalogState) -> CatalogResult<T> + Send + 'static,
) -> CatalogResult<T> {
    let done = tokio::task::spawn_blocking(move || operation(&state)).await;
    done.unwrap_or_else(|e| Err(CatalogError::internal("run the operation", e)))
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// A table as a response. The document goes out as the file has it, so nothing can get lost on the way.
fn table_response(loaded: StoredTable) -> Response {
    let location = serde_json::Value::from(loaded.metadata_location);
    let body = format!(r#"{{"metadata-location":{location},"metadata":{},"config":{{}}}}"#, loaded.metadata);
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn ident(namespace: &str, table: String) -> CatalogResult<TableIdent> {
    names::table(names::parse_namespace(namespace)?, table)
}

async fn config() -> Json<serde_json::Value> {
    Json(json!({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}))
}

async fn list_namespaces(Extract(state): Shared, Query(query): Query<ListQuery>) -> RouteAnswer {
    let namespaces = run(state, move |state| state.list_namespaces(&query)).await?;
    Ok(Json(json!({"namespaces": namespaces})).into_response())
}

fn namespace_response(namespace: &NamespaceIdent, properties: &super::tree::Properties) -> Response {
    Json(json!({"namespace": namespace, "properties": properties})).into_response()
}

async fn create_namespace(Extract(state): Shared, body: Bytes) -> RouteAnswer {
    let request = requests::parse(&body)?;
    let (namespace, properties) = run(state, move |state| state.create_namespace(request)).await?;
    Ok(namespace_response(&namespace, &properties))
}

async fn load_namespace(Extract(state): Shared, Path(namespace): Path<String>) -> RouteAnswer {
    let namespace = names::parse_namespace(&namespace)?;
    let wanted = namespace.clone();
    let properties = run(state, move |state| state.load_namespace(&wanted)).await?;
    Ok(namespace_response(&namespace, &properties))
}

async fn head_namespace(Extract(state): Shared, Path(namespace): Path<String>) -> RouteAnswer {
    let namespace = names::parse_namespace(&namespace)?;
    run(state, move |state| state.load_namespace(&namespace)).await?;
    Ok(no_content())
}

async fn drop_namespace(Extract(state): Shared, Path(namespace): Path<String>) -> RouteAnswer {
    let namespace = names::parse_namespace(&namespace)?;
    run(state, move |state| state.drop_namespace(&namespace)).await?;
    Ok(no_content())
}

async fn list_tables(Extract(state): Shared, Path(namespace): Path<String>) -> RouteAnswer {
    let namespace = names::parse_namespace(&namespace)?;
    let wanted = namespace.clone();
    let tables = run(state, move |state| state.list_tables(&wanted)).await?;
    let identifiers: Vec<_> = tables.iter().map(|name| json!({"namespace": namespace, "name": name})).collect();
    Ok(Json(json!({"identifiers": identifiers})).into_response())
}

async fn create_table(Extract(state): Shared, Path(namespace): Path<String>, body: Bytes) -> RouteAnswer {
    let namespace = names::parse_namespace(&namespace)?;
    let request = requests::parse(&body)?;
    run(state, move |state| state.create_table(namespace, request)).await.map(table_response)
}

async fn register_table(Extract(state): Shared, Path(namespace): Path<String>, body: Bytes) -> RouteAnswer {
    let namespace = names::parse_namespace(&namespace)?;
    let request = requests::parse(&body)?;
    run(state, move |state| state.register_table(namespace, request)).await.map(table_response)
}

async fn load_table(Extract(state): Shared, Path((namespace, table)): Path<(String, String)>) -> RouteAnswer {
    let table = ident(&namespace, table)?;
    run(state, move |state| state.load_table(&table)).await.map(table_response)
}

async fn head_table(Extract(state): Shared, Path((namespace, table)): Path<(String, String)>) -> RouteAnswer {
    let table = ident(&namespace, table)?;
    run(state, move |state| state.check_table(&table)).await?;
    Ok(no_content())
}

async fn commit_table(
    Extract(state): Shared,
    Path((namespace, table)): Path<(String, String)>,
    body: Bytes,
) -> RouteAnswer {
    let table = ident(&namespace, table)?;
    let request = requests::parse(&body)?;
    run(state, move |state| state.commit_table(table, request)).await.map(table_response)
}

/// Some clients commit by a transaction even where one table changes.
async fn commit_transaction(Extract(state): Shared, body: Bytes) -> RouteAnswer {
    let request: CommitTransaction = requests::parse(&body)?;
    let [request] = <[CommitTable; 1]>::try_from(request.table_changes)
        .map_err(|_| CatalogError::bad_request("This catalog changes one table at a time"))?;
    let table = request.identifier.clone();
    let table = table.ok_or_else(|| CatalogError::bad_request("Every table change needs its identifier"))?;
    run(state, move |state| state.commit_table(table, request)).await?;
    Ok(no_content())
}

async fn drop_table(Extract(state): Shared, Path((namespace, table)): Path<(String, String)>) -> RouteAnswer {
    let table = ident(&namespace, table)?;
    run(state, move |state| state.drop_table(&table)).await?;
    Ok(no_content())
}

/// Reports are accepted and not kept.
async fn report_metrics(Path((namespace, table)): Path<(String, String)>) -> RouteAnswer {
    ident(&namespace, table)?;
    Ok(no_content())
}
