//! Column metrics of a written file, from its footer and from what only the rows tell (NaN). Pure.
//!
//! A bound covers every row group or is left out. Columns under lists and maps get sizes only, as in the reference implementation.

use std::collections::HashMap;

use iceberg::spec::{Datum, PrimitiveType, Schema, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::statistics::Statistics;

use crate::error::{Error, Result};
use crate::rewrite::bounds::{truncate_bytes_down, truncate_bytes_up, truncate_text_down, truncate_text_up};
use crate::rewrite::metrics_modes::MetricsMode;

/// What the rows of a file tell about a float column.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FloatStats {
    pub nan_count: u64,
    /// Least and greatest of the other values.
    pub bounds: Option<(f64, f64)>,
}

impl FloatStats {
    pub(crate) fn add(&mut self, value: f64) {
        if value.is_nan() {
            self.nan_count += 1;
        } else {
            self.merge_bounds(value, value);
        }
    }

    /// Takes another part of the file into account.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.nan_count += other.nan_count;
        if let Some((low, high)) = other.bounds {
            self.merge_bounds(low, high);
        }
    }

    fn merge_bounds(&mut self, low: f64, high: f64) {
        self.bounds = Some(match self.bounds {
            None => (low, high),
            Some((l, h)) => {
                (if low.total_cmp(&l).is_lt() { low } else { l }, if high.total_cmp(&h).is_gt() { high } else { h })
            }
        });
    }
}

/// The metrics of one file, by field id.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct ColumnMetrics {
    /// Compressed bytes.
    pub column_sizes: HashMap<i32, u64>,
    /// Values including NULL and NaN.
    pub value_counts: HashMap<i32, u64>,
    pub null_value_counts: HashMap<i32, u64>,
    pub nan_value_counts: HashMap<i32, u64>,
    /// No value is below.
    pub lower_bounds: HashMap<i32, Datum>,
    /// No value is above.
    pub upper_bounds: HashMap<i32, Datum>,
}

/// A bound as it stands in a footer, in the column's own order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    Boolean(bool),
    Integer(i64),
    Decimal(i128),
    Bytes(Vec<u8>),
}

pub(crate) fn column_metrics(
    footer: &ParquetMetaData,
    schema: &Schema,
    modes: &HashMap<i32, MetricsMode>,
    floats: &HashMap<i32, FloatStats>,
) -> Result<ColumnMetrics> {
    let mut metrics = ColumnMetrics::default();
    let descriptor = footer.file_metadata().schema_descr();
    for (i, column) in descriptor.columns().iter().enumerate() {
        let info = column.self_type().get_basic_info();
        if !info.has_id() {
            continue;
        }
        let id = info.id();
        let mode = modes.get(&id).copied().unwrap_or(MetricsMode::None);
        if mode == MetricsMode::None {
            continue;
        }
        let chunks: Vec<&ColumnChunkMetaData> = footer.row_groups().iter().map(|g| g.column(i)).collect();
        let size: i64 = chunks.iter().map(|c| c.compressed_size()).sum();
        metrics.column_sizes.insert(id, count(size)?);
        if column.max_rep_level() > 0 {
            continue;
        }
        metrics.value_counts.insert(id, count(chunks.iter().map(|c| c.num_values()).sum())?);
        let nulls: Option<u64> = chunks.iter().map(|c| c.statistics().and_then(Statistics::null_count_opt)).sum();
        if let Some(nulls) = nulls {
            metrics.null_value_counts.insert(id, nulls);
        }
        let Some(Type::Primitive(ty)) = schema.field_by_id(id).map(|f| f.field_type.as_ref()) else { continue };
        if let Some(float) = floats.get(&id) {
            metrics.nan_value_counts.insert(id, float.nan_count);
        }
        let (lower, upper) = match (mode, floats.get(&id)) {
            // Readers disagree about the order of UUIDs, and a footer does not tell the least by every order.
            _ if *ty == PrimitiveType::Uuid => (None, None),
            (MetricsMode::Counts, _) => (None, None),
            (_, Some(float)) => float_datums(float, ty)?,
            (mode, None) => footer_datums(&chunks, ty, mode)?,
        };
        metrics.lower_bounds.extend(lower.map(|d| (id, d)));
        metrics.upper_bounds.extend(upper.map(|d| (id, d)));
    }
    Ok(metrics)
}

fn count(n: i64) -> Result<u64> {
    u64::try_from(n).map_err(|_| Error::internal("a negative count in a footer"))
}

/// Zero bounds get the sign that covers both zeros, since readers differ in whether they tell them apart.
fn float_datums(stats: &FloatStats, ty: &PrimitiveType) -> Result<(Option<Datum>, Option<Datum>)> {
    let Some((low, high)) = stats.bounds else { return Ok((None, None)) };
    let (low, high) = (if low == 0.0 { -0.0 } else { low }, if high == 0.0 { 0.0 } else { high });
    match ty {
        PrimitiveType::Double => Ok((Some(Datum::double(low)), Some(Datum::double(high)))),
        // Exact: the values came from 32-bit floats.
        PrimitiveType::Float => Ok((Some(Datum::float(low as f32)), Some(Datum::float(high as f32)))),
        other => Err(Error::internal(format!("float metrics for a column of type {other}"))),
    }
}

