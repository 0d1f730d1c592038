//! Column metrics: exact over all row groups, by mode.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, FixedSizeBinaryArray, Float64Array};
use iceberg::spec::DataFile;
use serde_json::json;

use super::table::{Table, batch, group, longs, task, texts};
use super::types::every_type;

fn bound(bounds: &std::collections::HashMap<i32, iceberg::spec::Datum>, id: i32) -> Option<Vec<u8>> {
    bounds.get(&id).map(|d| d.to_bytes().expect("a writable bound").into_vec())
}

/// Bounds of a column as bytes.
fn bounds(file: &DataFile, id: i32) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    (bound(file.lower_bounds(), id), bound(file.upper_bounds(), id))
}

/// Rewrites inputs into one file with one row group per input.
async fn one_group_each(t: &Table, batches: &[arrow::array::RecordBatch]) -> DataFile {
    let tasks = batches.iter().enumerate().map(|(i, b)| task(t.data(&format!("f{i}"), b, 1), &[])).collect();
    let mut result = t.rewrite(&group(tasks)).await.expect("a rewrite that succeeds");
    assert_eq!(result.added.len(), 1);
    let file = result.added.remove(0);
    assert_eq!(file.split_offsets().map(<[i64]>::len), Some(batches.len()), "one row group per input");
    file
}

fn tiny_row_groups(schema: serde_json::Value) -> Table {
    Table::new(schema).property("write.parquet.row-group-size-bytes", "1")
}

#[tokio::test]
async fn a_long_string_in_another_row_group_is_covered() {
    let t = tiny_row_groups(json!([{"id": 1, "name": "s", "type": "string", "required": false}]));
    let long = "z".repeat(100);
    let groups = [[Some("aaa"), Some("bbb")], [Some(long.as_str()), None], [Some("ccc"), None]];
    let file = one_group_each(&t, &groups.map(|g| batch(vec![(1, "s", texts(g))]))).await;
    let expected_upper = format!("{}{{", "z".repeat(15));
    assert_eq!(bounds(&file, 1), (Some(b"aaa".to_vec()), Some(expected_upper.into_bytes())));
    assert_eq!((file.value_counts()[&1], file.null_value_counts()[&1]), (6, 2));
    assert!(file.column_sizes()[&1] > 0);
}

#[tokio::test]
async fn without_a_rounded_up_bound_there_is_none() {
    let t = tiny_row_groups(json!([{"id": 1, "name": "s", "type": "string", "required": false}]));
    let last = "\u{10ffff}".repeat(40);
    let groups = [[Some("a")], [Some(last.as_str())]];
    let file = one_group_each(&t, &groups.map(|g| batch(vec![(1, "s", texts(g))]))).await;
    assert_eq!(bounds(&file, 1), (Some(b"a".to_vec()), None));
}

#[tokio::test]
async fn bounds_are_typed_and_the_maximum_may_stand_in_the_middle() {
    let t = tiny_row_groups(json!([
        {"id": 1, "name": "d7", "type": "decimal(7, 2)", "required": false},
        {"id": 2, "name": "d18", "type": "decimal(18, 4)", "required": false},
        {"id": 3, "name": "d38", "type": "decimal(38, 0)", "required": false},
        {"id": 4, "name": "u", "type": "uuid", "required": false},
        {"id": 5, "name": "f", "type": "fixed[3]", "required": false},
        {"id": 6, "name": "l", "type": "long", "required": false},
    ]));
    let row = |d: i128, byte: u8| {
        let decimal = |p, s, v: i128| {
            Arc::new(Decimal128Array::from(vec![v]).with_precision_and_scale(p, s).expect("fits")) as ArrayRef
        };
        let fixed = |bytes: Vec<u8>| {
            Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(bytes)).expect("one width")) as ArrayRef
        };
        batch(vec![
            (1, "d7", decimal(7, 2, d)),
            (2, "d18", decimal(18, 4, d)),
            (3, "d38", decimal(38, 0, d * 10_i128.pow(20))),
            (4, "u", fixed(vec![byte; 16])),
            (5, "f", fixed(vec![byte; 3])),
            (6, "l", longs([d as i64])),
        ])
    };
    let file = one_group_each(&t, &[row(-5, 0x01), row(300, 0xf0), row(7, 0x7f)]).await;
    assert_eq!(bounds(&file, 1), (Some(vec![0xfb]), Some(vec![0x01, 0x2c])));
    assert_eq!(bounds(&file, 2), (Some(vec![0xfb]), Some(vec![0x01, 0x2c])));
    let minimal = |v: i128| {
        let bytes = v.to_be_bytes();
        let sign = if v < 0 { 0xff } else { 0 };
        let cut = (0..15).take_while(|i| bytes[*i] == sign && (bytes[i + 1] ^ sign) < 0x80).count();
        bytes[cut..].to_vec()
    };
    let scaled = 10_i128.pow(20);
    assert_eq!(bounds(&file, 3), (Some(minimal(-5 * scaled)), Some(minimal(300 * scaled))));
    assert_eq!(bounds(&file, 4), (None, None), "engines order UUIDs differently");
    assert_eq!(bounds(&file, 5), (Some(vec![0x01; 3]), Some(vec![0xf0; 3])));
    assert_eq!(bounds(&file, 6), (Some((-5i64).to_le_bytes().into()), Some(300i64.to_le_bytes().into())));
}

