//! What refers to listed files, by metadata and checkpoints that are read after the listing.

use futures::StreamExt;

use super::deletion::grow;
use super::listing::{ListedCandidate, OrphanListing};
use super::other_names::{Likeness, OtherNames};
use super::reachable::Reachable;
use super::report::OrphanReport;
use crate::catalog::TableHandle;
use crate::error::{ErrorKind, Result};
use crate::meta::snapshot::paths_of;
use crate::meta::unlisted_manifest;
use crate::plan::remove_orphan_files::KeepReason;
use crate::table::ListedFile;
use crate::table::path_set::PathSet;

/// A listed file to which nothing refers, by metadata and checkpoints of writers read after it was listed.
///
/// Rule: what was committed before the listing, or lies in a checkpoint to be committed, is referenced by now. A file of the
/// second listing is compared with the same metadata, and all are compared once more before they are deleted.
#[derive(Debug)]
pub(super) struct Unreferenced(ListedCandidate);

impl Unreferenced {
    pub(super) fn file(&self) -> &ListedFile {
        self.0.file()
    }
}

/// Everything that refers to files of a table.
pub(super) struct References {
    /// The table as loaded after the listing.
    pub(super) table: TableHandle,
    /// What it reaches, and what it reached before.
    pub(super) reachable: Reachable,
    /// Files that manifests of Flink checkpoints refer to: written, and to be committed when the job comes back.
    checkpointed: PathSet,
    checkpointed_names: OtherNames,
    /// Whether each of those manifests could be read.
    pub(super) checkpoints_known: bool,
}

impl References {
    /// Reads checkpoint manifests first, the metadata after them: what moves from the one to the other is seen in between.
    /// `reachable` is what was reachable before the listing.
    pub(super) async fn read_after(listing: &OrphanListing, table: &TableHandle, reachable: Reachable) -> Result<Self> {
        let (mut checkpointed, mut checkpointed_names) = (PathSet::default(), OtherNames::default());
        let mut checkpoints_known = !listing.checkpoints_overflow;
        let bytes = |file: &ListedFile| i64::try_from(file.size).unwrap_or(i64::MAX);
        let checkpoint = |file: &ListedFile| unlisted_manifest(file.path.clone(), bytes(file), 0);
        let mut read = paths_of(&table.store, listing.checkpoints.iter().map(checkpoint).collect());
        while let Some(result) = read.next().await {
            match result {
                Ok((_, entries)) => {
                    for entry in entries {
                        // Whatever the entry's status: a checkpoint may yet use it.
                        checkpointed.insert(&entry.file_path)?;
                        checkpointed_names.note(&entry.file_path, Some(entry.file_size_bytes));
                    }
                }
                // Its job has committed it or given it up since the listing.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::debug!(%error, "manifest of a checkpoint cannot be read");
                    checkpoints_known = false;
                }
            }
        }
        drop(read);
        let (table, reachable) = grow(table, reachable).await?;
        Ok(Self { table, reachable, checkpointed, checkpointed_names, checkpoints_known })
    }

    /// The files that still nothing refers to.
    pub(super) fn unreferenced(
        &self,
        files: Vec<ListedCandidate>,
        report: &mut OrphanReport,
    ) -> Result<Vec<Unreferenced>> {
        let mut unreferenced = Vec::with_capacity(files.len());
        for listed in files {
            let ListedFile { path, size, .. } = listed.file();
            if self.reachable.contains(path)? {
                report.keep(KeepReason::ReferencedMeanwhile, *size);
            } else if self.checkpointed.contains(path)?
                || self.checkpointed_names.by_name(path, Some(*size)) != Likeness::None
            {
                report.keep(KeepReason::FlinkCheckpoint, *size);
            } else {
                unreferenced.push(Unreferenced(listed));
            }
        }
        Ok(unreferenced)
    }
}
