//! What a rewrite does to the live files and manifests of a head. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{DataContentType, FormatVersion, ManifestContentType, ManifestFile};

use super::StartSnapshot;
use super::revalidate::{is_global, output_partitions};
use crate::error::Result;
use crate::meta::write::number;
use crate::rewrite::RewriteResult;
use crate::table::delete_index::Nameable;
use crate::table::{FileEntry, PartitionValues, TableState};

/// The change to a head.
#[derive(Debug)]
pub(super) struct HeadChange {
    /// Paths whose entries become DELETED.
    pub(super) removed: HashSet<Arc<str>>,
    /// Replaced data files.
    pub(super) removed_data: Vec<Arc<FileEntry>>,
    /// Delete files that apply to nothing any more.
    pub(super) removed_deletes: Vec<Arc<FileEntry>>,
    /// Manifests to write anew.
    pub(super) spliced: Vec<ManifestFile>,
    /// Manifests that stay as they are.
    pub(super) carried: Vec<ManifestFile>,
    /// Manifests without live entries, which are left out.
    pub(super) dropped: usize,
}

/// Works out the change. `head` must have been found valid for `results`.
pub(super) fn plan_change(head: &TableState, start: &StartSnapshot, results: &[RewriteResult]) -> Result<HeadChange> {
    let removed_data: Vec<_> = results.iter().flat_map(|r| r.rewritten.iter().cloned()).collect();
    let removed_deletes = dangling_deletes(head, start, results);
    let removed: HashSet<Arc<str>> =
        removed_data.iter().chain(&removed_deletes).map(|file| file.file_path.clone()).collect();
    let mut live: HashMap<&str, usize> = HashMap::new();
    let mut touched: HashSet<&str> = HashSet::new();
    for file in head.data_files.iter().chain(&head.delete_files) {
        *live.entry(file.manifest_path.as_ref()).or_default() += 1;
        if removed.contains(&file.file_path) {
            touched.insert(file.manifest_path.as_ref());
        }
    }
    let counted = |m: &ManifestFile| {
        let counts = [m.added_files_count, m.existing_files_count, m.deleted_files_count];
        let rows = [m.added_rows_count, m.existing_rows_count, m.deleted_rows_count];
        counts.iter().all(Option::is_some) && rows.iter().all(Option::is_some)
    };
    // Lists of version 2 need counts that those of version 1 may lack.
    let needs_counts = head.loaded.metadata.format_version() != FormatVersion::V1;
    let merged = manifests_to_merge(head, &live, &touched)?;
    let (mut spliced, mut carried, mut dropped) = (Vec::new(), Vec::new(), 0);
    for manifest in &head.manifests {
        let path = manifest.manifest_path.as_str();
        if !live.contains_key(path) {
            dropped += 1;
        } else if touched.contains(path) || merged.contains(path) || (needs_counts && !counted(manifest)) {
            spliced.push(manifest.clone());
        } else {
            carried.push(manifest.clone());
        }
    }
    Ok(HeadChange { removed, removed_data, removed_deletes, spliced, carried, dropped })
}

/// Untouched manifests to write anew together with the touched ones, so that small ones do not pile up: what still fits the
/// target size beside touched ones of the same spec and content, or all small ones once they are as many as
/// `commit.manifest.min-count-to-merge`.
fn manifests_to_merge<'a>(
    head: &'a TableState,
    live: &HashMap<&str, usize>,
    touched: &HashSet<&str>,
) -> Result<HashSet<&'a str>> {
    #[derive(Default)]
    struct Group<'a> {
        touched_bytes: Option<u64>,
        small: Vec<(u64, &'a str)>,
    }
    let metadata = head.loaded.typed()?;
    let min_count = usize::try_from(number(metadata, "commit.manifest.min-count-to-merge", 100)?).unwrap_or(usize::MAX);
    let target = number(metadata, "commit.manifest.target-size-bytes", 8 << 20)?;
    if metadata.properties().get("commit.manifest-merge.enabled").is_some_and(|v| v.eq_ignore_ascii_case("false")) {
        return Ok(HashSet::new());
    }
    let mut groups: BTreeMap<(i32, bool), Group<'a>> = BTreeMap::new();
    for manifest in head.manifests.iter().filter(|m| live.contains_key(m.manifest_path.as_str())) {
        let (path, bytes) =
            (manifest.manifest_path.as_str(), u64::try_from(manifest.manifest_length).unwrap_or(u64::MAX));
        let deletes = manifest.content == ManifestContentType::Deletes;
        let group = groups.entry((manifest.partition_spec_id, deletes)).or_default();
        if touched.contains(path) {
            group.touched_bytes = Some(group.touched_bytes.unwrap_or(0).saturating_add(bytes));
        } else if bytes < target / 2 {
            group.small.push((bytes, path));
        }
    }
    let mut merged = HashSet::new();
    for mut group in groups.into_values() {
        if group.small.len() >= min_count.max(2) {
            merged.extend(group.small.iter().map(|(_, path)| *path));
        } else if let Some(mut total) = group.touched_bytes {
            group.small.sort_unstable();
            for (bytes, path) in group.small {
                total = total.saturating_add(bytes);
                if total > target {
                    break;
                }
                merged.insert(path);
            }
        }
    }
    Ok(merged)
}

