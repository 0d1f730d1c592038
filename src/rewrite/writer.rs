//! Output files: row groups in, bytes streamed to the store in bounded parts, a manifest-ready [`DataFile`] out.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, SchemaRef, Struct};
use parking_lot::Mutex;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::writer::SerializedFileWriter;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::rewrite::Progress;
use crate::rewrite::encode::{EncodedRowGroup, RowGroupFactory};
use crate::rewrite::filling::Filling;
use crate::rewrite::location::DataLocation;
use crate::rewrite::memory::UPLOAD_PART;
use crate::rewrite::metrics::{FloatStats, column_metrics};
use crate::rewrite::metrics_modes::MetricsMode;
use crate::run_id::RunId;
use crate::storage::{StoreRef, StoreWriter};

/// Paths that a group has begun to write. A path is in here before its first byte is sent.
#[derive(Debug, Default)]
pub(crate) struct OwnOutputs(Mutex<Vec<String>>);

impl OwnOutputs {
    fn track(&self, path: &str) {
        self.0.lock().push(path.to_string());
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// Everything that the output files of a group share.
pub(crate) struct OutputSettings {
    pub store: StoreRef,
    /// Runs the store's calls for threads that may block.
    pub runtime: Handle,
    pub factory: Arc<RowGroupFactory>,
    pub location: DataLocation,
    pub schema: SchemaRef,
    pub modes: HashMap<i32, MetricsMode>,
    pub spec_id: i32,
    pub filling: Filling,
    /// Encoded bytes at which a row group ends.
    pub row_group_bytes: u64,
    /// Bytes of memory at which a row group ends, however few they encode to: mostly dictionaries and pages not yet compressed.
    pub row_group_memory: u64,
    /// How many times larger than its input an output may become, at worst.
    pub growth: u64,
    /// Names of this group's files: the group's number, this attempt's, the run's, and a count.
    pub names: OutputNames,
    pub outputs: Arc<OwnOutputs>,
    pub progress: Arc<Progress>,
}

/// Gives out file names that no other attempt of any run gives out.
#[derive(Debug)]
pub(crate) struct OutputNames {
    group: usize,
    attempt: u64,
    /// Marks the files as those of a run on this table.
    token: String,
    count: AtomicU64,
}

/// Rewrites begun by this process: a group planned again in the same run must not meet its earlier names.
static ATTEMPTS: AtomicU64 = AtomicU64::new(0);

impl OutputNames {
    /// Names for one rewrite of group number `group` of a table.
    pub(crate) fn new(group: usize, run: RunId, table: Uuid) -> Self {
        let token = run.table_token(table);
        Self { group, attempt: ATTEMPTS.fetch_add(1, Ordering::Relaxed), token, count: AtomicU64::new(1) }
    }

    fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        format!("{:05}-{}-{}-{count:05}.parquet", self.group, self.attempt, self.token)
    }
}

#[derive(Debug)]
pub(crate) struct WrittenFile {
    pub data_file: DataFile,
}

/// An output file being written. Lives on a thread that may block.
pub(crate) struct OutputFile {
    settings: Arc<OutputSettings>,
    partition: Struct,
    path: String,
    parquet: SerializedFileWriter<UploadSink>,
    floats: HashMap<i32, FloatStats>,
    rows: u64,
}

impl OutputFile {
    /// Begins a file of a partition, whose path part is `partition_path`.
    pub(crate) fn create(settings: &Arc<OutputSettings>, partition: &Struct, partition_path: &str) -> Result<Self> {
        let path = settings.location.path(partition_path, &settings.names.next());
        settings.outputs.track(&path);
        let writer = settings.runtime.block_on(settings.store.writer(&path))?;
        let sink = UploadSink {
            runtime: settings.runtime.clone(),
            writer,
            progress: Arc::clone(&settings.progress),
            buffer: Vec::new(),
            failure: None,
        };
        let (root, properties) = settings.factory.file_parts();
        let parquet = SerializedFileWriter::new(sink, root, properties)?;
        let settings = Arc::clone(settings);
        Ok(Self { settings, partition: partition.clone(), path, parquet, floats: HashMap::new(), rows: 0 })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.parquet.bytes_written() as u64
    }

    /// Bytes that wait for their upload.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.parquet.inner().buffer.capacity() as u64
    }

