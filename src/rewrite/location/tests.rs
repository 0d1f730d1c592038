use super::*;

fn default_layout(root: &str) -> DataLocation {
    DataLocation { root: root.into(), object_storage: None }
}

fn object_layout(root: &str, partitioned_paths: bool, context: Option<&str>) -> DataLocation {
    DataLocation {
        root: root.into(),
        object_storage: Some(ObjectStorage { partitioned_paths, context: context.map(Into::into) }),
    }
}

#[test]
fn the_default_layout_joins_with_single_slashes() {
    assert_eq!(default_layout("s3://b/t/data").path("", "f.parquet"), "s3://b/t/data/f.parquet");
    assert_eq!(default_layout("s3://b/t/data").path("p=1", "f.parquet"), "s3://b/t/data/p=1/f.parquet");
}

#[test]
fn the_object_layout_puts_a_hash_first() {
    // The directory of "a" is known from the hash's published test vector: murmur3_32("a", 0) = 0x3c2569b2.
    assert_eq!(hash_directories("a"), "0101/0110/1001/10110010");
    let with = object_layout("s3://b/t/data", true, None).path("", "a");
    assert_eq!(with, "s3://b/t/data/0101/0110/1001/10110010/a");
    let without = object_layout("s3://b/t/data", false, None).path("p=1", "a");
    assert_eq!(without, "s3://b/t/data/0101/0110/1001/10110010-a");
    let outside = object_layout("s3://other", true, Some("db/t")).path("", "a");
    assert_eq!(outside, "s3://other/0101/0110/1001/10110010/db/t/a");
}

#[test]
fn values_are_form_encoded() {
    assert_eq!(url_encode("a b/50%#é+_.-*"), "a+b%2F50%25%23%C3%A9%2B_.-*");
}

#[test]
fn values_are_readable() {
    let text = |ty, v| primitive(&ty, &v).expect("a value of the type");
    assert_eq!(text(PrimitiveType::Date, PrimitiveLiteral::Int(-1)), "1969-12-31");
    assert_eq!(text(PrimitiveType::Date, PrimitiveLiteral::Int(19_782)), "2024-02-29");
    assert_eq!(text(PrimitiveType::Timestamptz, PrimitiveLiteral::Long(-1)), "1969-12-31T23:59:59.999999+00:00");
    assert_eq!(text(PrimitiveType::Timestamp, PrimitiveLiteral::Long(1_500_000)), "1970-01-01T00:00:01.5");
    let decimal = PrimitiveType::Decimal { precision: 9, scale: 2 };
    assert_eq!(text(decimal.clone(), PrimitiveLiteral::Int128(-5)), "-0.05");
    assert_eq!(text(decimal, PrimitiveLiteral::Int128(12_345)), "123.45");
    assert_eq!(text(PrimitiveType::Binary, PrimitiveLiteral::Binary(b"any".to_vec())), "YW55");
    assert_eq!(text(PrimitiveType::Binary, PrimitiveLiteral::Binary(b"an".to_vec())), "YW4=");
    assert_eq!(text(PrimitiveType::Time, PrimitiveLiteral::Long(3_723_000_000)), "01:02:03");
}

#[test]
fn transforms_are_readable() {
    let text = |t, v| human(t, None, Some(&Literal::int(v))).expect("an integer result");
    assert_eq!(text(Transform::Year, -1), "1969");
    assert_eq!(text(Transform::Month, -1), "1969-12");
    assert_eq!(text(Transform::Day, 0), "1970-01-01");
    assert_eq!(text(Transform::Hour, -1), "1969-12-31-23");
    assert_eq!(text(Transform::Bucket(8), 3), "3");
    assert_eq!(human(Transform::Void, None, Some(&Literal::int(1))).expect("void"), "null");
    assert_eq!(human(Transform::Identity, None, None).expect("null"), "null");
}

#[test]
fn floats_are_written_as_java_writes_them() {
    let double = |v: f64| primitive(&PrimitiveType::Double, &PrimitiveLiteral::Double(v.into())).expect("a double");
    let float = |v: f32| primitive(&PrimitiveType::Float, &PrimitiveLiteral::Float(v.into())).expect("a float");
    let cases =
        [(0.0, "0.0"), (-0.0, "-0.0"), (0.1, "0.1"), (-1234567.5, "-1234567.5"), (1e7, "1.0E7"), (1.25e-4, "1.25E-4")];
    for (value, text) in cases {
        assert_eq!(double(value), text);
    }
    assert_eq!([double(f64::NAN), double(f64::NEG_INFINITY)], ["NaN", "-Infinity"]);
    assert_eq!([float(0.1), float(-0.0), float(3e10), float(f32::INFINITY)], ["0.1", "-0.0", "3.0E10", "Infinity"]);
}