/// Delete files that apply to no live data file once the rewrite is in. When in doubt a file is kept.
///
/// Position deletes apply to data of their own spec and partition with at most their sequence number, equality deletes to data
/// with a strictly smaller one: of their spec and partition, or of the whole table if their spec is unpartitioned. For equality
/// deletes outputs count with the sequence number of the start. No position delete can name an output, whose path nobody knew
/// before this commit, nor any other file that was added after the delete file.
fn dangling_deletes(head: &TableState, start: &StartSnapshot, results: &[RewriteResult]) -> Vec<Arc<FileEntry>> {
    if head.delete_files.is_empty() {
        return Vec::new();
    }
    let replaced: HashSet<&str> = results.iter().flat_map(|r| &r.rewritten).map(|f| f.file_path.as_ref()).collect();
    let mut by_path: HashMap<&str, i64> = HashMap::new();
    let mut by_partition: HashMap<(i32, &PartitionValues), i64> = HashMap::new();
    let mut named: HashMap<(i32, &PartitionValues), Nameable> = HashMap::new();
    let mut overall: Option<i64> = None;
    let stay = head.data_files.iter().filter(|f| !replaced.contains(f.file_path.as_ref()));
    for file in stay.clone() {
        named.entry((file.partition.spec_id, &file.partition.values)).or_default().add(file);
        by_path.insert(file.file_path.as_ref(), file.data_sequence_number);
    }
    let stay = stay.map(|f| (f.partition.spec_id, &f.partition.values, f.data_sequence_number));
    let outputs = output_partitions(results);
    let outputs = outputs.iter().map(|values| (start.default_spec_id, values, start.sequence_number));
    for (spec_id, values, sequence) in stay.chain(outputs) {
        by_partition.entry((spec_id, values)).and_modify(|min| *min = sequence.min(*min)).or_insert(sequence);
        overall = Some(overall.map_or(sequence, |min| min.min(sequence)));
    }
    let applies = |delete: &FileEntry| {
        let sequence = delete.data_sequence_number;
        let partition = (delete.partition.spec_id, &delete.partition.values);
        let of_partition = by_partition.get(&partition).copied();
        match delete.content {
            DataContentType::PositionDeletes => match &delete.referenced_data_file {
                Some(path) => by_path.get(path.as_ref()).is_some_and(|data| sequence >= *data),
                None => named.get(&partition).is_some_and(|files| files.may_be_named_by(delete)),
            },
            DataContentType::EqualityDeletes if is_global(head, delete.partition.spec_id) => {
                overall.is_some_and(|min| sequence > min)
            }
            DataContentType::EqualityDeletes => of_partition.is_some_and(|min| sequence > min),
            DataContentType::Data => true,
        }
    };
    // Entries leave by their path, so one that is live twice stays: which of the two is meant, nobody knows.
    let mut live: HashMap<&str, usize> = HashMap::with_capacity(head.delete_files.len());
    for file in head.data_files.iter().chain(&head.delete_files) {
        *live.entry(file.file_path.as_ref()).or_default() += 1;
    }
    let is_single = |file: &FileEntry| live.get(file.file_path.as_ref()) == Some(&1);
    // Deletion vectors are not handled by this version: they stay. So does what contradicts itself.
    let is_clear = |file: &FileEntry| !file.is_deletion_vector() && file.fault.is_none() && is_single(file);
    head.delete_files.iter().filter(|f| is_clear(f) && !applies(f)).cloned().collect()
}
