//! The HTTP surface: metrics and health over real sockets, the API in its modules.

mod api;
mod client;
mod document;
mod fuzzed;
mod listing;
mod scheduled;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use icewright::inspect::ManifestCache;
use icewright::report::board::Board;
use icewright::report::metrics::Metrics;
use icewright::rewrite::MemoryBudget;
use icewright::server::{ApiState, Liveness, Readiness, ServerState, serve};
use icewright::telemetry::FilterHandle;
use icewright::testing::SetClock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

struct Server {
    address: SocketAddr,
    state: ServerState,
    clock: Arc<SetClock>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<icewright::error::Result<()>>,
}

async fn start() -> Server {
    let clock = Arc::new(SetClock::new(1_000_000));
    let state = ServerState {
        metrics: Arc::new(Metrics::new(10)),
        readiness: Arc::new(Readiness::new(["lake".to_owned(), "pond".to_owned()])),
        liveness: Arc::new(Liveness::new(1_000_000, Duration::from_secs(60))),
        clock: clock.clone(),
        log_filter: FilterHandle::detached("info"),
        api: ApiState {
            board: Arc::new(Board::new(1_000_000, Arc::new(MemoryBudget::new(0)), Arc::new(ManifestCache::new(0)))),
            operate: Arc::new(client::Orders::default()),
            admin: None,
            planning: Arc::default(),
        },
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(serve(listener, state.clone(), shutdown.clone()));
    Server { address, state, clock, shutdown, task }
}

impl Server {
    async fn get(&self, path: &str) -> (u16, String) {
        let response = reqwest::get(format!("http://{}{path}", self.address)).await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a text"))
    }
}

#[tokio::test]
async fn ready_once_everything_was_reached_and_until_the_end() {
    let server = start().await;
    let readiness = server.state.readiness.clone();
    let (status, text) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(
        text,
        "[-] config: not loaded yet\n[-] catalog lake: not reached yet\n[-] catalog pond: not reached yet\nreadyz failed\n"
    );
    readiness.config_loaded();
    readiness.catalog_reached("lake");
    readiness.catalog_reached("never configured");
    readiness.catalog_failed("pond", "connection refused");
    let (status, text) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("[+] catalog lake: ok\n[-] catalog pond: not reached yet: connection refused\n"), "{text}");
    readiness.catalog_reached("pond");
    assert_eq!(server.get("/readyz").await, (200, "ok\n".to_owned()));
    // A later failure is for the metrics, not for readiness.
    readiness.catalog_failed("lake", "away");
    assert_eq!(server.get("/readyz").await.0, 200);
    readiness.stopping();
    let (status, text) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("[-] process: shutting down\n"), "{text}");
}

#[tokio::test]
async fn alive_while_the_scheduler_ticks_whatever_the_catalogs_do() {
    let server = start().await;
    assert_eq!(server.get("/livez").await, (200, "ok\n".to_owned()));
    server.clock.set(1_060_000);
    assert_eq!(server.get("/livez").await.0, 200, "at the limit");
    server.clock.set(1_061_000);
    let (status, text) = server.get("/livez").await;
    assert_eq!((status, text.as_str()), (503, "[-] scheduler: last tick 61 s ago, more than 60 s\nlivez failed\n"));
    assert_eq!(server.get("/healthz").await.0, 503);
    server.state.liveness.tick(1_061_000);
    assert_eq!(server.get("/livez").await.0, 200);
    server.clock.set(0);
    assert_eq!(server.get("/livez").await.0, 200, "a clock set back");
    assert_eq!(server.get("/healthz").await.0, 503, "not ready");
    server.state.readiness.config_loaded();
    server.state.readiness.catalog_reached("lake");
    server.state.readiness.catalog_reached("pond");
    assert_eq!(server.get("/healthz").await, (200, "ok\n".to_owned()));
    let verbose =
        "[+] scheduler: ok\n[+] config: ok\n[+] catalog lake: ok\n[+] catalog pond: ok\nhealthz passed\n".to_owned();
    assert_eq!(server.get("/healthz?verbose").await, (200, verbose));
}

#[tokio::test]
async fn metrics_come_in_the_text_format_and_the_server_ends_when_told() {
    let server = start().await;
    server.state.metrics.register_table(&"lake.a.b".parse().expect("a name"));
    let response = reqwest::get(format!("http://{}/metrics", server.address)).await.expect("an answer");
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.expect("a text");
    assert_eq!(text, server.state.metrics.gather().expect("text"));
    assert!(text.contains("icewright_build_info{revision="));
    assert_eq!(server.get("/nothing").await.0, 404);
    let address = server.address;
    server.shutdown.cancel();
    server.task.await.expect("no panic").expect("a clean end");
    assert!(reqwest::get(format!("http://{address}/livez")).await.is_err());
}
