//! Every type of the specification through a rewrite, and legacy timestamps.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int32Array, RecordBatch, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::cast;
use bytes::Bytes;
use icewright::error::ErrorKind;
use parquet::basic::LogicalType;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use super::table::{Table, batch, group, longs, task, texts};

/// Every primitive type with ordinary, extreme and NULL values.
pub(crate) fn every_type() -> (Value, RecordBatch) {
    let decimal = |p: u8, s: i8, v: i128| {
        let array = Decimal128Array::from(vec![Some(v), None, Some(-v)]).with_precision_and_scale(p, s);
        Arc::new(array.expect("fits")) as ArrayRef
    };
    let fixed = |a: &[u8], b: &[u8]| {
        let values = vec![Some(a), None, Some(b)];
        let width = i32::try_from(a.len()).expect("short");
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), width).expect("one width"))
            as ArrayRef
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("boolean", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("int", Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(i32::MAX)]))),
        ("long", longs([i64::MIN, 0, i64::MAX])),
        ("float", Arc::new(Float32Array::from(vec![Some(f32::NAN), None, Some(-0.0)]))),
        ("double", Arc::new(Float64Array::from(vec![Some(f64::NEG_INFINITY), None, Some(1.5)]))),
        ("decimal(9, 2)", decimal(9, 2, 999_999_999)),
        ("decimal(18, 4)", decimal(18, 4, 123_456_789_012_345_678)),
        ("decimal(38, 0)", decimal(38, 0, 99_999_999_999_999_999_999_999_999_999_999_999_999)),
        ("date", Arc::new(Date32Array::from(vec![Some(-719_162), None, Some(20_000)]))),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![Some(0), None, Some(86_399_999_999)]))),
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None, Some(1)]))),
        ("timestamptz", Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None, Some(1)]).with_timezone("UTC"))),
        ("string", texts([Some(""), None, Some("é\u{10ffff}")])),
        ("uuid", fixed(&[0xff; 16], &[1; 16])),
        ("fixed[3]", fixed(&[0, 1, 2], &[255, 0, 7])),
        ("binary", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\xff\x00"), None, Some(b"")]))),
    ];
    let fields: Vec<Value> = columns
        .iter()
        .enumerate()
        .map(|(i, (ty, _))| json!({"id": i + 1, "name": format!("c{}", i + 1), "type": ty, "required": false}))
        .collect();
    let names: Vec<String> = (1..=columns.len()).map(|i| format!("c{i}")).collect();
    let arrays = columns.into_iter().zip(&names).enumerate();
    let data = batch(arrays.map(|(i, ((_, array), name))| (i as i32 + 1, name.as_str(), array)).collect());
    (json!(fields), data)
}

#[tokio::test]
async fn every_type_comes_out_as_it_went_in() {
    let (schema, data) = every_type();
    let t = Table::new(schema);
    let result = t.rewrite(&group(vec![task(t.data("a", &data, 1), &[])])).await.expect("a rewrite that succeeds");
    let [written] = &t.batches(&result.added[0])[..] else { panic!("one batch") };
    for (before, after) in data.columns().iter().zip(written.columns()) {
        let after = cast(after, before.data_type()).expect("the same kind of type");
        assert_eq!(before.to_data(), after.to_data());
    }
}

#[tokio::test]
async fn outputs_carry_field_ids_and_the_uuid_annotation() {
    let (schema, data) = every_type();
    let t = Table::new(schema);
    let result = t.rewrite(&group(vec![task(t.data("a", &data, 1), &[])])).await.expect("a rewrite that succeeds");
    let bytes = t.store.content(result.added[0].file_path()).expect("the output");
    let reader = SerializedFileReader::new(bytes).expect("a Parquet file");
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let ids: Vec<i32> = columns.iter().map(|c| c.self_type().get_basic_info().id()).collect();
    assert_eq!(ids, (1..=16).collect::<Vec<_>>());
    assert_eq!(columns[13].logical_type_ref(), Some(&LogicalType::Uuid));
    assert_eq!(columns[12].logical_type_ref(), Some(&LogicalType::String));
    assert_eq!(columns[15].logical_type_ref(), None);
    let keys = reader.metadata().file_metadata().key_value_metadata().expect("metadata");
    let schema = keys.iter().find(|k| k.key == "iceberg.schema").and_then(|k| k.value.clone()).expect("the schema");
    assert!(schema.contains("\"timestamptz\""), "{schema}");
    assert!(keys.iter().all(|k| k.key != "ARROW:schema"), "Arrow's own types are not for other readers");
}

/// A file of two INT96 columns, one of them in a struct.
fn int96_file(days_and_nanos: &[(u32, u64)]) -> Bytes {
    let message = "message m { optional int96 ts = 1; optional group s = 2 { optional int96 t = 3; } }";
    let schema = Arc::new(parse_message_type(message).expect("a valid schema"));
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).expect("a writer");
    let mut rows = file.next_row_group().expect("a row group");
    for depth in [1, 2] {
        let mut column = rows.next_column().expect("a column").expect("one more");
        let values: Vec<Int96> = days_and_nanos
            .iter()
            .map(|(day, nanos)| {
                let mut value = Int96::new();
                value.set_data(*nanos as u32, (nanos >> 32) as u32, *day);
                value
            })
            .collect();
        let levels = vec![depth; values.len()];
        column.typed::<Int96Type>().write_batch(&values, Some(&levels), None).expect("writable");
        column.close().expect("closable");
    }
    rows.close().expect("closable");
    Bytes::from(file.into_inner().expect("finished"))
}

fn int96_table() -> Table {
    let inner = json!({"type": "struct", "fields": [{"id": 3, "name": "t", "type": "timestamp", "required": false}]});
    Table::new(json!([
        {"id": 1, "name": "ts", "type": "timestamptz", "required": false},
        {"id": 2, "name": "s", "type": inner, "required": false},
    ]))
}

#[tokio::test]
async fn int96_timestamps_far_from_today_stay_what_they_are() {
    // Julian days of 0001-01-01, 1500-01-01, 1970-01-01 and 3332-12-31.
    let bytes = int96_file(&[(1_721_426, 0), (2_268_924, 1_000), (2_440_588, 999), (2_938_413, 86_399_999_999_000)]);
    let t = int96_table();
    let rows = t.rewritten_rows(&group(vec![task(t.raw("a", &bytes, 4, 1), &[])])).await;
    assert_eq!(
        rows,
        [
            "0001-01-01T00:00:00|{t: 0001-01-01T00:00:00}",
            "1500-01-01T00:00:00.000001|{t: 1500-01-01T00:00:00.000001}",
            "1970-01-01T00:00:00|{t: 1970-01-01T00:00:00}",
            "3332-12-31T23:59:59.999999|{t: 3332-12-31T23:59:59.999999}",
        ]
    );
}

#[tokio::test]
async fn int96_out_of_range_is_refused() {
    let t = int96_table();
    let bytes = int96_file(&[(i32::MAX as u32, 0)]);
    let error = t.rewrite(&group(vec![task(t.raw("a", &bytes, 1, 1), &[])])).await.expect_err("out of range");
    assert_eq!(error.kind(), ErrorKind::DataInvalid, "{error}");
    assert!(error.to_string().contains("INT96"), "{error}");
}
