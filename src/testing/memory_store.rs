//! An object store in memory: keys are opaque, nothing is overwritten, modification times and listing order are settable.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Store, StoreWriter, already_exists, range_length, short_read};
use crate::table::path::{SplitPath, is_local};
use crate::table::{FileIdentity, ListedFile};

/// In which order listings come. Real stores sort by key, file systems do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListOrder {
    /// By key.
    #[default]
    Sorted,
    /// By key, last first.
    Reversed,
    /// By a hash of the key and this number.
    Scrambled(u64),
}

/// Scheme family, authority and verbatim key.
type ObjectKey = (String, String, String);

#[derive(Debug, Clone)]
struct Object {
    content: Bytes,
    last_modified_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct StoreContent {
    objects: BTreeMap<ObjectKey, Object>,
    deleted: Vec<String>,
    now_ms: i64,
    told_ms: Option<i64>,
    order: ListOrder,
    /// What lies at or below the first is what lies at or below the second.
    links: Vec<(ObjectKey, ObjectKey)>,
}

impl StoreContent {
    /// The object that a path leads to.
    fn key_of(&self, path: &str) -> Result<ObjectKey> {
        let (mut scheme, mut authority, mut key) = key_of(path)?;
        for (from, to) in &self.links {
            let below = if (&scheme, &authority) == (&from.0, &from.1) { key.strip_prefix(&from.2) } else { None };
            if let Some(rest) = below.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                (scheme, authority, key) = (to.0.clone(), to.1.clone(), format!("{}{rest}", to.2));
            }
        }
        Ok((scheme, authority, key))
    }
}

/// An object store in memory. Clones share their content. `s3`, `s3a` and `s3n` paths meet the same objects, and so do
/// the spellings of local paths; within a key every character counts, as on S3.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<StoreContent>>,
}

fn key_of(path: &str) -> Result<ObjectKey> {
    let parts = SplitPath::parse(path)?;
    Ok((parts.canonical_scheme(), parts.authority.to_owned(), parts.key.to_owned()))
}

fn path_of((scheme, authority, key): &ObjectKey) -> String {
    if scheme == "file" { key.clone() } else { format!("{scheme}://{authority}/{key}") }
}

fn not_found(path: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("read {path}: no such file"))
}

impl MemoryStore {
    /// An empty store whose clock stands at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// The modification time that files written from now on get, milliseconds since the epoch.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.state.lock().now_ms = now_ms;
    }

    /// Lets the store tell this time, milliseconds since the epoch; it tells none unless set.
    pub fn tell_time_ms(&self, time_ms: Option<i64>) {
        self.state.lock().told_ms = time_ms;
    }

    /// Makes `from` another name of `to`, a file or a directory, as links, mounts and aliases of buckets do. Listings show a file
    /// by the name of the directory that was asked for; a link inside of that is not followed.
    ///
    /// # Panics
    /// If a path is not valid.
    pub fn link(&self, from: &str, to: &str) {
        let link = (key_of(from).expect("tests name valid paths"), key_of(to).expect("tests name valid paths"));
        self.state.lock().links.push(link);
    }

    /// Changes the modification time of a file; `None` is a store that tells none.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn set_last_modified(&self, path: &str, last_modified_ms: Option<i64>) {
        let mut state = self.state.lock();
        let key = state.key_of(path).expect("tests name valid paths");
        state.objects.get_mut(&key).expect("the file exists").last_modified_ms = last_modified_ms;
    }

    /// The order of listings from now on.
    pub fn set_list_order(&self, order: ListOrder) {
        self.state.lock().order = order;
    }

    /// All paths, sorted, S3 ones as `s3://bucket/key` and local ones as `/dir/file`.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().objects.keys().map(path_of).collect()
    }

    /// Every path that was asked to be deleted, as it was given, in order.
    pub fn deleted(&self) -> Vec<String> {
        self.state.lock().deleted.clone()
    }

    /// Puts a file in place without any check, replacing one that is there.
    ///
    /// # Panics
    /// If the path is not valid.
    pub fn put(&self, path: &str, content: impl Into<Bytes>) {
        let mut state = self.state.lock();
        let key = state.key_of(path).expect("tests name valid paths");
        let object = Object { content: content.into(), last_modified_ms: Some(state.now_ms) };
        state.objects.insert(key, object);
    }

    /// Takes a file away behind everybody's back.
    ///
    /// # Panics
    /// If the path is not valid.
    pub fn delete_now(&self, path: &str) {
        self.state.lock().objects.remove(&key_of(path).expect("tests name valid paths"));
    }

    /// A file's content, if there is such a file.
    pub fn content(&self, path: &str) -> Option<Bytes> {
        self.get(path).ok()
    }

    fn get(&self, path: &str) -> Result<Bytes> {
        let state = self.state.lock();
        let key = state.key_of(path)?;
        state.objects.get(&key).map(|o| o.content.clone()).ok_or_else(|| not_found(path))
    }

    fn create(&self, path: &str, content: Bytes) -> Result<()> {
        let mut state = self.state.lock();
        let key = state.key_of(path)?;
        if state.objects.contains_key(&key) {
            return Err(already_exists(path));
        }
        let object = Object { content, last_modified_ms: Some(state.now_ms) };
        state.objects.insert(key, object);
        Ok(())
    }

    fn listed(&self, prefix: &str) -> Result<Vec<ListedFile>> {
        let prefix = format!("{}/", prefix.trim_end_matches('/'));
        let state = self.state.lock();
        let (scheme, authority, start) = state.key_of(&prefix)?;
        let mut found: Vec<ListedFile> = state
            .objects
            .iter()
            .filter(|(key, _)| key.0 == scheme && key.1 == authority)
            .filter_map(|(key, object)| {
                let path = format!("{prefix}{}", key.2.strip_prefix(&start)?);
                let size = object.content.len() as u64;
                Some(ListedFile { path, size, last_modified_ms: object.last_modified_ms })
            })
            .collect();
        match state.order {
            ListOrder::Sorted => {}
            ListOrder::Reversed => found.reverse(),
            ListOrder::Scrambled(seed) => found.sort_by_key(|file| scrambled(&file.path, seed)),
        }
        Ok(found)
    }
}

