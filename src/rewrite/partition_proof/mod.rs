//! Reads written files again: does each row belong to the partition that its file is listed in?
//!
//! The transform is not calculated a second time, but asked backwards: which source values does a partition value stand for?
//! So a mistake in [`crate::rewrite::transform`] is found before a commit hides rows from readers that prune.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, TimeUnit};
use iceberg::spec::{DataFile, Literal, PartitionSpec, PrimitiveLiteral, Schema, Transform};

use crate::error::{Error, Result};
use crate::rewrite::delete_mask::KeyColumn;
use crate::rewrite::on_blocking_thread;
use crate::rewrite::partition::find_source;
use crate::rewrite::project::PartitionConstants;
use crate::rewrite::reader::{ReadTarget, open_large, row_group_piece};
use crate::rewrite::transform::{as_longs, as_views};
use crate::storage::Store;
use crate::table::partition_values::{one_nan_f32, one_nan_f64};
use crate::table::{FileEntry, PartitionTuple};

/// The columns that a spec's partitions are made of, and what each field makes of its column.
pub(crate) struct PartitionProof {
    target: ReadTarget,
    fields: Vec<(String, Transform, KeyColumn)>,
}

impl PartitionProof {
    /// For files of `schema` in partitions of `spec`.
    pub(crate) fn new(spec: &PartitionSpec, schema: &Schema) -> Result<Self> {
        let columns = schema.as_struct();
        let mut fields = Vec::new();
        let mut read: Vec<usize> = Vec::new();
        for field in spec.fields().iter().filter(|field| field.transform != Transform::Void) {
            let mut path = Vec::new();
            if !find_source(columns, field.source_id, &mut path) {
                return Err(Error::internal(format!("the source of partition field {} is gone", field.name)));
            }
            let column = read.iter().position(|known| *known == path[0]).unwrap_or_else(|| {
                read.push(path[0]);
                read.len() - 1
            });
            fields.push((field.name.clone(), field.transform, KeyColumn { column, path: path[1..].to_vec() }));
        }
        let columns: Vec<_> = read.into_iter().map(|at| Arc::clone(&columns.fields()[at])).collect();
        let target = ReadTarget { own: columns.len(), fields: columns, mapping: None, all_present: true };
        Ok(Self { target, fields })
    }

    /// Checks every row of an output, a row group at a time.
    pub(crate) async fn check(self: Arc<Self>, store: &dyn Store, file: &DataFile, spec: &PartitionSpec) -> Result<()> {
        let path = file.file_path();
        let wrong = |what: String| Error::internal(format!("output {path} was written wrongly: {what}"));
        let live = spec.fields().iter().zip(file.partition().iter());
        let values: Vec<Option<Literal>> =
            live.filter(|(field, _)| field.transform != Transform::Void).map(|(_, value)| value.cloned()).collect();
        if values.len() != self.fields.len() {
            return Err(wrong("its partition has another number of values than its spec".into()));
        }
        if self.fields.is_empty() {
            return Ok(());
        }
        let entry = described(file, spec.spec_id());
        let open = Arc::new(open_large(store, &entry, &self.target, &PartitionConstants::new()).await?);
        let values = Arc::new(values);
        for row_group in 0..open.footer().num_row_groups() {
            let piece = row_group_piece(store, &entry, &open, row_group).await?;
            let (proof, values) = (Arc::clone(&self), Arc::clone(&values));
            let checked = on_blocking_thread(move || {
                piece.decode(&mut |position, batch| proof.check_batch(&values, position, &batch))
            });
            checked.await.map_err(|e| wrong(e.to_string()))?;
        }
        Ok(())
    }

    fn check_batch(&self, values: &[Option<Literal>], position: u64, batch: &RecordBatch) -> Result<()> {
        for ((name, transform, column), value) in self.fields.iter().zip(values) {
            let source = column.values(batch)?;
            if let Some(row) = first_stray(*transform, value.as_ref(), &source)? {
                let row = position + row as u64;
                return Err(Error::internal(format!("row {row} is not of its file's partition by field {name}")));
            }
        }
        Ok(())
    }
}

