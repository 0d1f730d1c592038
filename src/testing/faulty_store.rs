//! A store that fails on purpose: at a chosen call, before or after the work is done.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::storage::{Store, StoreRef, StoreWriter};
use crate::table::{FileIdentity, ListedFile};
use crate::testing::Meanwhile;

/// What is counted and can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Read,
    ReadRange,
    Stat,
    /// Opening a writer.
    Create,
    /// Appending to a writer.
    Write,
    Close,
    Abort,
    List,
    Delete,
}

/// What goes wrong.
#[derive(Clone)]
pub enum StoreFault {
    /// Nothing is done, an error is reported.
    Fail(Error),
    /// Everything is done, an error is reported.
    DoAndFail(Error),
    /// Reads give all but the last byte; a listing ends with an error after its first half; other calls are not touched.
    Short,
    /// Of a batch of deletes every second one is refused as coming too fast; other calls are refused whole.
    Throttle,
    /// Runs this first, then works properly: a race at a chosen moment.
    After(Meanwhile),
}

impl StoreFault {
    /// [`StoreFault::Fail`] as an unavailable store.
    pub fn fail() -> Self {
        Self::Fail(Error::unavailable("injected fault"))
    }

    /// [`StoreFault::DoAndFail`] as an unavailable store.
    pub fn do_and_fail() -> Self {
        Self::DoAndFail(Error::unavailable("injected fault after the work"))
    }
}

struct FaultRule {
    operation: Operation,
    path_part: String,
    calls: Range<usize>,
    seen: usize,
    fault: StoreFault,
}

#[derive(Default)]
struct FaultPlan {
    rules: Mutex<Vec<FaultRule>>,
    calls: Mutex<Vec<(Operation, String)>>,
    longest_read: AtomicUsize,
}

/// Wraps a store. Clones share rules and counts.
#[derive(Clone)]
pub struct FaultyStore {
    inner: StoreRef,
    plan: Arc<FaultPlan>,
}

impl Operation {
    /// An error as real stores tell it: with what was done to which path.
    fn failed(self, path: &str, error: Error) -> Error {
        let verb = match self {
            Self::Read | Self::ReadRange => "read",
            Self::Stat => "stat",
            Self::Create => "create",
            Self::Write => "write",
            Self::Close => "close",
            Self::Abort => "abort",
            Self::List => "list",
            Self::Delete => "delete",
        };
        error.context_of(verb, path)
    }

    fn throttled(self, path: &str) -> Error {
        self.failed(path, Error::unavailable("injected fault: slow down"))
    }
}

impl FaultyStore {
    /// Works like `inner` until told otherwise.
    pub fn new(inner: StoreRef) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// Injects a fault into the given calls (counted from 0, from now on) of an operation.
    pub fn inject(&self, operation: Operation, calls: Range<usize>, fault: StoreFault) {
        self.inject_on("", operation, calls, fault);
    }

    /// Likewise, counting only calls on paths that contain `path_part`.
    pub fn inject_on(&self, path_part: &str, operation: Operation, calls: Range<usize>, fault: StoreFault) {
        let rule = FaultRule { operation, path_part: path_part.to_owned(), calls, seen: 0, fault };
        self.plan.rules.lock().push(rule);
    }

    pub fn count(&self, operation: Operation) -> usize {
        self.paths(operation).len()
    }

    /// The paths that an operation was called with, in order; of a batch of deletes the first.
    pub fn paths(&self, operation: Operation) -> Vec<String> {
        let calls = self.plan.calls.lock();
        calls.iter().filter(|(of, _)| *of == operation).map(|(_, path)| path.clone()).collect()
    }

    /// The most bytes that one call has read.
    pub fn longest_read(&self) -> usize {
        self.plan.longest_read.load(Ordering::Relaxed)
    }

    async fn fault(&self, operation: Operation, paths: &[String]) -> Option<StoreFault> {
        let fault = self.plan.next(operation, paths);
        if let Some(StoreFault::After(first)) = &fault {
            first().await;
            return None;
        }
        fault
    }

    async fn run<T>(&self, operation: Operation, path: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.fault(operation, &[path.to_owned()]).await {
            Some(StoreFault::Fail(e)) => Err(operation.failed(path, e)),
            Some(StoreFault::Throttle) => Err(operation.throttled(path)),
            Some(StoreFault::DoAndFail(e)) => work.await.and(Err(operation.failed(path, e))),
            Some(StoreFault::Short | StoreFault::After(_)) | None => work.await,
        }
    }