/// FNV-1a, which is the same on every machine.
fn scrambled(path: &str, seed: u64) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.get(path)
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let length = range_length(path, &range)?;
        let content = self.get(path)?;
        let start = usize::try_from(range.start).map_err(|_| short_read(path, &range))?;
        match start.checked_add(length) {
            Some(end) if end <= content.len() => Ok(content.slice(start..end)),
            _ => Err(short_read(path, &range)),
        }
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        let state = self.state.lock();
        let key = state.key_of(path)?;
        Ok(state.objects.get(&key).map(|o| ListedFile {
            path: path.to_owned(),
            size: o.content.len() as u64,
            last_modified_ms: o.last_modified_ms,
        }))
    }

    /// Local paths only, as in the real stores.
    async fn identities(&self, paths: &[String]) -> Result<Vec<Option<FileIdentity>>> {
        let state = self.state.lock();
        let identity = |path: &String| -> Result<Option<FileIdentity>> {
            let key = state.key_of(path)?;
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            let identity = FileIdentity { device: 1, inode: hasher.finish(), hard_links: 1 };
            Ok((is_local(path) && state.objects.contains_key(&key)).then_some(identity))
        };
        paths.iter().map(identity).collect()
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        if self.stat(path).await?.is_some() {
            return Err(already_exists(path));
        }
        Ok(Box::new(MemoryWriter { store: self.clone(), path: path.to_owned(), content: Some(BytesMut::new()) }))
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        match self.listed(prefix) {
            Ok(files) => futures::stream::iter(files.into_iter().map(Ok)).boxed(),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        }
    }

    async fn time_ms(&self, _near: &str) -> Result<Option<i64>> {
        Ok(self.state.lock().told_ms)
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let mut results = Vec::with_capacity(paths.len());
        for path in paths {
            let mut state = self.state.lock();
            results.push(state.key_of(path).map(|key| {
                state.objects.remove(&key);
                state.deleted.push(path.clone());
            }));
        }
        results
    }
}

struct MemoryWriter {
    store: MemoryStore,
    path: String,
    content: Option<BytesMut>,
}

#[async_trait]
impl StoreWriter for MemoryWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        let buffer = self.content.as_mut().ok_or_else(|| Error::internal("the writer is closed"))?;
        buffer.extend_from_slice(&content);
        Ok(())
    }

    async fn close(&mut self) -> Result<u64> {
        let content = self.content.take().ok_or_else(|| Error::internal("the writer is closed"))?.freeze();
        let size = content.len() as u64;
        self.store.create(&self.path, content)?;
        Ok(size)
    }

    async fn abort(&mut self) -> Result<()> {
        self.content = None;
        Ok(())
    }
}
