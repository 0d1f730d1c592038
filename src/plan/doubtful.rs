//! Files that no plan may touch, since a manifest entry about them, or about a delete that may apply to them, contradicts
//! the specification. They are left out, each with its reason; everything else of the table is planned as usual. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{DataContentType, TableMetadata};

use super::skips::{SkipReason, Skips};
use crate::table::delete_rule::DeleteScope;
use crate::table::{FileEntry, PartitionTuple, TableState};

/// What is in doubt in a snapshot, and the deletes that are not.
pub(super) struct Doubtful<'a> {
    /// Partitions that stay as they are as a whole.
    partitions: HashMap<&'a PartitionTuple, SkipReason>,
    /// Deletes in doubt by what they reach, each with the newest sequence number and the reason of the first.
    everywhere: Option<(i64, SkipReason)>,
    in_partition: HashMap<&'a PartitionTuple, (i64, SkipReason)>,
    by_path: HashMap<&'a str, SkipReason>,
    /// Delete files whose meaning is certain.
    pub(super) usable_deletes: Vec<Arc<FileEntry>>,
}

impl<'a> Doubtful<'a> {
    /// Looks through the live files of `state`. The first example of each reason goes to `skips`.
    pub(super) fn find(state: &'a TableState, metadata: &TableMetadata, skips: &mut Skips) -> Self {
        let twice = live_twice(state);
        let mut doubtful = Self {
            partitions: HashMap::new(),
            everywhere: None,
            in_partition: HashMap::new(),
            by_path: HashMap::new(),
            usable_deletes: Vec::with_capacity(state.delete_files.len()),
        };
        for file in &state.data_files {
            let Some((reason, example)) = doubt_of_data(file, metadata, &twice) else { continue };
            skips.example(reason, example);
            doubtful.partitions.entry(&file.partition).or_insert(reason);
            // A delete in a data manifest may be read as one by somebody.
            if file.content != DataContentType::Data {
                doubtful.doubt_delete(file, metadata, reason);
            }
        }
        let mut vectors: HashMap<&str, usize> = HashMap::new();
        for file in state.delete_files.iter().filter(|file| file.is_deletion_vector()) {
            *vectors.entry(file.referenced_data_file.as_deref().unwrap_or_default()).or_default() += 1;
        }
        for file in &state.delete_files {
            match doubt_of_delete(file, metadata, &twice, &vectors) {
                None => doubtful.usable_deletes.push(file.clone()),
                Some((reason, example)) => {
                    skips.example(reason, example);
                    doubtful.doubt_delete(file, metadata, reason);
                }
            }
        }
        doubtful
    }

    /// Whatever the delete may reach is in doubt.
    fn doubt_delete(&mut self, delete: &'a FileEntry, metadata: &TableMetadata, reason: SkipReason) {
        let sequence = delete.data_sequence_number;
        let widen = |known: &mut (i64, SkipReason)| known.0 = known.0.max(sequence);
        match DeleteScope::of(delete, metadata) {
            DeleteScope::DataFile(path) => {
                self.by_path.entry(path).or_insert(reason);
            }
            DeleteScope::Partition(partition) => {
                self.in_partition.entry(partition).and_modify(widen).or_insert((sequence, reason));
            }
            DeleteScope::Table => widen(self.everywhere.get_or_insert((sequence, reason))),
        }
    }

    /// Why a data file has to be left out, if it has.
    pub(super) fn reason(&self, file: &FileEntry) -> Option<SkipReason> {
        let reached = |(newest, reason): &(i64, SkipReason)| (*newest >= file.data_sequence_number).then_some(*reason);
        let partition = self.partitions.get(&*file.partition).copied();
        partition
            .or_else(|| self.everywhere.as_ref().and_then(reached))
            .or_else(|| self.in_partition.get(&*file.partition).and_then(reached))
            .or_else(|| self.by_path.get(&*file.file_path).copied())
    }
}

/// What names an entry: deletion vectors share their file.
type Key<'a> = (&'a str, Option<i64>);

fn key(file: &FileEntry) -> Key<'_> {
    (&file.file_path, if file.is_deletion_vector() { file.content_offset } else { None })
}

/// Entries that are live more than once, as data or as deletes.
fn live_twice(state: &TableState) -> HashSet<Key<'_>> {
    let mut seen = HashSet::with_capacity(state.data_files.len() + state.delete_files.len());
    let all = state.data_files.iter().chain(&state.delete_files);
    all.map(|file| key(file)).filter(|key| !seen.insert(*key)).collect()
}

type Doubt = Option<(SkipReason, String)>;

fn doubt_of_data(file: &FileEntry, metadata: &TableMetadata, twice: &HashSet<Key<'_>>) -> Doubt {
    let path = &file.file_path;
    if twice.contains(&key(file)) {
        return Some((SkipReason::DuplicatePath, path.to_string()));
    }
    let invalid = |what: String| Some((SkipReason::InvalidEntry, format!("{path} {what}")));
    if file.content != DataContentType::Data {
        return invalid("is a delete file in a data manifest".into());
    }
    unknown_spec(file, metadata).or_else(|| fault(file)).and_then(invalid)
}

fn doubt_of_delete(
    file: &FileEntry,
    metadata: &TableMetadata,
    twice: &HashSet<Key<'_>>,
    vectors: &HashMap<&str, usize>,
) -> Doubt {
    let path = &file.file_path;
    if twice.contains(&key(file)) {
        return Some((SkipReason::DuplicatePath, path.to_string()));
    }
    let invalid = |what: String| Some((SkipReason::InvalidEntry, format!("{path} {what}")));
    if let Some(what) = unknown_spec(file, metadata).or_else(|| fault(file)) {
        return invalid(what);
    }
    match (file.content, file.referenced_data_file.as_deref()) {
        (DataContentType::Data, _) => invalid("is a data file in a delete manifest".into()),
        (DataContentType::EqualityDeletes, _) if file.equality_ids.is_empty() => {
            invalid("is an equality delete file without field ids".into())
        }
        (DataContentType::PositionDeletes, None) if file.is_deletion_vector() => {
            invalid("holds a deletion vector that names no data file".into())
        }
        (DataContentType::PositionDeletes, Some(data)) if file.is_deletion_vector() && vectors.get(data) > Some(&1) => {
            invalid(format!("holds one of several deletion vectors of {data}"))
        }
        _ => None,
    }
}

fn fault(file: &FileEntry) -> Option<String> {
    file.fault.as_deref().map(str::to_owned)
}

fn unknown_spec(file: &FileEntry, metadata: &TableMetadata) -> Option<String> {
    let id = file.partition.spec_id;
    metadata
        .partition_spec_by_id(id)
        .is_none()
        .then(|| format!("has partition spec {id}, which the table metadata does not hold"))
}
