//! Proof that files were referenced once. The metadata log names metadata files that were current, and these name the
//! snapshots of their time; so an unreferenced manifest list that one of them names belongs to a snapshot that was
//! committed and has expired, and so does everything it reaches. A metadata file that only the listing knows proves
//! nothing: it may stem from a commit that lost a race and whose data files are still about to be committed.

use std::collections::{HashMap, HashSet, VecDeque};

use futures::{StreamExt, stream};
use iceberg::spec::MetadataLog;
use serde::Deserialize;
use uuid::Uuid;

use super::ownership::read_metadata;
use super::reachable::Reachable;
use crate::catalog::TableHandle;
use crate::error::Result;
use crate::meta::read_manifest_list_at;
use crate::meta::snapshot::{READS, paths_of};
use crate::table::ListedFile;
use crate::table::file_names::WriterProgress;
use crate::table::path_set::{Fingerprint, PathSet};
use crate::table::references::CLOCK_SKEW_LIMIT_MS;

/// Old metadata files read by one run at most.
const METADATA_FILES_MAX: usize = 200;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OldMetadata {
    table_uuid: Option<Uuid>,
    #[serde(default)]
    snapshots: Vec<OldSnapshot>,
    #[serde(default)]
    metadata_log: Vec<MetadataLog>,
    #[serde(default)]
    statistics: Vec<OldStatistics>,
    #[serde(default)]
    partition_statistics: Vec<OldStatistics>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OldSnapshot {
    manifest_list: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OldStatistics {
    statistics_path: String,
}

/// Files that committed metadata referred to once. Incomplete by nature: what cannot be read proves nothing.
#[derive(Debug, Default)]
pub(super) struct OnceReferenced {
    files: PathSet,
}

impl OnceReferenced {
    pub(super) fn files(&self) -> &PathSet {
        &self.files
    }

    /// Searches for proof, as long as there are `lists` (unreferenced manifest lists of the listing) to explain.
    /// Names of content files found are noted in `progress`.
    pub(super) async fn search(
        table: &TableHandle,
        reachable: &Reachable,
        lists: &[ListedFile],
        progress: &mut WriterProgress,
    ) -> Result<Self> {
        let mut found = Self::default();
        let lists = lists.iter().filter(|l| !progress.is_past(&l.path));
        let explained = found.walk_metadata_log(table, lists).await?;
        found.follow(table, reachable, explained, progress).await?;
        Ok(found)
    }

    /// Goes back along metadata logs, newest first, until every list is explained or nothing more can be read. A metadata
    /// file older than all lists that are still to be explained cannot name them, so the walk ends there as well: lists of
    /// commits that failed are never explained, and must not cost a walk over the whole log each time.
    async fn walk_metadata_log(
        &mut self,
        table: &TableHandle,
        lists: impl Iterator<Item = &ListedFile>,
    ) -> Result<Vec<String>> {
        let mut unexplained = HashMap::new();
        for list in lists {
            let written_ms = list.last_modified_ms.unwrap_or(0).saturating_sub(CLOCK_SKEW_LIMIT_MS);
            unexplained.insert(Fingerprint::of_path(&list.path)?, written_ms);
        }
        let log = table.loaded.metadata.metadata_log().iter().rev();
        let mut queue: VecDeque<_> = log.map(|entry| (entry.metadata_file.clone(), entry.timestamp_ms)).collect();
        let (mut visited, mut explained) = (HashSet::new(), Vec::new());
        while let Some((path, timestamp_ms)) = queue.pop_front() {
            let too_old = unexplained.values().all(|written_ms| timestamp_ms < *written_ms);
            if too_old || visited.len() >= METADATA_FILES_MAX {
                break;
            }
            if !visited.insert(path.clone()) {
                continue;
            }
            self.files.insert(&path)?;
            let Some(old) = read_old_metadata(table, &path).await else { continue };
            for statistics in old.statistics.iter().chain(&old.partition_statistics) {
                self.files.insert(&statistics.statistics_path)?;
            }
            for snapshot in old.snapshots {
                let Some(list) = snapshot.manifest_list.filter(|l| !l.is_empty()) else { continue };
                if unexplained.remove(&Fingerprint::of_path(&list)?).is_some() {
                    explained.push(list);
                }
            }
            queue.extend(old.metadata_log.into_iter().rev().map(|entry| (entry.metadata_file, entry.timestamp_ms)));
        }
        Ok(explained)
    }

    /// Takes everything that these expired snapshots reach.
    async fn follow(
        &mut self,
        table: &TableHandle,
        reachable: &Reachable,
        lists: Vec<String>,
        progress: &mut WriterProgress,
    ) -> Result<()> {
        let mut manifests = Vec::new();
        let mut read = stream::iter(lists)
            .map(|list| {
                let store = table.store.clone();
                async move { (read_manifest_list_at(store.as_ref(), &list).await, list) }
            })
            .buffer_unordered(READS);
        while let Some((result, list)) = read.next().await {
            self.files.insert(&list)?;
            progress.note(&list);
            for manifest in result.map(|(manifests, _)| manifests).unwrap_or_default() {
                let path = &manifest.manifest_path;
                if !reachable.has_manifest(path)? && self.files.insert(path)? {
                    manifests.push(manifest);
                }
            }
        }
        drop(read);
        let mut read = paths_of(&table.store, manifests);
        while let Some(result) = read.next().await {
            for entry in result.map(|(_, entries)| entries).unwrap_or_default() {
                self.files.insert(&entry.file_path)?;
                progress.note(&entry.file_path);
            }
        }
        Ok(())
    }
}

/// An old metadata file of this table; `None` if it is gone or cannot be read.
async fn read_old_metadata(table: &TableHandle, path: &str) -> Option<OldMetadata> {
    let old: OldMetadata = read_metadata(table.store.as_ref(), path).await.ok()?;
    (old.table_uuid == Some(table.loaded.metadata.uuid())).then_some(old)
}
