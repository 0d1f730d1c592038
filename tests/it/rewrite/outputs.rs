//! Output files: properties, sizes, places and partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, StringArray};
use iceberg::spec::{DataFile, Literal, Struct};
use icewright::plan::FileGroup;
use icewright::run_id::RunId;
use icewright::table::PartitionTuple;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::json;

use super::table::{LOCATION, Table, batch, group, longs, parquet_with, task, text_partition, texts};

fn two_columns() -> Table {
    Table::new(json!([
        {"id": 1, "name": "id", "type": "long", "required": false},
        {"id": 2, "name": "s", "type": "string", "required": false},
    ]))
}

fn reader(t: &Table, file: &DataFile) -> SerializedFileReader<bytes::Bytes> {
    SerializedFileReader::new(t.store.content(file.file_path()).expect("an output")).expect("a Parquet file")
}

/// The first column.
fn ids(t: &Table, file: &DataFile) -> Vec<i64> {
    let id = |row: &String| row.split('|').next().and_then(|id| id.parse().ok());
    t.rows(file).iter().map(|row| id(row).expect("a number")).collect()
}

/// Text that does not compress.
fn noise(from: u64, bytes: usize) -> String {
    let mut state = from.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text.truncate(bytes);
    text
}

fn noisy(ids: std::ops::Range<i64>, bytes: usize) -> arrow::array::RecordBatch {
    let strings: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(|i| noise(i as u64 + 1, bytes))));
    batch(vec![(1, "id", longs(ids)), (2, "s", strings)])
}

#[tokio::test]
async fn write_properties_are_honoured() {
    let t = two_columns()
        .property("write.parquet.compression-codec", "zstd")
        .property("write.parquet.compression-level", "5")
        .property("write.parquet.row-group-size-bytes", "200000")
        .property("write.parquet.page-row-limit", "100")
        .property("write.parquet.bloom-filter-enabled.column.id", "true")
        .property("write.parquet.bloom-filter-max-bytes", "1024")
        .property("write.parquet.dict-encoding-enabled.column.s", "false")
        .property("write.parquet.stats-enabled.column.s", "false")
        .property("write.metadata.metrics.column.id", "none");
    let tasks =
        (0..10).map(|i| task(t.data(&format!("f{i}"), &noisy(i * 1000..(i + 1) * 1000, 200), 1), &[])).collect();
    let result = t.rewrite(&group(tasks)).await.expect("a rewrite that succeeds");
    let file = &result.added[0];
    let reader = reader(&t, file);
    let footer = reader.metadata();
    let (row_groups, rows) = (footer.num_row_groups(), footer.file_metadata().num_rows());
    assert!((6..=14).contains(&row_groups), "{row_groups} row groups for 2 MB of hex digits, compressed to about half");
    assert_eq!((rows, file.split_offsets().map(<[i64]>::len)), (10_000, Some(row_groups)));
    let (id, s) = (footer.row_group(0).column(0), footer.row_group(0).column(1));
    assert!(matches!(id.compression(), Compression::ZSTD(_)));
    assert!(id.bloom_filter_offset().is_some() && s.bloom_filter_offset().is_none());
    assert!(id.bloom_filter_length().is_none_or(|l| l <= 1200), "{:?}", id.bloom_filter_length());
    assert!(id.dictionary_page_offset().is_some() && s.dictionary_page_offset().is_none());
    assert!(s.statistics().is_none_or(|s| s.min_bytes_opt().is_none()));
    assert!(footer.file_metadata().created_by().is_some_and(|c| c.starts_with("icewright version ")));
    assert!(!file.value_counts().contains_key(&1) && file.value_counts()[&2] == 10_000);
    assert!(!file.lower_bounds().contains_key(&2), "no bound without statistics");
}

#[tokio::test]
async fn gzip_is_what_a_table_without_a_codec_means() {
    let t = two_columns();
    let result = t.rewrite(&group(vec![task(t.data("a", &noisy(0..10, 10), 1), &[])])).await.expect("succeeds");
    assert!(matches!(
        reader(&t, &result.added[0]).metadata().row_group(0).column(0).compression(),
        Compression::GZIP(_)
    ));
}

