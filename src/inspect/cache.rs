//! Manifests and manifest lists that were read, as summaries, in bounded memory. Both are immutable, so nothing in here is
//! ever wrong; when it is full, what was not used for longest goes.

use std::collections::{BTreeMap, HashMap};
use std::mem::size_of;
use std::sync::Arc;

use iceberg::spec::ManifestFile;
use parking_lot::{Mutex, MutexGuard};

use super::summary::ManifestSummary;

type List = Arc<[Arc<ManifestFile>]>;

/// Summaries by path of manifest or manifest list, shared by all tables.
#[derive(Debug)]
pub struct ManifestCache {
    max_bytes: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<Arc<str>, Slot>,
    /// Paths by when they were last used.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    value: Value,
    bytes: usize,
    used: u64,
}

#[derive(Debug, Clone)]
enum Value {
    /// With the manifest's length: a path that was written anew is another manifest.
    Manifest(i64, Arc<ManifestSummary>),
    List(List),
}

impl ManifestCache {
    /// A cache of at most about `max_bytes`. A manifest takes some 24 bytes per file, a manifest list some 400 per manifest
    /// that no other list has named yet and 8 per other.
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, inner: Mutex::default() }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(super) fn summary(&self, manifest: &ManifestFile) -> Option<Arc<ManifestSummary>> {
        match self.lock().get(&manifest.manifest_path)? {
            Value::Manifest(length, summary) if length == manifest.manifest_length => Some(summary),
            _ => None,
        }
    }

    pub(super) fn put_summary(&self, manifest: &ManifestFile, summary: Arc<ManifestSummary>) {
        let bytes = summary.weight();
        let value = Value::Manifest(manifest.manifest_length, summary);
        self.lock().put(&manifest.manifest_path, value, bytes, self.max_bytes);
    }

    pub(super) fn list(&self, path: &str) -> Option<List> {
        match self.lock().get(path)? {
            Value::List(list) => Some(list),
            Value::Manifest(..) => None,
        }
    }

    /// Keeps a manifest list without the bounds of partitions; manifests that the neighbouring list in use named are shared.
    pub(super) fn put_list(&self, path: &str, manifests: Vec<ManifestFile>) -> List {
        let mut inner = self.lock();
        let known = inner.newest_list();
        let known: HashMap<&str, &Arc<ManifestFile>> = known
            .iter()
            .flat_map(|list| list.iter())
            .map(|manifest| (manifest.manifest_path.as_str(), manifest))
            .collect();
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
        inner.put(path, Value::List(list.clone()), bytes, self.max_bytes);
        list
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing under the lock can panic half-way through a change.
        self.inner.lock()
    }
}

impl Inner {
    fn get(&mut self, path: &str) -> Option<Value> {
        let (path, _) = self.slots.get_key_value(path)?;
        let path = path.clone();
        self.uses += 1;
        let slot = self.slots.get_mut(&path)?;
        self.by_use.remove(&slot.used);
        slot.used = self.uses;
        self.by_use.insert(self.uses, path);
        Some(slot.value.clone())
    }

    fn put(&mut self, path: &str, value: Value, weight: usize, max_bytes: usize) {
        let bytes = weight + path.len() + size_of::<Slot>() + size_of::<(u64, Arc<str>)>();
        self.remove(path);
        if bytes > max_bytes {
            return;
        }
        while self.bytes + bytes > max_bytes {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
        self.uses += 1;
        let path: Arc<str> = path.into();
        self.by_use.insert(self.uses, path.clone());
        self.slots.insert(path, Slot { value, bytes, used: self.uses });
        self.bytes += bytes;
    }

    fn remove(&mut self, path: &str) {
        if let Some(slot) = self.slots.remove(path) {
            self.by_use.remove(&slot.used);
            self.bytes -= slot.bytes;
        }
    }

    /// The manifest list used last. Lists of one table are read together, and each has most of its manifests in common with
    /// the one before.
    fn newest_list(&self) -> Option<List> {
        let lists = self.by_use.values().rev().filter_map(|path| match &self.slots.get(path)?.value {
            Value::List(list) => Some(list.clone()),
            Value::Manifest(..) => None,
        });
        lists.into_iter().next()
    }
}
