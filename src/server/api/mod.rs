//! `/api/v1`: what the [`Board`] shows, and what operators may ask for, in JSON. Described by `/api/v1/openapi.json`.
//!
//! Looking is free; whatever makes the daemon do something needs the admin token. Errors are `application/problem+json`.

mod actions;
mod admin;
mod document;
mod json;
mod problem;
mod views;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use futures::FutureExt;
use serde_json::value::RawValue;

pub use actions::Planning;
pub use admin::TokenSource;
pub use document::document;
use problem::ApiProblem;

use crate::error::Result;
use crate::report::board::Board;
use crate::server::{Aside, ServerState};
use crate::table::TableName;

/// Bytes of a request's body at most.
const BODY_MAX: usize = 64 * 1024;
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How long a plan may take: it reads manifests and lists directories.
const PLAN_WITHIN: Duration = Duration::from_secs(5 * 60);

/// What the API may ask of the daemon.
#[async_trait]
pub trait Operate: Send + Sync {
    /// Compacts a table as soon as a worker is free.
    async fn run_now(&self, table: &TableName) -> Result<()>;
    /// Begins no step of a table, or with `None` of any, until it is resumed.
    async fn pause(&self, table: Option<&TableName>, reason: String) -> Result<()>;
    /// Ends a pause.
    async fn resume(&self, table: Option<&TableName>) -> Result<()>;
    /// Plans a table and remembers the plan on the board; the plan is as `icewright plan --json` prints it.
    async fn plan(&self, table: &TableName) -> Result<Box<RawValue>>;
}

/// What the API shows and reaches.
#[derive(Clone)]
pub struct ApiState {
    pub board: Arc<Board>,
    /// What may be asked for.
    pub operate: Arc<dyn Operate>,
    /// The admin token; `None`: nothing may be asked for.
    pub admin: Option<TokenSource>,
    /// Plans that are being made.
    pub planning: Arc<Planning>,
    /// Makes views.
    pub aside: Aside,
}

/// All paths below `/api`.
pub(super) fn router() -> Router<ServerState> {
    let quick = Router::new()
        .route("/status", get(views::status))
        .route("/tables", get(views::tables))
        .route("/tables/{table}", get(views::table))
        .route("/tables/{table}/run", post(actions::run_now))
        .route("/tables/{table}/pause", post(actions::pause_table))
        .route("/tables/{table}/resume", post(actions::resume_table))
        .route("/pause", post(actions::pause))
        .route("/resume", post(actions::resume))
        .route("/log-filter", get(actions::log_filter).put(actions::set_log_filter))
        .route("/openapi.json", get(views::openapi))
        .layer(from_fn(|request, next| within(ANSWER_WITHIN, request, next)));
    let slow = Router::new()
        .route("/tables/{table}/plan", post(actions::plan))
        .layer(from_fn(|request, next| within(PLAN_WITHIN, request, next)));
    let paths = quick.merge(slow).fallback(no_such_path).method_not_allowed_fallback(no_such_method);
    Router::new().nest("/api/v1", paths).layer(DefaultBodyLimit::max(BODY_MAX)).layer(from_fn(guard))
}

async fn no_such_path() -> ApiProblem {
    ApiProblem::new(404, "there is no such path: /api/v1/openapi.json lists those there are")
}

async fn no_such_method() -> ApiProblem {
    ApiProblem::new(405, "this path does not know the method: /api/v1/openapi.json tells which it knows")
}

async fn within(limit: Duration, request: Request, next: Next) -> Result<Response, ApiProblem> {
    let late = |_| ApiProblem::new(503, format!("it took longer than {} s: try again later", limit.as_secs()));
    tokio::time::timeout(limit, next.run(request)).await.map_err(late)
}

/// Nothing that goes wrong in an answer reaches further than that answer.
async fn guard(request: Request, next: Next) -> Result<Response, ApiProblem> {
    let path = request.uri().path().to_owned();
    let answer = std::panic::AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answer.map_err(|_| {
        tracing::error!(path, "a request panicked");
        ApiProblem::new(500, "a bug of icewright's; its log tells more")
    })?;
    let no_store = axum::http::HeaderValue::from_static("no-store");
    response.headers_mut().entry(axum::http::header::CACHE_CONTROL).or_insert(no_store);
    Ok(response)
}
