//! Every file that snapshots reach: manifest lists, manifests, live content files, and what metadata names itself.
//! Each list and each manifest is read once, however many snapshots share it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use iceberg::spec::ManifestFile;

use super::deletion::Doomed;
use super::other_names::{Likeness, OtherNames, identities_of};
use crate::error::Result;
use crate::meta::PathEntry;
use crate::meta::snapshot::{READS, manifests_of, paths_of};
use crate::storage::StoreRef;
use crate::table::FileIdentity;
use crate::table::LoadedTable;
use crate::table::file_names::{WriterProgress, checksum_subject};
use crate::table::path::{CanonicalPath, is_local};
use crate::table::path_set::{Fingerprint, PathSet};
use crate::table::references::{metadata_files, own_directories, statistics_files};

/// The table's directories, for telling its own files from others.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    pub(super) directories: Vec<(String, CanonicalPath)>,
}

impl Scope {
    pub(super) fn of(loaded: &LoadedTable) -> Result<Self> {
        let parse = |dir: String| CanonicalPath::parse(&dir).map(|canonical| (dir, canonical));
        Ok(Self { directories: own_directories(loaded)?.into_iter().map(parse).collect::<Result<_>>()? })
    }

    /// Which of the directories a path lies in; the first is the table's location.
    pub(super) fn directory(&self, path: &CanonicalPath) -> Option<usize> {
        self.directories.iter().position(|(_, dir)| path.is_inside(dir))
    }

    /// Whether a name on the way from the table's directory begins with `_` or `.`, as those of files do that engines keep for
    /// themselves (checkpoints, staging, markers). Directories of partitions (`_field=value`) may be named so too.
    pub(super) fn hides(&self, path: &CanonicalPath) -> bool {
        let Some((_, directory)) = self.directory(path).and_then(|index| self.directories.get(index)) else {
            return false;
        };
        let below = path.as_str().strip_prefix(directory.as_str()).unwrap_or_default();
        below.split('/').any(|name| name.starts_with(['_', '.']) && !name.contains('='))
    }
}

/// The key of a path without scheme and authority.
pub(super) fn key_of(path: &CanonicalPath) -> &str {
    path.as_str().split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, key)| key)
}

/// A growing set of reachable files. Errors leave nothing behind that could be taken for the whole: growing consumes it.
#[derive(Debug)]
pub struct Reachable {
    files: PathSet,
    lists: PathSet,
    manifests: PathSet,
    scope: Scope,
    /// References inside each of the table's directories.
    inside: Vec<u64>,
    /// Keys that would lie in the table's directories if their scheme and authority were the table's.
    same_key_elsewhere: PathSet,
    /// Only files outside of the table's directories are kept in mind, by the keys of their paths.
    outside_only: bool,
    /// What the files are called and what they are, whatever path leads to them.
    names: OtherNames,
    evidence: Option<CommittedNames>,
}

/// What retained snapshots tell about files that they do not reach.
#[derive(Debug, Default)]
struct CommittedNames {
    progress: WriterProgress,
    /// Files of which a retained snapshot records that they left the table: they were in it once.
    left: PathSet,
}

impl Reachable {
    /// Reaches nothing yet. With `evidence`, what snapshots tell about other files is noted as well.
    pub fn new(loaded: &LoadedTable, evidence: bool) -> Result<Self> {
        let scope = Scope::of(loaded)?;
        Ok(Self {
            files: PathSet::default(),
            lists: PathSet::default(),
            manifests: PathSet::default(),
            inside: vec![0; scope.directories.len()],
            scope,
            same_key_elsewhere: PathSet::default(),
            outside_only: false,
            names: OtherNames::default(),
            evidence: evidence.then(CommittedNames::default),
        })
    }

    /// Reaches nothing yet, and keeps only files outside of the table's directories in mind.
    pub(super) fn outside_only(loaded: &LoadedTable) -> Result<Self> {
        Ok(Self { outside_only: true, ..Self::new(loaded, false)? })
    }

    /// The files; of a set for files outside, the keys of their paths.
    pub(super) fn files(&self) -> &PathSet {
        &self.files
    }

    /// What the files are called.
    pub(super) fn names(&self) -> &OtherNames {
        &self.names
    }

    /// Entries kept in mind: files, their names, lists and manifests.
    pub(super) fn entries(&self) -> usize {
        self.files.len() + self.names.len() + self.lists.len() + self.manifests.len()
    }

    /// Adds all that the metadata names itself, and all that its snapshots reach. What an earlier call has read is not
    /// read again. Any list or manifest that cannot be read is an error.
    pub async fn with_table(self, store: &StoreRef, loaded: &Arc<LoadedTable>) -> Result<Self> {
        self.with_snapshots(store, loaded, |_| true).await
    }

    /// The same for some of the snapshots, and statistics of these only.
    pub async fn with_snapshots(
        mut self,
        store: &StoreRef,
        loaded: &Arc<LoadedTable>,
        wanted: impl Fn(i64) -> bool,
    ) -> Result<Self> {
        let mut named = Vec::new();
        for file in metadata_files(loaded)? {
            self.add(file, None)?;
            named.push(file);
        }
        let statistics = statistics_files(loaded);
        for statistics in statistics.iter().filter(|s| wanted(s.snapshot_id)) {
            self.add(&statistics.path, None)?;
            named.push(&statistics.path);
        }
        let mut lists = Vec::new();
        for snapshot in loaded.metadata.snapshots().filter(|s| wanted(s.snapshot_id())) {
            if snapshot.manifest_list().is_empty() || self.lists.insert(snapshot.manifest_list())? {
                lists.push(snapshot.clone());
            }
        }
        named.extend(lists.iter().map(|s| s.manifest_list()));
        for (_, identity) in identities_of(store, named.into_iter()).await? {
            self.names.note_identity(identity);
        }
        let mut manifests = Vec::new();
        let mut read = manifests_of(store, lists);
        while let Some((snapshot, found)) = read.next().await {
            let (found, _) = found?;
            if !snapshot.manifest_list().is_empty() {
                self.add(snapshot.manifest_list(), None)?;
            }
            for manifest in found {
                if self.manifests.insert(&manifest.manifest_path)? {
                    manifests.push(manifest);
                }
            }
        }
        drop(read);
        self.with_manifests(store, manifests).await
    }

