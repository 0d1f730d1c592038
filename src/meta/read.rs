//! Manifests: live entries with everything inherited, or just paths.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use iceberg::spec::{DataContentType, FormatVersion, ManifestContentType, ManifestFile};

use super::avro::Decoder;
use super::container::Container;
use super::entry::{ADDED, DELETED, Detail, Layout, RawEntry};
use super::partition::{PartitionFields, decode_as_written};
use crate::error::{Error, Result};
use crate::storage::Store;
use crate::table::LoadedTable;
use crate::table::{FileEntry, PartitionTuple};

/// A content file as reachability needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    pub file_path: Arc<str>,
    pub file_size_bytes: u64,
    /// Data, position deletes or equality deletes.
    pub content: DataContentType,
    /// Whether the file is live in this manifest; `false`: the entry only records that the file left.
    pub live: bool,
}

/// Live entries of a manifest in file order: snapshot id, sequence numbers and first row id are inherited as the specification
/// says (0 in version 1), partition values typed by [`super::partition_type`].
///
/// Where the table's partition specs cannot be read, partition values are as written; such a table is not planned for.
///
/// Errors: [`crate::error::ErrorKind::Unsupported`] for a partition value that cannot be promoted, or an unknown file format;
/// [`crate::error::ErrorKind::DataInvalid`], naming file and offset, for anything damaged, also a manifest shorter than its
/// list says: a list of files that is cut short would lose data. Whether a manifest is whole is told by its length and by
/// Avro; the counts in manifest lists are no proof, since some writers get them wrong.
pub async fn read_manifest(store: &dyn Store, loaded: &LoadedTable, manifest: &ManifestFile) -> Result<Vec<FileEntry>> {
    let bytes = fetch(store, manifest).await?;
    live_entries(&bytes, loaded, manifest)
}

/// Content files of a manifest, also those whose entry says that they were deleted. Needs no schema.
pub async fn read_all_manifest_paths(store: &dyn Store, manifest: &ManifestFile) -> Result<Vec<PathEntry>> {
    let path = &manifest.manifest_path;
    let bytes = fetch(store, manifest).await?;
    let container = Container::open(path, &bytes)?;
    let layout = Layout::of(path, &container)?;
    let mut entries = Vec::new();
    container.for_each(|decoder| {
        let raw = layout.decode(decoder, Detail::Paths)?;
        entries.push(PathEntry {
            file_path: raw.file_path.into(),
            file_size_bytes: u64::try_from(raw.file_size).unwrap_or(0),
            content: content(decoder, raw.content)?,
            live: raw.status != DELETED,
        });
        Ok(())
    })?;
    Ok(entries)
}

/// The whole manifest; refuses one that is shorter than its list says.
pub(crate) async fn fetch(store: &dyn Store, manifest: &ManifestFile) -> Result<Bytes> {
    let path = &manifest.manifest_path;
    let bytes = store.read(path).await?;
    if (bytes.len() as u64) < manifest.manifest_length.max(0).cast_unsigned() {
        let (is, should) = (bytes.len(), manifest.manifest_length);
        return Err(Error::invalid(format!("manifest {path} has {is} bytes, its manifest list says {should}")));
    }
    Ok(bytes)
}

/// A manifest that its list says holds nothing live is left out by some readers and read by others: whether its rows are in
/// the table cannot be told. Other counts that are wrong change nothing that any reader sees.
fn check_live(manifest: &ManifestFile, live: usize) -> Result<()> {
    if live > 0 && manifest.added_files_count == Some(0) && manifest.existing_files_count == Some(0) {
        let path = &manifest.manifest_path;
        return Err(Error::invalid(format!(
            "manifest {path} has {live} live entries, its manifest list says none; engines that go by the list do not see \
             these rows: rewrite the table's manifests with the engine that wrote them"
        )));
    }
    Ok(())
}

/// See [`read_manifest`].
pub(crate) fn live_entries(bytes: &[u8], loaded: &LoadedTable, manifest: &ManifestFile) -> Result<Vec<FileEntry>> {
    let path = &manifest.manifest_path;
    let container = Container::open(path, bytes)?;
    let layout = Layout::of(path, &container)?;
    let version = loaded.metadata.format_version();
    let mut partitions = Partitions::new(loaded, manifest.partition_spec_id)?;
    let mut inherit = Inherit::new(manifest, version);
    let shared_path: Arc<str> = path.as_str().into();
    let mut entries = Vec::new();
    container.for_each(|decoder| {
        let raw = layout.decode(decoder, Detail::Full)?;
        let numbers = inherit.apply(decoder, &raw)?;
        if raw.status != DELETED {
            let partition = partitions.get(decoder, &layout, path, &raw)?;
            entries.push(file_entry(decoder, manifest, &raw, &numbers, partition, shared_path.clone())?);
        }
        Ok(())
    })?;
    check_live(manifest, entries.len())?;
    Ok(entries)
}

