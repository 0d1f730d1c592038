//! Partition transforms of whole columns, with the reference implementation's results for every value. Pure.
//!
//! Times and numbers are rounded down, before 1970 and below zero too. `tests/golden/transforms.tsv` holds what the Java library
//! makes of many values, and [`crate::rewrite::partition_proof`] judges results by another way of calculating.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, Decimal128Array, Int32Array, PrimitiveArray, StringViewArray,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Int32Type, Int64Type, TimeUnit};
use iceberg::spec::Transform;

use crate::error::{Error, Result};
use crate::rewrite::bounds::{truncate_bytes_down, truncate_text_down};
use crate::rewrite::keys::canonical;

/// The transform of each value; NULL of NULL. Floats get one NaN.
///
/// [`crate::error::ErrorKind::Unsupported`] for a transform that this version does not know, or that takes no such values.
pub(crate) fn transform(transform: Transform, values: &ArrayRef) -> Result<ArrayRef> {
    let result = match transform {
        Transform::Identity => Some(canonical(values)),
        Transform::Void => Some(new_null_array(&DataType::Boolean, values.len())),
        Transform::Bucket(buckets) => bucket(buckets, values)?,
        Transform::Truncate(width) => truncate(width, values)?,
        Transform::Year | Transform::Month | Transform::Day | Transform::Hour => period(transform, values)?,
        Transform::Unknown => None,
    };
    result.ok_or_else(|| {
        Error::unsupported(format!("partition transform {transform} of values of type {}", values.data_type()))
    })
}

/// Numbers, dates and times as 64-bit integers, in their own unit. `None` for other types.
pub(crate) fn as_longs(values: &ArrayRef) -> Result<Option<PrimitiveArray<Int64Type>>> {
    let longs = match values.data_type() {
        DataType::Int64 => values.clone(),
        DataType::Date32 => cast(&cast(values, &DataType::Int32)?, &DataType::Int64)?,
        DataType::Int32 | DataType::Time64(_) | DataType::Timestamp(..) => cast(values, &DataType::Int64)?,
        _ => return Ok(None),
    };
    Ok(longs.as_primitive_opt::<Int64Type>().cloned())
}

/// Texts and bytes of any layout as views. `None` for other types.
pub(crate) fn as_views(values: &ArrayRef) -> Result<Option<ArrayRef>> {
    Ok(match values.data_type() {
        DataType::Utf8View | DataType::BinaryView => Some(values.clone()),
        DataType::Utf8 | DataType::LargeUtf8 => Some(cast(values, &DataType::Utf8View)?),
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            Some(cast(values, &DataType::BinaryView)?)
        }
        _ => None,
    })
}

fn bucket(buckets: u32, values: &ArrayRef) -> Result<Option<ArrayRef>> {
    let buckets = i32::try_from(buckets).ok().filter(|n| *n > 0);
    let buckets = buckets.ok_or_else(|| Error::invalid("a bucket transform with an impossible number of buckets"))?;
    let of = |bytes: &[u8]| (hash(bytes) & i32::MAX) % buckets;
    if let Some(decimals) = values.as_primitive_opt::<Decimal128Type>() {
        let hashed: Int32Array = decimals.unary(|v| of(least_bytes(v, &v.to_be_bytes())));
        return Ok(Some(Arc::new(hashed)));
    }
    if let Some(longs) = as_longs(values)? {
        // Nanoseconds fall into the buckets of their microseconds.
        let unit = if matches!(values.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _)) { 1000 } else { 1 };
        let hashed: Int32Array = longs.unary(|v| of(&v.div_euclid(unit).to_le_bytes()));
        return Ok(Some(Arc::new(hashed)));
    }
    let Some(views) = as_views(values)? else { return Ok(None) };
    let hashed: Int32Array = match views.as_string_view_opt() {
        Some(texts) => texts.iter().map(|text| text.map(|t| of(t.as_bytes()))).collect(),
        None => views.as_binary_view().iter().map(|bytes| bytes.map(of)).collect(),
    };
    Ok(Some(Arc::new(hashed)))
}

