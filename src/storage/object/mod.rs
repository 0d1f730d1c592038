//! Objects on any store that opendal reaches. What sets one store apart is a [`Scheme`].
//!
//! Keys are opaque: they go to the store as they stand in metadata and are encoded once, in the request line.
//! Only keys that begin with a slash are refused.

mod writer;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use opendal::layers::{HttpClientLayer, TimeoutLayer};
use opendal::raw::oio::{DeleteDyn as _, ListDyn as _, Lister, ReadDyn as _};
use opendal::raw::{Accessor, BytesRange, HttpBody, HttpClient, HttpFetch, OpDelete, OpList, OpRead, OpStat, OpWrite};
use opendal::{Buffer, EntryMode, Metadata};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::writer::ObjectWriter;
use super::credentials::StoreSettings;
use super::scheme::Scheme;
use super::{Store, StoreWriter};
use crate::clock::Clock;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::http_client::RequestObserver;
use crate::http_client::{self, RetryDelay, ToldTime};
use crate::permit::WritePermit;
use crate::table::ListedFile;
use crate::table::path::SplitPath;

/// Reads, look-ups and deletes in flight at most, over all roots of one store. Writers send one part at a time each.
const REQUESTS_MAX: usize = 64;
/// Deletes in flight at most when a batch is taken apart.
const SINGLE_DELETES_MAX: usize = 4;
/// Time for one request without a body, and for one piece of a body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How stubbornly a request is sent on errors that pass by themselves. This is not opendal's own layer for that: its reader
/// panics if a store sends more than was asked for.
const BACKOFF: RetryDelay =
    RetryDelay { retries: 5, first: Duration::from_millis(200), longest: Duration::from_secs(20) };
/// How stubbornly a single delete is tried when the store says that it is too much.
const DELETE_BACKOFF: RetryDelay =
    RetryDelay { retries: 6, first: Duration::from_millis(200), longest: Duration::from_secs(10) };

/// All roots, such as buckets, that one scheme and one set of settings reach.
pub(super) struct ObjectStore {
    scheme: &'static dyn Scheme,
    settings: Arc<StoreSettings>,
    /// By root and prefix of the vended credential.
    roots: Mutex<HashMap<(String, String), Accessor>>,
    requests: Semaphore,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn RequestObserver>,
    /// What the answers told of the store's clock.
    told_time: Arc<ToldTime>,
    /// Asked before each delete is sent, also again: taking a batch apart can take long.
    may_delete: WritePermit,
}

/// The way to an object's root, and its key.
struct ObjectPlace {
    root: Accessor,
    key: String,
}

impl ObjectStore {
    pub(super) fn new(
        scheme: &'static dyn Scheme,
        settings: Arc<StoreSettings>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn RequestObserver>,
        may_delete: WritePermit,
    ) -> Self {
        Self {
            scheme,
            settings,
            roots: Mutex::default(),
            requests: Semaphore::new(REQUESTS_MAX),
            clock,
            observer,
            told_time: Arc::default(),
            may_delete,
        }
    }

