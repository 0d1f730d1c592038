//! What can be looked at.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::document::document;
use super::json::{Named, Parameters, unknown_table, unless_known};
use super::problem::ApiProblem;
use crate::report::board::TableSelection;
use crate::report::board::view::{Status, TableList, TableView};
use crate::report::health::Health;
use crate::server::ServerState;

/// Tables of a page, unless said otherwise, and at most.
const LIMIT: (u16, u16) = (500, 1000);

/// Which tables.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TablesQuery {
    /// Only those of this catalog.
    #[param(nullable = false)]
    catalog: Option<String>,
    /// Only those of this health.
    #[param(nullable = false)]
    health: Option<Health>,
    /// So many at most.
    #[param(minimum = 1, maximum = 1000, default = 500, nullable = false)]
    limit: Option<u16>,
    /// Only those after this one: `next` of the page before.
    #[param(nullable = false)]
    after: Option<String>,
}

/// The daemon as a whole.
#[utoipa::path(get, path = "/api/v1/status", tag = "look", responses((status = 200, body = Status)))]
pub(super) async fn status(State(state): State<ServerState>) -> Result<Response, ApiProblem> {
    let (board, now_ms, admin) = (state.api.board, state.clock.now_ms(), state.api.admin.is_some());
    Ok(state.api.aside.answer(move || Json(board.status(now_ms, admin)).into_response()).await?)
}

/// The tables, in the order of their names.
#[utoipa::path(
    get, path = "/api/v1/tables", tag = "look", params(TablesQuery),
    responses(
        (status = 200, body = TableList, headers(("etag" = String, description = "Changes with the content."))),
        (status = 304, description = "Nothing has changed since the answer with the `If-None-Match` tag."),
        (status = 400, body = ApiProblem, content_type = "application/problem+json", description = "A parameter is wrong."),
    )
)]
pub(super) async fn tables(
    State(state): State<ServerState>,
    headers: HeaderMap,
    Parameters(TablesQuery { catalog, health, limit, after }): Parameters<TablesQuery>,
) -> Result<Response, ApiProblem> {
    let limit = limit.unwrap_or(LIMIT.0);
    if !(1..=LIMIT.1).contains(&limit) {
        return Err(ApiProblem::new(400, format!("limit must be between 1 and {}", LIMIT.1)));
    }
    let selection = TableSelection { catalog, health, after, limit: usize::from(limit) };
    let (board, now_ms) = (state.api.board, state.clock.now_ms());
    let make = move || unless_known(&headers, board.tables(&selection, now_ms)).into_response();
    Ok(state.api.aside.answer(make).await?)
}

/// Everything about a table.
#[utoipa::path(
    get, path = "/api/v1/tables/{table}", tag = "look",
    params(Named),
    responses(
        (status = 200, body = TableView, headers(("etag" = String, description = "Changes with the content."))),
        (status = 304, description = "Nothing has changed since the answer with the `If-None-Match` tag."),
        Named,
    )
)]
pub(super) async fn table(
    State(state): State<ServerState>,
    headers: HeaderMap,
    Named(name): Named,
) -> Result<Response, ApiProblem> {
    let (board, now_ms) = (state.api.board, state.clock.now_ms());
    let view = move || unless_known(&headers, board.table(&name, now_ms).ok_or_else(|| unknown_table(&name))?);
    Ok(state.api.aside.answer(move || view().into_response()).await?)
}

/// This document.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "look",
    responses((status = 200, content_type = "application/json", body = Object))
)]
pub(super) async fn openapi() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(document);
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}