    async fn with_manifests(mut self, store: &StoreRef, manifests: Vec<ManifestFile>) -> Result<Self> {
        let identified = |(manifest, entries): (ManifestFile, Vec<PathEntry>)| {
            let store = store.clone();
            async move {
                let live = entries.iter().filter(|e| e.live).map(|e| e.file_path.as_ref());
                let found = identities_of(&store, live.chain([manifest.manifest_path.as_str()])).await?;
                Ok((manifest, entries, found.into_iter().map(|(_, identity)| identity).collect::<Vec<_>>()))
            }
        };
        let mut read = paths_of(store, manifests).map_ok(identified).try_buffer_unordered(READS);
        while let Some((manifest, entries, identities)) = read.try_next().await? {
            self.add(&manifest.manifest_path, None)?;
            identities.into_iter().for_each(|identity| self.names.note_identity(identity));
            for entry in entries {
                if entry.live {
                    self.add(&entry.file_path, Some(entry.file_size_bytes))?;
                } else if let Some(evidence) = &mut self.evidence {
                    evidence.left.insert(&entry.file_path)?;
                    evidence.progress.note(&entry.file_path);
                }
            }
        }
        drop(read);
        Ok(self)
    }

    /// Adds one file, of a size that is known or not.
    fn add(&mut self, path: &str, size: Option<u64>) -> Result<()> {
        let canonical = CanonicalPath::parse(path)?;
        if self.outside_only {
            if self.scope.directory(&canonical).is_none() {
                self.files.insert_fingerprint(Fingerprint::of_text(key_of(&canonical)));
            }
            // On local disks a link may lead from another table's directory into this one's.
            if is_local(path) || self.scope.directory(&canonical).is_none() {
                self.names.note(path, size);
            }
            return Ok(());
        }
        if !self.files.insert_fingerprint(Fingerprint::of_text(canonical.as_str())) {
            return Ok(());
        }
        self.names.note(path, size);
        if let Some(evidence) = &mut self.evidence {
            evidence.progress.note(path);
        }
        if let Some(directory) = self.scope.directory(&canonical) {
            self.inside[directory] += 1;
            return Ok(());
        }
        let key = key_of(&canonical);
        let like_own = |dir: &CanonicalPath| key.strip_prefix(key_of(dir)).is_some_and(|rest| rest.starts_with('/'));
        if self.scope.directories.iter().any(|(_, dir)| like_own(dir)) {
            self.same_key_elsewhere.insert_fingerprint(Fingerprint::of_text(key));
        }
        Ok(())
    }

    /// Whether the file, or the file that it is a local checksum of, is reachable.
    pub fn contains(&self, path: &str) -> Result<bool> {
        if self.files.contains(path)? {
            return Ok(true);
        }
        checksum_subject(path).map_or(Ok(false), |subject| self.files.contains(&subject))
    }

    /// For each file, which is not reachable by its own path, whether it is by another one.
    pub(super) async fn likenesses(&self, store: &StoreRef, files: &[&Doomed]) -> Result<Vec<Likeness>> {
        let identities = identities_of(store, files.iter().map(|file| file.path.as_str())).await?;
        let identities: HashMap<String, FileIdentity> = identities.into_iter().collect();
        let likeness = |file: &&Doomed| {
            // Metadata that tells no size of a file says 0.
            let by_name = self.names.by_name(&file.path, Some(file.bytes).filter(|bytes| *bytes > 0));
            let by_identity = identities.get(&file.path).map_or(Likeness::None, |found| self.names.by_identity(*found));
            by_name.max(by_identity)
        };
        Ok(files.iter().map(likeness).collect())
    }

    /// Whether a manifest has been read.
    pub(super) fn has_manifest(&self, path: &str) -> Result<bool> {
        self.manifests.contains(path)
    }

    /// Whether metadata refers to a file of the same key in another store or bucket: then either one of the two names
    /// is an alias of the other, or files were copied; the listing cannot tell which.
    pub(super) fn has_alias(&self, path: &CanonicalPath) -> bool {
        self.same_key_elsewhere.contains_fingerprint(Fingerprint::of_text(key_of(path)))
    }

    /// The table's directories, as of the first load.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// References inside each directory, the location first.
    pub(super) fn references_inside(&self) -> BTreeMap<usize, u64> {
        self.inside.iter().copied().enumerate().collect()
    }

    /// How far writers have got; empty unless asked for.
    pub(super) fn progress(&self) -> WriterProgress {
        self.evidence.as_ref().map(|e| e.progress.clone()).unwrap_or_default()
    }

    /// Whether a retained snapshot records that the file left the table; `false` unless asked for.
    pub(super) fn has_left(&self, path: &str) -> Result<bool> {
        self.evidence.as_ref().map_or(Ok(false), |e| e.left.contains(path))
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether nothing is reachable.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}
