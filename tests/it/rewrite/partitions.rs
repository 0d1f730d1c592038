//! Rows on their way to the partitions of another spec: values, and more partitions than writers.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, FixedSizeBinaryArray, Float64Array, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Fields, TimeUnit};
use iceberg::spec::{DataFile, Literal, PrimitiveLiteral};
use icewright::error::ErrorKind;
use icewright::plan::{FileGroup, RewriteTask};
use serde_json::{Value, json};

use super::table::{Table, batch, field, group, longs, task};
use super::types::every_type;

fn column(id: i32, name: &str, ty: &str) -> Value {
    json!({"id": id, "name": name, "type": ty, "required": false})
}

fn by(source: i32, transform: &str) -> Value {
    json!([{"source-id": source, "field-id": 1000, "name": "p", "transform": transform}])
}

/// Inputs of the unpartitioned spec 0, written into spec 1.
fn into_new_spec(tasks: Vec<RewriteTask>) -> FileGroup {
    FileGroup { partition: None, output_spec_id: 1, ..group(tasks) }
}

fn value(file: &DataFile) -> Option<&PrimitiveLiteral> {
    match file.partition().fields() {
        [Some(Literal::Primitive(value))] => Some(value),
        [None] => None,
        other => panic!("one field: {other:?}"),
    }
}

/// Numbers in the first column of a file.
fn first_column(t: &Table, file: &DataFile) -> Vec<i64> {
    t.rows(file).iter().map(|row| row.split('|').next().and_then(|id| id.parse().ok()).expect("a number")).collect()
}

/// The ids in each partition, whose values are integers.
async fn ids_by_partition(t: &Table, tasks: Vec<RewriteTask>) -> BTreeMap<i32, Vec<i64>> {
    let mut found: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for file in t.rewrite(&into_new_spec(tasks)).await.expect("a rewrite that succeeds").added {
        let Some(PrimitiveLiteral::Int(partition)) = value(&file) else { panic!("{:?}", file.partition()) };
        found.entry(*partition).or_default().extend(first_column(t, &file));
    }
    found
}

fn times(micros: &[i64], zone: Option<&str>) -> ArrayRef {
    let array = TimestampMicrosecondArray::from(micros.to_vec());
    Arc::new(array.with_timezone_opt(zone))
}

#[tokio::test]
async fn a_fraction_of_a_second_before_1970_is_of_the_day_that_it_is_in() {
    let t = Table::new(json!([column(1, "id", "long"), column(2, "ts", "timestamp")])).partitioned(by(2, "day"));
    const DAY: i64 = 86_400_000_000;
    let micros = [-DAY - 1, -DAY - 500_000, -DAY, -1, -999_999, -1_000_000, 0, 1, DAY - 1];
    let data = batch(vec![(1, "id", longs(0..9)), (2, "ts", times(&micros, None))]);
    let days = ids_by_partition(&t, vec![task(t.data("a", &data, 1), &[])]).await;
    assert_eq!(days, BTreeMap::from([(-2, vec![0, 1]), (-1, vec![2, 3, 4, 5]), (0, vec![6, 7, 8])]));
}

#[tokio::test]
async fn months_and_years_of_timestamps_with_a_zone_are_partitions() {
    let micros = [-1, 0, 951_782_400_000_000, 1_735_689_599_999_999, 1_735_689_600_000_000];
    for (transform, expected) in
        [("month", [-1, 0, 361, 659, 660]), ("year", [-1, 0, 30, 54, 55]), ("hour", [-1, 0, 264_384, 482_135, 482_136])]
    {
        let t =
            Table::new(json!([column(1, "id", "long"), column(2, "ts", "timestamptz")])).partitioned(by(2, transform));
        let data = batch(vec![(1, "id", longs(0..5)), (2, "ts", times(&micros, Some("UTC")))]);
        let found = ids_by_partition(&t, vec![task(t.data("a", &data, 1), &[])]).await;
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), expected, "{transform}");
    }
}

#[tokio::test]
async fn the_two_zeros_are_two_partitions_and_all_nans_are_one() {
    let t = Table::new(json!([column(1, "id", "long"), column(2, "d", "double")])).partitioned(by(2, "identity"));
    let odd = f64::from_bits(0xfff8_0000_0000_0001);
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, odd, -0.0, 0.0]));
    let data = batch(vec![(1, "id", longs(0..6)), (2, "d", doubles)]);
    let result = t.rewrite(&into_new_spec(vec![task(t.data("a", &data, 1), &[])])).await.expect("succeeds");
    let mut found: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for file in &result.added {
        let Some(PrimitiveLiteral::Double(partition)) = value(file) else { panic!("{:?}", file.partition()) };
        assert_eq!(found.insert(partition.0.to_bits(), first_column(&t, file)), None, "one file for each");
        let directory = if partition.0.is_nan() {
            "/p=NaN/"
        } else if partition.0.is_sign_negative() {
            "/p=-0.0/"
        } else {
            "/p=0.0/"
        };
        assert!(file.file_path().contains(directory), "{}", file.file_path());
    }
    let expected = [(0.0f64, vec![0, 5]), (-0.0, vec![1, 4]), (f64::NAN, vec![2, 3])];
    assert_eq!(found, expected.into_iter().map(|(value, ids)| (value.to_bits(), ids)).collect());
}

