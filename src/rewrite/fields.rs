//! The fields of one Parquet file with their Iceberg ids: stored ones, or given by the table's name mapping. Pure.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Schema as ArrowSchema, SchemaRef as ArrowSchemaRef, TimeUnit,
};
use iceberg::spec::{MappedField, NameMapping};
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, parquet_to_arrow_schema};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::SchemaDescriptor;

use crate::error::{Error, Result};

#[derive(Debug, Clone)]
pub(crate) struct FileField {
    /// Iceberg field id, if the file or the name mapping has one.
    pub id: Option<i32>,
    pub name: String,
    /// Type as it will be decoded.
    pub data_type: DataType,
    /// Leaf columns below.
    pub leaves: Range<usize>,
    /// A struct's fields, a list's element, a map's key and value.
    pub children: Vec<FileField>,
    /// Whether this is a legacy INT96 timestamp.
    pub int96: bool,
}

/// All fields of a file, and the Arrow schema to decode it with.
#[derive(Debug, Clone)]
pub(crate) struct FileFields {
    pub fields: Vec<FileField>,
    /// What the Parquet reader is told to produce: views for strings, microseconds for INT96.
    pub arrow_schema: ArrowSchemaRef,
    /// Whether the ids come from the name mapping.
    pub mapped: bool,
}

/// Reads the fields of a file. A file without any field id needs the table's name mapping; guessing by position is refused.
pub(crate) fn file_fields(metadata: &ParquetMetaData, mapping: Option<&NameMapping>) -> Result<FileFields> {
    let descriptor = metadata.file_metadata().schema_descr();
    let plain = parquet_to_arrow_schema(descriptor, None)?;
    let mut next_leaf = 0;
    let hinted = plain.fields().iter().map(|f| hint(f, descriptor, &mut next_leaf)).collect::<Result<Vec<_>>>()?;
    if next_leaf != descriptor.num_columns() {
        return Err(Error::unsupported("the file holds columns that Arrow cannot represent"));
    }
    let arrow_schema = Arc::new(ArrowSchema::new(hinted));
    let mut leaf = 0;
    let mut fields =
        arrow_schema.fields().iter().map(|f| tree(f, descriptor, &mut leaf)).collect::<Result<Vec<_>>>()?;
    let mapped = !fields.iter().any(has_id);
    if mapped {
        let mapping = mapping.ok_or_else(|| {
            Error::unsupported(
                "the file has no field ids and the table has no name mapping: set schema.name-mapping.default",
            )
        })?;
        let roots: Vec<&MappedField> = mapping.fields().iter().collect();
        for field in &mut fields {
            let name = field.name.clone();
            map_field(field, &name, &roots);
        }
    }
    Ok(FileFields { fields, arrow_schema, mapped })
}

fn has_id(field: &FileField) -> bool {
    field.id.is_some() || field.children.iter().any(has_id)
}

/// The same field with the types this project decodes to.
fn hint(field: &FieldRef, descriptor: &SchemaDescriptor, next_leaf: &mut usize) -> Result<FieldRef> {
    let mut nested = |f: &FieldRef| hint(f, descriptor, &mut *next_leaf);
    let data_type = match field.data_type() {
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(&mut nested).collect::<Result<Vec<_>>>()?.into())
        }
        DataType::List(element) => DataType::List(nested(element)?),
        DataType::Map(entries, sorted) => DataType::Map(nested(entries)?, *sorted),
        leaf => {
            let int96 = is_int96(descriptor, *next_leaf)?;
            *next_leaf += 1;
            match leaf {
                DataType::Utf8 => DataType::Utf8View,
                DataType::Binary => DataType::BinaryView,
                DataType::Timestamp(_, zone) if int96 => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
                other => other.clone(),
            }
        }
    };
    Ok(Arc::new(field.as_ref().clone().with_data_type(data_type)))
}

fn is_int96(descriptor: &SchemaDescriptor, leaf: usize) -> Result<bool> {
    if leaf >= descriptor.num_columns() {
        return Err(Error::unsupported("the file holds columns that Arrow cannot represent"));
    }
    Ok(descriptor.column(leaf).physical_type() == PhysicalType::INT96)
}

fn tree(field: &Field, descriptor: &SchemaDescriptor, leaf: &mut usize) -> Result<FileField> {
    let start = *leaf;
    let children = match field.data_type() {
        DataType::Struct(fields) => trees(fields, descriptor, leaf)?,
        DataType::List(element) => vec![tree(element, descriptor, leaf)?],
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => trees(fields, descriptor, leaf)?,
            other => return Err(Error::unsupported(format!("map entries of type {other}"))),
        },
        _ => {
            *leaf += 1;
            Vec::new()
        }
    };
    let id = match field.metadata().get(PARQUET_FIELD_ID_META_KEY) {
        Some(text) => {
            Some(text.parse().map_err(|_| Error::invalid(format!("field id {text} of column {}", field.name())))?)
        }
        None => None,
    };
    let int96 = children.is_empty() && is_int96(descriptor, start)?;
    let data_type = field.data_type().clone();
    Ok(FileField { id, name: field.name().clone(), data_type, leaves: start..*leaf, children, int96 })
}

fn trees(fields: &Fields, descriptor: &SchemaDescriptor, leaf: &mut usize) -> Result<Vec<FileField>> {
    fields.iter().map(|f| tree(f, descriptor, leaf)).collect()
}

/// Gives ids by name. List elements, map keys and values have fixed names in a mapping, whatever the file calls them.
fn map_field(field: &mut FileField, name: &str, mapped: &[&MappedField]) {
    let Some(found) = mapped.iter().find(|m| m.names().iter().any(|n| n == name)) else { return };
    field.id = found.field_id();
    let below: Vec<&MappedField> = found.fields().iter().map(Arc::as_ref).collect();
    let fixed_names: &[&str] = match field.data_type {
        DataType::List(_) => &["element"],
        DataType::Map(..) => &["key", "value"],
        _ => &[],
    };
    for (i, child) in field.children.iter_mut().enumerate() {
        let own_name = child.name.clone();
        map_field(child, fixed_names.get(i).copied().unwrap_or(&own_name), &below);
    }
}
