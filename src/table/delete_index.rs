//! Which delete files apply to which data file: the rules of the table specification ("Scan Planning"), and nothing else.
//!
//! | delete | applies to data files | whose data sequence number is |
//! |---|---|---|
//! | equality, of an unpartitioned spec (no fields, or void ones only) | anywhere in the table | less than its own |
//! | equality, of any other spec | of the same spec and partition | less than its own |
//! | position, naming one file | of that path | at most its own |
//! | position, other | of the same spec and partition | at most its own |
//! | deletion vector | of that path, where it replaces all position deletes | at most its own, else the table is invalid |
//!
//! Key ranges are not compared (entries hold no bounds), so an equality delete may be listed that matches no row.
//!
//! For each scope the deletes lie in one list, sorted by sequence number, and what applies to a data file is always the
//! end of such a list. [`ApplicableDeletes`] therefore only notes where in the shared list it starts: a table with as many
//! deletes as data files in a partition needs memory for their sum, not for their product.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::iter::FlatMap;
use std::slice::Iter;
use std::sync::Arc;

use iceberg::spec::{DataContentType, TableMetadata};

use crate::error::{Error, Result};
use crate::table::{FileEntry, PartitionTuple, PartitionValues};

type Shared = Arc<[Arc<FileEntry>]>;

/// The delete files that apply to one data file: ends of lists that are shared with other data files. Cheap to clone.
/// In order: global equality deletes, equality deletes of the partition, then position deletes or the deletion vector;
/// within each by sequence number.
#[derive(Clone, Default)]
pub struct ApplicableDeletes {
    runs: Vec<Run>,
}

/// The end of a list of delete files that is shared between data files; never empty.
#[derive(Clone)]
pub struct Run {
    files: Shared,
    from: usize,
    /// Whether all of them name their data file.
    file_scoped: bool,
}

impl Run {
    fn files(&self) -> &[Arc<FileEntry>] {
        self.files.get(self.from..).unwrap_or_default()
    }
}

impl ApplicableDeletes {
    /// How many delete files there are.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.files().len()).sum()
    }

    /// Whether nothing is deleted from the data file.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The delete files.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<FileEntry>> + '_ {
        self.into_iter()
    }

    /// The highest data sequence number among them.
    pub fn max_sequence_number(&self) -> Option<i64> {
        self.runs.iter().filter_map(|run| run.files().last()).map(|file| file.data_sequence_number).max()
    }

    /// Those that name the one data file they are for (deletion vectors, position deletes with a referenced data file):
    /// only their rows can be counted against that file's.
    pub fn file_scoped(&self) -> impl Iterator<Item = &Arc<FileEntry>> + '_ {
        self.runs.iter().filter(|run| run.file_scoped).flat_map(|run| run.files())
    }

    fn push(&mut self, files: &Shared, from: usize, file_scoped: bool) {
        if from < files.len() {
            self.runs.push(Run { files: files.clone(), from, file_scoped });
        }
    }
}

impl<'a> IntoIterator for &'a ApplicableDeletes {
    type Item = &'a Arc<FileEntry>;
    type IntoIter = FlatMap<Iter<'a, Run>, Iter<'a, Arc<FileEntry>>, fn(&'a Run) -> Iter<'a, Arc<FileEntry>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.iter().flat_map(|run| run.files().iter())
    }
}

impl From<Vec<Arc<FileEntry>>> for ApplicableDeletes {
    fn from(files: Vec<Arc<FileEntry>>) -> Self {
        let (named, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.referenced_data_file.is_some());
        let mut deletes = Self::default();
        deletes.push(&sorted(others), 0, false);
        deletes.push(&sorted(named), 0, true);
        deletes
    }
}

impl FromIterator<Arc<FileEntry>> for ApplicableDeletes {
    fn from_iter<I: IntoIterator<Item = Arc<FileEntry>>>(files: I) -> Self {
        files.into_iter().collect::<Vec<_>>().into()
    }
}

impl fmt::Debug for ApplicableDeletes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|file| &file.file_path)).finish()
    }
}

