//! One Parquet file in memory, with the metrics that its manifest entry needs.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute;
use arrow::datatypes::{
    DataType, Field, Float64Type, Int32Type, Int64Type, Schema as ArrowSchema, SchemaRef, TimeUnit,
    TimestampMicrosecondType,
};
use bytes::Bytes;
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Struct};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use uuid::Uuid;

use crate::error::{Error, Result};

/// Characters of a text that are kept in bounds, as Iceberg's default metrics mode has it.
const BOUND_CHARACTERS: usize = 16;

/// A file that is not written yet.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) content: Bytes,
    pub(super) data_file: DataFile,
}

/// Names as a Flink task gives them: the writer's identity and a count, so that it can be told later which of its
/// files it must have committed.
#[derive(Debug)]
pub(super) struct WriterFileNames {
    operation: Uuid,
    count: u32,
}

impl WriterFileNames {
    /// Names of a writer that starts now.
    pub(super) fn new(operation: Uuid) -> Self {
        Self { operation, count: 0 }
    }

    /// A path that was never used, in a partition's directory.
    pub(super) fn next(&mut self, location: &str, partition_path: &str) -> String {
        self.count += 1;
        format!("{location}/data/{partition_path}/00000-0-{}-{:05}.parquet", self.operation, self.count)
    }
}

/// Which rows a file holds, and for what.
pub(super) struct FileSpec {
    pub(super) path: String,
    pub(super) content: DataContentType,
    pub(super) partition: Struct,
    pub(super) equality_ids: Option<Vec<i32>>,
    pub(super) referenced_data_file: Option<String>,
}

/// Encodes rows, whose schema carries field ids.
pub(super) fn encode(spec: FileSpec, batch: &RecordBatch) -> Result<NewFile> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let mut content = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut content, batch.schema(), Some(properties))?;
    writer.write(batch)?;
    let footer = writer.close()?;
    let rows = batch.num_rows() as u64;
    let (mut sizes, mut values, mut nulls, mut nans) = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    let (mut lower, mut upper) = (HashMap::new(), HashMap::new());
    for (index, (field, array)) in batch.schema_ref().fields().iter().zip(batch.columns()).enumerate() {
        let id = field_id(field)?;
        let bytes: i64 = footer.row_groups().iter().map(|group| group.column(index).compressed_size()).sum();
        sizes.insert(id, u64::try_from(bytes).unwrap_or(0));
        values.insert(id, rows);
        nulls.insert(id, array.null_count() as u64);
        if field.data_type() == &DataType::Float64 {
            nans.insert(id, array.as_primitive::<Float64Type>().iter().flatten().filter(|v| v.is_nan()).count() as u64);
        }
        let exact = spec.content == DataContentType::PositionDeletes;
        if let Some((least, greatest)) = bounds(field, array, exact)? {
            lower.insert(id, least);
            greatest.map(|greatest| upper.insert(id, greatest));
        }
    }
    let data_file = DataFileBuilder::default()
        .content(spec.content)
        .file_path(spec.path)
        .file_format(DataFileFormat::Parquet)
        .partition(spec.partition)
        .record_count(rows)
        .file_size_in_bytes(content.len() as u64)
        .column_sizes(sizes)
        .value_counts(values)
        .null_value_counts(nulls)
        .nan_value_counts(nans)
        .lower_bounds(lower)
        .upper_bounds(upper)
        .split_offsets(Some(footer.row_groups().iter().filter_map(|group| group.file_offset()).collect()))
        .equality_ids(spec.equality_ids)
        .referenced_data_file(spec.referenced_data_file)
        .build()
        .map_err(|e| Error::internal(format!("describe a data file: {e}")))?;
    Ok(NewFile { content: content.into(), data_file })
}

fn field_id(field: &Field) -> Result<i32> {
    let id = field.metadata().get(PARQUET_FIELD_ID_META_KEY).and_then(|id| id.parse().ok());
    id.ok_or_else(|| Error::internal(format!("column {} has no field id", field.name())))
}

/// Least and greatest value; none without values. The greatest is none if no short text lies above it.
fn bounds(field: &Field, array: &ArrayRef, exact: bool) -> Result<Option<(Datum, Option<Datum>)>> {
    let pair = |least: Option<Datum>, greatest: Option<Datum>| least.map(|least| (least, greatest));
    Ok(match field.data_type() {
        DataType::Int32 => {
            let a = array.as_primitive::<Int32Type>();
            pair(compute::min(a).map(Datum::int), compute::max(a).map(Datum::int))
        }
        DataType::Int64 => {
            let a = array.as_primitive::<Int64Type>();
            pair(compute::min(a).map(Datum::long), compute::max(a).map(Datum::long))
        }
        DataType::Float64 => {
            let values = || array.as_primitive::<Float64Type>().iter().flatten().filter(|v| !v.is_nan());
            pair(values().reduce(f64::min).map(Datum::double), values().reduce(f64::max).map(Datum::double))
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            let a = array.as_primitive::<TimestampMicrosecondType>();
            pair(compute::min(a).map(Datum::timestamptz_micros), compute::max(a).map(Datum::timestamptz_micros))
        }
        DataType::Utf8 => {
            let a = array.as_string::<i32>();
            let (least, greatest) = (compute::min_string(a), compute::max_string(a));
            match exact {
                true => pair(least.map(Datum::string), greatest.map(Datum::string)),
                false => pair(least.map(|s| Datum::string(shorter(s))), greatest.and_then(above).map(Datum::string)),
            }
        }
        other => return Err(Error::internal(format!("no bounds for columns of type {other}"))),
    })
}

fn shorter(text: &str) -> &str {
    text.char_indices().nth(BOUND_CHARACTERS).map_or(text, |(end, _)| &text[..end])
}

/// The text itself if it is short, else the shortest prefix with its last character raised.
fn above(text: &str) -> Option<String> {
    let prefix = shorter(text);
    if prefix.len() == text.len() {
        return Some(text.to_string());
    }
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        if let Some(next) = char::from_u32(u32::from(last) + 1) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

/// A required column with a field id.
fn column(name: &str, kind: DataType, id: i32) -> Field {
    Field::new(name, kind, false)
        .with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_string(), id.to_string())]))
}

/// The schema of position delete files, with the ids that the specification reserves.
pub(super) fn position_delete_schema() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![
        column("file_path", DataType::Utf8, 2_147_483_546),
        column("pos", DataType::Int64, 2_147_483_545),
    ]))
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    #[test]
    fn text_bounds_are_short_and_cover_the_text() {
        assert_eq!(shorter("abc"), "abc");
        assert_eq!(shorter("0123456789abcdefgh"), "0123456789abcdef");
        assert_eq!(above("abc").as_deref(), Some("abc"));
        assert_eq!(above("0123456789abcdefgh").as_deref(), Some("0123456789abcdeg"));
        assert_eq!(above(&format!("a{}", "\u{10ffff}".repeat(20))).as_deref(), Some("b"));
        assert_eq!(above(&"\u{10ffff}".repeat(20)), None);
    }

    #[test]
    fn a_column_of_nulls_has_no_bounds() {
        let array: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>, None]));
        assert_eq!(bounds(&Field::new("s", DataType::Utf8, true), &array, false).expect("a known type"), None);
    }
}
