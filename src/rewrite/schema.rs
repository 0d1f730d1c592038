//! Iceberg types as Arrow types, the way this project holds rows in memory and writes them.
//! Strings and binaries are views: a decoded page is shared instead of copied, and a dictionary never blows up. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema as ArrowSchema, SchemaRef as ArrowSchemaRef, TimeUnit};
use iceberg::spec::{NestedField, NestedFieldRef, PrimitiveType, Type};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use crate::error::{Error, Result};

/// Name of the repeated group of a Parquet map.
const MAP_ENTRIES: &str = "key_value";
/// Arrow's key for the name of an extension type, and the one of UUIDs; it makes the writer annotate the column.
const EXTENSION_NAME: &str = "ARROW:extension:name";
const UUID_EXTENSION: &str = "arrow.uuid";

/// The Arrow type of a primitive column. Nanosecond timestamps exist in format version 3 only and are refused.
pub(crate) fn primitive_type(ty: &PrimitiveType) -> Result<DataType> {
    Ok(match ty {
        PrimitiveType::Boolean => DataType::Boolean,
        PrimitiveType::Int => DataType::Int32,
        PrimitiveType::Long => DataType::Int64,
        PrimitiveType::Float => DataType::Float32,
        PrimitiveType::Double => DataType::Float64,
        PrimitiveType::Decimal { precision, scale } => {
            let (p, s) = (u8::try_from(*precision), i8::try_from(*scale));
            match (p, s) {
                (Ok(p @ 1..=38), Ok(s)) => DataType::Decimal128(p, s),
                _ => return Err(Error::invalid(format!("decimal({precision}, {scale}) is no Iceberg type"))),
            }
        }
        PrimitiveType::Date => DataType::Date32,
        PrimitiveType::Time => DataType::Time64(TimeUnit::Microsecond),
        PrimitiveType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        PrimitiveType::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        PrimitiveType::String => DataType::Utf8View,
        PrimitiveType::Uuid => DataType::FixedSizeBinary(16),
        PrimitiveType::Fixed(width) => DataType::FixedSizeBinary(
            i32::try_from(*width).map_err(|_| Error::unsupported(format!("fixed[{width}] is too wide")))?,
        ),
        PrimitiveType::Binary => DataType::BinaryView,
        PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs => {
            return Err(Error::unsupported(format!("columns of type {ty} are not handled by this version")));
        }
    })
}

/// The Arrow type of any column, with field ids in the metadata of nested fields.
pub(crate) fn arrow_type(ty: &Type) -> Result<DataType> {
    Ok(match ty {
        Type::Primitive(p) => primitive_type(p)?,
        Type::Struct(s) => DataType::Struct(arrow_fields(s.fields())?),
        Type::List(l) => DataType::List(Arc::new(arrow_field(&l.element_field)?)),
        Type::Map(m) => {
            let entries = Fields::from(vec![arrow_field(&m.key_field)?, arrow_field(&m.value_field)?]);
            DataType::Map(Arc::new(Field::new(MAP_ENTRIES, DataType::Struct(entries), false)), false)
        }
    })
}

pub(crate) fn arrow_field(field: &NestedField) -> Result<Field> {
    let mut metadata = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_string(), field.id.to_string())]);
    if matches!(*field.field_type, Type::Primitive(PrimitiveType::Uuid)) {
        metadata.insert(EXTENSION_NAME.to_string(), UUID_EXTENSION.to_string());
    }
    let data_type = arrow_type(&field.field_type).map_err(|e| e.context(format!("column {}", field.name)))?;
    Ok(Field::new(&field.name, data_type, !field.required).with_metadata(metadata))
}

/// The Arrow fields of Iceberg fields, in order.
pub(crate) fn arrow_fields(fields: &[NestedFieldRef]) -> Result<Fields> {
    fields.iter().map(|f| arrow_field(f)).collect::<Result<Vec<_>>>().map(Fields::from)
}

/// The Arrow schema of Iceberg fields, in order.
pub(crate) fn arrow_schema(fields: &[NestedFieldRef]) -> Result<ArrowSchemaRef> {
    Ok(Arc::new(ArrowSchema::new(arrow_fields(fields)?)))
}