/// An output as readers of inputs want it.
fn described(file: &DataFile, spec_id: i32) -> FileEntry {
    let partition = PartitionTuple { spec_id, values: file.partition().clone().into() };
    FileEntry {
        content: file.content_type(),
        file_format: Some(file.file_format()),
        ..FileEntry::unlisted(file.file_path(), partition, file.record_count(), file.file_size_in_bytes())
    }
}

/// The first row whose value the transform does not bring to `partition`.
fn first_stray(transform: Transform, partition: Option<&Literal>, source: &ArrayRef) -> Result<Option<usize>> {
    let value = match partition {
        // Transforms make NULL of NULL only.
        None => return Ok((0..source.len()).find(|row| source.is_valid(*row))),
        Some(Literal::Primitive(value)) => value,
        Some(_) => return Err(Error::internal("a partition value that is not primitive")),
    };
    if let Some(row) = (0..source.len()).find(|row| source.is_null(*row)) {
        return Ok(Some(row));
    }
    match transform {
        Transform::Identity => stray_of(source, |row| is_value(row, value)),
        Transform::Bucket(buckets) => {
            let of = |bytes: &[u8]| murmur3::murmur3_32(&mut &*bytes, 0).map(|h| (h & 0x7fff_ffff) % buckets).ok();
            let wanted = match value {
                PrimitiveLiteral::Int(bucket) => u32::try_from(*bucket).ok(),
                _ => None,
            };
            let nanos = matches!(source.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _));
            stray_of(source, |row| {
                let found = match row {
                    ColumnValue::Long(v) if nanos => of(&v.div_euclid(1000).to_le_bytes()),
                    ColumnValue::Long(v) => of(&v.to_le_bytes()),
                    ColumnValue::Decimal(v) => of(&shortest(v)),
                    ColumnValue::Bytes(bytes) => of(bytes),
                    ColumnValue::Boolean(_) | ColumnValue::Bits(_) => None,
                };
                found.is_some() && found == wanted
            })
        }
        Transform::Truncate(width) => stray_of(source, |row| is_cut(row, value, width)),
        Transform::Year | Transform::Month | Transform::Day | Transform::Hour => {
            let (from, to) = span(transform, value, source.data_type())?;
            stray_of(source, |row| matches!(row, ColumnValue::Long(v) if from <= i128::from(v) && i128::from(v) < to))
        }
        Transform::Void | Transform::Unknown => Err(Error::internal("a partition value of a transform without values")),
    }
}

enum ColumnValue<'a> {
    Boolean(bool),
    Long(i64),
    /// Of a float, with one NaN.
    Bits(u64),
    Decimal(i128),
    Bytes(&'a [u8]),
}

