//! Several stores behind one face, picked by the scheme of each path.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::local::LocalStore;
use super::s3::S3Store;
use super::{Store, StoreWriter};
use crate::error::{Error, Result};
use crate::table::path::{SplitPath, is_local};
use crate::table::{FileIdentity, ListedFile};

/// Every store this version can reach.
pub(super) struct Router {
    pub(super) local: LocalStore,
    pub(super) s3: S3Store,
}

impl Router {
    pub(super) fn pick(&self, path: &str) -> Result<&dyn Store> {
        match SplitPath::parse(path)?.canonical_scheme().as_str() {
            "file" => Ok(&self.local),
            "s3" => Ok(&self.s3),
            other => Err(Error::unsupported(format!(
                "{path}: storage scheme {other:?} is not supported by this version; it knows s3, s3a, s3n and file"
            ))),
        }
    }
}

#[async_trait]
impl Store for Router {
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
        // Objects of the other store have one path each.
        let local: Vec<usize> = (0..paths.len()).filter(|&i| is_local(&paths[i])).collect();
        let asked: Vec<String> = local.iter().map(|&i| paths[i].clone()).collect();
        let mut identities = vec![None; paths.len()];
        for (index, identity) in local.into_iter().zip(self.local.identities(&asked).await?) {
            identities[index] = identity;
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
        let mut results: Vec<Result<()>> = Vec::with_capacity(paths.len());
        let (mut local, mut s3) = (Vec::new(), Vec::new());
        for (index, path) in paths.iter().enumerate() {
            results.push(self.pick(path).map(|_| ()));
            match SplitPath::parse(path).map(|p| p.canonical_scheme()).as_deref() {
                Ok("file") => local.push(index),
                Ok("s3") => s3.push(index),
                _ => {}
            }
        }
        for (store, indexes) in [(&self.local as &dyn Store, local), (&self.s3, s3)] {
            let part: Vec<String> = indexes.iter().map(|&i| paths[i].clone()).collect();
            for (index, result) in indexes.into_iter().zip(store.delete_batch(&part).await) {
                results[index] = result;
            }
        }
        results
    }
}
