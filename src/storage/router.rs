//! All stores behind one face: picks one by the scheme of each path, counts what it is asked, and asks for leave before
//! anything is deleted.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::{Store, StoreRef, StoreWriter};
use crate::error::{Error, Result};
use crate::http_client::RequestObserver;
use crate::permit::WritePermit;
use crate::table::path::{FAMILIES, SplitPath, is_local};
use crate::table::{FileIdentity, ListedFile};

/// Reports each request to an observer. Operations are `read`, `stat`, `create`, `write`, `close`, `abort`, `list` and `delete`;
/// outcomes are `ok` and the names of error kinds. Nothing is deleted any more once the permit is over.
pub(super) struct StoreRouter {
    pub(super) stores: Vec<(&'static str, StoreRef)>,
    pub(super) observer: Arc<dyn RequestObserver>,
    pub(super) permit: WritePermit,
}

impl StoreRouter {
    fn index(&self, path: &str) -> Result<usize> {
        let family = SplitPath::parse(path)?.canonical_scheme();
        self.stores.iter().position(|(known, _)| *known == family).ok_or_else(|| {
            let mut known: Vec<&str> = FAMILIES.iter().flat_map(|(_, schemes)| *schemes).copied().collect();
            let last = known.pop().unwrap_or_default();
            let known = known.join(", ");
            Error::unsupported(format!(
                "{path}: storage scheme {family:?} is not supported by this version; it knows {known} and {last}"
            ))
        })
    }

    pub(super) fn pick(&self, path: &str) -> Result<&StoreRef> {
        Ok(&self.stores[self.index(path)?].1)
    }

    /// The paths of each store, with their places among `paths`.
    fn split(&self, paths: &[String]) -> impl Iterator<Item = (&StoreRef, Vec<usize>, Vec<String>)> {
        self.stores.iter().enumerate().map(|(store, (_, found))| {
            let here = |path: &String| self.index(path).is_ok_and(|index| index == store);
            let own = paths.iter().enumerate().filter(|(_, path)| here(path)).map(|(at, path)| (at, path.clone()));
            let (at, own) = own.unzip();
            (found, at, own)
        })
    }

    async fn read_counted(&self, work: impl Future<Output = Result<Bytes>>) -> Result<Bytes> {
        let content = timed(&self.observer, "read", work).await?;
        self.observer.bytes_read(content.len() as u64);
        Ok(content)
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
impl Store for StoreRouter {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.read_counted(async { self.pick(path)?.read(path).await }).await
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.read_counted(async { self.pick(path)?.read_range(path, range).await }).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        timed(&self.observer, "stat", async { self.pick(path)?.stat(path).await }).await
    }

    /// Not reported: only local files are looked at.
    async fn identities(&self, paths: &[String]) -> Result<Vec<Option<FileIdentity>>> {
        // A local path that cannot be opened is an error; one that no store takes has no identity.
        paths.iter().filter(|path| is_local(path)).try_for_each(|path| self.index(path).map(drop))?;
        let mut identities = vec![None; paths.len()];
        for (store, at, own) in self.split(paths) {
            for (index, identity) in at.into_iter().zip(store.identities(&own).await?) {
                identities[index] = identity;
            }
        }
        Ok(identities)
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        let inner = timed(&self.observer, "create", async { self.pick(path)?.writer(path).await }).await?;
        Ok(Box::new(CountedWriter { inner, observer: Arc::clone(&self.observer) }))
    }

    /// A listing is reported when it ends, or at its first error; one that is dropped before is not.
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        let (observer, start) = (Arc::clone(&self.observer), Instant::now());
        let listing = match self.pick(prefix) {
            Ok(store) => store.list(prefix),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        };
        futures::stream::unfold((Some(listing), observer), move |(listing, observer)| async move {
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
        let permit = self.permit.check();
        let refused = |path: &String| permit.clone().and_then(|()| self.index(path).map(drop));
        let mut results: Vec<Result<()>> = paths.iter().map(refused).collect();
        for (store, at, own) in self.split(if permit.is_ok() { paths } else { &[] }) {
            for (index, result) in at.into_iter().zip(store.delete_batch(&own).await) {
                results[index] = result;
            }
        }
        let outcome = results.iter().find(|r| r.is_err()).map_or("ok", outcome);
        self.observer.observe("delete", outcome, start.elapsed().as_secs_f64());
        results
    }

    async fn time_ms(&self, near: &str) -> Result<Option<i64>> {
        timed(&self.observer, "stat", async { self.pick(near)?.time_ms(near).await }).await
    }
}

struct CountedWriter {
    inner: Box<dyn StoreWriter>,
    observer: Arc<dyn RequestObserver>,
}

#[async_trait]
impl StoreWriter for CountedWriter {
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

    fn counted(store: StoreRef, observer: &Arc<Seen>, permit: WritePermit) -> StoreRouter {
        StoreRouter { stores: vec![("file", store)], observer: observer.clone(), permit }
    }

    #[tokio::test]
    async fn every_request_is_reported_once() {
        let seen = Arc::new(Seen::default());
        let faulty = FaultyStore::new(Arc::new(MemoryStore::new()));
        faulty.inject(Operation::Delete, 0..1, StoreFault::fail());
        faulty.inject(Operation::List, 1..2, StoreFault::fail());
        let store = counted(Arc::new(faulty), &seen, WritePermit::always());
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
        let store = counted(inner, &Arc::default(), permit.clone());
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
