//! Counts what a store is asked, and asks for leave before anything is deleted.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::{Store, StoreRef, StoreWriter};
use crate::error::Result;
use crate::http_client::RequestObserver;
use crate::permit::WritePermit;
use crate::table::{FileIdentity, ListedFile};

/// A store that reports each request to an observer. Operations are `read`, `stat`, `create`, `write`, `close`, `abort`,
/// `list` and `delete`; outcomes are `ok` and the names of error kinds. Nothing is deleted any more once the permit is over.
pub struct InstrumentedStore {
    inner: StoreRef,
    observer: Arc<dyn RequestObserver>,
    permit: WritePermit,
}

impl InstrumentedStore {
    /// Wraps a store.
    pub fn wrap(inner: StoreRef, observer: Arc<dyn RequestObserver>, permit: WritePermit) -> StoreRef {
        Arc::new(Self { inner, observer, permit })
    }
}

fn outcome<T>(result: &Result<T>) -> &'static str {
    result.as_ref().map_or_else(|e| e.kind().as_str(), |_| "ok")
}

/// Runs one request and reports it.
async fn timed<T>(
    observer: &Arc<dyn RequestObserver>,
    operation: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let start = Instant::now();
    let result = work.await;
    observer.observe(operation, outcome(&result), start.elapsed().as_secs_f64());
    result
}

#[async_trait]
impl Store for InstrumentedStore {
    async fn read(&self, path: &str) -> Result<Bytes> {
        let content = timed(&self.observer, "read", self.inner.read(path)).await?;
        self.observer.bytes_read(content.len() as u64);
        Ok(content)
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let content = timed(&self.observer, "read", self.inner.read_range(path, range)).await?;
        self.observer.bytes_read(content.len() as u64);
        Ok(content)
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        timed(&self.observer, "stat", self.inner.stat(path)).await
    }

    /// Not reported: only local files are looked at.
    async fn identities(&self, paths: &[String]) -> Result<Vec<Option<FileIdentity>>> {
        self.inner.identities(paths).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        let inner = timed(&self.observer, "create", self.inner.writer(path)).await?;
        Ok(Box::new(InstrumentedWriter { inner, observer: Arc::clone(&self.observer) }))
    }

    /// A listing is reported when it ends, or at its first error; one that is dropped before is not.
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        let (observer, start) = (Arc::clone(&self.observer), Instant::now());
        let listing = Some(self.inner.list(prefix));
        futures::stream::unfold((listing, observer), move |(listing, observer)| async move {
            let mut listing = listing?;
            let item = listing.next().await;
            let ended = match &item {
                None => Some("ok"),
                Some(Err(e)) => Some(e.kind().as_str()),
                Some(Ok(_)) => None,
            };
            if let Some(outcome) = ended {
                observer.observe("list", outcome, start.elapsed().as_secs_f64());
            }
            item.map(|item| (item, (ended.is_none().then_some(listing), observer)))
        })
        .boxed()
    }

    /// A batch is one request; its outcome is that of the first file that failed.
    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let start = Instant::now();
        let results = match self.permit.check() {
            Ok(()) => self.inner.delete_batch(paths).await,
            Err(error) => paths.iter().map(|_| Err(error.clone())).collect(),
        };
        let outcome = results.iter().find(|r| r.is_err()).map_or("ok", outcome);
        self.observer.observe("delete", outcome, start.elapsed().as_secs_f64());
        results
    }

    async fn time_ms(&self, near: &str) -> Result<Option<i64>> {
        timed(&self.observer, "stat", self.inner.time_ms(near)).await
    }
}

struct InstrumentedWriter {
    inner: Box<dyn StoreWriter>,
    observer: Arc<dyn RequestObserver>,
}

#[async_trait]
impl StoreWriter for InstrumentedWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        let length = content.len() as u64;
        timed(&self.observer, "write", self.inner.write(content)).await?;
        self.observer.bytes_written(length);
        Ok(())
    }

    async fn close(&mut self) -> Result<u64> {
        timed(&self.observer, "close", self.inner.close()).await
    }

    async fn abort(&mut self) -> Result<()> {
        timed(&self.observer, "abort", self.inner.abort()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::TryStreamExt;

    use super::*;
    use crate::error::ErrorKind;
    use crate::testing::{FaultyStore, MemoryStore, Operation, StoreFault};

    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    impl RequestObserver for Seen {
        fn observe(&self, operation: &'static str, outcome: &'static str, seconds: f64) {
            assert!(seconds >= 0.0);
            self.0.lock().unwrap().push(format!("{operation} {outcome}"));
        }
        fn bytes_read(&self, bytes: u64) {
            self.0.lock().unwrap().push(format!("{bytes} in"));
        }
        fn bytes_written(&self, bytes: u64) {
            self.0.lock().unwrap().push(format!("{bytes} out"));
        }
    }

    #[tokio::test]
    async fn every_request_is_reported_once() {
        let seen = Arc::new(Seen::default());
        let faulty = FaultyStore::new(Arc::new(MemoryStore::new()));
        faulty.inject(Operation::Delete, 0..1, StoreFault::fail());
        faulty.inject(Operation::List, 1..2, StoreFault::fail());
        let store = InstrumentedStore::wrap(Arc::new(faulty), seen.clone(), WritePermit::always());
        store.write("/d/f", Bytes::from_static(b"abc")).await.unwrap();
        let _ = store.read_range("/d/f", 0..2).await.unwrap();
        assert!(store.read("/d/none").await.is_err());
        assert_eq!(store.list("/d").try_collect::<Vec<_>>().await.unwrap().len(), 1);
        assert!(store.list("/d").try_collect::<Vec<_>>().await.is_err());
        assert!(store.delete_batch(&["/d/f".into()]).await[0].is_err());
        let expected = [
            "create ok",
            "write ok",
            "3 out",
            "close ok",
            "read ok",
            "2 in",
            "read not_found",
            "list ok",
            "list unavailable",
            "delete unavailable",
        ];
        assert_eq!(*seen.0.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn without_a_permit_nothing_is_deleted() {
        let (inner, permit) = (Arc::new(MemoryStore::new()), WritePermit::withheld());
        let store = InstrumentedStore::wrap(inner, Arc::new(Seen::default()), permit.clone());
        store.write("/d/f", Bytes::from_static(b"abc")).await.unwrap();
        let refused = store.delete_batch(&["/d/f".into(), "/d/g".into()]).await;
        assert!(
            refused.len() == 2 && refused.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == ErrorKind::Cancelled))
        );
        assert!(store.stat("/d/f").await.unwrap().is_some());
        permit.grant(Instant::now() + std::time::Duration::from_secs(60));
        assert!(store.delete_batch(&["/d/f".into()]).await[0].is_ok());
        assert!(store.stat("/d/f").await.unwrap().is_none());
    }
}