    /// Reads a path of this store.
    fn split<'a>(&self, path: &'a str) -> Result<SplitPath<'a>> {
        let parts = SplitPath::parse(path)?;
        if parts.canonical_scheme() != self.scheme.family() {
            return Err(Error::internal(format!("{path} was given to the {} store", self.scheme.family())));
        }
        if parts.key.starts_with('/') {
            return Err(Error::unsupported(format!("{path}: keys that begin with a slash cannot be addressed")));
        }
        Ok(parts)
    }

    /// What paths must share to be reached the same way: the root, and the prefix of the vended credential.
    fn root_id(&self, parts: &SplitPath<'_>, path: &str) -> (String, String) {
        (parts.authority.to_owned(), self.settings.prefix_for(path))
    }

    /// The way to the root of `path` is made on first use.
    fn place(&self, path: &str) -> Result<ObjectPlace> {
        let parts = self.split(path)?;
        let (key, id) = (parts.key.to_owned(), self.root_id(&parts, path));
        let mut roots = self.roots.lock();
        if let Some(root) = roots.get(&id) {
            return Ok(ObjectPlace { root: root.clone(), key });
        }
        let properties = self.settings.properties(&id.1);
        // Building the client first turns missing root certificates into an error; opendal would panic over them.
        let client = http_client::build(&properties)?;
        let operator = self.scheme.operator(&id.0, &properties, self.settings.vended(&id.1))?;
        let (told_time, clock) = (Arc::clone(&self.told_time), Arc::clone(&self.clock));
        let client = HttpClient::with(DatedClient { client, told_time, clock });
        let timeouts = TimeoutLayer::new().with_timeout(REQUEST_TIMEOUT).with_io_timeout(REQUEST_TIMEOUT);
        let root = operator.layer(HttpClientLayer::new(client)).layer(timeouts).into_inner();
        roots.insert(id, root.clone());
        Ok(ObjectPlace { root, key })
    }

    fn attempts(&self, operation: &'static str) -> Attempts<'_> {
        Attempts { store: self, operation, generation: self.settings.generation(), tries: 0, renewed: false }
    }

    /// A request about one object, or about several on the same way.
    async fn request<T, F>(&self, operation: &'static str, path: &str, send: impl Fn(ObjectPlace) -> F) -> Result<T>
    where
        F: Future<Output = opendal::Result<T>>,
    {
        let _permit = self.requests.acquire().await.map_err(|_| Error::internal("the request limit is gone"))?;
        let mut attempts = self.attempts(operation);
        loop {
            match send(self.place(path)?).await {
                Ok(answer) => return Ok(answer),
                Err(error) => attempts.again(error).await.context(|| format!("{operation} {path}"))?,
            }
        }
    }

    async fn read_bytes(&self, path: &str, args: OpRead) -> Result<Bytes> {
        self.request("read", path, |place| read(place, args.clone())).await
    }

    /// One request to delete files that share a root and credentials.
    async fn delete(&self, paths: &[String]) -> Result<()> {
        let [first, ..] = paths else { return Ok(()) };
        let keys = paths.iter().map(|path| Ok(self.split(path)?.key.to_owned())).collect::<Result<Vec<String>>>()?;
        self.may_delete.check()?;
        self.request("delete", first, |place| delete_keys(place.root, keys.clone())).await
    }

    async fn delete_one(&self, path: String) -> Result<()> {
        let path = [path];
        let mut attempt = 0;
        loop {
            let Err(error) = self.delete(&path).await else { return Ok(()) };
            let text = error.to_string();
            let mut codes = self.scheme.throttling_codes().iter().chain([&"RateLimited"]);
            match DELETE_BACKOFF.wait(attempt, self.clock.uuid().as_u128(), None) {
                Some(wait) if codes.any(|code| text.contains(code)) => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
            self.observer.retried("delete");
            attempt += 1;
        }
    }

    /// Deletes files that share a root and credentials. One request if all goes well; otherwise one by one,
    /// since only so each file gets a result of its own.
    async fn delete_group(&self, paths: &[String]) -> Vec<Result<()>> {
        match self.delete(paths).await {
            Ok(()) => return paths.iter().map(|_| Ok(())).collect(),
            Err(error) => tracing::debug!(%error, "batch delete failed, deleting one by one"),
        }
        let singles = paths.iter().cloned().map(|path| self.delete_one(path));
        futures::stream::iter(singles).buffered(SINGLE_DELETES_MAX).collect().await
    }
}

/// The tries of one request.
struct Attempts<'a> {
    store: &'a ObjectStore,
    operation: &'static str,
    /// Of the credentials it began with.
    generation: u64,
    tries: u32,
    renewed: bool,
}

impl Attempts<'_> {
    /// Returns when the request is to be sent again: after a wait on errors that pass by themselves, and once if the store
    /// calls the credentials expired or wrong and now there are others. Otherwise this is the error that remains.
    async fn again(&mut self, error: opendal::Error) -> Result<()> {
        let Self { store, operation, .. } = self;
        let rejected = error.kind() == opendal::ErrorKind::PermissionDenied
            || store.scheme.rejection_codes().iter().any(|code| error.message().contains(code));
        let wait = BACKOFF.wait(self.tries, store.clock.uuid().as_u128(), None).filter(|_| error.is_temporary());
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
            self.tries += 1;
        } else if rejected && !self.renewed && store.settings.renew(self.generation).await? {
            self.renewed = true;
        } else {
            return Err(translate(&error));
        }
        if *operation == "delete" {
            // The wait and the request before it can take longer than the permit lasts.
            store.may_delete.check()?;
        }
        tracing::debug!(%operation, %error, "sent again");
        store.observer.retried(operation);
        Ok(())
    }
}

async fn read(place: ObjectPlace, args: OpRead) -> opendal::Result<Bytes> {
    let (_, mut reader) = place.root.read_dyn(&place.key, args).await?;
    Ok(reader.read_all_dyn().await?.to_bytes())
}

async fn delete_keys(root: Accessor, keys: Vec<String>) -> opendal::Result<()> {
    let (_, mut deleter) = root.delete_dyn().await?;
    for key in keys {
        deleter.delete_dyn(&key, OpDelete::new()).await?;
    }
    deleter.close_dyn().await
}