/// Whether a delete file that applies by sequence number can hold anything about the data file. A position delete file was
/// written for files that were in the table then, and a file added by a later snapshot (which its file sequence number tells,
/// whatever older data sequence number a rewrite gave it) has a path that no one knew. Unknown numbers count as possible.
pub fn may_hold_rows_of(delete: &FileEntry, file: &FileEntry) -> bool {
    let by_partition = delete.content == DataContentType::PositionDeletes && delete.referenced_data_file.is_none();
    match (by_partition, file.file_sequence_number, delete.file_sequence_number) {
        (true, Some(added), Some(deleted)) => added <= deleted,
        _ => true,
    }
}

/// The delete files of a snapshot, by scope.
#[derive(Debug, Default)]
pub struct DeleteIndex {
    global_equality: Option<Shared>,
    equality: HashMap<Arc<PartitionTuple>, Shared>,
    positions: HashMap<Arc<PartitionTuple>, Shared>,
    positions_by_path: HashMap<Arc<str>, Shared>,
    vectors: HashMap<Arc<str>, Shared>,
}

impl DeleteIndex {
    /// Indexes the live delete files of one snapshot.
    ///
    /// [`crate::error::ErrorKind::DataInvalid`] for two deletion vectors of one data file, a vector that names no file, an
    /// equality delete without field ids, a spec the metadata does not hold, or a data file among the deletes.
    pub fn build(metadata: &TableMetadata, delete_files: &[Arc<FileEntry>]) -> Result<Self> {
        let unpartitioned = unpartitioned_specs(metadata);
        let mut global = Vec::new();
        let mut equality: HashMap<Arc<PartitionTuple>, Vec<Arc<FileEntry>>> = HashMap::new();
        let mut positions: HashMap<Arc<PartitionTuple>, Vec<Arc<FileEntry>>> = HashMap::new();
        let mut by_path: HashMap<Arc<str>, Vec<Arc<FileEntry>>> = HashMap::new();
        let mut vectors: HashMap<Arc<str>, Shared> = HashMap::new();
        for delete in delete_files {
            if metadata.partition_spec_by_id(delete.partition.spec_id).is_none() {
                return Err(unknown_spec(delete));
            }
            match (delete.content, &delete.referenced_data_file) {
                (DataContentType::Data, _) => {
                    return Err(Error::invalid(format!("{} is a data file in a delete manifest", delete.file_path)));
                }
                (DataContentType::EqualityDeletes, _) if delete.equality_ids.is_empty() => {
                    return Err(Error::invalid(format!("equality delete file {} has no field ids", delete.file_path)));
                }
                (DataContentType::EqualityDeletes, _) if unpartitioned.contains(&delete.partition.spec_id) => {
                    global.push(delete.clone());
                }
                (DataContentType::EqualityDeletes, _) => {
                    equality.entry(delete.partition.clone()).or_default().push(delete.clone());
                }
                (DataContentType::PositionDeletes, Some(path)) if delete.is_deletion_vector() => {
                    if vectors.insert(path.clone(), Arc::from([delete.clone()])).is_some() {
                        return Err(Error::invalid(format!("data file {path} has two deletion vectors")));
                    }
                }
                (DataContentType::PositionDeletes, None) if delete.is_deletion_vector() => {
                    return Err(Error::invalid(format!("deletion vector in {} names no data file", delete.file_path)));
                }
                (DataContentType::PositionDeletes, Some(path)) => {
                    by_path.entry(path.clone()).or_default().push(delete.clone());
                }
                (DataContentType::PositionDeletes, None) => {
                    positions.entry(delete.partition.clone()).or_default().push(delete.clone());
                }
            }
        }
        Ok(Self {
            global_equality: (!global.is_empty()).then(|| sorted(global)),
            equality: equality.into_iter().map(|(key, files)| (key, sorted(files))).collect(),
            positions: positions.into_iter().map(|(key, files)| (key, sorted(files))).collect(),
            positions_by_path: by_path.into_iter().map(|(key, files)| (key, sorted(files))).collect(),
            vectors,
        })
    }

