//! Several stores behind one face, picked by the scheme of each path.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Store, StoreRef, StoreWriter};
use crate::error::{Error, Result};
use crate::table::path::{FAMILIES, SplitPath, is_local};
use crate::table::{FileIdentity, ListedFile};

/// Every store that this version can reach, by the family of its schemes.
pub(super) struct StoreRouter(pub(super) Vec<(&'static str, StoreRef)>);

impl StoreRouter {
    fn index(&self, path: &str) -> Result<usize> {
        let family = SplitPath::parse(path)?.canonical_scheme();
        self.0.iter().position(|(known, _)| *known == family).ok_or_else(|| {
            let mut known: Vec<&str> = FAMILIES.iter().flat_map(|(_, schemes)| *schemes).copied().collect();
            let last = known.pop().unwrap_or_default();
            let known = known.join(", ");
            Error::unsupported(format!(
                "{path}: storage scheme {family:?} is not supported by this version; it knows {known} and {last}"
            ))
        })
    }

    pub(super) fn pick(&self, path: &str) -> Result<&StoreRef> {
        Ok(&self.0[self.index(path)?].1)
    }

    /// The paths of each store, with their places among `paths`.
    fn split(&self, paths: &[String]) -> impl Iterator<Item = (&StoreRef, Vec<usize>, Vec<String>)> {
        self.0.iter().enumerate().map(|(store, (_, found))| {
            let at: Vec<usize> =
                (0..paths.len()).filter(|&i| self.index(&paths[i]).is_ok_and(|s| s == store)).collect();
            let own = at.iter().map(|&i| paths[i].clone()).collect();
            (found, at, own)
        })
    }
}

#[async_trait]
impl Store for StoreRouter {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.pick(path)?.read(path).await
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.pick(path)?.read_range(path, range).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        self.pick(path)?.stat(path).await
    }

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
        self.pick(path)?.writer(path).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        match self.pick(prefix) {
            Ok(store) => store.list(prefix),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        }
    }

    async fn time_ms(&self, near: &str) -> Result<Option<i64>> {
        self.pick(near)?.time_ms(near).await
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = paths.iter().map(|path| self.index(path).map(drop)).collect();
        for (store, at, own) in self.split(paths) {
            for (index, result) in at.into_iter().zip(store.delete_batch(&own).await) {
                results[index] = result;
            }
        }
        results
    }
}
