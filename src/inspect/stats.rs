//! Manifest summaries -> statistics. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{ManifestContentType, ManifestFile, TableMetadata};

use super::TableStats;
use super::summary::{Counts, ManifestSummary};
use crate::table::PartitionTuple;
use crate::table::label::partition_label;

/// Data files of one partition of the current snapshot.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PartitionStats {
    /// The partition for people, such as `hour=2025-04-01 15`.
    pub partition: String,
    /// Its partition spec.
    pub spec_id: i32,
    /// Live data files.
    pub data_files: u64,
    /// Their bytes.
    pub data_file_bytes: u64,
    /// Their rows (before deletes).
    pub data_records: u64,
}

/// Adds up summaries, each manifest once, in any order.
#[derive(Debug)]
pub(super) struct StatsBuilder {
    min_file_size_bytes: u64,
    stats: TableStats,
    partitions: HashMap<Arc<PartitionTuple>, Counts>,
    seen: HashSet<[u64; 2]>,
}

impl StatsBuilder {
    pub(super) fn new(min_file_size_bytes: u64) -> Self {
        Self { min_file_size_bytes, stats: TableStats::default(), partitions: HashMap::new(), seen: HashSet::new() }
    }

    /// A manifest that some retained snapshot reaches. A file live in several manifests counts once.
    pub(super) fn add_reachable(&mut self, summary: &ManifestSummary) {
        for mark in summary.data_files.iter().chain(&summary.delete_files) {
            if self.seen.insert(mark.path_hash) {
                self.stats.all_files += 1;
                self.stats.all_file_bytes += mark.bytes;
            }
        }
    }

    /// A manifest of the current snapshot.
    pub(super) fn add_current(&mut self, manifest: &ManifestFile, summary: &ManifestSummary) {
        let stats = &mut self.stats;
        match manifest.content {
            ManifestContentType::Data => stats.data_manifests += 1,
            ManifestContentType::Deletes => stats.delete_manifests += 1,
        }
        stats.manifest_bytes += u64::try_from(manifest.manifest_length).unwrap_or(0);
        stats.data_files += summary.data_files.len() as u64;
        let small = summary.data_files.iter().filter(|mark| mark.bytes < self.min_file_size_bytes);
        stats.small_data_files += small.count() as u64;
        summary.data_files.iter().for_each(|mark| stats.size_histogram.add(mark.bytes));
        stats.position_delete_files += summary.position_delete_files;
        stats.equality_delete_files += summary.equality_delete_files;
        stats.deletion_vectors += summary.deletion_vectors;
        for (partition, counts) in &summary.partitions {
            stats.data_file_bytes += counts.bytes;
            stats.data_records += counts.records;
            match self.partitions.get_mut(partition) {
                Some(sum) => sum.add(*counts),
                None => {
                    self.partitions.insert(partition.clone(), *counts);
                }
            }
        }
    }

    pub(super) fn finish(self, snapshots: usize) -> TableStats {
        let of = |value: fn(&Counts) -> u64| self.partitions.values().map(value).collect::<Vec<_>>();
        let (records, bytes) = (of(|counts| counts.records), of(|counts| counts.bytes));
        TableStats {
            snapshots: snapshots as u64,
            partitions: self.partitions.len() as u64,
            partition_records_rsd_ratio: rsd_ratio(&records),
            partition_bytes_rsd_ratio: rsd_ratio(&bytes),
            partition_bytes_mean: mean(&bytes),
            ..self.stats
        }
    }

    /// Without the table's partition specs the partitions are labelled by their values alone.
    pub(super) fn largest_partitions(self, metadata: Option<&TableMetadata>, top: usize) -> Vec<PartitionStats> {
        let stats = |(partition, counts): (&Arc<PartitionTuple>, &Counts)| PartitionStats {
            partition: partition_label(metadata, partition),
            spec_id: partition.spec_id,
            data_files: counts.files,
            data_file_bytes: counts.bytes,
            data_records: counts.records,
        };
        let mut all: Vec<PartitionStats> = self.partitions.iter().map(stats).collect();
        let key = |p: &PartitionStats| (std::cmp::Reverse(p.data_file_bytes), p.spec_id);
        all.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.partition.cmp(&b.partition)));
        all.truncate(top);
        all
    }
}

/// Arithmetic mean; 0 of nothing.
fn mean(values: &[u64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    sum as f64 / values.len() as f64
}

/// Population standard deviation over mean; 0 of nothing, of one value and of zeros.
fn rsd_ratio(values: &[u64]) -> f64 {
    let mean = mean(values);
    if mean == 0.0 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum();
    (squares / values.len() as f64).sqrt() / mean
}
