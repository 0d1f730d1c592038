//! A catalog's bad day: stands between the daemon and the catalog and decides what happens to each commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Notify;

use super::process::PATIENCE;

/// What happens to a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes through.
    Pass,
    /// It goes through, but late: others commit in between.
    Late(Duration),
    /// It goes through when [`Proxy::release`] is called.
    Gate,
    /// It never reaches the catalog, and the client waits.
    HoldBefore,
    /// The catalog applies it, and the client waits for the answer.
    HoldAfter,
    /// The catalog applies it, and the client is told of a gateway's error.
    LoseAnswer,
}

/// A running proxy; ends with its runtime when dropped.
pub(crate) struct Proxy {
    /// Where clients find it.
    pub(crate) uri: String,
    shared: Arc<Shared>,
    held: Receiver<()>,
    _runtime: tokio::runtime::Runtime,
}

struct Shared {
    upstream: String,
    client: reqwest::Client,
    /// One for each commit in turn, the last one for all that follow.
    fates: Vec<Fate>,
    commits: AtomicUsize,
    conflicts: AtomicUsize,
    holding: Sender<()>,
    released: Notify,
}

impl Proxy {
    /// Starts before a catalog. The last fate holds for all later commits.
    pub(crate) fn start(upstream: &str, fates: &[Fate]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("start a runtime");
        let (holding, held) = channel();
        let shared = Arc::new(Shared {
            upstream: upstream.trim_end_matches('/').into(),
            client: reqwest::Client::new(),
            fates: fates.to_vec(),
            commits: AtomicUsize::new(0),
            conflicts: AtomicUsize::new(0),
            holding,
            released: Notify::new(),
        });
        let app = Router::new().fallback(forward).with_state(Arc::clone(&shared));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("bind a port");
        let uri = format!("http://{}", listener.local_addr().expect("read the bound port"));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { uri, shared, held, _runtime: runtime }
    }

    /// Waits until a commit is being held.
    pub(crate) fn wait_held(&self) {
        self.held.recv_timeout(PATIENCE).expect("a commit was to be held");
    }

    /// Lets the commit go that waits at the gate.
    pub(crate) fn release(&self) {
        self.shared.released.notify_one();
    }

    /// Commits seen so far.
    pub(crate) fn commits(&self) -> usize {
        self.shared.commits.load(Ordering::SeqCst)
    }

    /// Commits that the catalog refused because of another writer.
    pub(crate) fn conflicts(&self) -> usize {
        self.shared.conflicts.load(Ordering::SeqCst)
    }
}

fn is_commit(request: &Request) -> bool {
    let mut parts = request.uri().path().rsplit('/');
    let (_, parent) = (parts.next(), parts.next());
    request.method() == Method::POST
        && (parent == Some("tables") || request.uri().path().ends_with("/transactions/commit"))
}

async fn forward(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let fate = if is_commit(&request) {
        let turn = shared.commits.fetch_add(1, Ordering::SeqCst);
        shared.fates.get(turn).or(shared.fates.last()).copied().unwrap_or(Fate::Pass)
    } else {
        Fate::Pass
    };
    match fate {
        Fate::Late(by) => tokio::time::sleep(by).await,
        Fate::Gate => {
            shared.tell_held();
            shared.released.notified().await;
        }
        Fate::HoldBefore => return hold(&shared).await,
        Fate::Pass | Fate::HoldAfter | Fate::LoseAnswer => {}
    }
    let answer = match pass_on(&shared, request).await {
        Ok(answer) => answer,
        Err(e) => return (StatusCode::BAD_GATEWAY, e).into_response(),
    };
    if answer.status() == StatusCode::CONFLICT {
        shared.conflicts.fetch_add(1, Ordering::SeqCst);
    }
    match fate {
        Fate::HoldAfter => hold(&shared).await,
        Fate::LoseAnswer => StatusCode::BAD_GATEWAY.into_response(),
        Fate::Pass | Fate::Late(_) | Fate::Gate | Fate::HoldBefore => answer,
    }
}

impl Shared {
    fn tell_held(&self) {
        // Nobody listens any more when the test is over.
        let _ = self.holding.send(());
    }
}

/// Keeps the client waiting until it goes away.
async fn hold(shared: &Shared) -> Response {
    shared.tell_held();
    std::future::pending().await
}

async fn pass_on(shared: &Shared, request: Request) -> Result<Response, String> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |p| p.as_str());
    let body = to_bytes(body, usize::MAX).await.map_err(|e| e.to_string())?;
    let mut headers = parts.headers;
    headers.remove(header::HOST);
    let sent =
        shared.client.request(parts.method, format!("{}{path}", shared.upstream)).headers(headers).body(body).send();
    let answer = sent.await.map_err(|e| e.to_string())?;
    let mut response = Response::builder().status(answer.status());
    let hop_by_hop: [HeaderName; 3] = [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH];
    for (name, value) in answer.headers().iter().filter(|(name, _)| !hop_by_hop.contains(name)) {
        response = response.header(name, value);
    }
    let bytes = answer.bytes().await.map_err(|e| e.to_string())?;
    response.body(Body::from(bytes)).map_err(|e| e.to_string())
}
