//! Rewriting a table under equality deletes, by the number of keys.
//!
//! `ICEWRIGHT_BENCH_ROWS` (2,000,000), `ICEWRIGHT_BENCH_KEYS` (`0,100000,10000000`), `ICEWRIGHT_BENCH_THREADS` (all cores).
//! Half of the keys meet a row, as far as there are rows.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema};
use iceberg::spec::DataContentType;
use icewright::plan::RewriteTask;
use icewright::rewrite::rewrite_file_group;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::file::properties::WriterProperties;
use serde_json::json;
use support::number;

const DATA_FILES: u64 = 10;
const DELETE_FILES: u64 = 10;
const BATCH: usize = 8192;

fn main() {
    if support::run_if_child(run) {
        return;
    }
    let keys = std::env::var("ICEWRIGHT_BENCH_KEYS").unwrap_or_else(|_| "0,100000,10000000".into());
    let directory = tempfile::tempdir().expect("a temporary directory");
    support::measure("generate", directory.path());
    println!("{} rows (id long, s string)", rows());
    println!(
        "{:<12}{:>9}{:>9}{:>11}{:>14}{:>9}{:>9}{:>10}",
        "keys", "wall s", "cpu s", "peak MiB", "bytes per key", "in MiB", "out MiB", "requests"
    );
    let mut base = None;
    for keys in keys.split(',').map(str::trim) {
        support::measure(&format!("generate {keys}"), directory.path());
        let m = support::measure(keys, directory.path());
        let count: f64 = keys.parse().expect("a number of keys");
        let per_key = (m.peak_mib - *base.get_or_insert(m.peak_mib)) * f64::from(1 << 20) / count;
        let per_key = if count > 0.0 { format!("{per_key:.0}") } else { "-".into() };
        let (wall, cpu, peak, requests) = (m.wall_seconds, m.cpu_seconds, m.peak_mib, m.requests);
        let (read, written) = (m.bytes_in >> 20, m.bytes_out >> 20);
        println!("{keys:<12}{wall:>9.2}{cpu:>9.2}{peak:>11.0}{per_key:>14}{read:>9}{written:>9}{requests:>10}");
    }
}

fn rows() -> u64 {
    number("ICEWRIGHT_BENCH_ROWS", 2_000_000)
}

fn data_path(directory: &Path, file: u64) -> PathBuf {
    directory.join(format!("data-{file}.parquet"))
}

fn delete_path(directory: &Path, keys: u64, file: u64) -> PathBuf {
    directory.join(format!("delete-{keys}-{file}.parquet"))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .enumerate()
        .map(|(i, (name, array))| {
            let id = [(PARQUET_FIELD_ID_META_KEY.to_string(), (i + 1).to_string())].into();
            Field::new(*name, array.data_type().clone(), true).with_metadata(id)
        })
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns of one length")
}

fn share(total: u64, parts: u64, part: u64) -> std::ops::Range<u64> {
    total * part / parts..total * (part + 1) / parts
}

fn run(case: &str, directory: &Path) -> (u64, u64, u64) {
    match case.split_once(' ') {
        Some((_, keys)) => generate_deletes(directory, keys.parse().expect("a number")),
        None if case == "generate" => generate_data(directory),
        None => rewrite(directory, case.parse().expect("a number")),
    }
}

fn generate_data(directory: &Path) -> (u64, u64, u64) {
    for file in 0..DATA_FILES {
        let range = share(rows(), DATA_FILES, file);
        let batches = range.clone().step_by(BATCH).map(|start| {
            let ids = start..(start + BATCH as u64).min(range.end);
            let texts = StringArray::from_iter_values(ids.clone().map(|i| format!("value-{}", i.wrapping_mul(7919))));
            batch(vec![("id", Arc::new(Int64Array::from_iter_values(ids.map(|i| i as i64)))), ("s", Arc::new(texts))])
        });
        support::write_parquet(&data_path(directory, file), batches, WriterProperties::default());
    }
    (0, 0, 0)
}

/// Even keys up to twice the number of keys, in an order that is no order.
fn generate_deletes(directory: &Path, keys: u64) -> (u64, u64, u64) {
    for file in 0..DELETE_FILES {
        let range = share(keys, DELETE_FILES, file);
        if range.is_empty() {
            continue;
        }
        let batches = range.clone().step_by(BATCH).map(|start| {
            let numbers = start..(start + BATCH as u64).min(range.end);
            let ids = numbers.map(|n| (n.wrapping_mul(7_368_787) % keys * 2) as i64);
            batch(vec![("id", Arc::new(Int64Array::from_iter_values(ids)))])
        });
        support::write_parquet(&delete_path(directory, keys, file), batches, WriterProperties::default());
    }
    (0, 0, 0)
}

fn rewrite(directory: &Path, keys: u64) -> (u64, u64, u64) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = number("ICEWRIGHT_BENCH_THREADS", cores as u64).max(1) as usize;
    let fields = json!([
        {"id": 1, "name": "id", "type": "long", "required": false},
        {"id": 2, "name": "s", "type": "string", "required": false},
    ]);
    let delete_files: Vec<_> = (0..DELETE_FILES)
        .map(|file| (delete_path(directory, keys, file), share(keys, DELETE_FILES, file)))
        .filter(|(_, range)| !range.is_empty())
        .map(|(path, range)| {
            let count = range.end - range.start;
            Arc::new(support::entry(&path, DataContentType::EqualityDeletes, count, 2, &[1]))
        })
        .collect();
    let tasks = (0..DATA_FILES).map(|file| {
        let range = share(rows(), DATA_FILES, file);
        let count = range.end - range.start;
        let data_file = Arc::new(support::entry(&data_path(directory, file), DataContentType::Data, count, 1, &[]));
        RewriteTask { data_file, delete_files: delete_files.clone().into() }
    });
    let group = support::group(tasks.collect());
    let store = Arc::new(support::Directory::default());
    let context = support::context(store.clone(), support::table(directory, &fields), threads);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let result = runtime.expect("a runtime").block_on(rewrite_file_group(&context, &group)).expect("a rewrite");
    let expected = keys.min(rows().div_ceil(2));
    assert_eq!(result.deleted_rows, expected, "every even id below twice the number of keys");
    for file in &result.added {
        std::fs::remove_file(file.file_path()).ok();
    }
    (result.input_bytes, result.output_bytes, store.requests.load(Ordering::Relaxed))
}
