//! Which delete file applies to which data file: the rules of the table specification ("Scan Planning"), and nothing else.
//!
//! | delete | applies to data files | whose data sequence number is |
//! |---|---|---|
//! | equality, of an unpartitioned spec (no fields, or void ones only) | anywhere in the table | less than its own |
//! | equality, of any other spec | of the same spec and partition | less than its own |
//! | position, naming one file | of that path | at most its own |
//! | position, other | of the same spec and partition | at most its own |
//! | deletion vector | of that path, where it replaces all position deletes | at most its own, else the table is invalid |
//!
//! Planning, commits and rewrites all ask here; only the check of a finished plan has the rules once more, on purpose. What
//! must be read asks for exactly these rules, what may leave the table or forbids a commit asks [`DeleteTargets`], which says
//! yes in doubt: some readers compare partition values without the spec.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{DataContentType, TableMetadata};

use super::{FileEntry, PartitionTuple, PartitionValues};

/// The data files that a delete file is for, of whatever sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteScope<'a> {
    /// All; also in doubt, of an entry that contradicts the specification.
    Table,
    /// Those of one partition of one spec.
    Partition(&'a Arc<PartitionTuple>),
    /// The one of this path.
    DataFile(&'a Arc<str>),
}

impl<'a> DeleteScope<'a> {
    /// The scope of a delete file of a table with this metadata.
    pub fn of(delete: &'a FileEntry, metadata: &TableMetadata) -> Self {
        let spec = metadata.partition_spec_by_id(delete.partition.spec_id);
        match (spec, delete.content, &delete.referenced_data_file) {
            (Some(_), DataContentType::PositionDeletes, Some(path)) => Self::DataFile(path),
            (Some(_), DataContentType::PositionDeletes, None) if !delete.is_deletion_vector() => {
                Self::Partition(&delete.partition)
            }
            (Some(spec), DataContentType::EqualityDeletes, _) if !spec.is_unpartitioned() => {
                Self::Partition(&delete.partition)
            }
            _ => Self::Table,
        }
    }
}

/// Whether a delete file applies to the data files of its scope that have this data sequence number.
pub fn applies_by_sequence(delete: &FileEntry, data_sequence: i64) -> bool {
    match delete.content {
        DataContentType::EqualityDeletes => data_sequence < delete.data_sequence_number,
        DataContentType::PositionDeletes | DataContentType::Data => data_sequence <= delete.data_sequence_number,
    }
}

/// Whether a delete file that applies by sequence number can hold anything about the data file. A position delete file was
/// written for files that were in the table then, and a file added by a later snapshot (which its file sequence number tells,
/// whatever older data sequence number a rewrite gave it) has a path that no one knew. Unknown numbers count as possible.
pub fn may_hold_rows_of(delete: &FileEntry, file: &FileEntry) -> bool {
    added_at(file) <= last_known(delete)
}

/// In place of the file sequence number of a file that the next commit adds: its path is in no delete file.
const NOT_ADDED_YET: i64 = i64::MAX;

fn added_at(file: &FileEntry) -> i64 {
    file.file_sequence_number.unwrap_or(i64::MIN)
}

/// The file sequence number of the newest data files that the delete file may hold something about.
fn last_known(delete: &FileEntry) -> i64 {
    match (delete.content, &delete.referenced_data_file) {
        (DataContentType::PositionDeletes, None) => delete.file_sequence_number.unwrap_or(NOT_ADDED_YET - 1),
        _ => NOT_ADDED_YET,
    }
}

/// Data files by what delete files can reach of them, for asking whether one may reach any.
#[derive(Debug, Default)]
pub struct DeleteTargets<'a> {
    /// The paths that delete files name; no other is kept.
    named: HashSet<&'a str>,
    /// The least data sequence number.
    oldest: Option<i64>,
    by_values: HashMap<&'a PartitionValues, SequenceNumbers>,
    /// Data sequence numbers.
    by_path: HashMap<&'a str, i64>,
}

impl<'a> DeleteTargets<'a> {
    /// No data files yet; only of `delete_files` may be asked whether they reach any.
    pub fn of_deletes(delete_files: impl IntoIterator<Item = &'a Arc<FileEntry>>) -> Self {
        let named = delete_files.into_iter().filter_map(|delete| delete.referenced_data_file.as_deref()).collect();
        Self { named, ..Self::default() }
    }

    /// A data file of the table.
    pub fn add(&mut self, file: &'a FileEntry) {
        let sequence = file.data_sequence_number;
        self.add_numbers(&file.partition.values, sequence, added_at(file));
        if self.named.contains(&*file.file_path) {
            self.by_path.entry(&file.file_path).and_modify(|old| *old = sequence.min(*old)).or_insert(sequence);
        }
    }

    /// A file that the next commit adds to this partition with this data sequence number.
    pub fn add_output(&mut self, values: &'a PartitionValues, data_sequence: i64) {
        self.add_numbers(values, data_sequence, NOT_ADDED_YET);
    }