#[tokio::test]
async fn values_of_every_type_are_partitions_by_identity() {
    let (schema, data) = every_type();
    for id in (1..=16).filter(|id| *id != 15) {
        let t = Table::new(schema.clone()).partitioned(by(id, "identity"));
        let result = t.rewrite(&into_new_spec(vec![task(t.data("a", &data, 1), &[])])).await.expect("succeeds");
        assert_eq!((result.added.len(), result.output_rows), (3, 3), "column {id}");
        let nulls = result.added.iter().filter(|file| value(file).is_none()).count();
        assert_eq!(nulls, usize::from(id != 3), "column {id}");
    }
}

#[tokio::test]
async fn a_partition_spec_that_java_cannot_read_is_not_written() {
    let t = Table::new(json!([column(1, "id", "long"), column(2, "code", "fixed[4]")])).partitioned(by(2, "identity"));
    let codes: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter([b"abcd"].into_iter()).expect("one width"));
    let data = batch(vec![(1, "id", longs([1])), (2, "code", codes)]);
    let tasks = vec![task(t.data("a", &data, 1), &[])];
    let before = t.store.paths();
    let error = t.rewrite(&into_new_spec(tasks)).await.expect_err("Java would not read the table any more");
    assert_eq!((error.kind(), t.store.paths()), (ErrorKind::Unsupported, before), "{error}");
    // A bucket is a number, which everybody reads.
    let t = Table::new(json!([column(1, "id", "long"), column(2, "code", "fixed[4]")])).partitioned(by(2, "bucket[8]"));
    t.rewrite(&into_new_spec(vec![task(t.data("a", &data, 1), &[])])).await.expect("a rewrite that succeeds");
}

#[tokio::test]
async fn a_file_with_rows_of_more_partitions_than_writers_is_rewritten() {
    let t = Table::new(json!([column(1, "id", "long")])).partitioned(by(1, "identity"));
    let data = batch(vec![(1, "id", longs(0..700))]);
    let result = t.rewrite(&into_new_spec(vec![task(t.data("a", &data, 1), &[])])).await.expect("succeeds");
    let mut seen: Vec<i64> = Vec::new();
    for file in &result.added {
        let ids = first_column(&t, file);
        assert!(ids.iter().all(|id| value(file) == Some(&PrimitiveLiteral::Long(*id))));
        seen.extend(ids);
    }
    seen.sort_unstable();
    assert_eq!((result.added.len(), seen), (700, (0..700).collect()), "one file for each");
}

#[tokio::test]
async fn partitions_that_come_again_and_again_get_few_files_though_writers_are_scarce() {
    let t = Table::new(json!([column(1, "id", "long"), column(2, "k", "long")])).partitioned(by(2, "identity"));
    let file = |n: i64| {
        let ids = n * 900..(n + 1) * 900;
        let data = batch(vec![(1, "id", longs(ids.clone())), (2, "k", longs(ids.map(|id| id % 300)))]);
        task(t.data(&format!("f{n}"), &data, 1), &[])
    };
    let result = t.rewrite(&into_new_spec((0..20).map(file).collect())).await.expect("a rewrite that succeeds");
    let mut files: BTreeMap<i64, usize> = BTreeMap::new();
    let mut seen = Vec::new();
    for file in &result.added {
        let Some(PrimitiveLiteral::Long(k)) = value(file) else { panic!("{:?}", file.partition()) };
        *files.entry(*k).or_default() += 1;
        let ids = first_column(&t, file);
        assert!(ids.iter().all(|id| id % 300 == *k));
        seen.extend(ids);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..18_000).collect::<Vec<_>>());
    let most = files.values().max().copied();
    assert!(files.len() == 300 && most <= Some(2) && result.added.len() <= 400, "{most:?} of {}", result.added.len());
}

#[tokio::test]
async fn a_column_inside_a_struct_is_a_partition() {
    let inside = json!({"type": "struct", "fields": [column(3, "ts", "timestamp")]});
    let outer = json!({"id": 2, "name": "s", "type": inside, "required": false});
    let t = Table::new(json!([column(1, "id", "long"), outer])).partitioned(by(3, "day"));
    let fields: Fields = vec![field(3, "ts", DataType::Timestamp(TimeUnit::Microsecond, None))].into();
    let structs = StructArray::new(fields, vec![times(&[-1, 0, 7], None)], None);
    let data = batch(vec![(1, "id", longs(0..3)), (2, "s", Arc::new(structs))]);
    let days = ids_by_partition(&t, vec![task(t.data("a", &data, 1), &[])]).await;
    assert_eq!(days, BTreeMap::from([(-1, vec![0]), (0, vec![1, 2])]));
}

#[tokio::test]
async fn a_decimal_that_is_rounded_out_of_its_precision_is_no_partition() {
    let t = Table::new(json!([column(1, "id", "long"), column(2, "d", "decimal(4, 2)")]));
    let t = t.partitioned(by(2, "truncate[50]"));
    let rewritten = async |unscaled: i128| {
        let decimals = Decimal128Array::from(vec![unscaled]).with_precision_and_scale(4, 2).expect("fits");
        let data = batch(vec![(1, "id", longs([1])), (2, "d", Arc::new(decimals))]);
        let result = t.rewrite(&into_new_spec(vec![task(t.data("a", &data, 1), &[])])).await;
        result.map(|r| value(&r.added[0]).cloned())
    };
    assert_eq!(rewritten(-9_949).await.expect("four digits"), Some(PrimitiveLiteral::Int128(-9_950)));
    assert_eq!(rewritten(-9_999).await.expect_err("five digits").kind(), ErrorKind::Unsupported);
}
