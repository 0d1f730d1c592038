//! Snapshot summaries: counters of what a snapshot adds and removes, and totals carried from its parent.

use std::collections::{BTreeMap, HashMap, HashSet};

use iceberg::spec::{DataContentType, DataFile, DataFileFormat, Summary};

use crate::table::{FileEntry, PartitionValues};

/// Collects the files of a snapshot.
#[derive(Debug, Default)]
pub struct SummaryBuilder {
    added: Counters,
    removed: Counters,
    partitions: HashSet<(i32, PartitionValues)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    data_files: u64,
    equality_delete_files: u64,
    position_delete_files: u64,
    dvs: u64,
    records: u64,
    bytes: u64,
    position_deletes: u64,
    equality_deletes: u64,
}

impl Counters {
    fn count(&mut self, content: DataContentType, format: Option<DataFileFormat>, records: u64, bytes: u64) {
        self.bytes += bytes;
        match content {
            DataContentType::Data => {
                self.data_files += 1;
                self.records += records;
            }
            DataContentType::EqualityDeletes => {
                self.equality_delete_files += 1;
                self.equality_deletes += records;
            }
            DataContentType::PositionDeletes => {
                self.position_deletes += records;
                match format {
                    Some(DataFileFormat::Puffin) => self.dvs += 1,
                    _ => self.position_delete_files += 1,
                }
            }
        }
    }

    fn delete_files(&self) -> u64 {
        self.equality_delete_files + self.position_delete_files + self.dvs
    }
}

/// The bytes a file counts for: of a deletion vector only its blob.
fn bytes(file_size: u64, blob: Option<i64>) -> u64 {
    blob.and_then(|n| u64::try_from(n).ok()).unwrap_or(file_size)
}

impl SummaryBuilder {
    /// A file that the snapshot adds, in a partition of spec `spec_id`.
    pub fn add(&mut self, spec_id: i32, file: &DataFile) {
        let size = bytes(file.file_size_in_bytes(), file.content_size_in_bytes());
        self.added.count(file.content_type(), Some(file.file_format()), file.record_count(), size);
        self.partitions.insert((spec_id, file.partition().clone().into()));
    }

    /// A file that leaves with the snapshot.
    pub fn remove(&mut self, file: &FileEntry) {
        let size = bytes(file.file_size_bytes, file.content_size_bytes);
        self.removed.count(file.content, file.file_format, file.record_count, size);
        self.partitions.insert((file.partition.spec_id, file.partition.values.clone()));
    }

    /// The summary's properties; counters that are zero are left out.
    ///
    /// Totals are those of `parent` (zero if there is none) plus added less removed. A total that the parent does not have, or
    /// that would be negative, is left out: a wrong total would be believed.
    pub fn build(&self, parent: Option<&Summary>) -> HashMap<String, String> {
        let (a, r) = (&self.added, &self.removed);
        let counters = [
            ("added-data-files", a.data_files),
            ("deleted-data-files", r.data_files),
            ("added-delete-files", a.delete_files()),
            ("removed-delete-files", r.delete_files()),
            ("added-equality-delete-files", a.equality_delete_files),
            ("removed-equality-delete-files", r.equality_delete_files),
            ("added-position-delete-files", a.position_delete_files),
            ("removed-position-delete-files", r.position_delete_files),
            ("added-dvs", a.dvs),
            ("removed-dvs", r.dvs),
            ("added-records", a.records),
            ("deleted-records", r.records),
            ("added-files-size", a.bytes),
            ("removed-files-size", r.bytes),
            ("added-position-deletes", a.position_deletes),
            ("removed-position-deletes", r.position_deletes),
            ("added-equality-deletes", a.equality_deletes),
            ("removed-equality-deletes", r.equality_deletes),
            ("changed-partition-count", self.partitions.len() as u64),
        ];
        let totals = [
            ("total-data-files", a.data_files, r.data_files),
            ("total-delete-files", a.delete_files(), r.delete_files()),
            ("total-records", a.records, r.records),
            ("total-files-size", a.bytes, r.bytes),
            ("total-position-deletes", a.position_deletes, r.position_deletes),
            ("total-equality-deletes", a.equality_deletes, r.equality_deletes),
        ];
        let mut properties: BTreeMap<&str, u64> = counters.into_iter().filter(|(_, n)| *n > 0).collect();
        for (key, added, removed) in totals {
            let before = match parent {
                None => Some(0),
                Some(parent) => parent.additional_properties.get(key).and_then(|v| v.parse::<u64>().ok()),
            };
            if let Some(total) = before.and_then(|n| n.checked_add(added)).and_then(|n| n.checked_sub(removed)) {
                properties.insert(key, total);
            }
        }
        properties.into_iter().map(|(k, v)| (k.to_owned(), v.to_string())).collect()
    }
}