    /// The delete files that apply to `file`.
    ///
    /// [`crate::error::ErrorKind::DataInvalid`] if a deletion vector is older than its data file, or if a delete that names
    /// the file lies in another partition: readers disagree about what that means.
    pub fn for_data_file(&self, file: &FileEntry) -> Result<ApplicableDeletes> {
        let mut deletes = ApplicableDeletes::default();
        let sequence = file.data_sequence_number;
        for list in self.global_equality.iter().chain(self.equality.get(&file.partition)) {
            deletes.push(list, list.partition_point(|delete| delete.data_sequence_number <= sequence), false);
        }
        if let Some(vector) = self.vectors.get(&file.file_path) {
            if vector.iter().any(|v| v.data_sequence_number < sequence) {
                return Err(Error::invalid(format!(
                    "the deletion vector of data file {} is older than the file (sequence number {sequence})",
                    file.file_path
                )));
            }
            same_partition(vector, file)?;
            deletes.push(vector, 0, true);
            return Ok(deletes);
        }
        if let Some(list) = self.positions.get(&file.partition) {
            deletes.push(list, list.partition_point(|delete| delete.data_sequence_number < sequence), false);
        }
        if let Some(list) = self.positions_by_path.get(&file.file_path) {
            let from = list.partition_point(|delete| delete.data_sequence_number < sequence);
            same_partition(list.get(from..).unwrap_or_default(), file)?;
            deletes.push(list, from, true);
        }
        Ok(deletes)
    }
}

/// The delete files that can hold nothing about any of `data_files`, whichever way a reader matches partitions: an equality
/// delete or a position delete counts as needed if a data file with equal partition values is old enough, be it of another
/// spec. They may leave the table in a commit after which `data_files` are its only data files.
///
/// New files of that commit have to be among them, with the file sequence number that the commit will give them (or `None`,
/// which keeps more): it proves that the position deletes of the planning snapshot, though not older than the new files by
/// data sequence number, do not name them.
pub fn without_target<'a>(
    metadata: &TableMetadata,
    data_files: impl IntoIterator<Item = &'a Arc<FileEntry>>,
    delete_files: &[Arc<FileEntry>],
) -> Vec<Arc<FileEntry>> {
    if delete_files.is_empty() {
        return Vec::new();
    }
    let targets = Targets::new(data_files, delete_files);
    let unpartitioned = unpartitioned_specs(metadata);
    delete_files.iter().filter(|delete| !targets.has(delete, &unpartitioned)).cloned().collect()
}

/// Which data files of a partition its position delete files may name: data and file sequence numbers, of which none is at
/// most another in both. A file sequence number that is unknown counts as one that may.
#[derive(Debug, Default)]
pub(crate) struct Nameable(Vec<(i64, i64)>);

impl Nameable {
    pub(crate) fn add(&mut self, file: &FileEntry) {
        let (sequence, added) = (file.data_sequence_number, file.file_sequence_number.unwrap_or(i64::MIN));
        if !self.0.iter().any(|(data, file)| *data <= sequence && *file <= added) {
            self.0.retain(|(data, file)| *data < sequence || *file < added);
            self.0.push((sequence, added));
        }
    }

    /// See [`may_hold_rows_of`].
    pub(crate) fn may_be_named_by(&self, delete: &FileEntry) -> bool {
        let deleted = delete.file_sequence_number.unwrap_or(i64::MAX);
        self.0.iter().any(|(data, added)| *data <= delete.data_sequence_number && *added <= deleted)
    }
}

/// The oldest data files by what deletes can reach.
#[derive(Default)]
struct Targets<'a> {
    oldest: Option<i64>,
    /// By partition values: least data sequence number.
    by_values: HashMap<&'a PartitionValues, i64>,
    added_by_values: HashMap<&'a PartitionValues, Nameable>,
    by_path: HashMap<&'a str, i64>,
}

