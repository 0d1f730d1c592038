//! HTTP: metrics and health. It shows state and changes none.
//!
//! | path | answers |
//! |---|---|
//! | `/livez` | 200 while the scheduler ticks, else 503; never asks a catalog or store |
//! | `/readyz` | 200 once the configuration is loaded and each catalog was reached, else 503 with the reasons |
//! | `/healthz` | both together; `?verbose` lists every check |
//! | `/metrics` | everything in [`crate::report::metrics`], in Prometheus' text format |

mod health;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
pub use health::{Check, Liveness, Readiness};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::report::metrics::Metrics;
use crate::telemetry::FilterHandle;

/// After the end was announced, how long an answer under way may take.
const DRAIN: Duration = Duration::from_secs(5);

/// What the server shows.
#[derive(Clone)]
pub struct ServerState {
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Whether the process can work.
    pub readiness: Arc<Readiness>,
    /// Whether the process works.
    pub liveness: Arc<Liveness>,
    /// Tells how old the last tick is.
    pub clock: Arc<dyn Clock>,
    /// Which log lines are written.
    pub log_filter: FilterHandle,
}

/// All paths.
pub fn router(state: ServerState) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .with_state(state)
}

/// Answers until `shutdown`, and then for at most five seconds more.
pub async fn serve(listener: TcpListener, state: ServerState, shutdown: CancellationToken) -> Result<()> {
    let server = axum::serve(listener, router(state)).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    let deadline = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        result = server => result.map_err(|e| Error::internal(format!("serve HTTP: {e}"))),
        () = deadline => Ok(()),
    }
}

async fn livez(State(state): State<ServerState>, Query(query): Query<HashMap<String, String>>) -> Response {
    answer("livez", &state.liveness.checks(state.clock.now_ms()), &query)
}

async fn readyz(State(state): State<ServerState>, Query(query): Query<HashMap<String, String>>) -> Response {
    answer("readyz", &state.readiness.checks(), &query)
}

async fn healthz(State(state): State<ServerState>, Query(query): Query<HashMap<String, String>>) -> Response {
    let mut checks = state.liveness.checks(state.clock.now_ms());
    checks.extend(state.readiness.checks());
    answer("healthz", &checks, &query)
}

async fn metrics(State(state): State<ServerState>) -> Response {
    match state.metrics.gather() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// `ok`, or every check: when one fails, or when asked with `?verbose`.
fn answer(name: &str, checks: &[Check], query: &HashMap<String, String>) -> Response {
    let healthy = checks.iter().all(|check| check.problem.is_none());
    if healthy && !query.contains_key("verbose") {
        return (StatusCode::OK, "ok\n").into_response();
    }
    let mut text = String::new();
    for check in checks {
        match &check.problem {
            None => text.push_str(&format!("[+] {}: ok\n", check.name)),
            Some(problem) => text.push_str(&format!("[-] {}: {problem}\n", check.name)),
        }
    }
    text.push_str(&format!("{name} {}\n", if healthy { "passed" } else { "failed" }));
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}
