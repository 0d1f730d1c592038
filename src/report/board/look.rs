//! What one look at a table found, as far as it is shown.

use std::collections::HashMap;
use std::sync::Arc;

use super::view::{Sample, SizesView, SnapshotView};
use crate::inspect::{PartitionStats, TableStats};
use crate::policy::ResolvedPolicy;
use crate::run_id::{RunId, SUMMARY_RUN_ID};
use crate::table::LoadedTable;

/// Snapshots shown of a table.
const SNAPSHOTS_MAX: usize = 200;
/// Entries shown of a snapshot's summary, and characters of each.
const SUMMARY_MAX: (usize, usize) = (40, 256);

pub struct TableLook<'a> {
    pub stats: Arc<TableStats>,
    pub partitions: Vec<PartitionStats>,
    /// The size in bytes that compaction aims at.
    pub target_file_size_bytes: u64,
    pub loaded: &'a LoadedTable,
    /// What is wanted for it.
    pub policy: &'a ResolvedPolicy,
}

impl Sample {
    pub(super) fn of(stats: &TableStats, at_ms: i64) -> Self {
        Self {
            at_ms,
            data_files: stats.data_files,
            small_data_files: stats.small_data_files,
            delete_files: stats.delete_files(),
            manifests: stats.data_manifests + stats.delete_manifests,
            data_file_bytes: stats.data_file_bytes,
            all_files: stats.all_files,
        }
    }
}

impl SizesView {
    pub(super) fn of(look: &TableLook<'_>) -> Self {
        Self { target_bytes: look.target_file_size_bytes, buckets: look.stats.size_histogram }
    }
}

/// The newest snapshots, newest first.
pub(super) fn snapshots(loaded: &LoadedTable) -> Vec<SnapshotView> {
    let metadata = &loaded.metadata;
    let mut refs: HashMap<i64, Vec<String>> = HashMap::new();
    for (name, reference) in &loaded.refs {
        refs.entry(reference.snapshot_id).or_default().push(name.clone());
    }
    let mut snapshots: Vec<_> = metadata.snapshots().collect();
    snapshots.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.sequence_number(), snapshot.timestamp_ms())));
    let current = metadata.current_snapshot().map(|snapshot| snapshot.snapshot_id());
    let shown = snapshots.into_iter().take(SNAPSHOTS_MAX).map(|snapshot| {
        let summary = &snapshot.summary().additional_properties;
        let number = |key: &str| summary.get(key).and_then(|text| text.parse().ok());
        let mut entries: Vec<(&String, &String)> = summary.iter().collect();
        entries.sort_unstable();
        let cut = |text: &String| text.chars().take(SUMMARY_MAX.1).collect::<String>();
        let mut names = refs.remove(&snapshot.snapshot_id()).unwrap_or_default();
        names.sort_unstable();
        SnapshotView {
            snapshot_id: snapshot.snapshot_id().to_string(),
            parent_id: snapshot.parent_snapshot_id().map(|id| id.to_string()),
            sequence_number: snapshot.sequence_number(),
            timestamp_ms: snapshot.timestamp_ms(),
            operation: snapshot.summary().operation.as_str().to_owned(),
            run_id: summary.get(SUMMARY_RUN_ID).and_then(|id| id.parse::<RunId>().ok()).map(|id| id.to_string()),
            current: current == Some(snapshot.snapshot_id()),
            refs: names,
            total_data_files: number("total-data-files"),
            total_delete_files: number("total-delete-files"),
            summary: entries.into_iter().take(SUMMARY_MAX.0).map(|(key, value)| (cut(key), cut(value))).collect(),
        }
    });
    shown.collect()
}