fn footer_datums(
    chunks: &[&ColumnChunkMetaData],
    ty: &PrimitiveType,
    mode: MetricsMode,
) -> Result<(Option<Datum>, Option<Datum>)> {
    let mut bounds: Option<(Bound, Bound)> = None;
    for chunk in chunks {
        let Some(stats) = chunk.statistics() else { return Ok((None, None)) };
        match (bound(stats, ty, true), bound(stats, ty, false)) {
            (Some(low), Some(high)) => {
                bounds = Some(match bounds.take() {
                    Some((l, h)) => (l.min(low), h.max(high)),
                    None => (low, high),
                });
            }
            // Nothing but NULLs has no bounds and needs none; anything else would stay uncovered.
            _ if stats.null_count_opt() == u64::try_from(chunk.num_values()).ok() => {}
            _ => return Ok((None, None)),
        }
    }
    let Some((low, high)) = bounds else { return Ok((None, None)) };
    let length = match mode {
        MetricsMode::Truncate(length) => Some(length),
        _ => None,
    };
    Ok((datum(truncate(low, ty, length, false), ty)?, datum(truncate(high, ty, length, true), ty)?))
}

fn bound(stats: &Statistics, ty: &PrimitiveType, min: bool) -> Option<Bound> {
    let decimal = matches!(ty, PrimitiveType::Decimal { .. });
    let integer = |n: i64| if decimal { Bound::Decimal(n.into()) } else { Bound::Integer(n) };
    match stats {
        Statistics::Boolean(s) => (if min { s.min_opt() } else { s.max_opt() }).map(|b| Bound::Boolean(*b)),
        Statistics::Int32(s) => (if min { s.min_opt() } else { s.max_opt() }).map(|n| integer((*n).into())),
        Statistics::Int64(s) => (if min { s.min_opt() } else { s.max_opt() }).map(|n| integer(*n)),
        Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_) => {
            let bytes = if min { stats.min_bytes_opt() } else { stats.max_bytes_opt() }?;
            if decimal { signed(bytes).map(Bound::Decimal) } else { Some(Bound::Bytes(bytes.to_vec())) }
        }
        // INT96 is never written; floats come from the rows.
        Statistics::Int96(_) | Statistics::Float(_) | Statistics::Double(_) => None,
    }
}

/// A big-endian two's complement number.
fn signed(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    if bytes.len() > 16 {
        return None;
    }
    let mut wide = if first & 0x80 == 0 { [0; 16] } else { [0xff; 16] };
    wide[16 - bytes.len()..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

/// `None`: there is no bound of that length.
fn truncate(bound: Bound, ty: &PrimitiveType, length: Option<usize>, up: bool) -> Option<Bound> {
    let (Bound::Bytes(bytes), Some(length)) = (&bound, length) else { return Some(bound) };
    match ty {
        PrimitiveType::String => {
            let text = std::str::from_utf8(bytes).ok()?;
            let cut = if up { truncate_text_up(text, length)? } else { truncate_text_down(text, length).to_string() };
            Some(Bound::Bytes(cut.into_bytes()))
        }
        PrimitiveType::Binary | PrimitiveType::Fixed(_) => {
            let cut = if up { truncate_bytes_up(bytes, length)? } else { truncate_bytes_down(bytes, length).to_vec() };
            Some(Bound::Bytes(cut))
        }
        _ => Some(bound),
    }
}

fn datum(bound: Option<Bound>, ty: &PrimitiveType) -> Result<Option<Datum>> {
    let Some(bound) = bound else { return Ok(None) };
    let bytes = match (bound, ty) {
        (Bound::Boolean(b), _) => vec![u8::from(b)],
        (Bound::Integer(n), PrimitiveType::Int | PrimitiveType::Date) => {
            i32::try_from(n).map_err(|_| Error::internal("a 32-bit bound out of range"))?.to_le_bytes().to_vec()
        }
        (Bound::Integer(n), _) => n.to_le_bytes().to_vec(),
        (Bound::Decimal(n), _) => n.to_be_bytes().to_vec(),
        (Bound::Bytes(bytes), PrimitiveType::String) if std::str::from_utf8(&bytes).is_err() => return Ok(None),
        (Bound::Bytes(bytes), _) => bytes,
    };
    Ok(Some(Datum::try_from_bytes(&bytes, ty.clone())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_signed_whatever_their_width() {
        assert_eq!(signed(&[0xff]), Some(-1));
        assert_eq!(signed(&[0x00, 0x80]), Some(128));
        assert_eq!(signed(&[0x80; 17]), None);
        assert_eq!(signed(&[]), None);
    }

    #[test]
    fn float_bounds_leave_nan_out_and_cover_both_zeros() {
        let mut stats = FloatStats::default();
        [f64::NAN, 0.0, -5.0].into_iter().for_each(|v| stats.add(v));
        let mut other = FloatStats::default();
        other.add(-0.0);
        stats.merge(&other);
        assert_eq!(stats, FloatStats { nan_count: 1, bounds: Some((-5.0, 0.0)) });
        let mut zero = FloatStats::default();
        zero.add(0.0);
        let (low, high) = float_datums(&zero, &PrimitiveType::Double).expect("a double");
        let bits = |d: Option<Datum>| d.and_then(|d| d.to_bytes().ok()).map(|b| b.into_vec());
        assert_eq!(bits(low), Some((-0.0f64).to_le_bytes().to_vec()));
        assert_eq!(bits(high), Some(0.0f64.to_le_bytes().to_vec()));
    }
}
