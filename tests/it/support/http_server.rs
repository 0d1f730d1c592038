//! A tiny HTTP/1.1 server that answers as told, or not at all. One request per connection, one after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request as it came over the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// Path and query, undecoded.
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(crate) fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Status, headers, body.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// The connection is closed without a word.
    Drop,
    /// The answer promises a body and breaks off.
    Truncated,
    /// No answer for this long, then the connection is closed.
    Silent(Duration),
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl Into<serde_json::Value>) -> Self {
        Self::Answer(status, vec![("content-type", "application/json".into())], body.into().to_string().into_bytes())
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, vec![], vec![])
    }

    pub(crate) fn with(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Answer(status, mut headers, body) => {
                headers.push((name, value.to_owned()));
                Self::Answer(status, headers, body)
            }
            other => other,
        }
    }
}

type Handler = Box<dyn FnMut(&Received) -> Reply + Send>;

/// Stops when dropped.
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    pub(crate) fn start(handler: impl FnMut(&Received) -> Reply + Send + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), handler)
    }

    pub(crate) fn start_at(address: SocketAddr, handler: impl FnMut(&Received) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut handler: Handler = Box::new(handler);
        let (log, stopped) = (Arc::clone(&received), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                if let Some((request, stream)) = stream.ok().and_then(read_request) {
                    log.lock().unwrap().push(request.clone());
                    answer(stream, handler(&request));
                }
            }
        });
        Self { address, received, stop, thread: Some(thread) }
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// `METHOD target` of every request so far whose target contains `part`.
    pub(crate) fn targets(&self, part: &str) -> Vec<String> {
        let all = self.received();
        all.iter().filter(|r| r.target.contains(part)).map(|r| format!("{} {}", r.method, r.target)).collect()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread up.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read_request(stream: TcpStream) -> Option<(Received, TcpStream)> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let mut request =
        Received { method: words.next()?.to_owned(), target: words.next()?.to_owned(), ..Received::default() };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = request.header("content-length").map_or(0, |v| v.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some((request, reader.into_inner()))
}

fn answer(mut stream: TcpStream, reply: Reply) {
    match reply {
        Reply::Answer(status, headers, body) => {
            let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
            if !headers.iter().any(|(name, _)| *name == "content-length") {
                head.push_str(&format!("content-length: {}\r\n", body.len()));
            }
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
        Reply::Drop => {}
        Reply::Truncated => {
            let _ = stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{\"metadata");
        }
        Reply::Silent(time) => std::thread::sleep(time),
    }
    let _ = stream.flush();
    let _ = stream.shutdown(Shutdown::Both);
}
