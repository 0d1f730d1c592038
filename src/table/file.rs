//! A live file of a snapshot, with just what planning, rewriting and metrics need.

use std::sync::Arc;

use iceberg::spec::{DataContentType, DataFileFormat, Struct};

/// A partition: the spec and the values, typed by the table's current partition type of that spec,
/// so that values written before a type promotion compare equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionTuple {
    /// Partition spec id.
    pub spec_id: i32,
    /// One value per partition field.
    pub values: Struct,
}

/// A live data or delete file.
#[derive(Debug, Clone)]
pub struct FileEntry {
    /// Data, position deletes (also deletion vectors) or equality deletes.
    pub content: DataContentType,
    /// Path, verbatim.
    pub file_path: Arc<str>,
    /// Format.
    pub file_format: DataFileFormat,
    /// Spec and partition values; shared between entries of one partition.
    pub partition: Arc<PartitionTuple>,
    /// Rows.
    pub record_count: u64,
    /// Bytes.
    pub file_size_bytes: u64,
    /// Data sequence number, inherited if the manifest left it out; 0 in version 1 tables.
    pub data_sequence_number: i64,
    /// File sequence number, likewise.
    pub file_sequence_number: Option<i64>,
    /// The snapshot that added the file.
    pub snapshot_id: i64,
    /// Field ids of an equality delete file.
    pub equality_ids: Vec<i32>,
    /// The one data file a position delete file or deletion vector applies to, if the entry says so
    /// (`referenced_data_file`, or equal bounds of the path column 2147483546).
    pub referenced_data_file: Option<Arc<str>>,
    /// Offset of a deletion vector's blob.
    pub content_offset: Option<i64>,
    /// Length of a deletion vector's blob.
    pub content_size_bytes: Option<i64>,
    /// Sort order id.
    pub sort_order_id: Option<i32>,
    /// First row id (format version 3), inherited if the manifest left it out.
    pub first_row_id: Option<i64>,
    /// Whether the entry carries encryption key metadata.
    pub encrypted: bool,
    /// Path of the manifest holding the entry; shared.
    pub manifest_path: Arc<str>,
}

impl FileEntry {
    /// A deletion vector lives as a blob in a Puffin file.
    pub fn is_deletion_vector(&self) -> bool {
        self.content == DataContentType::PositionDeletes && self.file_format == DataFileFormat::Puffin
    }
}