/// The fewest big-endian bytes that keep the sign.
fn least_bytes(value: i128, bytes: &[u8; 16]) -> &[u8] {
    let sign = if value < 0 { 0xff } else { 0 };
    let redundant = |pair: &[u8]| pair[0] == sign && (pair[1] & 0x80 != 0) == (value < 0);
    let start = bytes.windows(2).take_while(|pair| redundant(pair)).count();
    &bytes[start..]
}

/// Murmur3 (x86, 32 bits, seed 0).
fn hash(bytes: &[u8]) -> i32 {
    const MIX: [u32; 2] = [0xcc9e_2d51, 0x1b87_3593];
    let scramble = |block: u32| block.wrapping_mul(MIX[0]).rotate_left(15).wrapping_mul(MIX[1]);
    let mut blocks = bytes.chunks_exact(4);
    let mut state = 0u32;
    for block in blocks.by_ref() {
        let block = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        state = (state ^ scramble(block)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let rest = blocks.remainder();
    if !rest.is_empty() {
        state ^= scramble(rest.iter().rev().fold(0, |block, byte| block << 8 | u32::from(*byte)));
    }
    // Only the low 32 bits of the length count.
    state ^= bytes.len() as u32;
    state = (state ^ state >> 16).wrapping_mul(0x85eb_ca6b);
    state = (state ^ state >> 13).wrapping_mul(0xc2b2_ae35);
    (state ^ state >> 16).cast_signed()
}

fn truncate(width: u32, values: &ArrayRef) -> Result<Option<ArrayRef>> {
    let width = i32::try_from(width).ok().filter(|n| *n > 0);
    let width = width.ok_or_else(|| Error::invalid("a truncate transform with an impossible width"))?;
    let length = usize::try_from(width).unwrap_or(usize::MAX);
    // Overflow wraps around, as it does in the reference.
    Ok(Some(match values.data_type() {
        DataType::Int32 => Arc::new(
            values
                .as_primitive::<Int32Type>()
                .unary::<_, Int32Type>(|v| v.wrapping_sub((v % width).wrapping_add(width) % width)),
        ),
        DataType::Int64 => {
            let width = i64::from(width);
            Arc::new(values.as_primitive::<Int64Type>().unary::<_, Int64Type>(|v| v.wrapping_sub(v.rem_euclid(width))))
        }
        DataType::Decimal128(precision, scale) => {
            let width = i128::from(width);
            let cut: Decimal128Array = values.as_primitive::<Decimal128Type>().unary(|v| v - v.rem_euclid(width));
            Arc::new(cut.with_precision_and_scale(*precision, *scale)?)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let Some(views) = as_views(values)? else { return Ok(None) };
            let texts = views.as_string_view().iter();
            Arc::new(texts.map(|text| text.map(|t| truncate_text_down(t, length))).collect::<StringViewArray>())
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let Some(views) = as_views(values)? else { return Ok(None) };
            let bytes = views.as_binary_view().iter();
            Arc::new(bytes.map(|bytes| bytes.map(|b| truncate_bytes_down(b, length))).collect::<BinaryViewArray>())
        }
        _ => return Ok(None),
    }))
}

/// Years, months, days or hours since 1970.
fn period(transform: Transform, values: &ArrayRef) -> Result<Option<ArrayRef>> {
    let per_day: i64 = match values.data_type() {
        DataType::Date32 => 1,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 86_400_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 86_400_000_000_000,
        _ => return Ok(None),
    };
    let Some(longs) = as_longs(values)? else { return Ok(None) };
    let months = |v: i64| {
        let (year, month, _) = civil_date(v.div_euclid(per_day));
        (year - 1970) * 12 + month - 1
    };
    // The reference, too, keeps the low 32 bits of hours that need more.
    let periods: Int32Array = match transform {
        Transform::Year => longs.unary(|v| (civil_date(v.div_euclid(per_day)).0 - 1970) as i32),
        Transform::Month => longs.unary(|v| months(v) as i32),
        Transform::Day => longs.unary(|v| v.div_euclid(per_day) as i32),
        Transform::Hour if per_day > 1 => longs.unary(|v| v.div_euclid(per_day / 24) as i32),
        _ => return Ok(None),
    };
    Ok(Some(Arc::new(periods)))
}

/// Year, month (from 1) and day of a day number since 1970, for every day that fits: eras of 400 years starting in March.
pub(crate) fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests;