    fn add_numbers(&mut self, values: &'a PartitionValues, data: i64, added: i64) {
        self.oldest = Some(self.oldest.map_or(data, |old| old.min(data)));
        self.by_values.entry(values).or_default().add(data, added);
    }

    /// Whether a delete file may hold something about any of the data files, whichever way a reader matches partitions: data
    /// files with equal partition values count, be they of another spec.
    pub fn may_be_hit_by(&self, delete: &FileEntry, metadata: &TableMetadata) -> bool {
        let hits = |data: i64| applies_by_sequence(delete, data);
        match DeleteScope::of(delete, metadata) {
            DeleteScope::Table if delete.content == DataContentType::EqualityDeletes => self.oldest.is_some_and(hits),
            DeleteScope::Table => self.oldest.is_some(),
            DeleteScope::Partition(partition) => {
                let known = last_known(delete);
                let files = self.by_values.get(&partition.values);
                files.is_some_and(|files| files.0.iter().any(|(data, added)| hits(*data) && *added <= known))
            }
            DeleteScope::DataFile(path) => {
                let data = self.by_path.get(&**path);
                data.is_some_and(|data| delete.is_deletion_vector() || hits(*data))
            }
        }
    }
}

/// Data and file sequence numbers of data files, of which none is at most another in both.
#[derive(Debug, Default)]
struct SequenceNumbers(Vec<(i64, i64)>);

impl SequenceNumbers {
    fn add(&mut self, data: i64, added: i64) {
        if !self.0.iter().any(|(old_data, old_added)| *old_data <= data && *old_added <= added) {
            self.0.retain(|(old_data, old_added)| *old_data < data || *old_added < added);
            self.0.push((data, added));
        }
    }
}

/// The delete files that may leave the table in a commit after which `data_files` are all data files that were in it before,
/// and which adds `outputs` (partition and data sequence number): they can hold nothing about any of these.
///
/// A deletion vector stays, since this version writes none; so does an entry that contradicts itself; and a path that is live
/// twice, since entries leave by their path and nobody knows which of the two is meant.
pub fn without_target<'a>(
    metadata: &TableMetadata,
    data_files: impl IntoIterator<Item = &'a Arc<FileEntry>>,
    outputs: impl IntoIterator<Item = (&'a PartitionValues, i64)>,
    delete_files: &'a [Arc<FileEntry>],
) -> Vec<Arc<FileEntry>> {
    if delete_files.is_empty() {
        return Vec::new();
    }
    let mut live: HashMap<&str, usize> = HashMap::with_capacity(delete_files.len());
    delete_files.iter().for_each(|delete| *live.entry(&delete.file_path).or_default() += 1);
    let mut targets = DeleteTargets::of_deletes(delete_files);
    for file in data_files {
        targets.add(file);
        if let Some(times) = live.get_mut(&*file.file_path) {
            *times += 1;
        }
    }
    outputs.into_iter().for_each(|(values, data_sequence)| targets.add_output(values, data_sequence));
    let is_single = |file: &FileEntry| live.get(&*file.file_path) == Some(&1);
    let is_clear = |file: &FileEntry| !file.is_deletion_vector() && file.fault.is_none() && is_single(file);
    delete_files.iter().filter(|file| is_clear(file) && !targets.may_be_hit_by(file, metadata)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::builder::{file_entry, table_of_four_specs};

    fn file(data: i64, added: Option<i64>) -> FileEntry {
        FileEntry { data_sequence_number: data, file_sequence_number: added, ..file_entry("f", 1, 1) }
    }

    /// The delete file was compacted: it keeps the number 3 of what it was made of, and was added at 6.
    #[test]
    fn a_delete_file_names_a_file_only_if_both_numbers_of_that_one_file_allow_it() {
        let (loaded, content) = (table_of_four_specs(), DataContentType::PositionDeletes);
        let metadata = loaded.typed().expect("readable");
        let named_by = |delete: &FileEntry, files: &[(i64, Option<i64>)]| {
            let files: Vec<_> = files.iter().map(|(data, added)| file(*data, *added)).collect();
            let mut targets = DeleteTargets::default();
            targets.add_output(&delete.partition.values, 1);
            files.iter().for_each(|file| targets.add(file));
            targets.may_be_hit_by(delete, metadata)
        };
        let delete = FileEntry { content, ..file(3, Some(6)) };
        let named = |files| named_by(&delete, files);
        assert!(!named(&[(2, Some(9))]), "compacted later");
        assert!(!named(&[(5, Some(5))]), "newer than the deletes");
        assert!(!named(&[(2, Some(9)), (5, Some(5))]), "neither of the two");
        assert!(named(&[(2, Some(9)), (5, Some(5)), (3, Some(6))]));
        assert!(named(&[(2, None)]), "nobody knows when it was added");
        let unknown = FileEntry { content, ..file(3, None) };
        assert!(named_by(&unknown, &[(2, Some(9))]), "nobody knows when the deletes were added");
        assert!(!named_by(&unknown, &[]), "but an output has a path that nobody knew");
    }
}