#[tokio::test]
async fn wide_rows_end_row_groups_by_bytes() {
    let t = two_columns()
        .property("write.parquet.row-group-size-bytes", "8388608")
        .property("write.parquet.compression-codec", "uncompressed");
    let bytes = parquet_with(&noisy(0..40, 1 << 20), WriterProperties::builder().build());
    let mut big = group(vec![task(t.raw("a", &bytes, 40, 1), &[])]);
    big.input_split_size_bytes = 20 << 20;
    let result = t.rewrite(&big).await.expect("a rewrite that succeeds");
    let sizes: Vec<i64> = result
        .added
        .iter()
        .flat_map(|f| reader(&t, f).metadata().row_groups().iter().map(|g| g.compressed_size()).collect::<Vec<_>>())
        .collect();
    assert_eq!(sizes.iter().sum::<i64>() / (40 << 20), 1);
    assert!(sizes.iter().all(|s| *s <= 18 << 20), "row groups must stay near 8 MiB: {sizes:?}");
}

#[tokio::test]
async fn rows_keep_their_order_and_outputs_their_number() {
    for threads in [1, 4] {
        let mut t = two_columns().property("write.parquet.compression-codec", "uncompressed");
        t.threads = threads;
        let tasks =
            (0..12).map(|i| task(t.data(&format!("f{i}"), &noisy(i * 100..(i + 1) * 100, 100), 1), &[])).collect();
        let mut g = group(tasks);
        (g.input_split_size_bytes, g.write_max_file_size_bytes) = (50_000, 60_000);
        let result = t.rewrite(&g).await.expect("a rewrite that succeeds");
        assert_eq!(result.added.len(), 3);
        let mut files: Vec<Vec<i64>> = Vec::new();
        for file in &result.added {
            files.push(ids(&t, file));
        }
        files.sort();
        assert!(files.iter().all(|ids| (300..500).contains(&ids.len())), "{:?}", files.iter().map(Vec::len));
        assert_eq!(files.concat(), (0..1200).collect::<Vec<_>>());
        assert!(reader(&t, &result.added[0]).metadata().num_row_groups() > 1);
    }
}

#[tokio::test]
async fn no_file_grows_past_the_limit() {
    let t = two_columns().property("write.parquet.compression-codec", "uncompressed");
    let tasks = (0..10).map(|i| task(t.data(&format!("f{i}"), &noisy(i * 500..(i + 1) * 500, 500), 1), &[])).collect();
    let mut g = group(tasks);
    g.write_max_file_size_bytes = 600_000;
    let result = t.rewrite(&g).await.expect("a rewrite that succeeds");
    let sizes: Vec<u64> = result.added.iter().map(DataFile::file_size_in_bytes).collect();
    assert!(sizes.iter().all(|s| *s <= 600_000), "{sizes:?}");
    assert!(sizes.len() <= 8, "2.6 MB into files of up to 600 kB: {sizes:?}");
    assert_eq!(result.output_bytes, sizes.iter().sum::<u64>());
}

#[tokio::test]
async fn a_small_file_costs_one_request() {
    let t = two_columns();
    let tasks = (0..20).map(|i| task(t.data(&format!("f{i}"), &noisy(i..i + 1, 10), 1), &[])).collect();
    let context = t.context();
    let g = group(tasks);
    let result = icewright::rewrite::rewrite_file_group(&context, &g).await.expect("a rewrite that succeeds");
    assert_eq!(t.reads(), 20 + 1, "and one to reopen the output");
    assert_eq!((context.progress.rows(), context.progress.bytes_read()), (20, g.input_bytes));
    assert_eq!(context.progress.bytes_written(), result.output_bytes);
    assert_eq!(context.memory.used(), 0);
}

fn directory(file: &DataFile) -> &str {
    file.file_path().strip_prefix(LOCATION).and_then(|p| p.rsplit_once('/')).expect("a path below the table").0
}

#[tokio::test]
async fn files_lie_where_the_table_says_and_name_their_run() {
    let spec = json!([{"source-id": 2, "field-id": 1000, "name": "s p", "transform": "identity"}]);
    let t = two_columns().partitioned(spec.clone());
    let in_partition = |t: &Table| {
        let mut file = t.data("a", &batch(vec![(1, "id", longs([1])), (2, "s", texts([Some("50% é")]))]), 1);
        file.partition = text_partition(1, Some("50% é"));
        let mut g = group(vec![task(file, &[])]);
        g.output_spec_id = 1;
        g
    };
    let file = t.rewrite(&in_partition(&t)).await.expect("succeeds").added.remove(0);
    assert_eq!(directory(&file), "/data/s+p=50%25+%C3%A9");
    assert_eq!(RunId::from_file_name(file.file_path()), Some(t.run));
    assert_eq!(file.partition(), &Struct::from_iter([Some(Literal::string("50% é"))]));
    let t = two_columns().partitioned(spec).property("write.object-storage.enabled", "true");
    let file = t.rewrite(&in_partition(&t)).await.expect("succeeds").added.remove(0);
    let parts: Vec<&str> = directory(&file).split('/').collect();
    assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [0, 4, 4, 4, 4, 8, 16], "{parts:?}");
    let t = two_columns().property("write.data.path", "mem://elsewhere/x/");
    let g = group(vec![task(t.data("a", &noisy(0..1, 1), 1), &[])]);
    let file = t.rewrite(&g).await.expect("succeeds").added.remove(0);
    assert!(file.file_path().starts_with("mem://elsewhere/x/00000-"), "{}", file.file_path());
}

