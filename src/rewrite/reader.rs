//! Opens and decodes Parquet files: whole files from one request, large ones row group by row group.
//! No row group is skipped and no filter pushed down, so a row's position is its ordinal in the file.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::{Buf, Bytes};
use iceberg::spec::{NameMapping, NestedField, NestedFieldRef, Type};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FooterTail, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

use crate::error::{Error, Result};
use crate::rewrite::fields::{FileField, file_fields};
use crate::rewrite::project::{PartitionConstants, Projection};
use crate::storage::Store;
use crate::table::FileEntry;
use crate::table::supports::check_file;

/// Files up to this many bytes are read in one request.
pub(crate) const WHOLE_FILE_LIMIT: u64 = 32 << 20;
/// Rows of a decoded batch at most.
pub(crate) const BATCH_ROWS: usize = 8192;
/// Encoded bytes of a decoded batch, about, at most.
pub(crate) const BATCH_BYTES: u64 = 8 << 20;
/// Bytes of a decoded value in memory: a view or a decimal.
const DECODED_VALUE_BYTES: u64 = 16;
const FOOTER_GUESS: u64 = 128 << 10;
/// Column chunks closer than this are read in one request ...
const COALESCE_GAP: u64 = 1 << 20;
/// ... of at most this many bytes, unless a single chunk is larger.
const COALESCE_LIMIT: u64 = 64 << 20;

/// Parts of a file in memory, by offset.
#[derive(Debug, Clone)]
pub(crate) struct SparseFile {
    len: u64,
    parts: Vec<(u64, Bytes)>,
}

impl SparseFile {
    fn whole(bytes: Bytes) -> Self {
        Self { len: bytes.len() as u64, parts: vec![(0, bytes)] }
    }

    fn part(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let found = self.parts.iter().rev().find(|(at, _)| *at <= start).and_then(|(at, bytes)| {
            let from = usize::try_from(start - at).ok()?;
            let to = from.checked_add(length)?;
            (to <= bytes.len()).then(|| bytes.slice(from..to))
        });
        found.ok_or_else(|| ParquetError::EOF(format!("bytes {start}+{length} are outside of what was read")))
    }
}

impl Length for SparseFile {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for SparseFile {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let found = self.parts.iter().rev().find(|(at, bytes)| *at <= start && start - at <= bytes.len() as u64);
        match found {
            Some((at, bytes)) => Ok(bytes.slice(usize::try_from(start - at).unwrap_or(bytes.len())..).reader()),
            None => Err(ParquetError::EOF(format!("offset {start} is outside of what was read"))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.part(start, length)
    }
}

/// What to make out of files.
#[derive(Debug)]
pub(crate) struct ReadTarget {
    /// Columns, in order.
    pub fields: Vec<NestedFieldRef>,
    /// How many of them, from the front, are the table's own; the others have left it and only deletes need them.
    pub own: usize,
    pub mapping: Option<NameMapping>,
    /// Whether every column must be in the file: so it is in delete files.
    pub all_present: bool,
}

#[derive(Debug)]
pub(crate) struct OpenFile {
    metadata: ArrowReaderMetadata,
    projection: Projection,
}

/// A piece of a file, in memory and ready to be decoded.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: SparseFile,
    open: Arc<OpenFile>,
    row_groups: Range<usize>,
    first_position: u64,
}

impl OpenFile {
    fn new(metadata: ParquetMetaData, target: &ReadTarget, constants: &PartitionConstants) -> Result<Self> {
        let fields = file_fields(&metadata, target.mapping.as_ref())?;
        if fields.mapped {
            check_mapped(&fields.fields, target, constants)?;
        }
        let projection = Projection::new(&fields.fields, &target.fields, constants, target.all_present)?;
        // The embedded Arrow schema is a hint for other readers; here the Parquet types alone decide.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(fields.arrow_schema);
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options)?;
        Ok(Self { metadata, projection })
    }