impl<'a> Targets<'a> {
    fn new(data_files: impl IntoIterator<Item = &'a Arc<FileEntry>>, delete_files: &[Arc<FileEntry>]) -> Self {
        let named: HashSet<&str> = delete_files.iter().filter_map(|d| d.referenced_data_file.as_deref()).collect();
        let mut targets = Self::default();
        for file in data_files {
            let sequence = file.data_sequence_number;
            let values = &file.partition.values;
            targets.oldest = Some(targets.oldest.map_or(sequence, |old| old.min(sequence)));
            targets.by_values.entry(values).and_modify(|old| *old = sequence.min(*old)).or_insert(sequence);
            targets.added_by_values.entry(values).or_default().add(file);
            if named.contains(&*file.file_path) {
                targets.by_path.entry(&file.file_path).and_modify(|old| *old = sequence.min(*old)).or_insert(sequence);
            }
        }
        targets
    }

    fn has(&self, delete: &FileEntry, unpartitioned: &HashSet<i32>) -> bool {
        let sequence = delete.data_sequence_number;
        let values = &delete.partition.values;
        match (delete.content, delete.referenced_data_file.as_deref()) {
            (DataContentType::PositionDeletes, Some(path)) if delete.is_deletion_vector() => {
                self.by_path.contains_key(path)
            }
            (DataContentType::PositionDeletes, Some(path)) => self.by_path.get(path).is_some_and(|s| *s <= sequence),
            (DataContentType::PositionDeletes, None) => {
                self.added_by_values.get(values).is_some_and(|all| all.may_be_named_by(delete))
            }
            _ if unpartitioned.contains(&delete.partition.spec_id) => self.oldest.is_some_and(|s| s < sequence),
            _ => self.by_values.get(values).is_some_and(|s| *s < sequence),
        }
    }
}

fn unpartitioned_specs(metadata: &TableMetadata) -> HashSet<i32> {
    metadata.partition_specs_iter().filter(|spec| spec.is_unpartitioned()).map(|spec| spec.spec_id()).collect()
}

fn sorted(mut files: Vec<Arc<FileEntry>>) -> Shared {
    files.sort_by(|a, b| {
        let key = |file: &FileEntry| (file.data_sequence_number, file.content_offset);
        key(a).cmp(&key(b)).then_with(|| a.file_path.cmp(&b.file_path))
    });
    files.into()
}

fn same_partition(deletes: &[Arc<FileEntry>], file: &FileEntry) -> Result<()> {
    let stray = deletes
        .iter()
        .find(|delete| !Arc::ptr_eq(&delete.partition, &file.partition) && delete.partition != file.partition);
    match stray {
        None => Ok(()),
        Some(delete) => Err(Error::invalid(format!(
            "delete file {} names data file {} but lies in another partition: the metadata is corrupt",
            delete.file_path, file.file_path
        ))),
    }
}

fn unknown_spec(delete: &FileEntry) -> Error {
    Error::invalid(format!(
        "delete file {} has partition spec {}, which the table metadata does not hold",
        delete.file_path, delete.partition.spec_id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::builder::file_entry;

    fn file(data: i64, added: Option<i64>) -> FileEntry {
        FileEntry { data_sequence_number: data, file_sequence_number: added, ..file_entry("f", 1, 1) }
    }

    /// The delete file was compacted: it keeps the number 3 of what it was made of, and was added at 6.
    #[test]
    fn a_delete_file_names_a_file_only_if_both_numbers_of_that_one_file_allow_it() {
        let delete = file(3, Some(6));
        let named = |files: &[(i64, Option<i64>)]| {
            let mut all = Nameable::default();
            files.iter().for_each(|(data, added)| all.add(&file(*data, *added)));
            all.may_be_named_by(&delete)
        };
        assert!(!named(&[(2, Some(9))]), "compacted later");
        assert!(!named(&[(5, Some(5))]), "newer than the deletes");
        assert!(!named(&[(2, Some(9)), (5, Some(5))]), "neither of the two");
        assert!(named(&[(2, Some(9)), (5, Some(5)), (3, Some(6))]));
        assert!(named(&[(2, None)]), "nobody knows when it was added");
    }
}