fn file_entry(
    decoder: &Decoder<'_>,
    manifest: &ManifestFile,
    raw: &RawEntry<'_>,
    numbers: &EntryNumbers,
    partition: Arc<PartitionTuple>,
    manifest_path: Arc<str>,
) -> Result<FileEntry> {
    let content = content(decoder, raw.content)?;
    if (content == DataContentType::Data) != (manifest.content == ManifestContentType::Data) {
        return Err(decoder.error(format!("a manifest of {} holds {content:?}", manifest.content)));
    }
    let data_sequence_number = numbers.sequence.ok_or_else(|| decoder.error("entry has no data sequence number"))?;
    let (rows, bytes) = (u64::try_from(raw.record_count), u64::try_from(raw.file_size));
    let wrong = [
        (rows.is_err(), "has no record count, or a negative one"),
        (bytes.is_err(), "has a negative size"),
        (
            content == DataContentType::EqualityDeletes && raw.equality_ids.is_empty(),
            "is an equality delete file without field ids",
        ),
    ];
    let fault = wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, what)| what.into());
    Ok(FileEntry {
        content,
        file_path: raw.file_path.into(),
        file_format: raw.file_format.parse().ok(),
        partition,
        record_count: rows.unwrap_or(0),
        file_size_bytes: bytes.unwrap_or(0),
        data_sequence_number,
        file_sequence_number: numbers.file_sequence,
        snapshot_id: numbers.snapshot_id,
        equality_ids: raw.equality_ids.clone(),
        referenced_data_file: raw.referenced_data_file.map(Arc::from),
        path_bound: raw.path_bound().map(Arc::from),
        content_offset: raw.content_offset,
        content_size_bytes: raw.content_size,
        sort_order_id: raw.sort_order_id,
        first_row_id: numbers.first_row_id,
        encrypted: raw.encrypted,
        fault,
        manifest_path,
    })
}

fn content(decoder: &Decoder<'_>, content: i32) -> Result<DataContentType> {
    DataContentType::try_from(content).map_err(|_| decoder.error(format!("file content {content} is unknown")))
}

/// Partitions of one manifest; equal bytes are decoded once and shared.
pub(crate) struct Partitions {
    spec_id: i32,
    /// `None`: the table's specs cannot be read, so values stay as they were written.
    target: Option<PartitionFields>,
    seen: HashMap<Box<[u8]>, Arc<PartitionTuple>>,
}

impl Partitions {
    pub(crate) fn new(loaded: &LoadedTable, spec_id: i32) -> Result<Self> {
        let target = loaded.typed().ok().map(|metadata| PartitionFields::new(metadata, spec_id)).transpose()?;
        Ok(Self { spec_id, target, seen: HashMap::new() })
    }

    pub(crate) fn get(
        &mut self,
        decoder: &Decoder<'_>,
        layout: &Layout,
        path: &str,
        raw: &RawEntry<'_>,
    ) -> Result<Arc<PartitionTuple>> {
        if let Some(tuple) = self.seen.get(raw.partition) {
            return Ok(tuple.clone());
        }
        let ty = layout.partition.as_ref().ok_or_else(|| decoder.error("entry without a partition"))?;
        let record = Decoder::new(raw.partition, path, decoder.position());
        let values = match &self.target {
            Some(target) => target.decode(record, ty)?,
            None => decode_as_written(record, ty)?,
        };
        let tuple = Arc::new(PartitionTuple { spec_id: self.spec_id, values });
        self.seen.insert(raw.partition.into(), tuple.clone());
        Ok(tuple)
    }
}

/// What an entry takes from its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryNumbers {
    pub(crate) snapshot_id: i64,
    pub(crate) sequence: Option<i64>,
    pub(crate) file_sequence: Option<i64>,
    pub(crate) first_row_id: Option<i64>,
}

/// Inheritance, walked in file order (row ids depend on it).
pub(crate) struct Inherit {
    added_snapshot_id: i64,
    manifest_sequence: i64,
    next_row_id: Option<i64>,
    version_1: bool,
}

impl Inherit {
    pub(crate) fn new(manifest: &ManifestFile, version: FormatVersion) -> Self {
        let data = manifest.content == ManifestContentType::Data;
        Self {
            added_snapshot_id: manifest.added_snapshot_id,
            manifest_sequence: manifest.sequence_number,
            next_row_id: manifest.first_row_id.filter(|_| data).and_then(|id| i64::try_from(id).ok()),
            version_1: version == FormatVersion::V1,
        }
    }

    pub(crate) fn apply(&mut self, decoder: &Decoder<'_>, raw: &RawEntry<'_>) -> Result<EntryNumbers> {
        let may_inherit = raw.status == ADDED || self.manifest_sequence == 0;
        let inherited = |own: Option<i64>| match own {
            _ if self.version_1 => Some(0),
            Some(number) => Some(number),
            None => may_inherit.then_some(self.manifest_sequence),
        };
        let (sequence, file_sequence) = (inherited(raw.sequence_number), inherited(raw.file_sequence_number));
        // A manifest without a first row id belongs to rows that have no ids yet, whatever its entries say.
        let first_row_id = match (self.next_row_id, raw.first_row_id) {
            (None, _) => None,
            (Some(_), Some(own)) => Some(own),
            (Some(_), None) if raw.status == DELETED => None,
            (Some(next), None) => {
                let after = next.checked_add(raw.record_count.max(0));
                self.next_row_id = Some(after.ok_or_else(|| decoder.error("row ids overflow"))?);
                Some(next)
            }
        };
        let snapshot_id = raw.snapshot_id.unwrap_or(self.added_snapshot_id);
        Ok(EntryNumbers { snapshot_id, sequence, file_sequence, first_row_id })
    }
}
