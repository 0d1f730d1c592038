//! The routes of the REST specification that this catalog answers.

use std::future::Future;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State as Shared};
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::map_request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use iceberg::{NamespaceIdent, TableIdent};
use serde_json::json;

use super::change;
use super::commit::TableChange;
use super::faults::{self, Fault, SharedFaults};
use super::names;
use super::problem::{Outcome, Problem};
use super::requests::{self, CommitTable, CommitTransaction, DropQuery, ListQuery, LoadQuery};
use super::state::{Loaded, State};

/// Largest request body: a commit that removes some hundred thousand snapshots.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// What handlers share.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) state: Arc<State>,
    pub(super) faults: SharedFaults,
}

type Answer = Result<Response, Problem>;

/// Builds the routes.
pub(super) fn router(handle: Handle) -> Router {
    let routes = Router::new()
        .route("/v1/config", get(config))
        .route("/v1/namespaces", get(list_namespaces).post(create_namespace))
        .route("/v1/namespaces/{namespace}", get(load_namespace).head(head_namespace).delete(drop_namespace))
        .route("/v1/namespaces/{namespace}/properties", post(update_namespace))
        .route("/v1/namespaces/{namespace}/tables", get(list_tables).post(create_table))
        .route("/v1/namespaces/{namespace}/register", post(register_table))
        .route(
            "/v1/namespaces/{namespace}/tables/{table}",
            get(load_table).head(head_table).post(commit_table).delete(drop_table),
        )
        .route("/v1/namespaces/{namespace}/tables/{table}/metrics", post(report_metrics))
        .route("/v1/tables/rename", post(rename_table))
        .route("/v1/transactions/commit", post(commit_transaction))
        .fallback(|uri: Uri| async move { Problem::no_such_route(uri.path()) })
        .method_not_allowed_fallback(|uri: Uri| async move { Problem::method_not_allowed(uri.path()) })
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(handle);
    // Around the routes, so that they see the path as it was meant.
    Router::new().fallback_service(routes).layer(map_request(spaces))
}

/// Java clients encode names in paths as forms are encoded: a space is `+`, and a plus sign is `%2B` to everybody.
async fn spaces(mut request: Request) -> Request {
    let uri = request.uri();
    if uri.path().contains('+') {
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let meant = format!("{}{query}", uri.path().replace('+', "%20"));
        let mut parts = uri.clone().into_parts();
        // A path stays one when a character becomes an escape.
        parts.path_and_query = PathAndQuery::try_from(meant).ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Routes as clients look them up in the configuration.
const ENDPOINTS: [&str; 17] = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
    "GET /v1/config",
];

impl Handle {
    /// Runs an operation to its end on a blocking thread, even if the client goes away meanwhile.
    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&State) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let state = Arc::clone(&self.state);
        joined(tokio::task::spawn_blocking(move || operation(&state))).await
    }

    /// Runs a commit, with whatever failure a test has asked for.
    async fn commit<T: Send + 'static>(
        &self,
        tables: Vec<TableIdent>,
        operation: impl FnOnce(&State) -> Outcome<T> + Send + 'static,
        answer: impl FnOnce(T) -> Response,
    ) -> Answer {
        let fault = faults::take(&self.faults, &tables);
        let status = |code: u16| StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        match fault {
            Some(Fault::Conflict) => return Err(Problem::injected(StatusCode::CONFLICT)),
            Some(Fault::FailBefore(code)) => return Err(Problem::injected(status(code))),
            _ => {}
        }
        let handle = self.clone();
        // On a task of its own, so that a delayed commit happens even when its client has given up.
        let done = joined(tokio::spawn(async move {
            if let Some(Fault::Delay(delay)) = fault {
                tokio::time::sleep(delay).await;
            }
            handle.run(operation).await
        }))
        .await?;
        match fault {
            Some(Fault::FailAfter(code)) => Err(Problem::injected(status(code))),
            Some(Fault::DropAfter) => Ok(broken_response()),
            _ => Ok(answer(done)),
        }
    }
}

async fn joined<T>(task: impl Future<Output = Result<Outcome<T>, tokio::task::JoinError>>) -> Outcome<T> {
    task.await.unwrap_or_else(|e| Err(Problem::internal("run the operation", e)))
}