fn pooled(t: &Table, count: i64) -> FileGroup {
    let days: ArrayRef =
        Arc::new(Date32Array::from_iter((0..count).map(|i| (i % 3 != 2).then_some((i % 3) as i32 * 40))));
    let data = batch(vec![(1, "id", longs(0..count)), (3, "d", days)]);
    let mut g = group(vec![task(t.data("a", &data, 1), &[])]);
    g.partition = None;
    g.output_spec_id = 1;
    g
}

fn with_date() -> Table {
    Table::new(json!([
        {"id": 1, "name": "id", "type": "long", "required": false},
        {"id": 3, "name": "d", "type": "date", "required": false},
    ]))
}

#[tokio::test]
async fn pooled_rows_go_to_the_partitions_of_the_output_spec() {
    let t = with_date().partitioned(json!([
        {"source-id": 3, "field-id": 1000, "name": "m", "transform": "month"},
        {"source-id": 1, "field-id": 1001, "name": "t", "transform": "truncate[100]"},
        {"source-id": 1, "field-id": 1002, "name": "gone", "transform": "void"},
    ]));
    let result = t.rewrite(&pooled(&t, 150)).await.expect("a rewrite that succeeds");
    let mut seen = BTreeMap::new();
    for file in &result.added {
        let ids = ids(&t, file);
        let [month, hundred, None] = file.partition().fields() else { panic!("three fields, the last one NULL") };
        for id in ids {
            let expected = match id % 3 {
                0 => Some(Literal::int(0)),
                1 => Some(Literal::int(1)),
                _ => None,
            };
            assert_eq!((month, hundred), (&expected, &Some(Literal::long(id / 100 * 100))));
            assert_eq!(seen.insert(id, ()), None);
        }
    }
    assert_eq!((seen.len(), result.added.len()), (150, 6));
    let directories: Vec<&str> = result.added.iter().map(directory).collect();
    assert!(directories.contains(&"/data/m=1970-02/t=100/gone=null"), "{directories:?}");
}

#[tokio::test]
async fn pooled_rows_of_an_unpartitioned_output_need_no_partition() {
    let t = with_date();
    let mut g = pooled(&t, 10);
    g.output_spec_id = 0;
    let result = t.rewrite(&g).await.expect("a rewrite that succeeds");
    assert_eq!((result.added.len(), result.added[0].partition()), (1, &Struct::empty()));
}

#[tokio::test]
async fn pooled_buffers_are_bounded_by_ending_row_groups_early() {
    let t = two_columns()
        .partitioned(json!([{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[8]"}]))
        .property("write.parquet.row-group-size-bytes", "100000")
        .property("write.parquet.compression-codec", "uncompressed");
    let tasks = (0..8).map(|i| task(t.data(&format!("f{i}"), &noisy(i * 1000..(i + 1) * 1000, 200), 1), &[])).collect();
    let mut g = group(tasks);
    g.partition = None;
    g.output_spec_id = 1;
    g.input_split_size_bytes = 150_000;
    let result = t.rewrite(&g).await.expect("a rewrite that succeeds");
    assert!(result.added.len() >= 8);
    let mut rows: Vec<i64> = Vec::new();
    for file in &result.added {
        assert!(matches!(file.partition().fields(), [Some(_)]));
        rows.extend(ids(&t, file));
    }
    rows.sort_unstable();
    assert_eq!(rows, (0..8000).collect::<Vec<_>>());
}

#[tokio::test]
async fn version_1_tables_are_rewritten() {
    let t = two_columns().format_version(1);
    let result = t.rewrite(&group(vec![task(t.data("a", &noisy(0..5, 5), 0), &[])])).await.expect("succeeds");
    assert_eq!((result.output_rows, result.added.len()), (5, 1));
    let _: Arc<PartitionTuple> = result.rewritten[0].partition.clone();
}