fn stray_of(source: &ArrayRef, belongs: impl Fn(ColumnValue<'_>) -> bool) -> Result<Option<usize>> {
    let rows = 0..source.len();
    if let Some(longs) = as_longs(source)? {
        return Ok(longs.values().iter().position(|v| !belongs(ColumnValue::Long(*v))));
    }
    if let Some(views) = as_views(source)? {
        return Ok(match views.as_string_view_opt() {
            Some(texts) => rows.into_iter().find(|row| !belongs(ColumnValue::Bytes(texts.value(*row).as_bytes()))),
            None => rows.into_iter().find(|row| !belongs(ColumnValue::Bytes(views.as_binary_view().value(*row)))),
        });
    }
    let stray = match source.data_type() {
        DataType::Decimal128(..) => {
            source.as_primitive::<Decimal128Type>().values().iter().position(|v| !belongs(ColumnValue::Decimal(*v)))
        }
        DataType::Float32 => {
            let bits = |v: &f32| ColumnValue::Bits(u64::from(one_nan_f32(*v).to_bits()));
            source.as_primitive::<Float32Type>().values().iter().position(|v| !belongs(bits(v)))
        }
        DataType::Float64 => {
            let bits = |v: &f64| ColumnValue::Bits(one_nan_f64(*v).to_bits());
            source.as_primitive::<Float64Type>().values().iter().position(|v| !belongs(bits(v)))
        }
        DataType::Boolean => {
            rows.into_iter().find(|row| !belongs(ColumnValue::Boolean(source.as_boolean().value(*row))))
        }
        other => return Err(Error::unsupported(format!("partitions by values of type {other}"))),
    };
    Ok(stray)
}

fn is_value(row: ColumnValue<'_>, value: &PrimitiveLiteral) -> bool {
    use PrimitiveLiteral as L;
    match (row, value) {
        (ColumnValue::Boolean(a), L::Boolean(b)) => a == *b,
        (ColumnValue::Long(a), L::Int(b)) => a == i64::from(*b),
        (ColumnValue::Long(a), L::Long(b)) => a == *b,
        (ColumnValue::Bits(a), L::Float(b)) => a == u64::from(one_nan_f32(b.0).to_bits()),
        (ColumnValue::Bits(a), L::Double(b)) => a == one_nan_f64(b.0).to_bits(),
        (ColumnValue::Decimal(a), L::Int128(b)) => a == *b,
        (ColumnValue::Bytes(a), L::String(b)) => a == b.as_bytes(),
        (ColumnValue::Bytes(a), L::Binary(b)) => a == b.as_slice(),
        (ColumnValue::Bytes(a), L::UInt128(b)) => a == b.to_be_bytes(),
        _ => false,
    }
}

/// Whether `cut` is the row's value less what exceeds a multiple of `width`, or its first `width` characters or bytes.
fn is_cut(row: ColumnValue<'_>, cut: &PrimitiveLiteral, width: u32) -> bool {
    use PrimitiveLiteral as L;
    let numbers =
        |value: i128, rest: i128| (0..i128::from(width)).contains(&rest) && (value - rest) % i128::from(width) == 0;
    let length = width as usize;
    match (row, cut) {
        // The reference's numbers wrap around below the least one.
        (ColumnValue::Long(v), L::Int(cut)) => {
            i32::try_from(v).is_ok_and(|small| numbers(v.into(), small.wrapping_sub(*cut).into()))
        }
        (ColumnValue::Long(v), L::Long(cut)) => numbers(v.into(), v.wrapping_sub(*cut).into()),
        (ColumnValue::Decimal(v), L::Int128(cut)) => numbers(v, v.wrapping_sub(*cut)),
        (ColumnValue::Bytes(v), L::String(cut)) => {
            let characters = cut.chars().count();
            v.starts_with(cut.as_bytes()) && (characters == length || characters < length && v.len() == cut.len())
        }
        (ColumnValue::Bytes(v), L::Binary(cut)) => {
            v.starts_with(cut) && (cut.len() == length || cut.len() < length && v.len() == cut.len())
        }
        _ => false,
    }
}

/// The first value of a period and the first one after it, in the unit of the column.
fn span(transform: Transform, value: &PrimitiveLiteral, source: &DataType) -> Result<(i128, i128)> {
    let per_day: i128 = match source {
        DataType::Date32 => 1,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 86_400_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 86_400_000_000_000,
        other => return Err(Error::internal(format!("{transform} of values of type {other}"))),
    };
    let PrimitiveLiteral::Int(period) = value else { return Err(Error::internal("a period that is no integer")) };
    let period = i64::from(*period);
    let bounds =
        |first: fn(i64) -> i64, unit: i128| (i128::from(first(period)) * unit, i128::from(first(period + 1)) * unit);
    Ok(match transform {
        Transform::Year => bounds(|years| first_day_of_month(years * 12), per_day),
        Transform::Month => bounds(first_day_of_month, per_day),
        Transform::Day => bounds(|days| days, per_day),
        _ => bounds(|hours| hours, per_day / 24),
    })
}

/// Days from 1970-01-01 to the first day of a month, counted in months since then.
fn first_day_of_month(months: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let (year, month) = (1970 + months.div_euclid(12), months.rem_euclid(12));
    let leap_years_before =
        |year: i64| (year - 1).div_euclid(4) - (year - 1).div_euclid(100) + (year - 1).div_euclid(400);
    let is_leap = leap_years_before(year + 1) > leap_years_before(year);
    let leap_day = i64::from(is_leap && month >= 2);
    let before = BEFORE[usize::try_from(month).unwrap_or(0)];
    (year - 1970) * 365 + leap_years_before(year) - leap_years_before(1970) + before + leap_day
}

/// The shortest two's complement form, big-endian.
fn shortest(value: i128) -> Vec<u8> {
    let bits = 128 - if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    let length = (bits / 8 + 1) as usize;
    value.to_be_bytes()[16 - length..].to_vec()
}

#[cfg(test)]
mod tests;