    /// Whether a row group of so many bytes still fits.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.rows == 0 || self.settings.filling.fits(self.bytes(), bytes)
    }

    pub(crate) fn append(&mut self, group: EncodedRowGroup) -> Result<()> {
        let result = append(&mut self.parquet, group.chunks);
        self.upload_result(result)?;
        self.rows += group.rows;
        for (id, stats) in &group.floats {
            self.floats.entry(*id).or_default().merge(stats);
        }
        Ok(())
    }

    /// Ends the file and makes it visible.
    pub(crate) fn close(mut self) -> Result<WrittenFile> {
        let finished =
            self.parquet.finish().and_then(|footer| self.parquet.flush().map(|()| footer).map_err(Into::into));
        let footer = self.upload_result(finished)?;
        let sink = self.parquet.inner_mut();
        let size = sink.close()?;
        let data_file = self.data_file(&footer, size)?;
        Ok(WrittenFile { data_file })
    }

    /// Gives the file up; what the store may have kept of it is deleted later by its path.
    pub(crate) fn abort(mut self) {
        let sink = self.parquet.inner_mut();
        if let Err(error) = sink.runtime.block_on(sink.writer.abort()) {
            tracing::warn!(path = %self.path, %error, "could not abort an upload");
        }
    }

    /// The store's own error, if that is why Parquet could not write.
    fn upload_result<T>(&mut self, result: Result<T, parquet::errors::ParquetError>) -> Result<T> {
        result.map_err(|e| {
            let cause = self.parquet.inner_mut().failure.take();
            cause.unwrap_or_else(|| Error::from(e).context(format!("write {}", self.path)))
        })
    }

    fn data_file(&self, footer: &ParquetMetaData, size: u64) -> Result<DataFile> {
        let settings = &self.settings;
        let metrics = column_metrics(footer, &settings.schema, &settings.modes, &self.floats)?;
        let offsets = footer.row_groups().iter().filter(|g| g.num_columns() > 0);
        let offsets = offsets.map(|g| i64::try_from(g.column(0).byte_range().0).unwrap_or(i64::MAX)).collect();
        DataFileBuilder::default()
            .content(DataContentType::Data)
            .file_path(self.path.clone())
            .file_format(DataFileFormat::Parquet)
            .partition(self.partition.clone())
            .partition_spec_id(settings.spec_id)
            .record_count(self.rows)
            .file_size_in_bytes(size)
            .column_sizes(metrics.column_sizes)
            .value_counts(metrics.value_counts)
            .null_value_counts(metrics.null_value_counts)
            .nan_value_counts(metrics.nan_value_counts)
            .lower_bounds(metrics.lower_bounds)
            .upper_bounds(metrics.upper_bounds)
            .split_offsets(Some(offsets))
            .build()
            .map_err(|e| Error::internal(format!("describe {}: {e}", self.path)))
    }
}

fn append(
    file: &mut SerializedFileWriter<UploadSink>,
    chunks: Vec<parquet::arrow::arrow_writer::ArrowColumnChunk>,
) -> Result<(), parquet::errors::ParquetError> {
    let mut group = file.next_row_group()?;
    for chunk in chunks {
        chunk.append_to_row_group(&mut group)?;
    }
    group.close()?;
    Ok(())
}

/// Sends what Parquet writes to the store, in parts.
struct UploadSink {
    runtime: Handle,
    writer: Box<dyn StoreWriter>,
    progress: Arc<Progress>,
    buffer: Vec<u8>,
    failure: Option<Error>,
}

impl UploadSink {
    fn send(&mut self) -> io::Result<()> {
        let part = Bytes::from(std::mem::take(&mut self.buffer));
        let bytes = part.len() as u64;
        match self.runtime.block_on(self.writer.write(part)) {
            Ok(()) => {
                self.progress.add_written(bytes);
                Ok(())
            }
            Err(error) => {
                let told = io::Error::other(error.to_string());
                self.failure = Some(error);
                Err(told)
            }
        }
    }

    fn close(&mut self) -> Result<u64> {
        if !self.buffer.is_empty() && self.send().is_err() {
            return Err(self.failure.take().unwrap_or_else(|| Error::internal("an upload failed without a cause")));
        }
        self.runtime.block_on(self.writer.close())
    }
}

impl io::Write for UploadSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() as u64 >= UPLOAD_PART {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
