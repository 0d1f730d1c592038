//! Manifests and manifest lists that were read, as summaries, in bounded memory. Both are immutable, so nothing in here is
//! ever wrong; when it is full, what was not used for longest goes.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::{Arc, Weak};

use iceberg::spec::ManifestFile;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;

use super::summary::ManifestSummary;

type List = Arc<[Arc<ManifestFile>]>;

/// Summaries by path of manifest or manifest list, shared by all tables.
#[derive(Debug)]
pub struct ManifestCache {
    /// With their bytes.
    read: Cache<Arc<str>, (ManifestOrList, usize)>,
    /// The manifest list used last. Lists of one table are read together, and each has most of its manifests in common with
    /// the one before.
    newest_list: Mutex<Option<Weak<[Arc<ManifestFile>]>>>,
}

#[derive(Debug, Clone)]
enum ManifestOrList {
    /// With the manifest's length: a path that was written anew is another manifest.
    Manifest(i64, Arc<ManifestSummary>),
    List(List),
}

impl ManifestCache {
    /// A cache of at most about `max_bytes`. A manifest takes some 24 bytes per file, a manifest list some 400 per manifest
    /// that no other list has named yet and 8 per other.
    pub fn new(max_bytes: usize) -> Self {
        let read = Cache::builder()
            .max_capacity(max_bytes as u64)
            .eviction_policy(EvictionPolicy::lru())
            .weigher(|path: &Arc<str>, (_, bytes): &(ManifestOrList, usize)| {
                // The path and the table's own entry for it, about.
                u32::try_from(bytes + path.len() + 3 * size_of::<(Arc<str>, ManifestOrList)>()).unwrap_or(u32::MAX)
            })
            .build();
        Self { read, newest_list: Mutex::default() }
    }

    pub fn bytes(&self) -> usize {
        self.read.run_pending_tasks();
        usize::try_from(self.read.weighted_size()).unwrap_or(usize::MAX)
    }

    pub(super) fn summary(&self, manifest: &ManifestFile) -> Option<Arc<ManifestSummary>> {
        match self.read.get(manifest.manifest_path.as_str())?.0 {
            ManifestOrList::Manifest(length, summary) if length == manifest.manifest_length => Some(summary),
            _ => None,
        }
    }

    pub(super) fn put_summary(&self, manifest: &ManifestFile, summary: Arc<ManifestSummary>) {
        let bytes = summary.weight();
        self.put(&manifest.manifest_path, ManifestOrList::Manifest(manifest.manifest_length, summary), bytes);
    }

    pub(super) fn list(&self, path: &str) -> Option<List> {
        match self.read.get(path)?.0 {
            ManifestOrList::List(list) => {
                self.swap_newest(&list);
                Some(list)
            }
            ManifestOrList::Manifest(..) => None,
        }
    }

    /// Keeps a manifest list without the bounds of partitions; manifests that the neighbouring list in use named are shared.
    pub(super) fn put_list(&self, path: &str, manifests: Vec<ManifestFile>) -> List {
        let known = self.newest_list.lock().as_ref().and_then(Weak::upgrade);
        let known: HashMap<&str, &Arc<ManifestFile>> =
            known.iter().flat_map(|list| list.iter()).map(|m| (m.manifest_path.as_str(), m)).collect();
        let mut bytes = size_of::<List>();
        let mut share = |manifest: ManifestFile| {
            bytes += size_of::<Arc<ManifestFile>>();
            match known.get(manifest.manifest_path.as_str()) {
                Some(same) if same.manifest_length == manifest.manifest_length => Arc::clone(same),
                _ => {
                    bytes += size_of::<ManifestFile>() + manifest.manifest_path.len();
                    Arc::new(ManifestFile { partitions: None, ..manifest })
                }
            }
        };
        let list: List = manifests.into_iter().map(&mut share).collect();
        self.swap_newest(&list);
        self.put(path, ManifestOrList::List(list.clone()), bytes);
        list
    }

    fn swap_newest(&self, list: &List) {
        *self.newest_list.lock() = Some(Arc::downgrade(list));
    }

    fn put(&self, path: &str, value: ManifestOrList, bytes: usize) {
        self.read.insert(path.into(), (value, bytes));
        self.read.run_pending_tasks();
    }
}