    async fn run_read(&self, op: Operation, path: &str, work: impl Future<Output = Result<Bytes>>) -> Result<Bytes> {
        let read = match self.fault(op, &[path.to_owned()]).await {
            Some(StoreFault::Fail(e) | StoreFault::DoAndFail(e)) => Err(op.failed(path, e)),
            Some(StoreFault::Throttle) => Err(op.throttled(path)),
            Some(StoreFault::Short) => work.await.map(|b| b.slice(..b.len().saturating_sub(1))),
            Some(StoreFault::After(_)) | None => work.await,
        }?;
        self.plan.longest_read.fetch_max(read.len(), Ordering::Relaxed);
        Ok(read)
    }
}

impl FaultPlan {
    /// Counts the call, and gives the first rule that is about it.
    fn next(&self, operation: Operation, paths: &[String]) -> Option<StoreFault> {
        let called = (operation, paths.first().cloned().unwrap_or_default());
        self.calls.lock().push(called);
        let mut rules = self.rules.lock();
        let mut hit = None;
        for rule in rules.iter_mut().filter(|r| r.operation == operation) {
            if paths.iter().any(|p| p.contains(&rule.path_part)) {
                if rule.calls.contains(&rule.seen) && hit.is_none() {
                    hit = Some(rule.fault.clone());
                }
                rule.seen += 1;
            }
        }
        hit
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.run_read(Operation::Read, path, self.inner.read(path)).await
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.run_read(Operation::ReadRange, path, self.inner.read_range(path, range)).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        self.run(Operation::Stat, path, self.inner.stat(path)).await
    }

    async fn identities(&self, paths: &[String]) -> Result<Vec<Option<FileIdentity>>> {
        self.inner.identities(paths).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        let inner = self.run(Operation::Create, path, self.inner.writer(path)).await?;
        Ok(Box::new(FaultyWriter { store: self.clone(), path: path.to_owned(), inner }))
    }

    async fn time_ms(&self, near: &str) -> Result<Option<i64>> {
        self.inner.time_ms(near).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        let (this, prefix) = (self.clone(), prefix.to_owned());
        let listing = async move {
            let listed = this.inner.list(&prefix);
            match this.fault(Operation::List, std::slice::from_ref(&prefix)).await {
                Some(StoreFault::Fail(e) | StoreFault::DoAndFail(e)) => Err(Operation::List.failed(&prefix, e)),
                Some(StoreFault::Throttle) => Err(Operation::List.throttled(&prefix)),
                Some(StoreFault::Short) => {
                    let mut files: Vec<_> = listed.collect().await;
                    files.truncate(files.len() / 2);
                    let broke_off = Error::unavailable("injected fault: the listing broke off");
                    files.push(Err(Operation::List.failed(&prefix, broke_off)));
                    Ok(futures::stream::iter(files).boxed())
                }
                // Listed only now, so that it sees what the race did.
                Some(StoreFault::After(_)) | None => Ok(this.inner.list(&prefix)),
            }
        };
        futures::stream::once(listing).try_flatten().boxed()
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let failed = |path: &String, e: &Error| Err(Operation::Delete.failed(path, e.clone()));
        match self.fault(Operation::Delete, paths).await {
            Some(StoreFault::Fail(e)) => paths.iter().map(|path| failed(path, &e)).collect(),
            Some(StoreFault::DoAndFail(e)) => {
                let results = self.inner.delete_batch(paths).await;
                paths.iter().zip(results).map(|(path, r)| r.and(failed(path, &e))).collect()
            }
            Some(StoreFault::Throttle) => {
                let mut results = Vec::with_capacity(paths.len());
                for (i, path) in paths.iter().enumerate() {
                    if i % 2 == 1 {
                        results.push(Err(Operation::Delete.throttled(path)));
                    } else {
                        results.extend(self.inner.delete_batch(std::slice::from_ref(path)).await);
                    }
                }
                results
            }
            Some(StoreFault::Short | StoreFault::After(_)) | None => self.inner.delete_batch(paths).await,
        }
    }
}

struct FaultyWriter {
    store: FaultyStore,
    path: String,
    inner: Box<dyn StoreWriter>,
}

#[async_trait]
impl StoreWriter for FaultyWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        self.store.run(Operation::Write, &self.path, self.inner.write(content)).await
    }

    async fn close(&mut self) -> Result<u64> {
        self.store.run(Operation::Close, &self.path, self.inner.close()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.run(Operation::Abort, &self.path, self.inner.abort()).await
    }
}
