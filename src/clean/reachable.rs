//! Every file that snapshots reach: manifest lists, manifests, live content files, and what metadata names itself.
//! Each list and each manifest is read once, however many snapshots share it.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use iceberg::spec::ManifestFile;

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
use crate::table::references::{metadata_files, statistics_files};
use crate::table::scope::Scope;

/// The key of a path without scheme and authority.
pub(super) fn key_of(path: &CanonicalPath) -> &str {
    path.as_str().split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, key)| key)
}

/// A growing set of reachable files. Errors leave nothing behind that could be taken for the whole: growing consumes it.
#[derive(Debug)]
pub(super) struct Reachable {
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
    pub(super) fn new(loaded: &LoadedTable, evidence: bool) -> Result<Self> {
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

    pub(super) fn names(&self) -> &OtherNames {
        &self.names
    }

    /// Entries kept in mind: files, their names, lists and manifests.
    pub(super) fn entries(&self) -> usize {
        self.files.len() + self.names.len() + self.lists.len() + self.manifests.len()
    }

    /// Adds all that the metadata names itself, and all that its snapshots reach. What an earlier call has read is not
    /// read again. Any list or manifest that cannot be read is an error.
    pub(super) async fn with_table(self, store: &StoreRef, loaded: &Arc<LoadedTable>) -> Result<Self> {
        self.with_snapshots(store, loaded, |_| true).await
    }

    /// The same for some of the snapshots, and statistics of these only.
    pub(super) async fn with_snapshots(
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
        for identity in identities_of(store, named).await?.into_iter().flatten() {
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
                Ok((manifest, entries, found.into_iter().flatten().collect::<Vec<_>>()))
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
    pub(super) fn contains(&self, path: &str) -> Result<bool> {
        if self.files.contains(path)? {
            return Ok(true);
        }
        checksum_subject(path).map_or(Ok(false), |subject| self.files.contains(&subject))
    }

    /// For each of these files (path and bytes), whether metadata names it by another path, and what it is on its store.
    pub(super) async fn likenesses(
        &self,
        store: &StoreRef,
        files: &[(&str, u64)],
    ) -> Result<Vec<(Likeness, Option<FileIdentity>)>> {
        let identities = identities_of(store, files.iter().map(|(path, _)| *path)).await?;
        let alike = files.iter().zip(identities).map(|((path, bytes), identity)| {
            // Metadata that tells no size of a file says 0.
            let by_name = self.names.by_name(path, Some(*bytes).filter(|bytes| *bytes > 0));
            (by_name.max(identity.map_or(Likeness::None, |identity| self.names.by_identity(identity))), identity)
        });
        Ok(alike.collect())
    }

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

    pub(super) fn references_inside(&self, directory: usize) -> u64 {
        self.inside.get(directory).copied().unwrap_or(0)
    }

    /// How far writers have got; empty unless asked for.
    pub(super) fn progress(&self) -> WriterProgress {
        self.evidence.as_ref().map(|e| e.progress.clone()).unwrap_or_default()
    }

    /// Files of which a retained snapshot records that they left the table; `None` unless asked for.
    pub(super) fn left(&self) -> Option<&PathSet> {
        self.evidence.as_ref().map(|e| &e.left)
    }
}
