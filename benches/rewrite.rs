//! Rewriting many small files of log-like rows into one, against a bare Parquet read-write loop with the same settings
//! and threads (which writes one file per thread).
//!
//! `ICEWRIGHT_BENCH_ROWS` (6,000,000: about 1 GB of rows), `ICEWRIGHT_BENCH_FILES` (200), `ICEWRIGHT_BENCH_THREADS` (all cores).

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use bytes::Bytes;
use iceberg::spec::DataContentType;
use icewright::plan::RewriteTask;
use icewright::rewrite::rewrite_file_group;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::json;
use support::{Measured, number};

const COLUMNS: [(&str, &str); 9] = [
    ("id", "long"),
    ("ts", "timestamptz"),
    ("host", "string"),
    ("level", "string"),
    ("status", "int"),
    ("bytes", "long"),
    ("latency", "double"),
    ("message", "string"),
    ("hour", "string"),
];
const BATCH: u64 = 8192;

fn main() {
    let threads = threads();
    if support::run_if_child(|case, directory| run(case, directory, threads)) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let made = support::measure("generate", directory.path());
    println!("{} rows in {} files of {:.0} MiB in all, {threads} threads", rows(), files(), mib(made.bytes_out));
    let bare = support::measure("bare loop", directory.path());
    let ours = support::measure("rewrite", directory.path());
    println!(
        "{:<12}{:>9}{:>9}{:>11}{:>9}{:>9}{:>10}",
        "", "wall s", "cpu s", "peak MiB", "in MiB", "out MiB", "requests"
    );
    print("bare loop", &bare);
    print("rewrite", &ours);
    println!("ratio       {:>9.2}{:>9.2}", ours.wall_seconds / bare.wall_seconds, ours.cpu_seconds / bare.cpu_seconds);
}

fn print(name: &str, m: &Measured) {
    let (wall, cpu, peak, requests) = (m.wall_seconds, m.cpu_seconds, m.peak_mib, m.requests);
    let (read, written) = (mib(m.bytes_in), mib(m.bytes_out));
    println!("{name:<12}{wall:>9.2}{cpu:>9.2}{peak:>11.0}{read:>9.0}{written:>9.0}{requests:>10}");
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn rows() -> u64 {
    number("ICEWRIGHT_BENCH_ROWS", 6_000_000)
}

fn files() -> u64 {
    number("ICEWRIGHT_BENCH_FILES", 200).max(1)
}

fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    number("ICEWRIGHT_BENCH_THREADS", cores as u64).max(1) as usize
}

fn run(case: &str, directory: &Path, threads: usize) -> (u64, u64, u64) {
    match case {
        "generate" => generate(directory),
        "bare loop" => bare_loop(directory, threads),
        _ => rewrite(directory, threads),
    }
}

fn path(directory: &Path, file: u64) -> PathBuf {
    directory.join(format!("input-{file:05}.parquet"))
}

fn rows_of(file: u64) -> std::ops::Range<u64> {
    rows() * file / files()..rows() * (file + 1) / files()
}

fn properties() -> WriterProperties {
    let level = ZstdLevel::try_new(3).expect("a valid level");
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_dictionary_page_size_limit(2 << 20)
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(Some(128 << 20))
        .build()
}

fn generate(directory: &Path) -> (u64, u64, u64) {
    let bytes = (0..files()).map(|file| {
        let range = rows_of(file);
        let starts = range.clone().step_by(BATCH as usize);
        let batches = starts.map(|start| log_rows(start..(start + BATCH).min(range.end)));
        support::write_parquet(&path(directory, file), batches, properties())
    });
    (0, bytes.sum(), 0)
}

