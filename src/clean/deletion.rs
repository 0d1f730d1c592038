//! Deletion in small batches, each compared with metadata loaded just before it.

use std::collections::{BTreeMap, HashMap};

use super::elsewhere::Unneeded;
use super::expire_snapshots::OnlyExpired;
use super::other_names::{Likeness, two_names};
use super::reachable::Reachable;
use super::report::{FileKind, Tally, note_failure};
use crate::catalog::TableHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::delete_files::{Proof, delete_files};
use crate::table::path::CanonicalPath;
use crate::table::references::require_gc;

/// Files between two looks at the metadata: what the largest delete request of a store takes.
const BATCH: usize = 1000;

/// A file to delete: an orphan, or a file that only expired snapshots reached. Deletion takes nothing else.
///
/// Rule: before each batch the metadata is loaded once more, and what it reaches by now, under whatever name, stays.
#[derive(Debug)]
pub(super) struct Doomed {
    path: String,
    kind: FileKind,
    bytes: u64,
}

impl Doomed {
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl From<Unneeded> for Doomed {
    fn from(orphan: Unneeded) -> Self {
        let (path, bytes) = (orphan.file().path().to_owned(), orphan.file().bytes());
        Self { kind: FileKind::of_listed(&path), path, bytes }
    }
}

impl From<OnlyExpired> for Doomed {
    fn from(file: OnlyExpired) -> Self {
        let (path, kind, bytes) = file.into_parts();
        Self { path, kind, bytes }
    }
}

#[derive(Debug, Default)]
pub(super) struct Deleted {
    pub(super) deleted: BTreeMap<FileKind, Tally>,
    pub(super) failed: BTreeMap<FileKind, Tally>,
    pub(super) failures: Vec<String>,
    /// Files that turned out to be referenced again.
    pub(super) referenced: Tally,
    /// Files that metadata may name by another path.
    pub(super) other_name: Tally,
    /// Files that stay since they list others of which some are still there: they are the proof about these.
    pub(super) proof: Tally,
    /// Why the rest was left alone.
    pub(super) stopped: Option<Error>,
}

impl Deleted {
    /// Whether every file asked for is gone.
    fn is_complete(&self) -> bool {
        self.failed.is_empty() && self.stopped.is_none()
    }

    fn absorb(&mut self, other: Self) {
        for (sum, tallies) in [(&mut self.deleted, other.deleted), (&mut self.failed, other.failed)] {
            for (kind, tally) in tallies {
                sum.entry(kind).or_default().absorb(tally);
            }
        }
        self.failures.extend(other.failures);
        self.referenced.absorb(other.referenced);
        self.other_name.absorb(other.other_name);
        self.stopped = self.stopped.take().or(other.stopped);
    }
}

/// Deletes files that are outside of a set which grows with the table.
pub(super) struct Deleter {
    table: TableHandle,
    /// `None` once growing it has failed: nothing may be deleted any more.
    reachable: Option<Reachable>,
    proof: Proof,
}

impl Deleter {
    /// `reachable` is everything that `table`'s metadata reaches.
    pub(super) fn new(table: TableHandle, reachable: Reachable, proof: Proof) -> Self {
        Self { table, reachable: Some(reachable), proof }
    }

    /// Loads the metadata anew and takes what it reaches into the set.
    async fn look_again(&mut self) -> Result<()> {
        let (table, reachable) = grow(&self.table, self.reachable.take().ok_or_else(unread)?).await?;
        self.table = table;
        self.reachable = Some(reachable);
        Ok(())
    }

    /// Why none of these files may go, if one of them is a file that metadata names by another path.
    pub(super) async fn other_name(&self, files: &[Doomed]) -> Result<Option<String>> {
        let reachable = self.reachable.as_ref().ok_or_else(unread)?;
        let named: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
        let alike = reachable.likenesses(&self.table.store, &named).await?;
        let found = named.iter().zip(alike).find(|(_, (likeness, _))| *likeness == Likeness::Surely);
        Ok(match found {
            Some(((path, _), _)) => Some(two_names(&self.table, path).await),
            None => None,
        })
    }

