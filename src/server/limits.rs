//! Connections, bounded: no more than so many, and none that holds its place without using it. Whoever keeps connections open
//! and says nothing on them keeps nobody else, and no probe, from an answer.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// Connections at the same time; each has one request at a time. One more takes the place of the least busy.
const CONNECTIONS_MAX: usize = 256;
/// From the opening of a connection, or its last answer, to the end of the next request's head.
const HEAD_MAX: Duration = Duration::from_secs(15);
/// From the first byte of an answer to the next request: whoever reads so slowly that it takes longer is cut off.
const SENT_MAX: Duration = Duration::from_secs(60);
/// A connection that was opened so short a time ago has not had its chance to ask yet.
const YOUNG: Duration = Duration::from_secs(2);
/// A connection on which nothing moves for this long is closed: longer than the longest answer takes.
const IDLE_MAX: Duration = Duration::from_secs(6 * 60);

/// Answers on all connections until `shutdown`, and then what is under way.
pub(super) async fn serve(mut listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let (places, mut connections) = (Places::new(), JoinSet::new());
    loop {
        let (stream, _) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        while connections.len() >= CONNECTIONS_MAX {
            places.free_one();
            connections.join_next().await;
        }
        connections.spawn(converse(stream, places.take(), router.clone(), shutdown.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// One connection, to its end.
async fn converse(stream: TcpStream, place: Place, router: Router, shutdown: CancellationToken) {
    let state = place.state.clone();
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        let (call, answer) = (Call::begin(&state), router.call(request));
        async move {
            let _call = call;
            answer.await
        }
    });
    let io = TokioIo::new(Watched::new(stream, state.clone()));
    let mut builder = http1::Builder::new();
    let connection = builder.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).serve_connection(io, service);
    tokio::pin!(connection);
    let mut ending = false;
    loop {
        tokio::select! {
            _ = connection.as_mut() => break,
            () = state.close.cancelled() => break,
            () = state.too_slow() => break,
            () = shutdown.cancelled(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// What is known of a connection.
struct Conversation {
    opened: Instant,
    /// When something moved last, in milliseconds after it was opened.
    moved_ms: AtomicU64,
    /// When the last answer began, in the same way; 0 before the first.
    answered_ms: AtomicU64,
    /// Requests that are being worked on.
    calls: AtomicUsize,
    close: CancellationToken,
}

impl Conversation {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn moved(&self) {
        self.moved_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Ends when an answer has been under way for too long. Between requests [`HEAD_MAX`] counts, which is shorter.
    async fn too_slow(&self) {
        loop {
            tokio::time::sleep(SENT_MAX / 4).await;
            let answered_ms = self.answered_ms.load(Ordering::Relaxed);
            let sending = answered_ms > 0 && self.calls.load(Ordering::Relaxed) == 0;
            if sending && self.now_ms().saturating_sub(answered_ms) > SENT_MAX.as_millis() as u64 {
                return;
            }
        }
    }

    /// The least is the one to close: idle before busy, and of these the one that has been still for longest. One that was
    /// just opened is last, or a probe could never ask while all others are busy.
    fn worth(&self) -> (bool, bool, Instant) {
        let moved = self.opened + Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        (self.opened.elapsed() < YOUNG, self.calls.load(Ordering::Relaxed) > 0, moved)
    }
}

/// A request that is being worked on.
struct Call(Arc<Conversation>);

impl Call {
    fn begin(conversation: &Arc<Conversation>) -> Self {
        conversation.calls.fetch_add(1, Ordering::Relaxed);
        Self(conversation.clone())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.answered_ms.store(self.0.now_ms().max(1), Ordering::Relaxed);
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All connections, in the order in which they were opened.
type Open = Arc<Mutex<BTreeMap<u64, Arc<Conversation>>>>;

struct Places {
    open: Open,
    taken: AtomicU64,
}

/// A connection's place; dropped with the connection.
struct Place {
    open: Open,
    number: u64,
    state: Arc<Conversation>,
}

impl Places {
    fn new() -> Self {
        Self { open: Open::default(), taken: AtomicU64::new(0) }
    }

    fn take(&self) -> Place {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(Conversation {
            opened: Instant::now(),
            moved_ms: AtomicU64::new(0),
            answered_ms: AtomicU64::new(0),
            calls: AtomicUsize::new(0),
            close: CancellationToken::new(),
        });
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, state.clone());
        Place { open: self.open.clone(), number, state }
    }

    /// Closes the connection that is least worth its place.
    fn free_one(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(least) = open.values().min_by_key(|conversation| conversation.worth()) {
            least.close.cancel();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// A stream that notes when something moves, and fails when nothing has for too long.
struct Watched {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    state: Arc<Conversation>,
}

impl Watched {
    fn new(stream: TcpStream, state: Arc<Conversation>) -> Self {
        Self { stream, idle: Box::pin(tokio::time::sleep(IDLE_MAX)), state }
    }

    /// Nothing has moved this time: an error if that is so for too long.
    fn or_idle<T>(&mut self, context: &mut Context<'_>, moved: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_MAX);
            self.state.moved();
            return moved;
        }
        self.idle.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.or_idle(context, read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_idle(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX + 44 {
            silent.push(send(address, "").await);
        }
        assert!(rest(send(address, &request("/livez")).await).await.ends_with("alive"));
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

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_just_opened_is_the_last_to_lose_its_place() {
        let places = Places::new();
        let busy = places.take();
        let call = Call::begin(&busy.state);
        tokio::time::advance(YOUNG).await;
        let young = places.take();
        places.free_one();
        assert!(busy.state.close.is_cancelled() && !young.state.close.is_cancelled());
        drop((busy, call));
        tokio::time::advance(YOUNG).await;
        let younger = places.take();
        places.free_one();
        assert!(young.state.close.is_cancelled() && !younger.state.close.is_cancelled());
    }
}
