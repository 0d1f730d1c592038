//! Objects on S3 and on stores that speak its protocol.
//!
//! Keys are opaque: they go to the store as they stand in metadata and are encoded once, in the request line.
//! Only keys that begin with a slash are refused. Properties are Iceberg's: `s3.endpoint`, `s3.region` (or
//! `client.region`), `s3.access-key-id`, `s3.secret-access-key`, `s3.session-token`, `s3.path-style-access`,
//! `s3.anonymous`, `s3.sse.type` (`none`, `s3`, `kms`) and `s3.sse.key`. Without keys the usual chain applies: environment,
//! profile, web identity, container and instance roles. Without `s3.path-style-access` a bucket of AWS is addressed by
//! host name and one of a named endpoint by path. [`CONDITIONAL_WRITES`] = `false` is for stores that do not know
//! `If-None-Match`; then only the unique names of files protect what is there.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use opendal::raw::oio::{DeleteDyn as _, Entry, ListDyn as _, Lister, ReadDyn as _};
use opendal::raw::{Accessor, BytesRange, OpDelete, OpList, OpRead, OpStat, OpWrite};
use opendal::{EntryMode, Metadata};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::credentials::Settings;
use super::s3_operator::{self, Bucket, Dates, Keys, READ_BACKOFF};
use super::s3_writer::S3Writer;
use super::{Store, StoreWriter};
use crate::clock::Clock;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::http_client::RequestObserver;
use crate::http_client::{self, RetryDelay, ToldTime};
use crate::permit::WritePermit;
use crate::table::ListedFile;
use crate::table::path::SplitPath;

/// Property: whether the store honours `If-None-Match: *`; true unless set.
pub const CONDITIONAL_WRITES: &str = "s3.conditional-writes";

/// Reads, look-ups and deletes in flight at most, over all buckets of one store. Writers send one part at a time each.
const REQUESTS_MAX: usize = 64;
/// Deletes in flight at most when a batch is taken apart.
const SINGLE_DELETES_MAX: usize = 4;
/// How stubbornly a single delete is tried when the store says that it is too much.
const DELETE_BACKOFF: RetryDelay =
    RetryDelay { retries: 6, first: Duration::from_millis(200), longest: Duration::from_secs(10) };

/// All buckets that one set of settings reaches.
pub(super) struct S3Store {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Arc<Settings>,
    /// By bucket and prefix of the vended credential.
    buckets: Mutex<HashMap<(String, String), Bucket>>,
    requests: Semaphore,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn RequestObserver>,
    /// What the answers told of the store's clock.
    told_time: Arc<ToldTime>,
    /// Asked before each delete: taking a batch apart can take long.
    may_delete: WritePermit,
}

/// An object's place: the way to its bucket, and its key.
pub(super) struct Place {
    pub(super) bucket: Bucket,
    pub(super) key: String,
}

impl S3Store {
    pub(super) fn new(
        settings: Settings,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn RequestObserver>,
        may_delete: WritePermit,
    ) -> Self {
        let inner = Inner {
            settings: Arc::new(settings),
            buckets: Mutex::default(),
            requests: Semaphore::new(REQUESTS_MAX),
            clock,
            observer,
            told_time: Arc::default(),
            may_delete,
        };
        Self { inner: Arc::new(inner) }
    }
}

/// Reads a path of this store.
fn split(path: &str) -> Result<SplitPath<'_>> {
    let parts = SplitPath::parse(path)?;
    if parts.canonical_scheme() != "s3" {
        return Err(Error::internal(format!("{path} was given to the S3 store")));
    }
    if parts.key.starts_with('/') {
        return Err(Error::unsupported(format!("{path}: keys that begin with a slash cannot be addressed")));
    }
    Ok(parts)
}

impl Inner {
    /// The way to the bucket of `path`, made on first use.
    fn place(&self, path: &str) -> Result<Place> {
        let parts = split(path)?;
        let id = (parts.authority.to_owned(), self.settings.prefix_for(path));
        let mut buckets = self.buckets.lock();
        let bucket = match buckets.get(&id) {
            Some(bucket) => bucket.clone(),
            None => {
                let properties = self.settings.properties(&id.1);
                let keys = self.settings.renewable().then(|| Keys::new(&self.settings, &id.1, &self.clock));
                let dates = Dates { told: Arc::clone(&self.told_time), clock: Arc::clone(&self.clock) };
                let bucket = s3_operator::build(parts.authority, &properties, keys, dates, &self.observer)?;
                buckets.insert(id, bucket.clone());
                bucket
            }
        };
        Ok(Place { bucket, key: parts.key.to_owned() })
    }