    pub(crate) fn footer(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// Byte ranges of the wanted columns of a row group, close ones joined.
    fn ranges(&self, row_group: usize) -> Vec<Range<u64>> {
        let columns = self.footer().row_group(row_group);
        let mut ranges: Vec<Range<u64>> = self
            .projection
            .leaves
            .iter()
            .map(|leaf| columns.column(*leaf).byte_range())
            .map(|(start, length)| start..start + length)
            .collect();
        ranges.sort_by_key(|r| r.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last)
                    if range.start <= last.end.saturating_add(COALESCE_GAP)
                        && range.end.saturating_sub(last.start) <= COALESCE_LIMIT =>
                {
                    last.end = last.end.max(range.end);
                }
                _ => joined.push(range),
            }
        }
        joined
    }

    /// Bytes to read for a row group.
    pub(crate) fn read_bytes(&self, row_group: usize) -> u64 {
        self.ranges(row_group).iter().map(|r| r.end - r.start).sum()
    }
}

/// A mapping may have forgotten the names of dropped columns: their values cannot be told from missing ones then.
fn check_mapped(file: &[FileField], target: &ReadTarget, constants: &PartitionConstants) -> Result<()> {
    let unknown = |f: &&NestedFieldRef| !constants.contains_key(&f.id) && !holds(file, f);
    match target.fields[target.own..].iter().find(unknown) {
        Some(field) => Err(Error::unsupported(format!(
            "the file has no field ids and schema.name-mapping.default does not name the dropped column {} (field id {}), which equality deletes still need",
            field.name, field.id
        ))),
        None => Ok(()),
    }
}

/// Whether the file has the field, and all that it consists of.
fn holds(file: &[FileField], field: &NestedField) -> bool {
    file.iter().filter(|c| c.id == Some(field.id)).any(|column| match field.field_type.as_ref() {
        Type::Struct(s) => s.fields().iter().all(|below| holds(&column.children, below)),
        _ => true,
    })
}

/// The whole of a small file, in one request. A length other than the manifest's is damage.
pub(crate) async fn read_whole(store: &dyn Store, entry: &FileEntry) -> Result<Bytes> {
    check_file(entry)?;
    let bytes = store.read(&entry.file_path).await?;
    if bytes.len() as u64 != entry.file_size_bytes {
        return Err(Error::invalid(format!(
            "{} has {} bytes and the manifest says {}",
            entry.file_path,
            bytes.len(),
            entry.file_size_bytes
        )));
    }
    Ok(bytes)
}

/// Makes a piece of the bytes of a whole file.
pub(crate) fn whole_piece(
    bytes: Bytes,
    entry: &FileEntry,
    target: &ReadTarget,
    constants: &PartitionConstants,
) -> Result<Piece> {
    let doing = |e: Error| e.context_of("open", &entry.file_path);
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Skip)
        .parse_and_finish(&bytes)
        .map_err(|e| doing(e.into()))?;
    check_footer(&metadata, entry)?;
    let row_groups = 0..metadata.num_row_groups();
    let open = OpenFile::new(metadata, target, constants).map_err(doing)?;
    Ok(Piece { bytes: SparseFile::whole(bytes), open: Arc::new(open), row_groups, first_position: 0 })
}

/// Refuses footers that contradict the manifest or point outside of the file.
fn check_footer(metadata: &ParquetMetaData, entry: &FileEntry) -> Result<()> {
    let size = entry.file_size_bytes;
    for column in metadata.row_groups().iter().flat_map(|g| g.columns()) {
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let end = u64::try_from(start)
            .ok()
            .zip(u64::try_from(column.compressed_size()).ok())
            .and_then(|(s, l)| s.checked_add(l));
        if end.is_none_or(|end| end > size) {
            return Err(Error::invalid(format!("{} has a column chunk outside of the file", entry.file_path)));
        }
    }
    let rows = metadata.file_metadata().num_rows();
    if u64::try_from(rows) != Ok(entry.record_count) {
        return Err(Error::invalid(format!(
            "{} has {rows} rows and the manifest says {}",
            entry.file_path, entry.record_count
        )));
    }
    Ok(())
}

