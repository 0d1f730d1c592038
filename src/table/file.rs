//! A live file of a snapshot, with just what planning, rewriting and metrics need.

use std::sync::Arc;

use iceberg::spec::{DataContentType, DataFileFormat};

use crate::table::PartitionValues;

/// A partition: the spec and the values, typed by the table's current partition type of that spec,
/// so that values written before a type promotion compare equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionTuple {
    pub spec_id: i32,
    pub values: PartitionValues,
}

#[derive(Debug, Clone)]
pub struct FileEntry {
    /// Data, position deletes (also deletion vectors) or equality deletes.
    pub content: DataContentType,
    pub file_path: Arc<str>,
    /// Format; `None` if this version does not know it.
    pub file_format: Option<DataFileFormat>,
    /// Spec and partition values; shared between entries of one partition.
    pub partition: Arc<PartitionTuple>,
    pub record_count: u64,
    pub file_size_bytes: u64,
    /// Data sequence number, inherited if the manifest left it out; 0 in version 1 tables.
    pub data_sequence_number: i64,
    /// File sequence number, likewise.
    pub file_sequence_number: Option<i64>,
    pub snapshot_id: i64,
    pub equality_ids: Vec<i32>,
    /// The one data file a position delete file or deletion vector applies to, if that is certain: the entry names it, or
    /// [`crate::table::name_referenced_files`] found it by `path_bound`.
    pub referenced_data_file: Option<Arc<str>>,
    /// The bound of the path column (2147483546) of a position delete file, if the lower and the upper one are equal. It may be
    /// the beginning of several paths: some writers cut both bounds.
    pub path_bound: Option<Arc<str>>,
    pub content_offset: Option<i64>,
    pub content_size_bytes: Option<i64>,
    pub sort_order_id: Option<i32>,
    /// First row id (format version 3), inherited if the manifest left it out.
    pub first_row_id: Option<i64>,
    /// Whether the entry carries encryption key metadata.
    pub encrypted: bool,
    /// How the entry contradicts the specification, if it does: its rows and bytes may be unknown then, and count as 0.
    pub fault: Option<Arc<str>>,
    /// Path of the manifest holding the entry; shared.
    pub manifest_path: Arc<str>,
}

impl FileEntry {
    /// A Parquet data file of which no manifest tells yet.
    pub fn unlisted(path: &str, partition: PartitionTuple, record_count: u64, file_size_bytes: u64) -> Self {
        Self {
            content: DataContentType::Data,
            file_path: path.into(),
            file_format: Some(DataFileFormat::Parquet),
            partition: Arc::new(partition),
            record_count,
            file_size_bytes,
            data_sequence_number: 0,
            file_sequence_number: None,
            snapshot_id: 0,
            equality_ids: Vec::new(),
            referenced_data_file: None,
            path_bound: None,
            content_offset: None,
            content_size_bytes: None,
            sort_order_id: None,
            first_row_id: None,
            encrypted: false,
            fault: None,
            manifest_path: "".into(),
        }
    }

    /// A deletion vector lives as a blob in a Puffin file.
    pub fn is_deletion_vector(&self) -> bool {
        self.content == DataContentType::PositionDeletes && self.file_format == Some(DataFileFormat::Puffin)
    }
}

/// Names the data file of position delete files whose entries tell it only by the bounds of their paths.
///
/// Equal bounds are the whole path, or the same beginning of several paths if the writer cut both. So the file is named only
/// where a live data file has just that path and no other one begins with it; any other delete file stays one for its whole
/// partition, which is right for either.
pub fn name_referenced_files(data_files: &[Arc<FileEntry>], delete_files: &mut [Arc<FileEntry>]) {
    let unnamed = |delete: &FileEntry| delete.referenced_data_file.is_none() && delete.path_bound.is_some();
    if !delete_files.iter().any(|delete| unnamed(delete)) {
        return;
    }
    let mut paths: Vec<&str> = data_files.iter().map(|file| &*file.file_path).collect();
    paths.sort_unstable();
    paths.dedup();
    for delete in delete_files.iter_mut().filter(|delete| unnamed(delete)) {
        let Some(bound) = delete.path_bound.clone() else { continue };
        let from = paths.partition_point(|path| *path < &*bound);
        let mut candidates = paths[from..].iter().take_while(|path| path.starts_with(&*bound));
        if candidates.next().is_some_and(|path| **path == *bound) && candidates.next().is_none() {
            Arc::make_mut(delete).referenced_data_file = Some(bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::builder::file_entry;

    /// What a position delete file with equal bounds `bound` is found to reference among data files at `live`.
    fn named(live: &[&str], bound: &str) -> Option<String> {
        let data: Vec<_> = live.iter().map(|path| Arc::new(file_entry(path, 1, 1))).collect();
        let content = DataContentType::PositionDeletes;
        let delete = FileEntry { content, path_bound: Some(bound.into()), ..file_entry("d", 1, 1) };
        let mut deletes = vec![Arc::new(delete)];
        name_referenced_files(&data, &mut deletes);
        deletes[0].referenced_data_file.as_deref().map(str::to_owned)
    }

    #[test]
    fn equal_path_bounds_name_a_data_file_only_if_they_cannot_have_been_cut() {
        let whole = "s3://b/x.parquet";
        assert_eq!(named(&["s3://b/a.parquet", whole, "s3://b/y.parquet"], whole).as_deref(), Some(whole));
        assert_eq!(named(&["s3://b/x.parquet/1.parquet", "s3://b/x.parquet/2.parquet"], whole), None, "a cut path");
        assert_eq!(named(&[whole, "s3://b/x.parquet/2.parquet"], whole), None, "it may be cut");
        assert_eq!(named(&["s3://b/x.parquet/1.parquet"], whole), None, "cut, of one path");
        assert_eq!(named(&["s3://b/y.parquet"], whole), None, "the file may have left");
        assert_eq!(named(&[whole, whole], whole).as_deref(), Some(whole), "a path that is live twice is one path");
    }
}
