//! Files of tables. Paths are the absolute URIs that metadata holds (`s3://bucket/key`, `file:///dir/f`, `/dir/f`),
//! kept verbatim as opaque text. [`Store::delete_batch`] is called from [`delete_files`] only.

pub mod credentials;
pub mod delete_files;
mod local;
mod object;
mod router;
pub mod s3;
mod scheme;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::http_client::{NoObserver, RequestObserver};
use crate::permit::WritePermit;
use crate::table::{FileIdentity, ListedFile, LoadedTable, TableCredentials};
use credentials::{CredentialSource, StoreSettings};
use local::LocalStore;
use object::ObjectStore;
use router::StoreRouter;
use scheme::SCHEMES;

/// One store, or several behind one face that picks by scheme, bucket and credential prefix.
#[async_trait]
pub trait Store: Send + Sync {
    /// The whole file, in one request. [`crate::error::ErrorKind::NotFound`] if there is none.
    async fn read(&self, path: &str) -> Result<Bytes>;
    /// Some bytes of it; a short answer is an error.
    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes>;
    /// Size and modification time; `None` if there is no such file.
    async fn stat(&self, path: &str) -> Result<Option<ListedFile>>;
    /// The identity of the file behind each path, links followed; `None` if there is no such file, or the store gives a file one
    /// path only.
    async fn identities(&self, paths: &[String]) -> Result<Vec<Option<FileIdentity>>> {
        Ok(vec![None; paths.len()])
    }
    /// A new file, streamed in parts of bounded size. Never overwrites: an existing file is an error.
    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>>;
    /// Writes a small new file in one go. Never overwrites.
    async fn write(&self, path: &str, content: Bytes) -> Result<()> {
        let mut writer = self.writer(path).await?;
        writer.write(content).await?;
        writer.close().await?;
        Ok(())
    }
    /// Every file under `prefix/`, recursively. A prefix that does not exist yields nothing.
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>>;
    /// Deletes files, each with its own result; a file that is already gone counts as deleted.
    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>>;
    /// What the clock of the store of `near`, a file in it, shows now, milliseconds since the epoch: the clock that dates its
    /// files. `None` if there is no way to tell.
    async fn time_ms(&self, _near: &str) -> Result<Option<i64>> {
        Ok(None)
    }
}

pub type StoreRef = Arc<dyn Store>;

#[async_trait]
pub trait StoreWriter: Send {
    async fn write(&mut self, content: Bytes) -> Result<()>;
    /// Makes the file visible; returns its size in bytes.
    async fn close(&mut self) -> Result<u64>;
    /// Gives up: nothing becomes visible, uploaded parts are freed.
    async fn abort(&mut self) -> Result<()>;
}

/// The store for files of all supported schemes, set up by Iceberg's properties. Opens nothing yet:
/// wrong settings show at the first file that needs them.
pub fn open(properties: &HashMap<String, String>) -> StoreRef {
    Arc::new(router(properties, TableCredentials::default(), None, Arc::new(NoObserver), WritePermit::always()))
}

fn router(
    properties: &HashMap<String, String>,
    vended: TableCredentials,
    source: Option<Arc<dyn CredentialSource>>,
    observer: Arc<dyn RequestObserver>,
    permit: WritePermit,
) -> StoreRouter {
    let clock = SystemClock::shared();
    let settings = Arc::new(StoreSettings::new(properties.clone(), vended, source, Arc::clone(&clock)));
    let mut stores: Vec<(&str, StoreRef)> = vec![("file", Arc::new(LocalStore::default()))];
    for scheme in SCHEMES {
        let (settings, clock, observer) = (Arc::clone(&settings), Arc::clone(&clock), Arc::clone(&observer));
        let store = ObjectStore::new(scheme, settings, clock, observer, permit.clone());
        stores.push((scheme.family(), Arc::new(Arc::new(store))));
    }
    StoreRouter { stores, observer, permit }
}

/// The store for a table's files, with what its catalog vended for them. `source` is asked for new credentials before the
/// vended ones expire, and when the store calls them expired. Strongest first: the vended credential with the longest
/// prefix of the path, the table's `config`, `catalog_properties`, the defaults. `observer` learns of every request;
/// nothing is deleted unless the permit holds.
/// [`crate::error::ErrorKind::Unsupported`] if the table lies on a store that this version does not reach.
pub fn for_table(
    catalog_properties: &HashMap<String, String>,
    table: &LoadedTable,
    source: Arc<dyn CredentialSource>,
    observer: Arc<dyn RequestObserver>,
    permit: WritePermit,
) -> Result<StoreRef> {
    let router = router(catalog_properties, table.vended.clone(), Some(source), observer, permit);
    router.pick(table.metadata.location())?;
    Ok(Arc::new(router))
}

/// The number of bytes in a range; an inverted or huge one is an error.
pub(crate) fn range_length(path: &str, range: &Range<u64>) -> Result<usize> {
    let length = range.end.checked_sub(range.start).and_then(|n| usize::try_from(n).ok());
    length.ok_or_else(|| Error::internal(format!("read {path}: {range:?} is not a range of bytes")))
}

/// The file ends before the range does.
pub(crate) fn short_read(path: &str, range: &Range<u64>) -> Error {
    Error::invalid(format!("read {path}: the file ends before byte {} of the range {range:?}", range.end))
}

pub(crate) fn already_exists(path: &str) -> Error {
    Error::internal(format!("create {path}: the file already exists and is never overwritten"))
}
