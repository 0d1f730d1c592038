use std::collections::BTreeMap;

use arrow::array::{
    BinaryArray, Date32Array, FixedSizeBinaryArray, Float64Array, Int64Array, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray,
};

use super::*;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("hex");
    hex.as_bytes().chunks(2).map(digits).collect()
}

/// A column of the values that the golden file gives as text.
fn column(ty: &str, values: &[&str]) -> ArrayRef {
    let longs = || values.iter().map(|v| v.parse::<i64>().expect("an integer")).collect::<Vec<_>>();
    let ints = || values.iter().map(|v| v.parse::<i32>().expect("an integer")).collect::<Vec<_>>();
    let bytes = || values.iter().map(|v| bytes_of(v)).collect::<Vec<_>>();
    let (name, precision_and_scale) = ty.split_once('(').unwrap_or((ty, ""));
    match name {
        "int" => Arc::new(Int32Array::from(ints())),
        "long" => Arc::new(Int64Array::from(longs())),
        "date" => Arc::new(Date32Array::from(ints())),
        "time" => Arc::new(Time64MicrosecondArray::from(longs())),
        "timestamp" => Arc::new(TimestampMicrosecondArray::from(longs())),
        "timestamptz" => Arc::new(TimestampMicrosecondArray::from(longs()).with_timezone("UTC")),
        "timestamp_ns" => Arc::new(TimestampNanosecondArray::from(longs())),
        "timestamptz_ns" => Arc::new(TimestampNanosecondArray::from(longs()).with_timezone("UTC")),
        "string" => {
            Arc::new(StringArray::from_iter_values(bytes().into_iter().map(|b| String::from_utf8(b).expect("UTF-8"))))
        }
        "binary" => Arc::new(BinaryArray::from_iter_values(bytes())),
        "fixed[7]" | "uuid" => Arc::new(FixedSizeBinaryArray::try_from_iter(bytes().into_iter()).expect("one length")),
        "decimal" => {
            let (precision, scale) = precision_and_scale.trim_end_matches(')').split_once(',').expect("two numbers");
            let unscaled = values.iter().map(|v| v.parse::<i128>().expect("an integer"));
            let decimals = Decimal128Array::from_iter_values(unscaled);
            let (precision, scale) = (precision.parse().expect("a number"), scale.parse().expect("a number"));
            Arc::new(decimals.with_precision_and_scale(precision, scale).expect("valid"))
        }
        other => panic!("the golden file has type {other}"),
    }
}

fn texts_of(array: &ArrayRef) -> Vec<String> {
    if let Some(longs) = as_longs(array).expect("castable") {
        return longs.values().iter().map(ToString::to_string).collect();
    }
    if let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() {
        return decimals.values().iter().map(ToString::to_string).collect();
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    match array.as_string_view_opt() {
        Some(texts) => texts.iter().map(|t| hex(t.expect("no NULL").as_bytes())).collect(),
        None => array.as_binary_view().iter().map(|b| hex(b.expect("no NULL"))).collect(),
    }
}

/// `tests/interop/java/TransformValues.java` made the file; an interop test makes it again.
#[test]
fn transforms_give_what_the_java_library_gives_for_edge_and_random_values() {
    let golden = include_str!("../../../tests/golden/transforms.tsv");
    type Columns<'a> = (Vec<&'a str>, Vec<&'a str>);
    let mut cases: BTreeMap<(&str, &str), Columns<'_>> = BTreeMap::new();
    for line in golden.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [ty, name, value, result] = parts[..] else { panic!("four columns: {line}") };
        let (values, results) = cases.entry((ty, name)).or_default();
        values.push(value);
        results.push(result);
    }
    assert!(cases.len() > 40, "{} pairs of type and transform", cases.len());
    for ((ty, name), (values, results)) in cases {
        let parsed: Transform = name.parse().expect("a transform");
        let own = texts_of(&transform(parsed, &column(ty, &values)).expect("supported"));
        for ((value, expected), own) in values.iter().zip(results).zip(own) {
            assert_eq!(own, expected, "{name} of {ty} {value}");
        }
    }
}

#[test]
fn null_stays_null_and_void_makes_nothing_else() {
    let longs: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(7)]));
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![None, Some(-1)]));
    for (name, array, valid) in [
        (Transform::Bucket(4), &longs, 1),
        (Transform::Truncate(5), &longs, 1),
        (Transform::Identity, &longs, 1),
        (Transform::Month, &times, 1),
        (Transform::Void, &times, 0),
    ] {
        let result = transform(name, array).expect("supported");
        assert_eq!((result.is_null(0), result.len() - result.null_count()), (true, valid), "{name}");
    }
}

#[test]
fn identity_makes_one_nan_of_all_and_keeps_both_zeros() {
    let odd = f64::from_bits(0x7ff8_0000_0000_0001);
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![odd, -f64::NAN, 0.0, -0.0]));
    let result = transform(Transform::Identity, &floats).expect("supported");
    let bits: Vec<u64> =
        result.as_primitive::<arrow::datatypes::Float64Type>().values().iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits, [f64::NAN.to_bits(), f64::NAN.to_bits(), 0, 1 << 63]);
}

#[test]
fn a_transform_of_values_that_it_does_not_take_is_unsupported() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let cases = [
        (Transform::Bucket(4), &floats),
        (Transform::Truncate(4), &floats),
        (Transform::Day, &floats),
        (Transform::Hour, &dates),
        (Transform::Truncate(4), &dates),
        (Transform::Unknown, &dates),
    ];
    for (name, array) in cases {
        let error = transform(name, array).expect_err("unsupported");
        assert_eq!(error.kind(), crate::error::ErrorKind::Unsupported, "{name}: {error}");
    }
}