/// A response whose body fails before its first byte: the server closes the connection and sends nothing at all.
fn broken_response() -> Response {
    let lost = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("response lost")) });
    Response::new(Body::from_stream(lost))
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// A table as a response. The document goes out as the file has it, so nothing can get lost on the way.
fn table_response(loaded: Loaded) -> Response {
    let location = serde_json::Value::from(loaded.metadata_location);
    let body = format!(r#"{{"metadata-location":{location},"metadata":{},"config":{{}}}}"#, loaded.metadata);
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn ident(namespace: &str, table: String) -> Outcome<TableIdent> {
    names::table(names::parse_namespace(namespace)?, table)
}

async fn config() -> Json<serde_json::Value> {
    Json(json!({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}))
}

async fn list_namespaces(Shared(handle): Shared<Handle>, Query(query): Query<ListQuery>) -> Answer {
    let (namespaces, token) = handle.run(move |state| state.list_namespaces(&query)).await?;
    Ok(Json(json!({"namespaces": namespaces, "next-page-token": token})).into_response())
}

fn namespace_response(namespace: &NamespaceIdent, properties: &super::tree::Properties) -> Response {
    Json(json!({"namespace": namespace, "properties": properties})).into_response()
}

async fn create_namespace(Shared(handle): Shared<Handle>, body: Bytes) -> Answer {
    let request = requests::parse(&body)?;
    let (namespace, properties) = handle.run(move |state| state.create_namespace(request)).await?;
    Ok(namespace_response(&namespace, &properties))
}

async fn load_namespace(Shared(handle): Shared<Handle>, Path(namespace): Path<String>) -> Answer {
    let namespace = names::parse_namespace(&namespace)?;
    let wanted = namespace.clone();
    let properties = handle.run(move |state| state.load_namespace(&wanted)).await?;
    Ok(namespace_response(&namespace, &properties))
}

async fn head_namespace(Shared(handle): Shared<Handle>, Path(namespace): Path<String>) -> Answer {
    let namespace = names::parse_namespace(&namespace)?;
    handle.run(move |state| state.load_namespace(&namespace)).await?;
    Ok(no_content())
}

async fn drop_namespace(Shared(handle): Shared<Handle>, Path(namespace): Path<String>) -> Answer {
    let namespace = names::parse_namespace(&namespace)?;
    handle.run(move |state| state.drop_namespace(&namespace)).await?;
    Ok(no_content())
}

async fn update_namespace(Shared(handle): Shared<Handle>, Path(namespace): Path<String>, body: Bytes) -> Answer {
    let namespace = names::parse_namespace(&namespace)?;
    let request = requests::parse(&body)?;
    let (updated, removed, missing) = handle.run(move |state| state.update_namespace(&namespace, request)).await?;
    Ok(Json(json!({"updated": updated, "removed": removed, "missing": missing})).into_response())
}

async fn list_tables(
    Shared(handle): Shared<Handle>,
    Path(namespace): Path<String>,
    Query(query): Query<ListQuery>,
) -> Answer {
    let namespace = names::parse_namespace(&namespace)?;
    let wanted = namespace.clone();
    let (tables, token) = handle.run(move |state| state.list_tables(&wanted, &query)).await?;
    let identifiers: Vec<_> = tables.iter().map(|name| json!({"namespace": namespace, "name": name})).collect();
    Ok(Json(json!({"identifiers": identifiers, "next-page-token": token})).into_response())
}

async fn create_table(Shared(handle): Shared<Handle>, Path(namespace): Path<String>, body: Bytes) -> Answer {
    let namespace = names::parse_namespace(&namespace)?;
    let request = requests::parse(&body)?;
    handle.run(move |state| state.create_table(namespace, request)).await.map(table_response)
}

async fn register_table(Shared(handle): Shared<Handle>, Path(namespace): Path<String>, body: Bytes) -> Answer {
    let namespace = names::parse_namespace(&namespace)?;
    let request = requests::parse(&body)?;
    handle.run(move |state| state.register_table(namespace, request)).await.map(table_response)
}

async fn load_table(
    Shared(handle): Shared<Handle>,
    Path((namespace, table)): Path<(String, String)>,
    Query(query): Query<LoadQuery>,
) -> Answer {
    let table = ident(&namespace, table)?;
    let mut loaded = handle.run(move |state| state.load_table(&table)).await?;
    match query.snapshots.as_deref() {
        None | Some("all") => {}
        Some("refs") => loaded.metadata = change::only_referenced_snapshots(&loaded.metadata)?,
        Some(other) => return Err(Problem::bad_request(format!("snapshots must be all or refs, not {other}"))),
    }
    Ok(table_response(loaded))
}

async fn head_table(Shared(handle): Shared<Handle>, Path((namespace, table)): Path<(String, String)>) -> Answer {
    let table = ident(&namespace, table)?;
    handle.run(move |state| state.check_table(&table)).await?;
    Ok(no_content())
}

async fn commit_table(
    Shared(handle): Shared<Handle>,
    Path((namespace, table)): Path<(String, String)>,
    body: Bytes,
) -> Answer {
    let table = ident(&namespace, table)?;
    let request: CommitTable = requests::parse(&body)?;
    let tables = vec![table.clone()];
    let change = TableChange { table, request };
    handle.commit(tables, move |state| state.commit_table(change), table_response).await
}

async fn commit_transaction(Shared(handle): Shared<Handle>, body: Bytes) -> Answer {
    let request: CommitTransaction = requests::parse(&body)?;
    let mut changes = Vec::with_capacity(request.table_changes.len());
    for request in request.table_changes {
        let table = request.identifier.clone();
        let table = table.ok_or_else(|| Problem::bad_request("Every table change needs its identifier"))?;
        changes.push(TableChange { table, request });
    }
    let tables = changes.iter().map(|c| c.table.clone()).collect();
    handle.commit(tables, move |state| state.commit_all(changes), |()| no_content()).await
}

async fn drop_table(
    Shared(handle): Shared<Handle>,
    Path((namespace, table)): Path<(String, String)>,
    Query(query): Query<DropQuery>,
) -> Answer {
    let table = ident(&namespace, table)?;
    let purge = query.purge_requested.is_some_and(|p| p.eq_ignore_ascii_case("true"));
    handle.run(move |state| state.drop_table(&table, purge)).await?;
    Ok(no_content())
}

async fn rename_table(Shared(handle): Shared<Handle>, body: Bytes) -> Answer {
    let request = requests::parse(&body)?;
    handle.run(move |state| state.rename_table(request)).await?;
    Ok(no_content())
}

/// Reports are accepted and not kept.
async fn report_metrics(Path((namespace, table)): Path<(String, String)>) -> Answer {
    ident(&namespace, table)?;
    Ok(no_content())
}
