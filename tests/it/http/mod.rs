//! The HTTP surface: metrics and health over real sockets, the API in its modules.

mod api;
mod client;
mod document;
mod fuzzed;
mod listing;
mod scheduled;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use icewright::config::Config;
use icewright::error::Error;
use icewright::inspect::ManifestCache;
use icewright::report::board::Board;
use icewright::report::metrics::Metrics;
use icewright::report::probes::Probes;
use icewright::rewrite::MemoryBudget;
use icewright::schedule::observer::{Event, Observer};
use icewright::server::{ApiState, Aside, ServerState, serve, serve_apart};
use icewright::telemetry::FilterHandle;
use icewright::testing::SetClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

struct Server {
    address: SocketAddr,
    state: ServerState,
    clock: Arc<SetClock>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn start() -> Server {
    let clock = Arc::new(SetClock::new(1_000_000));
    let state = ServerState {
        metrics: Arc::new(Metrics::new(10)),
        probes: Arc::new(Probes::new(1_000_000, Duration::from_secs(60), ["lake".to_owned(), "pond".to_owned()])),
        clock: clock.clone(),
        log_filter: FilterHandle::detached("info"),
        api: ApiState {
            board: Arc::new(Board::new(1_000_000, Arc::new(MemoryBudget::new(0)), Arc::new(ManifestCache::new(0)))),
            operate: Arc::new(client::Orders::default()),
            admin: None,
            planning: Arc::default(),
            aside: Aside::default(),
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

    /// Something happens at this server's time.
    fn tell(&self, event: Event<'_>) {
        self.state.probes.observe(event, self.state.clock.now_ms());
    }

    fn config_loaded(&self) {
        let text = "[catalogs.lake]\nuri = 'http://lake'\nauth = { type = 'none' }";
        let loaded = &Config::parse("test.toml", text).expect("a configuration");
        self.tell(Event::Started { listen: "here", loaded });
    }
}

#[tokio::test]
async fn ready_once_everything_was_reached_and_until_the_end() {
    let server = start().await;
    let (status, text) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(
        text,
        "[-] config: not loaded yet\n[-] catalog lake: not reached yet\n[-] catalog pond: not reached yet\nreadyz failed\n"
    );
    server.config_loaded();
    server.tell(Event::CatalogListed("lake"));
    server.tell(Event::CatalogListed("never configured"));
    server.tell(Event::CatalogNotListed("pond", &Error::unavailable("connection refused")));
    let (status, text) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("[+] catalog lake: ok\n[-] catalog pond: not reached yet: connection refused\n"), "{text}");
    server.tell(Event::CatalogListed("pond"));
    assert_eq!(server.get("/readyz").await, (200, "ok\n".to_owned()));
    // A later failure is for the metrics, not for readiness.
    server.tell(Event::CatalogNotListed("lake", &Error::unavailable("away")));
    assert_eq!(server.get("/readyz").await.0, 200);
    server.tell(Event::Stopping(Duration::ZERO));
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
    server.tell(Event::Heartbeat);
    assert_eq!(server.get("/livez").await.0, 200);
    server.clock.set(0);
    assert_eq!(server.get("/livez").await.0, 200, "a clock set back");
    assert_eq!(server.get("/healthz").await.0, 503, "not ready");
    server.config_loaded();
    server.tell(Event::CatalogListed("lake"));
    server.tell(Event::CatalogListed("pond"));
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
    server.task.await.expect("a clean end");
    assert!(reqwest::get(format!("http://{address}/livez")).await.is_err());
}

/// A daemon whose threads all work without a pause.
#[tokio::test]
async fn probes_are_answered_from_a_thread_of_their_own() {
    let Server { state, shutdown, .. } = start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let end = serve_apart(listener, state, shutdown.clone()).expect("a thread");
    // From here on this thread, the only one of its runtime, waits without letting another task work.
    let mut stream = std::net::TcpStream::connect(address).expect("connects");
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
    shutdown.cancel();
    end.await.expect("the server's end is told");
}

/// As a scraper does that asks again without reading the whole answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_requests_keeps_no_probe_from_its_answer() {
    let Server { state, shutdown, .. } = start().await;
    for table in 0..10 {
        state.metrics.register_table(&format!("lake.a.t{table}").parse().expect("a name"));
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let _end = serve_apart(listener, state, shutdown.clone()).expect("a thread");
    let flood = |path: &'static str| async move {
        let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\n\r\n");
        loop {
            let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { continue };
            let mut buffer = vec![0; 4096];
            for _ in 0..100 {
                let sent = stream.write_all(request.as_bytes()).await;
                if sent.is_err() || stream.read(&mut buffer).await.is_err() {
                    break;
                }
            }
        }
    };
    let paths = ["/metrics", "/metrics", "/api/v1/tables", "/api/v1/status", "/api/v1/openapi.json", "/main.js"];
    let floods: Vec<_> = paths.into_iter().map(|path| AbortOnDropHandle::new(tokio::spawn(flood(path)))).collect();
    for _ in 0..20 {
        let answer = reqwest::get(format!("http://{address}/livez")).await.expect("an answer");
        assert_eq!(answer.status(), 200);
    }
    drop(floods);
    shutdown.cancel();
}
