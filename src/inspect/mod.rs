//! Catalog and manifests -> [`crate::table::TableState`] and [`TableStats`]. Reads only; bounded concurrency; manifests are
//! immutable, so each is read once and its summary kept.

/// A table's health in numbers, as metrics, `inspect` and the page show it.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct TableStats {
    /// Live data files of the current snapshot.
    pub data_files: u64,
    /// Their bytes.
    pub data_file_bytes: u64,
    /// Their rows (before deletes).
    pub data_records: u64,
    /// Data files smaller than the minimum file size of the policy.
    pub small_data_files: u64,
    /// Live position delete files (not deletion vectors).
    pub position_delete_files: u64,
    /// Live equality delete files.
    pub equality_delete_files: u64,
    /// Live deletion vectors.
    pub deletion_vectors: u64,
    /// Manifests with data files.
    pub data_manifests: u64,
    /// Manifests with delete files.
    pub delete_manifests: u64,
    /// Bytes of all manifests of the current snapshot.
    pub manifest_bytes: u64,
    /// Retained snapshots.
    pub snapshots: u64,
    /// Partitions with live data files.
    pub partitions: u64,
    /// Population standard deviation over mean of records per partition, as a ratio (1 = 100 %).
    pub partition_records_rsd_ratio: f64,
    /// The same of bytes per partition.
    pub partition_bytes_rsd_ratio: f64,
    /// Mean bytes per partition.
    pub partition_bytes_mean: f64,
    /// Content files (data, delete) reachable from any retained snapshot.
    pub all_files: u64,
    /// Their bytes.
    pub all_file_bytes: u64,
}