    /// Deletes stage by stage, what lists other files after these: unless all that went before is gone, and `may_go` allows it, it
    /// stays as the proof by which a later run finds the rest.
    pub(super) async fn delete(&mut self, mut files: Vec<Doomed>, may_go: impl Fn(FileKind) -> bool) -> Deleted {
        let proofs: Vec<Doomed> = files.extract_if(.., |file| file.kind.is_proof()).collect();
        let mut sum = self.delete_all(&files.iter().collect::<Vec<_>>()).await;
        for kind in [FileKind::Manifest, FileKind::ManifestList, FileKind::MetadataFile] {
            let stage: Vec<&Doomed> = proofs.iter().filter(|file| file.kind == kind).collect();
            if sum.is_complete() && may_go(kind) {
                sum.absorb(self.delete_all(&stage).await);
            } else {
                stage.iter().for_each(|file| sum.proof.add(file.bytes));
            }
        }
        sum
    }

    /// Deletes files batch by batch. Stops at the first look at the metadata that fails.
    async fn delete_all(&mut self, files: &[&Doomed]) -> Deleted {
        let mut report = Deleted::default();
        for batch in files.chunks(BATCH) {
            if let Err(error) = self.delete_unreferenced(batch, &mut report).await {
                report.stopped = Some(error.context("look at the table again before deleting more"));
                break;
            }
        }
        report
    }

    async fn delete_unreferenced(&mut self, batch: &[&Doomed], report: &mut Deleted) -> Result<()> {
        self.look_again().await?;
        let reachable = self.reachable.as_ref().ok_or_else(unread)?;
        let mut doomed: HashMap<&str, &Doomed> = HashMap::with_capacity(batch.len());
        let named: Vec<_> = batch.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
        for (file, (likeness, _)) in batch.iter().zip(reachable.likenesses(&self.table.store, &named).await?) {
            if reachable.contains(&file.path)? {
                report.referenced.add(file.bytes);
                continue;
            }
            match likeness {
                Likeness::None => drop(doomed.insert(&file.path, file)),
                Likeness::Perhaps => report.other_name.add(file.bytes),
                Likeness::Surely => {
                    return Err(Error::new(ErrorKind::Conflict, two_names(&self.table, &file.path).await));
                }
            }
        }
        let paths: Vec<String> =
            batch.iter().filter(|f| doomed.contains_key(f.path.as_str())).map(|f| f.path.clone()).collect();
        let outcome = delete_files(self.table.store.as_ref(), &paths, self.proof).await;
        for path in &outcome.deleted {
            if let Some(file) = doomed.get(path.as_str()) {
                report.deleted.entry(file.kind).or_default().add(file.bytes);
            }
        }
        let checksums: Vec<String> = outcome.deleted.iter().filter_map(|path| local_checksum(path)).collect();
        for (path, error) in delete_files(self.table.store.as_ref(), &checksums, self.proof).await.failed {
            // A later run finds it by listing.
            tracing::debug!(%path, %error, "checksum left behind");
        }
        for (path, error) in &outcome.failed {
            if let Some(file) = doomed.get(path.as_str()) {
                report.failed.entry(file.kind).or_default().add(file.bytes);
                note_failure(&mut report.failures, path, error);
            }
        }
        Ok(())
    }
}

fn unread() -> Error {
    Error::internal("deletion went on after the table could not be read")
}

/// The checksum that Hadoop's local file system may have put beside a local file, worthless without it.
fn local_checksum(path: &str) -> Option<String> {
    let is_local = CanonicalPath::parse(path).is_ok_and(|p| p.scheme() == "file");
    let (directory, name) = path.rsplit_once('/').filter(|_| is_local)?;
    (!name.ends_with(".crc")).then(|| format!("{directory}/.{name}.crc"))
}

/// The table with fresh metadata. An error if it is another table by now, or its files must not be deleted.
pub(super) async fn refresh(table: &TableHandle) -> Result<TableHandle> {
    let fresh = table.refresh().await?;
    if fresh.loaded.metadata.uuid() != table.loaded.metadata.uuid() {
        return Err(Error::new(ErrorKind::Conflict, "the table was dropped and made anew meanwhile"));
    }
    require_gc(&fresh.loaded)?;
    Ok(fresh)
}

/// The table with fresh metadata, and the set with what that reaches. An error if files must not be deleted any more.
pub(super) async fn grow(table: &TableHandle, reachable: Reachable) -> Result<(TableHandle, Reachable)> {
    let fresh = refresh(table).await?;
    let unchanged =
        fresh.loaded.metadata_location == table.loaded.metadata_location && !fresh.loaded.metadata_location.is_empty();
    if unchanged {
        return Ok((fresh, reachable));
    }
    let reachable = reachable.with_table(&fresh.store, &fresh.loaded).await?;
    Ok((fresh, reachable))
}
