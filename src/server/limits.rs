//! Connections, bounded: no more than so many, and none that keeps its place without using it. Whoever keeps connections open
//! and says nothing on them keeps nobody else, and no probe, from an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connections at the same time; each has one request at a time. One more takes the place of the least busy.
const CONNECTIONS_MAX: usize = 256;
/// From the opening of a connection, or its last answer, to the end of the next request's head.
const HEAD_MAX: Duration = Duration::from_secs(15);
/// From the first byte of an answer to the next request: whoever reads so slowly that it takes longer is cut off.
const SENT_MAX: Duration = Duration::from_secs(60);

/// Answers on all connections until `shutdown`, and then what is under way.
pub(super) async fn serve(mut listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let (places, connections) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), GracefulShutdown::new());
    let open = Arc::new(OpenConnections::default());
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    loop {
        let next = async {
            let stream = Listener::accept(&mut listener).await.0;
            if places.available_permits() == 0 {
                open.close_one();
            }
            (places.clone().acquire_owned().await, stream)
        };
        let (place, stream) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            next = next => next,
        };
        let (answering, answered) = watch::channel(None);
        let connection_state = Arc::new(OpenConnection::new(open.clone()));
        let close = connection_state.close.clone();
        let router = TowerToHyperService::new(router.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            answering.send_replace(None);
            connection_state.is_now(true);
            let (answer, answering, connection_state) =
                (router.call(request), answering.clone(), connection_state.clone());
            async move {
                let answer = answer.await;
                answering.send_replace(Some(Instant::now()));
                connection_state.is_now(false);
                answer
            }
        });
        let connection = connections.watch(builder.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            let _place = place;
            tokio::select! {
                _ = connection => {}
                () = close.cancelled() => {}
                () = too_slow(answered) => {}
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// What tells which connection is closed first: idle before busy, and of these the one that has been so for longest.
type Worth = (bool, u64);

#[derive(Default)]
struct OpenConnections {
    /// With a number that counts all changes.
    by_worth: Mutex<(u64, BTreeMap<Worth, CancellationToken>)>,
}

impl OpenConnections {
    fn close_one(&self) {
        if let Some((_, close)) = self.by_worth.lock().1.pop_first() {
            close.cancel();
        }
    }
}

struct OpenConnection {
    all: Arc<OpenConnections>,
    worth: Mutex<Worth>,
    close: CancellationToken,
}

impl OpenConnection {
    fn new(all: Arc<OpenConnections>) -> Self {
        let new = Self { all, worth: Mutex::default(), close: CancellationToken::new() };
        new.is_now(false);
        new
    }

    fn is_now(&self, busy: bool) {
        let mut worth = self.worth.lock();
        let (changes, by_worth) = &mut *self.all.by_worth.lock();
        *changes += 1;
        by_worth.remove(&worth);
        *worth = (busy, *changes);
        if !self.close.is_cancelled() {
            by_worth.insert(*worth, self.close.clone());
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.by_worth.lock().1.remove(self.worth.get_mut());
    }
}

/// Ends when [`SENT_MAX`] has passed since an answer began, and no request has come since.
async fn too_slow(mut answered: watch::Receiver<Option<Instant>>) {
    loop {
        let began = *answered.borrow_and_update();
        let over = async {
            match began {
                Some(began) => tokio::time::sleep_until(began + SENT_MAX).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => return,
            changed = answered.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;

    use super::*;

    /// More than what the system keeps of a connection.
    const LARGE: usize = 64 << 20;

    /// A server that answers `/livez` at once and `/long` when it is told to.
    async fn server(go: Arc<Notify>) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let long = move || async move {
            go.notified().await;
            "long"
        };
        let large = || async { vec![b'x'; LARGE] };
        let router = Router::new().route("/livez", get(|| async { "alive" })).route("/long", get(long));
        let router = router.route("/large", get(large));
        let shutdown = CancellationToken::new();
        tokio::spawn(serve(listener, router, shutdown.clone()));
        (address, shutdown)
    }

    async fn send(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(text.as_bytes()).await.expect("is sent");
        stream
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("is read to its end");
        text
    }

    fn request(path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
    }

    #[tokio::test]
    async fn silent_connections_keep_nobody_from_an_answer_and_work_under_way_stays() {
        let go = Arc::new(Notify::new());
        let (address, _shutdown) = server(go.clone()).await;
        let long = send(address, &request("/long")).await;
        assert!(rest(send(address, &request("/livez")).await).await.ends_with("alive"));
        let asks_and_stays = request("/livez").replace("close", "keep-alive");
        let begun = Instant::now();
        let mut silent = Vec::new();
        for number in 0..CONNECTIONS_MAX + 44 {
            silent.push(send(address, if number % 2 == 0 { "" } else { &asks_and_stays }).await);
        }
        assert!(rest(send(address, &request("/livez")).await).await.ends_with("alive"));
        assert!(begun.elapsed() < HEAD_MAX / 3, "{:?}", begun.elapsed());
        let first = silent.remove(0);
        assert_eq!(rest(first).await, "", "it had been silent for longest");
        go.notify_one();
        assert!(rest(long).await.ends_with("long"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_head_ends_soon() {
        let (address, _shutdown) = server(Arc::default()).await;
        let answered = "GET /livez HTTP/1.1\r\nhost: here\r\n\r\n";
        for said in ["", "GET /livez HTTP/1.1\r\nhost:", answered] {
            let begun = Instant::now();
            let heard = rest(send(address, said).await).await;
            assert_eq!(heard.ends_with("alive"), said == answered, "{heard}");
            assert!(begun.elapsed() >= HEAD_MAX && begun.elapsed() < 4 * HEAD_MAX, "{said}: {:?}", begun.elapsed());
        }
    }

    #[tokio::test]
    async fn what_is_under_way_is_answered_after_the_end_was_announced() {
        let go = Arc::new(Notify::new());
        let (address, shutdown) = server(go.clone()).await;
        let long = send(address, &request("/long")).await;
        assert!(rest(send(address, &request("/livez")).await).await.ends_with("alive"));
        shutdown.cancel();
        go.notify_one();
        assert!(rest(long).await.ends_with("long"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_an_answer_is_cut_off() {
        let (address, _shutdown) = server(Arc::default()).await;
        let mut whole = Vec::new();
        let mut stream = send(address, &request("/large")).await;
        stream.read_to_end(&mut whole).await.expect("is read to its end");
        assert!(whole.len() > LARGE);
        let mut stream = send(address, &request("/large")).await;
        tokio::time::sleep(2 * SENT_MAX).await;
        let mut cut = Vec::new();
        let _ = stream.read_to_end(&mut cut).await;
        assert!(!cut.is_empty() && cut.len() < LARGE, "{}", cut.len());
    }
}