fn describe(path: String, metadata: &Metadata) -> ListedFile {
    let last_modified_ms = metadata.last_modified().map(|t| t.into_inner().as_millisecond());
    ListedFile { path, size: metadata.content_length(), last_modified_ms }
}

/// Our kind for an error of opendal, with its text.
fn translate(error: &opendal::Error) -> Error {
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
impl Store for Arc<ObjectStore> {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.read_bytes(path, OpRead::new()).await
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let length = super::range_length(path, &range)?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let bytes = BytesRange::new(range.start, Some(range.end - range.start));
        let content = self.read_bytes(path, OpRead::new().with_range(bytes)).await?;
        if content.len() != length {
            return Err(super::short_read(path, &range));
        }
        Ok(content)
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        let stat = |place: ObjectPlace| async move { place.root.stat_dyn(&place.key, OpStat::new()).await };
        match self.request("stat", path, stat).await {
            Ok(found) => Ok(Some(describe(path.to_owned(), &found.into_metadata()))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        let place = self.place(path)?;
        let properties = self.settings.properties(&self.settings.prefix_for(path));
        let args = OpWrite::new().with_if_not_exists(self.scheme.has_conditional_writes(&properties));
        let made = place.root.write_dyn(&place.key, args).await;
        let (_, upload) = made.map_err(|e| translate(&e).context(format!("create {path}")))?;
        Ok(Box::new(ObjectWriter::new(path, upload, Arc::clone(self))))
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        let prefix = format!("{}/", prefix.trim_end_matches('/'));
        let before_key = match self.split(&prefix) {
            Ok(parts) => prefix[..prefix.len() - parts.key.len()].to_owned(),
            Err(e) => return futures::stream::once(async { Err(e) }).boxed(),
        };
        let listing = ObjectListing { store: Arc::clone(self), prefix, before_key, lister: None };
        futures::stream::try_unfold(listing, |mut listing| async move {
            Ok(listing.next().await?.map(|file| (file, listing)))
        })
        .boxed()
    }

    async fn time_ms(&self, near: &str) -> Result<Option<i64>> {
        // Any answer tells, also one that says no.
        let asked = self.stat(near).await;
        match self.told_time.now_ms(self.clock.as_ref()) {
            None => asked.map(|_| None),
            told => Ok(told),
        }
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let mut results = Vec::new();
        let mut groups: HashMap<(String, String), Vec<usize>> = HashMap::new();
        for (index, path) in paths.iter().enumerate() {
            let id = self.split(path).map(|parts| self.root_id(&parts, path));
            results.push(id.map(|id| groups.entry(id).or_default().push(index)));
        }
        for indexes in groups.into_values() {
            let group: Vec<String> = indexes.iter().map(|&i| paths[i].clone()).collect();
            for (index, result) in indexes.into_iter().zip(self.delete_group(&group).await) {
                results[index] = result;
            }
        }
        results
    }
}

/// A client that notes the date of each answer.
struct DatedClient {
    client: reqwest::Client,
    told_time: Arc<ToldTime>,
    clock: Arc<dyn Clock>,
}

impl HttpFetch for DatedClient {
    async fn fetch(&self, request: http::Request<Buffer>) -> opendal::Result<http::Response<HttpBody>> {
        let answer = self.client.fetch(request).await?;
        self.told_time.note(answer.headers(), self.clock.as_ref());
        Ok(answer)
    }
}

struct ObjectListing {
    store: Arc<ObjectStore>,
    /// What was asked for, ending in a slash.
    prefix: String,
    /// The part of `prefix` before the key, so that listed paths keep its spelling.
    before_key: String,
    lister: Option<Lister>,
}

impl ObjectListing {
    /// The next object. Keys that end in a slash stand for directories and are left out.
    async fn next(&mut self) -> Result<Option<ListedFile>> {
        let doing = || format!("list {}", self.prefix);
        let lister = match &mut self.lister {
            Some(lister) => lister,
            None => {
                let place = self.store.place(&self.prefix)?;
                // A slash alone stands for the whole root.
                let key = if place.key.is_empty() { "/" } else { &place.key };
                let made = place.root.list_dyn(key, OpList::new().with_recursive(true)).await;
                self.lister.insert(made.map_err(|e| translate(&e)).context(doing)?.1)
            }
        };
        // A long listing can outlive its credentials; asked again, it goes on with the same page.
        let mut attempts = self.store.attempts("list");
        loop {
            match lister.next_dyn().await {
                Ok(Some(entry)) if entry.mode() == EntryMode::FILE => {
                    let path = format!("{}{}", self.before_key, entry.path());
                    return Ok(Some(describe(path, entry.metadata())));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => attempts.again(error).await.context(doing)?,
            }
        }
    }
}
