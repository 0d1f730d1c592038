//! The answer to `/metrics`. With many tables it takes long to make and is large, so it is made aside, once for all who ask
//! within a second, and whoever reads it slowly keeps no copy of his own.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::report::metrics::Metrics;

/// How long a page is shown before another one is made.
const KEPT: Duration = Duration::from_secs(1);
/// Pages in memory at the same time: the newest, and earlier ones that are still being read.
const PAGES_MAX: usize = 4;

/// What makes the text of a page.
type Gather = dyn Fn() -> Result<String> + Send + Sync;

/// The newest page. A copy shares it.
#[derive(Clone)]
pub(super) struct MetricsPage {
    gather: Arc<Gather>,
    newest: Arc<Mutex<Option<Page>>>,
    places: Arc<Semaphore>,
}

/// The metrics at one moment.
#[derive(Clone)]
struct Page {
    made: Instant,
    plain: Bytes,
    gzip: Bytes,
}

/// Bytes of a page, which has its place among the pages in memory until the last reader has them.
struct PageBytes {
    bytes: Vec<u8>,
    _place: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for PageBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl MetricsPage {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self::of(move || metrics.gather())
    }

    fn of(gather: impl Fn() -> Result<String> + Send + Sync + 'static) -> Self {
        Self { gather: Arc::new(gather), newest: Arc::default(), places: Arc::new(Semaphore::new(PAGES_MAX)) }
    }

    /// The answer, compressed for who can read that.
    pub(super) async fn answer(&self, headers: &HeaderMap) -> Response {
        let page = match self.page().await {
            Ok(page) => page,
            Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        };
        let kind =
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"), (header::VARY, "Accept-Encoding")];
        if accepts_gzip(headers) {
            (kind, [(header::CONTENT_ENCODING, "gzip")], page.gzip).into_response()
        } else {
            (kind, page.plain).into_response()
        }
    }

    /// The newest page, or one made just now. While as many as may be in memory are still being read, it is the newest of these:
    /// whoever reads for too long is cut off, so it is not much older than a minute.
    async fn page(&self) -> Result<Page> {
        let mut newest = self.newest.clone().lock_owned().await;
        let place = self.places.clone().try_acquire_owned();
        if let Some(page) = newest.as_ref().filter(|page| page.made.elapsed() < KEPT || place.is_err()) {
            return Ok(page.clone());
        }
        let place = place.map_err(|e| Error::internal(format!("a place for a page: {e}")))?;
        let gather = self.gather.clone();
        // Who goes away while the page is made does not let others make another one: the lock is held until it is made.
        let making = tokio::task::spawn_blocking(move || {
            let page = Page::make(&gather()?, place)?;
            *newest = Some(page.clone());
            Ok(page)
        });
        making.await.unwrap_or_else(|e| Err(Error::internal(format!("gather metrics: {e}"))))
    }
}

impl Page {
    fn make(text: &str, place: OwnedSemaphorePermit) -> Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        let packed = packed.map_err(|e| Error::internal(format!("compress metrics: {e}")))?;
        let place = Arc::new(place);
        let kept = |bytes| Bytes::from_owner(PageBytes { bytes, _place: place.clone() });
        Ok(Self { made: Instant::now(), plain: kept(text.as_bytes().to_vec()), gzip: kept(packed) })
    }
}

/// Whether `Accept-Encoding` names gzip, or any encoding, and does not refuse it.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for encoding in values.flat_map(|value| value.split(',')) {
        let mut parts = encoding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let wanted = quality.is_none_or(|quality| quality.trim().parse::<f32>().is_ok_and(|quality| quality > 0.0));
        match name.as_str() {
            "gzip" | "x-gzip" => return wanted,
            "*" => any = wanted,
            _ => {}
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};

    use axum::body::to_bytes;
    use axum::http::HeaderValue;
    use flate2::read::GzDecoder;

    use super::*;

    fn asking(encoding: &str) -> HeaderMap {
        let value = HeaderValue::from_str(encoding).expect("a header");
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)])
    }

    async fn body(response: Response) -> Bytes {
        to_bytes(response.into_body(), usize::MAX).await.expect("the body")
    }

    fn counting() -> (MetricsPage, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let page = MetricsPage::of(move || Ok(format!("page {}\n", counted.fetch_add(1, Ordering::SeqCst))));
        (page, made)
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_gathered_once_for_all_who_ask_within_a_second() {
        let (page, made) = counting();
        let nothing = HeaderMap::new();
        let asking = (0..50).map(|_| page.answer(&nothing));
        for answer in futures::future::join_all(asking).await {
            assert_eq!(body(answer).await, "page 0\n");
        }
        tokio::time::advance(KEPT).await;
        assert_eq!(body(page.answer(&nothing).await).await, "page 1\n");
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn who_goes_away_while_metrics_are_gathered_lets_nobody_gather_beside() {
        let (release, wait) = mpsc::channel::<()>();
        let (wait, under_way) = (Mutex::new(wait), Arc::new(AtomicUsize::new(0)));
        let most = Arc::new(AtomicUsize::new(0));
        let (counted, seen) = (under_way.clone(), most.clone());
        let page = MetricsPage::of(move || {
            seen.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _ = wait.lock().expect("not poisoned").recv();
            counted.fetch_sub(1, Ordering::SeqCst);
            Ok("page\n".to_owned())
        });
        for _ in 0..5 {
            let asking = page.clone();
            let task = tokio::spawn(async move { asking.answer(&HeaderMap::new()).await });
            while under_way.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            task.abort();
            let _ = task.await;
        }
        drop(release);
        assert_eq!(body(page.answer(&HeaderMap::new()).await).await, "page\n");
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_readers_keep_a_bounded_number_of_pages_in_memory() {
        let (page, made) = counting();
        let nothing = HeaderMap::new();
        let mut slow = Vec::new();
        for _ in 0..PAGES_MAX {
            slow.push(page.answer(&nothing).await);
            tokio::time::advance(KEPT).await;
        }
        assert_eq!(body(page.answer(&nothing).await).await, "page 3\n", "the newest that is in memory");
        assert_eq!(made.load(Ordering::SeqCst), PAGES_MAX);
        assert_eq!(body(slow.remove(0)).await, "page 0\n");
        assert_eq!(body(page.answer(&nothing).await).await, "page 4\n", "a place is free again");
    }

    #[tokio::test]
    async fn metrics_are_compressed_for_who_accepts_it() {
        let text = "icewright_up 1\n".repeat(1000);
        let told = text.clone();
        let page = MetricsPage::of(move || Ok(told.clone()));
        for encoding in ["gzip", "gzip;q=0.5, identity", "deflate, x-gzip", "*", "br;q=1.0, GZIP;q=0.1"] {
            let answer = page.answer(&asking(encoding)).await;
            assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip", "{encoding}");
            let packed = body(answer).await;
            assert!(packed.len() < text.len() / 10);
            let mut unpacked = String::new();
            GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).expect("gzip");
            assert_eq!(unpacked, text);
        }
        for encoding in ["", "identity", "br", "gzip;q=0", "*, gzip;q=0.0", "gzip;q=no"] {
            let answer = page.answer(&asking(encoding)).await;
            assert_eq!(answer.headers().get(header::CONTENT_ENCODING), None, "{encoding}");
            assert_eq!(answer.headers()[header::VARY], "Accept-Encoding");
            assert_eq!(body(answer).await, text);
        }
    }
}
