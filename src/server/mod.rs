//! HTTP: the page, the API, metrics and health. It shows state; what it can ask for goes through [`Operate`].
//!
//! | path | answers |
//! |---|---|
//! | `/`, `/main.js` ... | the page |
//! | `/api/v1/*` | what the page shows, and buttons for whoever has the admin token: see `docs/api.md` |
//! | `/livez` | 200 while the scheduler ticks, else 503; never asks a catalog or store |
//! | `/readyz` | 200 once the configuration is loaded and each catalog was reached, else 503 with the reasons |
//! | `/healthz` | both together; `?verbose` lists every check |
//! | `/metrics` | everything in [`crate::report::metrics`], in Prometheus' text format; at most a second old |
//!
//! It runs on a thread of its own. Probes answer from there at once; what takes long (metrics, views) is made on further
//! threads, one at a time, and a plan where runs are.

mod apart;
mod api;
mod assets;
mod limits;
mod metrics_page;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use apart::{Aside, serve_apart};
pub use api::{ApiState, Operate, Planning, TokenSource, document};
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_page::MetricsPage;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::report::metrics::Metrics;
use crate::report::probes::{Check, Probes};
use crate::telemetry::FilterHandle;

/// After the end was announced, how long an answer under way may take.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct ServerState {
    pub metrics: Arc<Metrics>,
    pub probes: Arc<Probes>,
    /// Tells how old the last tick is.
    pub clock: Arc<dyn Clock>,
    pub log_filter: FilterHandle,
    pub api: ApiState,
}

/// Sent with everything: browsers run nothing that does not come from here, and show it in nobody's frame.
const HEADERS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

pub fn router(state: ServerState) -> Router {
    let page = MetricsPage::new(state.metrics.clone());
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
        .route("/metrics", get(async move |headers: HeaderMap| page.answer(&headers).await))
        .merge(assets::router())
        .merge(api::router())
        .layer(from_fn(with_headers))
        .with_state(state)
}

async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers until `shutdown`, and then for at most five seconds more.
pub async fn serve(listener: TcpListener, state: ServerState, shutdown: CancellationToken) {
    let server = limits::serve(listener, router(state), shutdown.clone());
    let deadline = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = server => {}
        () = deadline => {}
    }
}

async fn livez(State(state): State<ServerState>, Query(query): Query<HashMap<String, String>>) -> Response {
    answer("livez", &state.probes.liveness(state.clock.now_ms()), &query)
}

async fn readyz(State(state): State<ServerState>, Query(query): Query<HashMap<String, String>>) -> Response {
    answer("readyz", &state.probes.readiness(), &query)
}

async fn healthz(State(state): State<ServerState>, Query(query): Query<HashMap<String, String>>) -> Response {
    let mut checks = state.probes.liveness(state.clock.now_ms());
    checks.extend(state.probes.readiness());
    answer("healthz", &checks, &query)
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
