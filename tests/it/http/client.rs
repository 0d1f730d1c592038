//! Asks the API without a socket, and stands in for the daemon that is asked for something.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use icewright::clock::Clock;
use icewright::error::{Error, Result};
use icewright::report::board::Board;
use icewright::report::metrics::Metrics;
use icewright::report::probes::Probes;
use icewright::server::{ApiState, Aside, Operate, ServerState, router};
use icewright::table::TableName;
use icewright::telemetry::FilterHandle;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tower::ServiceExt;

pub(super) const TOKEN: &str = "correct horse battery staple";

/// Writes down what it is asked for.
#[derive(Default)]
pub(super) struct Orders {
    pub(super) taken: Mutex<Vec<String>>,
    /// How long a plan takes.
    pub(super) plan_takes: Duration,
}

impl Orders {
    fn take(&self, order: String) -> Result<()> {
        self.taken.lock().expect("no panic").push(order);
        Ok(())
    }
}

#[async_trait]
impl Operate for Orders {
    async fn run_now(&self, table: &TableName) -> Result<()> {
        self.take(format!("run {table}"))
    }

    async fn pause(&self, table: Option<&TableName>, reason: String) -> Result<()> {
        self.take(format!("pause {table:?} {reason}").replace("TableName", ""))
    }

    async fn resume(&self, table: Option<&TableName>) -> Result<()> {
        self.take(format!("resume {}", table.map_or("all".to_owned(), ToString::to_string)))
    }

    async fn plan(&self, table: &TableName) -> Result<Box<RawValue>> {
        tokio::time::sleep(self.plan_takes).await;
        if table.table == "panics" {
            panic!("on purpose");
        }
        if table.table == "away" {
            return Err(Error::unavailable("the catalog is away"));
        }
        self.take(format!("plan {table}"))?;
        Ok(RawValue::from_string(json!({"table": table.to_string()}).to_string())?)
    }
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().expect("text")
    }
}

/// The API over a board.
#[derive(Clone)]
pub(super) struct Api {
    state: ServerState,
}

impl Api {
    pub(super) fn new(
        board: Arc<Board>,
        clock: Arc<dyn Clock>,
        operate: Arc<dyn Operate>,
        token: Option<&str>,
    ) -> Self {
        let token = token.map(ToOwned::to_owned);
        let state = ServerState {
            metrics: Arc::new(Metrics::new(10)),
            probes: Arc::new(Probes::new(0, Duration::from_secs(60), [])),
            clock,
            log_filter: FilterHandle::detached("info"),
            api: ApiState {
                board,
                operate,
                admin: token.map(|token| Arc::new(move || Ok(token.clone())) as Arc<_>),
                planning: Arc::default(),
                aside: Aside::default(),
            },
        };
        Self { state }
    }

    pub(super) fn with_token_source(mut self, source: icewright::server::TokenSource) -> Self {
        self.state.api.admin = Some(source);
        self
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let response = router(self.state.clone()).oneshot(request).await.expect("infallible");
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("a whole body");
        let text = String::from_utf8(body.to_vec()).expect("UTF-8");
        if status.is_client_error() || status.is_server_error() {
            assert_eq!(headers["content-type"], "application/problem+json", "{status} {text}");
            let problem: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(problem["status"], status.as_u16());
            assert_eq!(problem["title"], status.canonical_reason().expect("a known status"));
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{problem}");
        }
        Answer { status: status.as_u16(), headers, text }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    /// What is at the path.
    pub(super) async fn view(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        answer.json()
    }

    pub(super) async fn get_unless(&self, path: &str, tag: &str) -> Answer {
        self.send(Request::get(path).header("if-none-match", tag).body(Body::empty()).expect("a request")).await
    }

    /// Asks for something, with this authorization.
    pub(super) async fn act(
        &self,
        method: &str,
        path: &str,
        authorization: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let body = match body {
            None => Body::empty(),
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
        };
        self.send(request.body(body).expect("a request")).await
    }

    pub(super) async fn post(&self, path: &str, body: Option<Value>) -> Answer {
        self.act("POST", path, Some(&format!("Bearer {TOKEN}")), body).await
    }
}

/// The path of a table.
pub(super) fn path_of(table: &str) -> String {
    let name = percent_encoding::utf8_percent_encode(table, percent_encoding::NON_ALPHANUMERIC);
    format!("/api/v1/tables/{name}")
}
