//! A store in memory that counts requests and fails on demand.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use icewright::error::{Error, ErrorKind, Result};
use icewright::storage::{ListedFile, Store, StoreWriter};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub(crate) struct MemoryStore {
    files: Arc<Mutex<BTreeMap<String, Bytes>>>,
    /// Requests that read.
    pub(crate) reads: AtomicUsize,
    /// Longest single read.
    pub(crate) longest_read: AtomicU64,
    /// Cancelled at the first write call.
    pub(crate) cancel_at_write: Mutex<Option<CancellationToken>>,
    /// Fail every write call.
    pub(crate) fail_writes: AtomicBool,
    /// Answer reads of files with one byte less than asked for.
    pub(crate) short_reads: AtomicBool,
}

impl MemoryStore {
    pub(crate) fn put(&self, path: &str, content: Bytes) {
        self.files.lock().expect("no panic inside").insert(path.to_string(), content);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Bytes> {
        self.files.lock().expect("no panic inside").get(path).cloned()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.lock().expect("no panic inside").keys().cloned().collect()
    }

    fn answer(&self, bytes: Bytes) -> Bytes {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.longest_read.fetch_max(bytes.len() as u64, Ordering::Relaxed);
        if self.short_reads.load(Ordering::Relaxed) { bytes.slice(..bytes.len() - 1) } else { bytes }
    }
}

struct Writing {
    path: String,
    content: Vec<u8>,
    fail: bool,
    files: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, path: &str) -> Result<Bytes> {
        let bytes = self.get(path).ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no file {path}")))?;
        Ok(self.answer(bytes))
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.get(path).ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no file {path}")))?;
        let (start, end) = (range.start as usize, range.end as usize);
        if end > bytes.len() {
            return Err(Error::unavailable(format!("short answer for {path}")));
        }
        Ok(self.answer(bytes.slice(start..end)))
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        Ok(self.get(path).map(|b| ListedFile { path: path.into(), size: b.len() as u64, last_modified_ms: None }))
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        if self.get(path).is_some() {
            return Err(Error::internal(format!("{path} already exists")));
        }
        let fail = self.fail_writes.load(Ordering::Relaxed);
        if let Some(token) = self.cancel_at_write.lock().expect("no panic inside").take() {
            token.cancel();
        }
        Ok(Box::new(Writing { path: path.into(), content: Vec::new(), fail, files: self.files.clone() }))
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        let found: Vec<_> = self
            .paths()
            .into_iter()
            .filter(|p| p.starts_with(prefix))
            .map(|path| Ok(ListedFile { path, size: 0, last_modified_ms: None }))
            .collect();
        stream::iter(found).boxed()
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let mut files = self.files.lock().expect("no panic inside");
        paths
            .iter()
            .map(|p| {
                files.remove(p);
                Ok(())
            })
            .collect()
    }
}

#[async_trait]
impl StoreWriter for Writing {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        if self.fail {
            return Err(Error::unavailable("the store is full"));
        }
        self.content.extend_from_slice(&content);
        Ok(())
    }

    async fn close(&mut self) -> Result<u64> {
        let content = Bytes::from(std::mem::take(&mut self.content));
        let size = content.len() as u64;
        self.files.lock().expect("no panic inside").insert(self.path.clone(), content);
        Ok(size)
    }

    async fn abort(&mut self) -> Result<()> {
        self.content.clear();
        Ok(())
    }
}