/// A number that looks random and depends on the row and a column only.
fn hash(row: u64, column: u64) -> u64 {
    let mut x = row.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(column.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn message(row: u64) -> String {
    format!(
        "{{\"req\":\"{:X}\",\"user\":{},\"path\":\"/api/v1/item/{}\",\"agent\":\"client-{}\",\"trace\":\"{:X}{:X}\"}}",
        hash(row, 5),
        hash(row, 6) % 90_000,
        hash(row, 7) % 4_000,
        hash(row, 8) % 40,
        hash(row, 9),
        hash(row, 10)
    )
}

fn log_rows(range: std::ops::Range<u64>) -> RecordBatch {
    let ids = || range.clone();
    let texts = |f: &dyn Fn(u64) -> String| Arc::new(StringArray::from_iter_values(ids().map(f))) as ArrayRef;
    let levels = ["INFO", "INFO", "INFO", "WARN", "ERROR", "DEBUG"];
    let statuses = [200, 200, 200, 404, 500];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids().map(|i| i as i64))),
        Arc::new(
            TimestampMicrosecondArray::from_iter_values(ids().map(|i| (1_743_465_600_000 + i as i64 * 7) * 1000))
                .with_timezone("UTC"),
        ),
        texts(&|i| format!("host-{}", hash(i, 0) % 500)),
        texts(&|i| levels[(hash(i, 1) % 6) as usize].into()),
        Arc::new(Int32Array::from_iter_values(ids().map(|i| statuses[(hash(i, 2) % 5) as usize]))),
        Arc::new(Int64Array::from_iter_values(ids().map(|i| (hash(i, 3) % 100_000) as i64))),
        Arc::new(Float64Array::from_iter_values(ids().map(|i| (hash(i, 4) % 1_000_000) as f64 / 1000.0))),
        texts(&message),
        texts(&|_| "2025-04-01 00".into()),
    ];
    let fields: Vec<Field> = COLUMNS
        .iter()
        .zip(&columns)
        .enumerate()
        .map(|(i, ((name, _), array))| {
            let id = [(PARQUET_FIELD_ID_META_KEY.to_string(), (i + 1).to_string())].into();
            Field::new(*name, array.data_type().clone(), true).with_metadata(id)
        })
        .collect();
    debug_assert_eq!(fields[1].data_type(), &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns of one length")
}

/// Each thread reads its share of the files and writes one.
fn bare_loop(directory: &Path, threads: usize) -> (u64, u64, u64) {
    let share = |thread: u64| (files() * thread / threads as u64)..(files() * (thread + 1) / threads as u64);
    let totals: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|thread| scope.spawn(move || copy(directory, share(thread), &format!("bare-{thread}.parquet"))))
            .collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).collect()
    });
    (totals.iter().map(|t| t.0).sum(), totals.iter().map(|t| t.1).sum(), files() + threads as u64)
}

fn copy(directory: &Path, inputs: std::ops::Range<u64>, output: &str) -> (u64, u64) {
    let output = directory.join(output);
    let mut writer = None;
    let mut bytes_in = 0;
    for file in inputs {
        let bytes = Bytes::from(std::fs::read(path(directory, file)).expect("an input"));
        bytes_in += bytes.len() as u64;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a Parquet file");
        let schema = reader.schema().clone();
        let reader = reader.with_batch_size(BATCH as usize).build().expect("a readable file");
        let writer = writer.get_or_insert_with(|| {
            let file = std::fs::File::create(&output).expect("a writable directory");
            ArrowWriter::try_new(file, schema, Some(properties())).expect("a writable schema")
        });
        for batch in reader {
            writer.write(&batch.expect("readable rows")).expect("a writable batch");
        }
    }
    if let Some(writer) = writer {
        writer.close().expect("a finished file");
    }
    let written = std::fs::metadata(&output).map_or(0, |m| m.len());
    std::fs::remove_file(&output).ok();
    (bytes_in, written)
}

fn rewrite(directory: &Path, threads: usize) -> (u64, u64, u64) {
    let fields: Vec<_> = COLUMNS
        .iter()
        .enumerate()
        .map(|(i, (name, ty))| json!({"id": i + 1, "name": name, "type": ty, "required": false}))
        .collect();
    let loaded = support::table(directory, &json!(fields));
    let tasks = (0..files()).map(|file| {
        let range = rows_of(file);
        let rows = range.end - range.start;
        let entry = support::entry(&path(directory, file), DataContentType::Data, rows, 1, &[]);
        RewriteTask { data_file: Arc::new(entry), delete_files: Vec::new().into() }
    });
    let group = support::group(tasks.collect());
    let store = Arc::new(support::Directory::default());
    let context = support::context(store.clone(), loaded, threads);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let result = runtime.expect("a runtime").block_on(rewrite_file_group(&context, &group)).expect("a rewrite");
    assert_eq!(result.output_rows, rows());
    for file in &result.added {
        std::fs::remove_file(file.file_path()).ok();
    }
    (result.input_bytes, result.output_bytes, store.requests.load(Ordering::Relaxed))
}
