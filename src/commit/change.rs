//! What a rewrite does to the live files and manifests of a head. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{FormatVersion, ManifestContentType, ManifestFile};

use super::StartSnapshot;
use super::revalidate::output_partitions;
use crate::error::Result;
use crate::meta::write::number;
use crate::rewrite::RewriteResult;
use crate::table::delete_rule::without_target;
use crate::table::{FileEntry, TableState};

#[derive(Debug)]
pub(super) struct HeadChange {
    /// Paths whose entries become DELETED.
    pub(super) removed: HashSet<Arc<str>>,
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
    let replaced: HashSet<&str> = removed_data.iter().map(|f| f.file_path.as_ref()).collect();
    let stay = head.data_files.iter().filter(|f| !replaced.contains(f.file_path.as_ref()));
    let outputs = output_partitions(results);
    let outputs = outputs.iter().map(|values| (values, start.sequence_number));
    let removed_deletes = without_target(head.loaded.typed()?, stay, outputs, &head.delete_files);
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
