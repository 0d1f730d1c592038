//! What the benchmarks share: a store on a local directory that counts, tables made by hand, and cases that run in
//! processes of their own so that each peak of memory is its own.

use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use iceberg::spec::DataContentType;
use icewright::clock::{Clock, SystemClock};
use icewright::error::{Error, Result};
use icewright::plan::{FileGroup, RewriteTask};
use icewright::rewrite::{MemoryBudget, Progress, RewriteContext};
use icewright::run_id::RunId;
use icewright::storage::{Store, StoreWriter};
use icewright::table::ListedFile;
use icewright::table::LoadedTable;
use icewright::table::{FileEntry, PartitionTuple, PartitionValues};
use icewright::testing::builder::{file_entry, metadata};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const CASE: &str = "ICEWRIGHT_BENCH_CASE";
const DIRECTORY: &str = "ICEWRIGHT_BENCH_DIR";

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// Files of a local directory; paths are plain.
#[derive(Default)]
pub(crate) struct Directory {
    pub(crate) requests: AtomicU64,
}

fn io_error(e: std::io::Error) -> Error {
    Error::unavailable(e.to_string())
}

struct File {
    file: std::fs::File,
    size: u64,
}

#[async_trait]
impl Store for Directory {
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        tokio::fs::read(path).await.map(Bytes::from).map_err(io_error)
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        use tokio::io::{AsyncReadExt, AsyncSeekExt};
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut file = tokio::fs::File::open(path).await.map_err(io_error)?;
        file.seek(std::io::SeekFrom::Start(range.start)).await.map_err(io_error)?;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).map_err(|e| Error::internal(e.to_string()))?];
        file.read_exact(&mut bytes).await.map_err(io_error)?;
        Ok(bytes.into())
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        let size = tokio::fs::metadata(path).await.map_err(io_error)?.len();
        Ok(Some(ListedFile { path: path.into(), size, last_modified_ms: None }))
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(parent) = Path::new(path).parent() {
            std::fs::create_dir_all(parent).map_err(io_error)?;
        }
        let file = std::fs::File::create_new(path).map_err(io_error)?;
        Ok(Box::new(File { file, size: 0 }))
    }

    fn list(&self, _prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        stream::empty().boxed()
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        paths.iter().map(|p| std::fs::remove_file(p).map_err(io_error)).collect()
    }
}

#[async_trait]
impl StoreWriter for File {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        self.size += content.len() as u64;
        self.file.write_all(&content).map_err(io_error)
    }

    async fn close(&mut self) -> Result<u64> {
        Ok(self.size)
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Writes a Parquet file; returns its size.
pub(crate) fn write_parquet(
    path: &Path,
    batches: impl Iterator<Item = RecordBatch>,
    properties: WriterProperties,
) -> u64 {
    let mut batches = batches.peekable();
    let schema = batches.peek().expect("at least one batch").schema();
    let file = std::fs::File::create(path).expect("a writable directory");
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).expect("a writable schema");
    batches.for_each(|batch| writer.write(&batch).expect("a writable batch"));
    writer.close().expect("a finished file");
    std::fs::metadata(path).expect("the file").len()
}

/// An unpartitioned table of `fields` with zstd files.
pub(crate) fn table(directory: &Path, fields: &Value) -> Arc<LoadedTable> {
    let metadata = metadata(json!({
        "location": directory, "last-sequence-number": 9, "last-column-id": 100,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "properties": {"write.parquet.compression-codec": "zstd"},
    }));
    Arc::new(LoadedTable::from_metadata_json("v1.json".into(), &metadata).expect("valid metadata"))
}

/// The manifest's view of a file.
pub(crate) fn entry(
    path: &Path,
    content: DataContentType,
    rows: u64,
    sequence: i64,
    equality_ids: &[i32],
) -> FileEntry {
    FileEntry {
        content,
        data_sequence_number: sequence,
        file_sequence_number: None,
        equality_ids: equality_ids.to_vec(),
        ..file_entry(&path.to_string_lossy(), rows, std::fs::metadata(path).expect("the file").len())
    }
}

/// All tasks into one file.
pub(crate) fn group(tasks: Vec<RewriteTask>) -> FileGroup {
    FileGroup {
        index: 0,
        partition: Some(Arc::new(PartitionTuple { spec_id: 0, values: PartitionValues::empty() })),
        output_spec_id: 0,
        input_bytes: tasks.iter().map(|t| t.data_file.file_size_bytes).sum(),
        tasks,
        expected_output_files: 1,
        input_split_size_bytes: 512 << 20,
        write_max_file_size_bytes: 716 << 20,
    }
}

pub(crate) fn context(store: Arc<Directory>, loaded: Arc<LoadedTable>, threads: usize) -> RewriteContext {
    RewriteContext {
        store,
        loaded,
        run_id: RunId(SystemClock.uuid()),
        memory: Arc::new(MemoryBudget::new(4 << 30)),
        cancel: CancellationToken::new(),
        threads,
        progress: Arc::new(Progress::default()),
    }
}

/// What a case measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    pub(crate) wall_seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_mib: f64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) requests: u64,
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|t| t.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

/// Peak resident memory of this process.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

/// If this process is a child, runs its case and tells the parent.
pub(crate) fn run_if_child(case: impl Fn(&str, &Path) -> (u64, u64, u64)) -> bool {
    let (Ok(name), Ok(directory)) = (std::env::var(CASE), std::env::var(DIRECTORY)) else { return false };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let (bytes_in, bytes_out, requests) = case(&name, Path::new(&directory));
    let wall = start.elapsed().as_secs_f64();
    println!("RESULT {wall} {} {} {bytes_in} {bytes_out} {requests}", cpu_seconds() - cpu, peak_mib());
    true
}

/// Runs a case in a process of its own.
pub(crate) fn measure(case: &str, directory: &Path) -> Measured {
    let program = std::env::current_exe().expect("this program's path");
    let output = Command::new(program).env(CASE, case).env(DIRECTORY, directory).output().expect("a child process");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|l| l.strip_prefix("RESULT "));
    let line = line.unwrap_or_else(|| panic!("{case} failed: {text}{}", String::from_utf8_lossy(&output.stderr)));
    let values: Vec<f64> = line.split(' ').map(|v| v.parse().expect("a number")).collect();
    Measured {
        wall_seconds: values[0],
        cpu_seconds: values[1],
        peak_mib: values[2],
        bytes_in: values[3] as u64,
        bytes_out: values[4] as u64,
        requests: values[5] as u64,
    }
}