#[tokio::test]
async fn nan_is_counted_and_no_bound() {
    let t = tiny_row_groups(json!([{"id": 1, "name": "d", "type": "double", "required": false}]));
    let doubles = |v: Vec<Option<f64>>| batch(vec![(1, "d", Arc::new(Float64Array::from(v)) as ArrayRef)]);
    let file =
        one_group_each(&t, &[doubles(vec![Some(f64::NAN), None]), doubles(vec![Some(-2.5), Some(f64::NAN)])]).await;
    assert_eq!((file.nan_value_counts()[&1], file.null_value_counts()[&1]), (2, 1));
    let only = Some((-2.5f64).to_le_bytes().to_vec());
    assert_eq!(bounds(&file, 1), (only.clone(), only));
}

#[tokio::test]
async fn every_type_has_bounds_but_uuids_nulls_and_nans() {
    let (schema, data) = every_type();
    let t = Table::new(schema).property("write.metadata.metrics.default", "full");
    let file = one_group_each(&t, &[data]).await;
    let mut with_bounds: Vec<i32> = file.lower_bounds().keys().copied().collect();
    with_bounds.sort_unstable();
    assert_eq!(with_bounds, (1..=16).filter(|id| *id != 14).collect::<Vec<_>>());
    assert_eq!(bounds(&file, 13).1, Some("é\u{10ffff}".as_bytes().to_vec()));
    assert_eq!(bounds(&file, 16), (Some(vec![]), Some(vec![0xff, 0x00])));
    assert_eq!(bounds(&file, 8).1.map(|b| b.len()), Some(16));
}

#[tokio::test]
async fn modes_decide_what_is_kept() {
    let columns = ["none", "counts", "truncate(2)", "full"];
    let fields: Vec<_> =
        (1..=4).map(|i| json!({"id": i, "name": format!("c{i}"), "type": "string", "required": false})).collect();
    let mut t = Table::new(json!(fields));
    for (i, mode) in columns.iter().enumerate() {
        t = t.property(&format!("write.metadata.metrics.column.c{}", i + 1), mode);
    }
    let long = "x".repeat(90);
    let data =
        batch((1..=4).map(|i| (i, ["c1", "c2", "c3", "c4"][i as usize - 1], texts([Some(long.as_str())]))).collect());
    let file = one_group_each(&t, &[data]).await;
    assert!(!file.value_counts().contains_key(&1) && !file.column_sizes().contains_key(&1));
    assert_eq!((file.value_counts()[&2], bounds(&file, 2)), (1, (None, None)));
    assert_eq!(bounds(&file, 3), (Some(b"xx".to_vec()), Some(b"xy".to_vec())));
    assert_eq!(bounds(&file, 4), (Some(long.clone().into_bytes()), Some(long.into_bytes())));
}

#[tokio::test]
async fn columns_under_lists_have_sizes_only() {
    use arrow::array::ListArray;
    use arrow::buffer::OffsetBuffer;
    let list = json!({"type": "list", "element-id": 2, "element": "long", "element-required": false});
    let t = Table::new(json!([{"id": 1, "name": "l", "type": list, "required": false}]));
    let element = Arc::new(super::table::field(2, "element", arrow::datatypes::DataType::Int64));
    let lists: ArrayRef = Arc::new(ListArray::new(element, OffsetBuffer::new(vec![0, 2].into()), longs([1, 2]), None));
    let file = one_group_each(&t, &[batch(vec![(1, "l", lists)])]).await;
    assert!(file.column_sizes()[&2] > 0);
    assert!(file.value_counts().is_empty() && file.lower_bounds().is_empty());
}
