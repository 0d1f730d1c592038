//! The delete files of a snapshot by what they apply to: see [`super::delete_rule`].
//!
//! Key ranges are not compared (entries hold no bounds), so an equality delete may be listed that matches no row.
//!
//! For each scope the deletes lie in one list, sorted by sequence number, and what applies to a data file is always the
//! end of such a list. [`ApplicableDeletes`] therefore only notes where in the shared list it starts: a table with as many
//! deletes as data files in a partition needs memory for their sum, not for their product.

use std::collections::HashMap;
use std::fmt;
use std::iter::FlatMap;
use std::slice::Iter;
use std::sync::Arc;

use iceberg::spec::{DataContentType, TableMetadata};

use super::delete_rule::{DeleteScope, applies_by_sequence};
use super::{FileEntry, PartitionTuple};
use crate::error::{Error, Result};

type Shared = Arc<[Arc<FileEntry>]>;

/// The delete files that apply to one data file: ends of lists that are shared with other data files. Cheap to clone.
/// In order: global equality deletes, equality deletes of the partition, then position deletes or the deletion vector;
/// within each by sequence number.
#[derive(Clone, Default)]
pub struct ApplicableDeletes {
    runs: Vec<SharedTail>,
}

/// The end of a list of delete files that is shared between data files; never empty.
#[derive(Clone)]
pub struct SharedTail {
    files: Shared,
    from: usize,
    /// Whether all of them name their data file.
    file_scoped: bool,
}

impl SharedTail {
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
            self.runs.push(SharedTail { files: files.clone(), from, file_scoped });
        }
    }
}

impl<'a> IntoIterator for &'a ApplicableDeletes {
    type Item = &'a Arc<FileEntry>;
    type IntoIter =
        FlatMap<Iter<'a, SharedTail>, Iter<'a, Arc<FileEntry>>, fn(&'a SharedTail) -> Iter<'a, Arc<FileEntry>>>;

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
        let mut global = Vec::new();
        let mut equality: HashMap<Arc<PartitionTuple>, Vec<Arc<FileEntry>>> = HashMap::new();
        let mut positions: HashMap<Arc<PartitionTuple>, Vec<Arc<FileEntry>>> = HashMap::new();
        let mut by_path: HashMap<Arc<str>, Vec<Arc<FileEntry>>> = HashMap::new();
        let mut vectors: HashMap<Arc<str>, Shared> = HashMap::new();
        for delete in delete_files {
            check_entry(metadata, delete)?;
            let is_equality = delete.content == DataContentType::EqualityDeletes;
            let list = match DeleteScope::of(delete, metadata) {
                DeleteScope::Table => &mut global,
                DeleteScope::Partition(partition) if is_equality => equality.entry(partition.clone()).or_default(),
                DeleteScope::Partition(partition) => positions.entry(partition.clone()).or_default(),
                DeleteScope::DataFile(path) if delete.is_deletion_vector() => {
                    if vectors.insert(path.clone(), Arc::from([delete.clone()])).is_some() {
                        return Err(Error::invalid(format!("data file {path} has two deletion vectors")));
                    }
                    continue;
                }
                DeleteScope::DataFile(path) => by_path.entry(path.clone()).or_default(),
            };
            list.push(delete.clone());
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
            deletes.push(list, first_applying(list, sequence), false);
        }
        if let Some(vector) = self.vectors.get(&file.file_path) {
            if first_applying(vector, sequence) > 0 {
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
            deletes.push(list, first_applying(list, sequence), false);
        }
        if let Some(list) = self.positions_by_path.get(&file.file_path) {
            let from = first_applying(list, sequence);
            same_partition(list.get(from..).unwrap_or_default(), file)?;
            deletes.push(list, from, true);
        }
        Ok(deletes)
    }
}

/// Where in a sorted list those begin that apply to data of this sequence number.
fn first_applying(list: &Shared, data_sequence: i64) -> usize {
    list.partition_point(|delete| !applies_by_sequence(delete, data_sequence))
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

fn check_entry(metadata: &TableMetadata, delete: &FileEntry) -> Result<()> {
    let (path, spec_id) = (&delete.file_path, delete.partition.spec_id);
    if metadata.partition_spec_by_id(spec_id).is_none() {
        return Err(Error::invalid(format!(
            "delete file {path} has partition spec {spec_id}, which the table metadata does not hold"
        )));
    }
    match delete.content {
        DataContentType::Data => Err(Error::invalid(format!("{path} is a data file in a delete manifest"))),
        DataContentType::EqualityDeletes if delete.equality_ids.is_empty() => {
            Err(Error::invalid(format!("equality delete file {path} has no field ids")))
        }
        _ if delete.is_deletion_vector() && delete.referenced_data_file.is_none() => {
            Err(Error::invalid(format!("deletion vector in {path} names no data file")))
        }
        _ => Ok(()),
    }
}