pub(crate) async fn open_large(
    store: &dyn Store,
    entry: &FileEntry,
    target: &ReadTarget,
    constants: &PartitionConstants,
) -> Result<OpenFile> {
    let doing = |e: Error| e.context_of("open", &entry.file_path);
    check_file(entry)?;
    let metadata = read_footer(store, &entry.file_path, entry.file_size_bytes).await?;
    check_footer(&metadata, entry)?;
    OpenFile::new(metadata, target, constants).map_err(doing)
}

/// The footer of a file of `size` bytes.
pub(crate) async fn read_footer(store: &dyn Store, path: &str, size: u64) -> Result<ParquetMetaData> {
    let doing = |e: Error| e.context_of("read the footer of", path);
    let tail_start = size.saturating_sub(FOOTER_GUESS);
    let tail = store.read_range(path, tail_start..size).await?;
    let Some(end) = tail.len().checked_sub(8).and_then(|at| tail[at..].first_chunk::<8>()) else {
        return Err(Error::invalid(format!("{path} is too short for a Parquet file")));
    };
    let footer_tail = FooterTail::try_new(end).map_err(|e| doing(e.into()))?;
    let length = footer_tail.metadata_length() as u64;
    let start = size
        .checked_sub(8 + length)
        .ok_or_else(|| Error::invalid(format!("{path} names a footer longer than the file")))?;
    let footer = if start >= tail_start {
        let from = usize::try_from(start - tail_start).map_err(|_| Error::internal("footer offset"))?;
        tail.slice(from..tail.len() - 8)
    } else {
        store.read_range(path, start..size - 8).await?
    };
    ParquetMetaDataReader::decode_metadata(&footer).map_err(|e| doing(e.into()))
}

pub(crate) async fn row_group_piece(
    store: &dyn Store,
    entry: &FileEntry,
    open: &Arc<OpenFile>,
    row_group: usize,
) -> Result<Piece> {
    let mut parts = Vec::new();
    for range in open.ranges(row_group) {
        let bytes = store.read_range(&entry.file_path, range.clone()).await?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(Error::unavailable(format!("short answer while reading {}", entry.file_path)));
        }
        parts.push((range.start, bytes));
    }
    let before: i64 = open.footer().row_groups()[..row_group].iter().map(|g| g.num_rows()).sum();
    Ok(Piece {
        bytes: SparseFile { len: entry.file_size_bytes, parts },
        open: Arc::clone(open),
        row_groups: row_group..row_group + 1,
        first_position: u64::try_from(before).map_err(|_| Error::invalid("negative row count in a footer"))?,
    })
}

impl Piece {
    /// Decodes every row in file order; `take` gets the position of a batch's first row and the batch. Returns the rows seen.
    pub(crate) fn decode(&self, take: &mut dyn FnMut(u64, RecordBatch) -> Result<()>) -> Result<u64> {
        let mut rows = 0;
        for row_group in self.row_groups.clone() {
            let mask = ProjectionMask::leaves(
                self.open.metadata.parquet_schema(),
                self.open.projection.leaves.iter().copied(),
            );
            let metadata = self.open.metadata.clone();
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(self.bytes.clone(), metadata)
                .with_projection(mask)
                .with_row_groups(vec![row_group])
                .with_batch_size(self.batch_rows(row_group))
                .build()?;
            for batch in reader {
                let batch = batch?;
                let position = self.first_position + rows;
                rows += batch.num_rows() as u64;
                take(position, self.open.projection.apply(&batch)?)?;
            }
        }
        Ok(rows)
    }

    /// Rows per batch such that wide rows do not add up.
    fn batch_rows(&self, row_group: usize) -> usize {
        let group = self.open.footer().row_group(row_group);
        let bytes: i64 = self.open.projection.leaves.iter().map(|l| group.column(*l).uncompressed_size()).sum();
        let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
        // Repeated values are cheap in the file and not in memory.
        let decoded_at_least = self.open.projection.leaves.len() as u64 * DECODED_VALUE_BYTES;
        let row_bytes = (u64::try_from(bytes).unwrap_or(0) / rows).max(decoded_at_least).max(1);
        usize::try_from(BATCH_BYTES / row_bytes).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS)
    }
}
