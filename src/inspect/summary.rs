//! What statistics need to know of a manifest, in a few bytes per file.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::mem::size_of;
use std::sync::Arc;

use foldhash::quality::FixedState;
use iceberg::spec::{DataContentType, Literal, PrimitiveLiteral};

use crate::table::{FileEntry, PartitionTuple};

/// A file by its path's hash: two of 64 bits, so that among 10^9 files the odds of one being lost are 1 in 10^20.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileMark {
    pub(super) path_hash: [u64; 2],
    pub(super) bytes: u64,
}

/// Data files of one partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) records: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.records += other.records;
    }
}

/// The live entries of a manifest, summed up. Independent of table metadata and policies, so it never grows old.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ManifestSummary {
    pub(super) data_files: Vec<FileMark>,
    pub(super) delete_files: Vec<FileMark>,
    pub(super) partitions: Vec<(Arc<PartitionTuple>, Counts)>,
    pub(super) position_delete_files: u64,
    pub(super) equality_delete_files: u64,
    pub(super) deletion_vectors: u64,
}

impl ManifestSummary {
    pub(super) fn of<'a>(entries: impl IntoIterator<Item = &'a FileEntry>) -> Self {
        let mut summary = Self::default();
        let mut partitions: HashMap<&PartitionTuple, Counts> = HashMap::new();
        for entry in entries {
            let mark = FileMark { path_hash: path_hash(&entry.file_path), bytes: entry.file_size_bytes };
            match entry.content {
                DataContentType::Data => {
                    summary.data_files.push(mark);
                    let counts = Counts { files: 1, bytes: entry.file_size_bytes, records: entry.record_count };
                    partitions.entry(&entry.partition).or_default().add(counts);
                    continue;
                }
                DataContentType::EqualityDeletes => summary.equality_delete_files += 1,
                DataContentType::PositionDeletes if entry.is_deletion_vector() => summary.deletion_vectors += 1,
                DataContentType::PositionDeletes => summary.position_delete_files += 1,
            }
            summary.delete_files.push(mark);
        }
        let widened = |(partition, counts): (&PartitionTuple, Counts)| (Arc::new(widened(partition)), counts);
        summary.partitions = partitions.into_iter().map(widened).collect();
        summary.data_files.shrink_to_fit();
        summary.delete_files.shrink_to_fit();
        summary
    }

    /// Roughly the memory it takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        let marks = self.data_files.len() + self.delete_files.len();
        let per_partition = |(partition, _): &(Arc<PartitionTuple>, Counts)| {
            let text = |value: Option<&Literal>| match value {
                Some(Literal::Primitive(PrimitiveLiteral::String(text))) => text.len(),
                Some(Literal::Primitive(PrimitiveLiteral::Binary(bytes))) => bytes.len(),
                _ => 0,
            };
            let values = partition.values.iter().map(|value| size_of::<Option<Literal>>() + text(value)).sum::<usize>();
            size_of::<(Arc<PartitionTuple>, Counts)>() + size_of::<PartitionTuple>() + values
        };
        size_of::<Self>() + marks * size_of::<FileMark>() + self.partitions.iter().map(per_partition).sum::<usize>()
    }
}

fn path_hash(path: &str) -> [u64; 2] {
    [FixedState::with_seed(1).hash_one(path), FixedState::with_seed(2).hash_one(path)]
}

/// The partition with its values in their widest form: a summary made before a column's promotion (int to long, float to
/// double) and one made after it speak of the same partition.
fn widened(partition: &PartitionTuple) -> PartitionTuple {
    let widen = |value: Option<&Literal>| match value {
        Some(Literal::Primitive(PrimitiveLiteral::Int(v))) => Some(Literal::long(i64::from(*v))),
        Some(Literal::Primitive(PrimitiveLiteral::Float(v))) => Some(Literal::double(f64::from(v.into_inner()))),
        other => other.cloned(),
    };
    PartitionTuple { spec_id: partition.spec_id, values: partition.values.iter().map(widen).collect() }
}