    /// Runs one request. If the store calls the keys expired or wrong, they are renewed and the request repeated, once.
    async fn request<T, F>(&self, operation: &'static str, path: &str, work: impl Fn(Place) -> F) -> Result<T>
    where
        F: Future<Output = opendal::Result<T>>,
    {
        let _permit = self.permit().await?;
        let generation = self.settings.generation();
        let first = work(self.place(path)?).await;
        let outcome = match first {
            Err(e) if rejected_keys(&e) && self.settings.renew(generation).await? => {
                self.observer.retried(operation);
                work(self.place(path)?).await
            }
            other => other,
        };
        outcome.map_err(|e| translate(&e)).context(|| format!("{operation} {path}"))
    }

    async fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>> {
        self.requests.acquire().await.map_err(|_| Error::internal("the request limit is gone"))
    }

    /// One request to delete keys of the bucket and with the credentials of `path`.
    async fn delete(&self, path: &str, keys: &[String]) -> Result<()> {
        self.may_delete.check()?;
        self.request("delete", path, |place| delete_keys(place.bucket.retrying, keys.to_owned())).await
    }

    async fn delete_one(&self, path: &str) -> Result<()> {
        let keys = [split(path)?.key.to_owned()];
        let mut attempt = 0;
        loop {
            let Err(error) = self.delete(path, &keys).await else { return Ok(()) };
            let wait = DELETE_BACKOFF.wait(attempt, self.clock.uuid().as_u128(), None);
            match wait {
                Some(wait) if throttled(&error) => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
            self.observer.retried("delete");
            attempt += 1;
        }
    }

    /// Deletes paths that share a bucket and credentials. One request if all goes well; otherwise one by one,
    /// since only so each file gets a result of its own.
    async fn delete_group(&self, paths: &[String]) -> Vec<Result<()>> {
        let [first, ..] = paths else { return Vec::new() };
        let keys: Result<Vec<String>> = paths.iter().map(|path| Ok(split(path)?.key.to_owned())).collect();
        if let Ok(keys) = keys {
            match self.delete(first, &keys).await {
                Ok(()) => return paths.iter().map(|_| Ok(())).collect(),
                Err(error) => tracing::debug!(%error, "batch delete failed, deleting one by one"),
            }
        }
        let singles = paths.iter().cloned().map(|path| async move { self.delete_one(&path).await });
        futures::stream::iter(singles).buffered(SINGLE_DELETES_MAX).collect().await
    }
}

async fn delete_keys(bucket: Accessor, keys: Vec<String>) -> opendal::Result<()> {
    let (_, mut deleter) = bucket.delete_dyn().await?;
    for key in keys {
        deleter.delete_dyn(&key, OpDelete::new()).await?;
    }
    deleter.close_dyn().await
}

async fn read(place: Place, range: Option<Range<u64>>, inner: Arc<Inner>) -> opendal::Result<Bytes> {
    let mut args = OpRead::new();
    if let Some(range) = &range {
        args = args.with_range(BytesRange::new(range.start, Some(range.end - range.start)));
    }
    let mut attempt = 0;
    loop {
        let error = match read_once(&place, args.clone()).await {
            Err(e) if e.is_temporary() => e,
            other => return other,
        };
        match READ_BACKOFF.wait(attempt, inner.clock.uuid().as_u128(), None) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(error),
        }
        inner.observer.retried("read");
        attempt += 1;
    }
}

async fn read_once(place: &Place, args: OpRead) -> opendal::Result<Bytes> {
    let (_, mut reader) = place.bucket.once.read_dyn(&place.key, args).await?;
    Ok(reader.read_all_dyn().await?.to_bytes())
}

fn describe(path: String, metadata: &Metadata) -> ListedFile {
    let last_modified_ms = metadata.last_modified().map(|t| t.into_inner().as_millisecond());
    ListedFile { path, size: metadata.content_length(), last_modified_ms }
}

/// Whether new keys could help.
pub(super) fn rejected_keys(error: &opendal::Error) -> bool {
    let codes = ["ExpiredToken", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId"];
    error.kind() == opendal::ErrorKind::PermissionDenied || codes.iter().any(|code| error.message().contains(code))
}

fn throttled(error: &Error) -> bool {
    let text = error.to_string();
    ["SlowDown", "RateLimited", "ServiceUnavailable", "TooManyRequests"].iter().any(|code| text.contains(code))
}

/// Our kind for an error of opendal, with its text.
pub(super) fn translate(error: &opendal::Error) -> Error {
    let kind = match error.kind() {
        opendal::ErrorKind::NotFound => ErrorKind::NotFound,
        opendal::ErrorKind::ConditionNotMatch | opendal::ErrorKind::AlreadyExists => ErrorKind::Internal,
        opendal::ErrorKind::RangeNotSatisfied => ErrorKind::DataInvalid,
        _ => ErrorKind::Unavailable,
    };
    // The full text would repeat the request and all headers of the answer.
    let mut text = format!("{}: {}", error.kind(), error.message());
    if let Some(cause) = std::error::Error::source(error) {
        text = format!("{text}: {}", http_client::chain(cause));
    }
    Error::new(kind, text)
}

#[async_trait]
impl Store for S3Store {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.inner.request("read", path, |place| read(place, None, Arc::clone(&self.inner))).await
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let length = super::range_length(path, &range)?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let content =
            self.inner.request("read", path, |place| read(place, Some(range.clone()), Arc::clone(&self.inner))).await?;
        if content.len() != length {
            return Err(super::short_read(path, &range));
        }
        Ok(content)
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        let stat = |place: Place| async move { place.bucket.retrying.stat_dyn(&place.key, OpStat::new()).await };
        match self.inner.request("stat", path, stat).await {
            Ok(found) => Ok(Some(describe(path.to_owned(), &found.into_metadata()))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        let place = self.inner.place(path)?;
        let prefix = self.inner.settings.prefix_for(path);
        let conditional = self.inner.settings.properties(&prefix).get(CONDITIONAL_WRITES).is_none_or(|v| v != "false");
        let args = OpWrite::new().with_if_not_exists(conditional);
        let (_, inner) = place
            .bucket
            .retrying
            .write_dyn(&place.key, args)
            .await
            .map_err(|e| translate(&e).context(format!("create {path}")))?;
        Ok(Box::new(S3Writer::new(path, inner, Arc::clone(&self.inner.settings))))
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        let prefix = format!("{}/", prefix.trim_end_matches('/'));
        let root = match split(&prefix) {
            Ok(parts) => prefix[..prefix.len() - parts.key.len()].to_owned(),
            Err(e) => return futures::stream::once(async { Err(e) }).boxed(),
        };
        let listing = Listing { inner: Arc::clone(&self.inner), prefix, root, lister: None };
        futures::stream::try_unfold(listing, |mut listing| async move {
            Ok(listing.next().await?.map(|file| (file, listing)))
        })
        .boxed()
    }

    async fn time_ms(&self, near: &str) -> Result<Option<i64>> {
        // Any answer tells, also one that says no.
        let asked = self.stat(near).await;
        match self.inner.told_time.now_ms(self.inner.clock.as_ref()) {
            None => asked.map(|_| None),
            told => Ok(told),
        }
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let mut groups: HashMap<(String, String), Vec<usize>> = HashMap::new();
        let mut results: Vec<Result<()>> = Vec::with_capacity(paths.len());
        for (index, path) in paths.iter().enumerate() {
            results.push(split(path).map(|parts| {
                let id = (parts.authority.to_owned(), self.inner.settings.prefix_for(path));
                groups.entry(id).or_default().push(index);
            }));
        }
        for indexes in groups.into_values() {
            let group: Vec<String> = indexes.iter().map(|&i| paths[i].clone()).collect();
            for (index, result) in indexes.into_iter().zip(self.inner.delete_group(&group).await) {
                results[index] = result;
            }
        }
        results
    }
}

/// A listing under way.
struct Listing {
    inner: Arc<Inner>,
    /// What was asked for, ending in a slash.
    prefix: String,
    /// The part of `prefix` before the key, so that listed paths keep its spelling.
    root: String,
    lister: Option<Lister>,
}

impl Listing {
    /// The next object. Keys that end in a slash stand for directories and are left out.
    async fn next(&mut self) -> Result<Option<ListedFile>> {
        loop {
            let generation = self.inner.settings.generation();
            let entry = match self.step().await? {
                // A long listing can outlive its keys; asked again, it goes on with the same page.
                Err(e) if rejected_keys(&e) && self.inner.settings.renew(generation).await? => self.step().await?,
                other => other,
            };
            match entry.map_err(|e| translate(&e)).context(|| format!("list {}", self.prefix))? {
                Some(entry) if entry.mode() == EntryMode::FILE => {
                    let path = format!("{}{}", self.root, entry.path());
                    return Ok(Some(describe(path, entry.metadata())));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// The outer error is about the settings, the inner one is the store's.
    async fn step(&mut self) -> Result<opendal::Result<Option<Entry>>> {
        if self.lister.is_none() {
            let place = self.inner.place(&self.prefix)?;
            // A slash alone stands for the whole bucket.
            let key = if place.key.is_empty() { "/" } else { &place.key };
            match place.bucket.retrying.list_dyn(key, OpList::new().with_recursive(true)).await {
                Ok((_, lister)) => self.lister = Some(lister),
                Err(e) => return Ok(Err(e)),
            }
        }
        Ok(match &mut self.lister {
            Some(lister) => lister.next_dyn().await,
            None => Ok(None),
        })
    }
}
