//! Tables made by hand: any schema history, spec, property, data and delete file.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use iceberg::spec::{DataContentType, DataFile, Literal};
use icewright::clock::{Clock, SystemClock};
use icewright::error::Result;
use icewright::plan::{FileGroup, RewriteTask};
use icewright::rewrite::{MemoryBudget, Progress, RewriteContext, RewriteResult, rewrite_file_group};
use icewright::run_id::RunId;
use icewright::table::LoadedTable;
use icewright::table::{FileEntry, PartitionTuple};
use icewright::testing::builder::{file_entry, metadata};
use icewright::testing::{FaultyStore, MemoryStore, Operation};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) const LOCATION: &str = "mem://lake/t";

/// A field with its id.
pub(crate) fn field(id: i32, name: &str, ty: DataType) -> Field {
    Field::new(name, ty, true).with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.into(), id.to_string())]))
}

/// A batch of nullable columns with ids; id 0 means none.
pub(crate) fn batch(columns: Vec<(i32, &str, ArrayRef)>) -> RecordBatch {
    let fields: Fields = columns
        .iter()
        .map(|(id, name, array)| match id {
            0 => Field::new(*name, array.data_type().clone(), true),
            _ => field(*id, name, array.data_type().clone()),
        })
        .collect();
    let arrays = columns.into_iter().map(|(_, _, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns of one length")
}

pub(crate) fn longs(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

pub(crate) fn texts<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(StringArray::from_iter(values))
}

pub(crate) fn parquet(batch: &RecordBatch) -> Bytes {
    parquet_with(batch, WriterProperties::builder().build())
}

pub(crate) fn parquet_with(batch: &RecordBatch, properties: WriterProperties) -> Bytes {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("a writable schema");
    writer.write(batch).expect("a writable batch");
    Bytes::from(writer.into_inner().expect("a finished file"))
}

/// A table and its store.
pub(crate) struct Table {
    pub(crate) store: MemoryStore,
    /// `store` as rewrites see it.
    pub(crate) faulty: FaultyStore,
    metadata: Value,
    pub(crate) budget: u64,
    pub(crate) threads: usize,
    pub(crate) run: RunId,
    pub(crate) cancel: CancellationToken,
}

impl Table {
    /// A version 2 table with one schema.
    pub(crate) fn new(fields: Value) -> Self {
        let metadata = metadata(json!({
            "location": LOCATION, "last-sequence-number": 100, "last-column-id": 1000, "last-partition-id": 1100,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        }));
        let run = RunId(SystemClock.uuid());
        let store = MemoryStore::new();
        let faulty = FaultyStore::new(Arc::new(store.clone()));
        Self { store, faulty, metadata, budget: 1 << 30, threads: 2, run, cancel: CancellationToken::new() }
    }

    /// Makes `fields` the current schema; the earlier ones stay in the history.
    pub(crate) fn evolve(mut self, fields: Value) -> Self {
        let schemas = self.metadata["schemas"].as_array_mut().expect("schemas are a list");
        let id = schemas.len();
        schemas.push(json!({"type": "struct", "schema-id": id, "fields": fields}));
        self.metadata["current-schema-id"] = json!(id);
        self
    }

    /// Makes `fields` the default spec; the earlier ones stay.
    pub(crate) fn partitioned(mut self, fields: Value) -> Self {
        let specs = self.metadata["partition-specs"].as_array_mut().expect("specs are a list");
        let id = specs.len();
        specs.push(json!({"spec-id": id, "fields": fields}));
        self.metadata["default-spec-id"] = json!(id);
        self
    }

    pub(crate) fn property(mut self, key: &str, value: &str) -> Self {
        self.metadata["properties"][key] = json!(value);
        self
    }

    pub(crate) fn format_version(mut self, version: u8) -> Self {
        self.metadata["format-version"] = json!(version);
        if version == 3 {
            self.metadata["next-row-id"] = json!(0);
        }
        self
    }

    fn entry(&self, content: DataContentType, name: &str, bytes: &Bytes, rows: u64, seq: i64) -> FileEntry {
        let path = format!("{LOCATION}/data/{name}");
        self.store.put(&path, bytes.clone());
        FileEntry {
            content,
            data_sequence_number: seq,
            file_sequence_number: Some(seq),
            ..file_entry(&path, rows, bytes.len() as u64)
        }
    }

    pub(crate) fn data(&self, name: &str, batch: &RecordBatch, seq: i64) -> FileEntry {
        self.entry(DataContentType::Data, name, &parquet(batch), batch.num_rows() as u64, seq)
    }

    pub(crate) fn raw(&self, name: &str, bytes: &Bytes, rows: u64, seq: i64) -> FileEntry {
        self.entry(DataContentType::Data, name, bytes, rows, seq)
    }

    pub(crate) fn equality(&self, name: &str, batch: &RecordBatch, ids: &[i32], seq: i64) -> Arc<FileEntry> {
        let rows = batch.num_rows() as u64;
        let mut entry = self.entry(DataContentType::EqualityDeletes, name, &parquet(batch), rows, seq);
        entry.equality_ids = ids.to_vec();
        Arc::new(entry)
    }

    pub(crate) fn positions(&self, name: &str, rows: &[(&str, i64)], seq: i64) -> Arc<FileEntry> {
        let paths = rows.iter().map(|(path, _)| *path);
        let paths: ArrayRef = Arc::new(StringArray::from_iter_values(paths));
        // Columns in another order than usual: they are told by their ids.
        let columns =
            vec![(2_147_483_545, "pos", longs(rows.iter().map(|(_, p)| *p))), (2_147_483_546, "file_path", paths)];
        let count = rows.len() as u64;
        Arc::new(self.entry(DataContentType::PositionDeletes, name, &parquet(&batch(columns)), count, seq))
    }

    pub(crate) fn context(&self) -> RewriteContext {
        let loaded = LoadedTable::from_metadata_json("mem://lake/t/metadata/v1.json".into(), &self.metadata);
        RewriteContext {
            store: Arc::new(self.faulty.clone()),
            loaded: Arc::new(loaded.expect("valid metadata")),
            run_id: self.run,
            memory: Arc::new(MemoryBudget::new(self.budget)),
            cancel: self.cancel.clone(),
            threads: self.threads,
            progress: Arc::new(Progress::default()),
        }
    }

    pub(crate) async fn rewrite(&self, group: &FileGroup) -> Result<RewriteResult> {
        rewrite_file_group(&self.context(), group).await
    }

    /// Rewrites and returns the rows, one text per row.
    pub(crate) async fn rewritten_rows(&self, group: &FileGroup) -> Vec<String> {
        let result = self.rewrite(group).await.expect("a rewrite that succeeds");
        let rows: Vec<String> = result.added.iter().flat_map(|f| self.rows(f)).collect();
        assert_eq!(result.output_rows, rows.len() as u64);
        assert_eq!(result.input_rows - result.deleted_rows, result.output_rows);
        rows
    }

    /// Requests so far that read.
    pub(crate) fn reads(&self) -> usize {
        self.faulty.count(Operation::Read) + self.faulty.count(Operation::ReadRange)
    }

    /// The decoded batches of a file, by a plain Parquet reader.
    pub(crate) fn batches(&self, file: &DataFile) -> Vec<RecordBatch> {
        let bytes = self.store.content(file.file_path()).expect("an output that exists");
        assert_eq!(bytes.len() as u64, file.file_size_in_bytes());
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a Parquet file").build();
        reader.expect("a readable file").collect::<Result<_, _>>().expect("readable rows")
    }

    pub(crate) fn rows(&self, file: &DataFile) -> Vec<String> {
        self.batches(file).iter().flat_map(rows_of).collect()
    }
}

/// Arrow prints named zones only with a zone database.
fn without_zone(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Timestamp(unit, Some(_)) => {
            arrow::compute::cast(array, &DataType::Timestamp(*unit, None)).expect("the same instants")
        }
        _ => array.clone(),
    }
}

/// `a|b|c` per row, with `-` for NULL.
pub(crate) fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("-");
    let columns: Vec<ArrayRef> = batch.columns().iter().map(without_zone).collect();
    let columns: Vec<ArrayFormatter<'_>> =
        columns.iter().map(|c| ArrayFormatter::try_new(c.as_ref(), &options).expect("a printable type")).collect();
    let row = |r: usize| columns.iter().map(|c| c.value(r).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

pub(crate) fn task(data_file: FileEntry, delete_files: &[&Arc<FileEntry>]) -> RewriteTask {
    RewriteTask { data_file: Arc::new(data_file), delete_files: delete_files.iter().map(|f| Arc::clone(f)).collect() }
}

/// One output of any size, unpartitioned.
pub(crate) fn group(tasks: Vec<RewriteTask>) -> FileGroup {
    FileGroup {
        index: 0,
        partition: tasks.first().map(|t| t.data_file.partition.clone()),
        output_spec_id: 0,
        input_bytes: tasks.iter().map(|t| t.data_file.file_size_bytes).sum(),
        tasks,
        expected_output_files: 1,
        input_split_size_bytes: 512 << 20,
        write_max_file_size_bytes: 700 << 20,
    }
}

/// A partition of one text value.
pub(crate) fn text_partition(spec_id: i32, value: Option<&str>) -> Arc<PartitionTuple> {
    let values = std::iter::once(value.map(Literal::string)).collect();
    Arc::new(PartitionTuple { spec_id, values })
}
