//! What can be asked for.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::admin::Admin;
use super::json::{Body, Named};
use super::problem::Problem;
use crate::schedule::control::Pause;
use crate::server::ServerState;
use crate::table::TableName;

/// Plans made at the same time.
const PLANS_MAX: usize = 2;

/// A pause that is wanted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PauseRequest {
    /// Why, for whoever wonders; cut off after 200 characters.
    #[serde(default)]
    #[schema(nullable = false)]
    reason: String,
}

/// How it stands now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Paused {
    /// The pause, if there is one.
    #[schema(required)]
    paused: Option<Pause>,
}

/// Which log lines are written.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LogFilter {
    /// A level, or targets with levels.
    filter: String,
}

/// Which log lines shall be written.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LogFilterRequest {
    /// A level, or targets with levels, such as `info,icewright::commit=debug`. Targets may be described in more detail than
    /// this pattern tells, as `tracing_subscriber` documents it.
    #[schema(
        pattern = "^(off|error|warn|info|debug|trace)(,[a-z_]{1,20}(::[a-z_]{1,20}){0,4}=(off|error|warn|info|debug|trace)){0,8}$"
    )]
    filter: String,
}

/// The plans that are being made: one per table, and few in all.
#[derive(Debug, Default)]
pub struct Planning(Mutex<HashSet<TableName>>);

/// A place among the plans that are being made.
struct Place<'a>(&'a Planning, TableName);

impl Planning {
    fn enter(&self, name: TableName) -> Result<Place<'_>, Problem> {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.contains(&name) {
            return Err(Problem::new(409, format!("{name} is being planned already: its plan will be in its view")));
        }
        if under_way.len() >= PLANS_MAX {
            return Err(Problem::new(503, format!("{PLANS_MAX} tables are being planned already: try again later")));
        }
        under_way.insert(name.clone());
        Ok(Place(self, name))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Plans a table: what each action would do now, and why, and why not. Changes nothing; the view of the table keeps the plan.
#[utoipa::path(
    post, path = "/api/v1/tables/{table}/plan", tag = "act", security(("admin-token" = [])), params(Named),
    responses(
        (status = 200, body = Object, description = "The plan as in `icewright plan --json`."),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is being planned."),
        Admin, Named
    )
)]
pub(super) async fn plan(
    _: Admin,
    State(state): State<ServerState>,
    Named(name): Named,
) -> Result<Json<Box<RawValue>>, Problem> {
    let _place = state.api.planning.enter(name.clone())?;
    Ok(Json(state.api.operate.plan(&name).await?))
}

/// Compacts a table as soon as a worker is free, whatever its schedule says. Its clean-ups keep their delay.
#[utoipa::path(
    post, path = "/api/v1/tables/{table}/run", tag = "act", security(("admin-token" = [])), params(Named),
    responses(
        (status = 202, description = "It is going to be compacted."),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is paused."),
        Admin, Named
    )
)]
pub(super) async fn run_now(
    _: Admin,
    State(state): State<ServerState>,
    Named(name): Named,
) -> Result<StatusCode, Problem> {
    state.api.operate.run_now(&name).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Begins no step of a table until it is resumed. What runs comes to its end; a restart forgets the pause.
#[utoipa::path(
    post, path = "/api/v1/tables/{table}/pause", tag = "act", security(("admin-token" = [])), params(Named),
    request_body(content = Option<PauseRequest>),
    responses((status = 200, body = Paused), Admin, Named, Body<PauseRequest>)
)]
pub(super) async fn pause_table(
    _: Admin,
    State(state): State<ServerState>,
    Named(name): Named,
    Body(PauseRequest { reason }): Body<PauseRequest>,
) -> Result<Json<Paused>, Problem> {
    state.api.operate.pause(Some(&name), reason).await?;
    Ok(Json(Paused { paused: state.api.board.pause_of(Some(&name)) }))
}

/// Ends the pause of a table.
#[utoipa::path(
    post, path = "/api/v1/tables/{table}/resume", tag = "act", security(("admin-token" = [])), params(Named),
    responses((status = 200, body = Paused), Admin, Named)
)]
pub(super) async fn resume_table(
    _: Admin,
    State(state): State<ServerState>,
    Named(name): Named,
) -> Result<Json<Paused>, Problem> {
    state.api.operate.resume(Some(&name)).await?;
    Ok(Json(Paused { paused: state.api.board.pause_of(Some(&name)) }))
}

/// Begins no step of any table until the daemon is resumed. What runs comes to its end; a restart forgets the pause.
#[utoipa::path(
    post, path = "/api/v1/pause", tag = "act", security(("admin-token" = [])),
    request_body(content = Option<PauseRequest>),
    responses((status = 200, body = Paused), Admin, Body<PauseRequest>)
)]
pub(super) async fn pause(
    _: Admin,
    State(state): State<ServerState>,
    Body(PauseRequest { reason }): Body<PauseRequest>,
) -> Result<Json<Paused>, Problem> {
    state.api.operate.pause(None, reason).await?;
    Ok(Json(Paused { paused: state.api.board.pause_of(None) }))
}

/// Ends the pause of the daemon; tables that are paused themselves stay so.
#[utoipa::path(
    post, path = "/api/v1/resume", tag = "act", security(("admin-token" = [])),
    responses((status = 200, body = Paused), Admin)
)]
pub(super) async fn resume(_: Admin, State(state): State<ServerState>) -> Result<Json<Paused>, Problem> {
    state.api.operate.resume(None).await?;
    Ok(Json(Paused { paused: state.api.board.pause_of(None) }))
}

/// Which log lines are written.
#[utoipa::path(get, path = "/api/v1/log-filter", tag = "look", responses((status = 200, body = LogFilter)))]
pub(super) async fn log_filter(State(state): State<ServerState>) -> Json<LogFilter> {
    Json(LogFilter { filter: state.log_filter.current() })
}

/// Changes which log lines are written, from now on until a restart.
#[utoipa::path(
    put, path = "/api/v1/log-filter", tag = "act", security(("admin-token" = [])), request_body = LogFilterRequest,
    responses((status = 200, body = LogFilter), Admin, Body<LogFilterRequest>)
)]
pub(super) async fn set_log_filter(
    _: Admin,
    State(state): State<ServerState>,
    Body(LogFilterRequest { filter }): Body<LogFilterRequest>,
) -> Result<Json<LogFilter>, Problem> {
    if filter.trim().is_empty() {
        return Err(Problem::new(400, "an empty log filter says nothing: `off` writes no lines"));
    }
    state.log_filter.set(&filter)?;
    tracing::info!(filter, "log filter changed");
    Ok(log_filter(State(state)).await)
}
