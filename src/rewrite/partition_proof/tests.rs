use arrow::array::{
    BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int32Array,
    Int64Array, StringViewArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use proptest::prelude::*;

use super::*;
use crate::rewrite::partition::literal;
use crate::rewrite::transform::transform;

/// What the transform makes of the only value, if the proof holds for it.
fn proven(name: Transform, source: &ArrayRef) -> Option<Literal> {
    let made = transform(name, source).expect("supported");
    let value = literal(&made, 0).expect("a partition value");
    assert_eq!(first_stray(name, value.as_ref(), source).expect("comparable"), None, "{name} of {source:?}: {value:?}");
    value
}

/// The value that the transform makes is proven, and the neighbours of that value are not.
fn only_the_right_one(name: Transform, source: &ArrayRef) {
    let neighbours = match proven(name, source) {
        Some(Literal::Primitive(PrimitiveLiteral::Int(v))) => {
            [v.wrapping_add(1), v.wrapping_sub(1)].map(PrimitiveLiteral::Int).to_vec()
        }
        Some(Literal::Primitive(PrimitiveLiteral::Long(v))) => {
            [v.wrapping_add(1), v.wrapping_sub(1)].map(PrimitiveLiteral::Long).to_vec()
        }
        Some(Literal::Primitive(PrimitiveLiteral::Int128(v))) => [v + 1, v - 1].map(PrimitiveLiteral::Int128).to_vec(),
        Some(Literal::Primitive(PrimitiveLiteral::String(v))) => vec![PrimitiveLiteral::String(v + "x")],
        Some(Literal::Primitive(PrimitiveLiteral::Binary(v))) => {
            vec![PrimitiveLiteral::Binary([v.as_slice(), &[0]].concat())]
        }
        other => panic!("no value: {other:?}"),
    };
    for wrong in neighbours {
        let found = first_stray(name, Some(&Literal::Primitive(wrong.clone())), source).expect("comparable");
        assert_eq!(found, Some(0), "{name} of {source:?} is not {wrong:?}");
    }
    assert_eq!(first_stray(name, None, source).expect("comparable"), Some(0), "{name}: NULL");
}

proptest! {
    #[test]
    fn a_row_is_proven_in_its_own_partition_and_refused_in_the_next(
        int in any::<i32>(), long in any::<i64>(), shift in 0u32..60, text in ".{0,6}", bytes in proptest::collection::vec(any::<u8>(), 0..9),
        width in 1u32..2000,
    ) {
        let micros = (long >> shift).clamp(-4_000_000_000_000_000, 4_000_000_000_000_000);
        let days: ArrayRef = Arc::new(Date32Array::from(vec![int >> (shift % 16)]));
        let times: [ArrayRef; 2] = [
            Arc::new(TimestampMicrosecondArray::from(vec![micros])),
            Arc::new(TimestampNanosecondArray::from(vec![long >> shift])),
        ];
        for name in [Transform::Year, Transform::Month, Transform::Day] {
            only_the_right_one(name, &days);
        }
        for (name, times) in [Transform::Year, Transform::Month, Transform::Day, Transform::Hour].iter().flat_map(|n| times.iter().map(move |t| (*n, t))) {
            only_the_right_one(name, times);
        }
        let decimal = Decimal128Array::from(vec![i128::from(long) * i128::from(int)]);
        let decimal = decimal.with_precision_and_scale(38, 2).expect("valid");
        let numbers: [ArrayRef; 3] =
            [Arc::new(Int32Array::from(vec![int])), Arc::new(Int64Array::from(vec![long >> shift])), Arc::new(decimal)];
        for numbers in &numbers {
            only_the_right_one(Transform::Truncate(width + 1), numbers);
            only_the_right_one(Transform::Bucket(width + 2), numbers);
            only_the_right_one(Transform::Identity, numbers);
        }
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str()]));
        let binaries: ArrayRef = Arc::new(BinaryViewArray::from(vec![bytes.as_slice()]));
        for values in [&texts, &binaries] {
            only_the_right_one(Transform::Truncate(width % 5 + 1), values);
            only_the_right_one(Transform::Bucket(width + 2), values);
            only_the_right_one(Transform::Identity, values);
        }
    }
}

#[test]
fn numbers_that_wrap_around_are_proven_too() {
    let least: ArrayRef = Arc::new(Int32Array::from(vec![i32::MIN]));
    assert_eq!(proven(Transform::Truncate(10), &least), Some(Literal::int(i32::MAX - 1)));
    let least: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN]));
    assert_eq!(proven(Transform::Truncate(10), &least), Some(Literal::long(i64::MAX - 1)));
}

#[test]
fn floats_are_proven_bit_for_bit_with_one_nan() {
    let stray = |value: f64, row: f64| {
        let rows: ArrayRef = Arc::new(Float64Array::from(vec![row]));
        first_stray(Transform::Identity, Some(&Literal::double(value)), &rows).expect("comparable")
    };
    assert_eq!(stray(0.0, 0.0), None);
    assert_eq!(stray(0.0, -0.0), Some(0));
    assert_eq!(stray(f64::NAN, f64::from_bits(0xfff8_0000_0000_0001)), None);
    assert_eq!(stray(f64::NAN, 1.0), Some(0));
}

#[test]
fn the_row_that_strays_is_told() {
    let rows: ArrayRef = Arc::new(BooleanArray::from(vec![true, true, false]));
    assert_eq!(first_stray(Transform::Identity, Some(&Literal::bool(true)), &rows).expect("comparable"), Some(2));
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    assert_eq!(first_stray(Transform::Identity, Some(&Literal::long(1)), &rows).expect("comparable"), Some(1));
    assert_eq!(first_stray(Transform::Bucket(3), None, &rows).expect("comparable"), Some(0));
    let uuid = 0x8000_0000_0000_0000_0000_0000_0000_0001_u128;
    let rows: ArrayRef =
        Arc::new(FixedSizeBinaryArray::try_from_iter([uuid.to_be_bytes(), [0; 16]].into_iter()).expect("one length"));
    let value = Literal::Primitive(PrimitiveLiteral::UInt128(uuid));
    assert_eq!(first_stray(Transform::Identity, Some(&value), &rows).expect("comparable"), Some(1));
}
