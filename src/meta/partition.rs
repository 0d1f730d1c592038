//! Partition values: typed by the table's present schema, whatever type a manifest was written with.

use std::sync::Arc;

use iceberg::spec::{
    Literal, NestedField, PartitionField, PrimitiveLiteral, PrimitiveType, StructType, TableMetadata,
    Type as IcebergType,
};

use super::avro::{Decoder, Field, Logical, Type, TypeKind};
use crate::error::{Error, Result};
use crate::table::PartitionValues;

/// The partition type of a spec under the table's current schema. A source column that was dropped has the type that the
/// newest schema gave it. [`crate::error::ErrorKind::DataInvalid`] if no schema of the table has the column.
pub fn partition_type(metadata: &TableMetadata, spec_id: i32) -> Result<StructType> {
    let (ty, unresolved) = resolve(metadata, spec_id)?;
    match unresolved.first() {
        None => Ok(ty),
        Some(name) => {
            Err(Error::invalid(format!("partition field {name} of spec {spec_id}: no schema has its source column")))
        }
    }
}

/// What [`partition_type`] knows; for fields whose source column is nowhere, a manifest's own type has to do.
#[derive(Debug)]
pub(crate) struct PartitionFields {
    fields: Vec<(i32, String, Option<PrimitiveType>)>,
}

impl PartitionFields {
    pub(crate) fn new(metadata: &TableMetadata, spec_id: i32) -> Result<Self> {
        let (ty, unresolved) = resolve(metadata, spec_id)?;
        let fields = ty.fields().iter().map(|f| {
            let known = f.field_type.as_primitive_type().filter(|_| !unresolved.contains(&f.name));
            (f.id, f.name.clone(), known.cloned())
        });
        Ok(Self { fields: fields.collect() })
    }

    /// Decodes the partition record `bytes` of avro type `written`.
    pub(crate) fn decode(&self, mut decoder: Decoder<'_>, written: &Type) -> Result<PartitionValues> {
        let fields = decoder.record(written)?.unwrap_or_default();
        let mut found: Vec<Option<Option<Literal>>> = vec![None; self.fields.len()];
        for Field { id, ty } in fields {
            match self.fields.iter().position(|(wanted, ..)| wanted == id) {
                Some(index) => found[index] = Some(value(&mut decoder, ty, self.fields[index].2.as_ref())?),
                None => decoder.skip(ty)?,
            }
        }
        let values = found.into_iter().zip(&self.fields).map(|(value, (id, name, _))| {
            value.ok_or_else(|| decoder.error(format!("partition field {name} ({id}) is missing")))
        });
        values.collect()
    }
}

/// Decodes a partition record without a spec: each value by the type it was written with, in the record's order.
pub(crate) fn decode_as_written(mut decoder: Decoder<'_>, written: &Type) -> Result<PartitionValues> {
    let fields = decoder.record(written)?.unwrap_or_default();
    fields.iter().map(|Field { ty, .. }| value(&mut decoder, ty, None)).collect()
}

fn resolve(metadata: &TableMetadata, spec_id: i32) -> Result<(StructType, Vec<String>)> {
    let spec = metadata
        .partition_spec_by_id(spec_id)
        .ok_or_else(|| Error::invalid(format!("the table lacks partition spec {spec_id}")))?;
    let mut unresolved = Vec::new();
    let mut fields = Vec::new();
    for field in spec.fields() {
        let ty = match source_type(metadata, field) {
            Some(source) => field.transform.result_type(&source)?,
            None => {
                unresolved.push(field.name.clone());
                IcebergType::Primitive(PrimitiveType::Binary)
            }
        };
        if ty.as_primitive_type().is_none() {
            return Err(Error::invalid(format!("partition field {} of spec {spec_id} is not primitive", field.name)));
        }
        fields.push(Arc::new(NestedField::optional(field.field_id, &field.name, ty)));
    }
    Ok((StructType::new(fields), unresolved))
}

/// The source column's type: of the current schema, else of the newest schema that has it.
fn source_type(metadata: &TableMetadata, field: &PartitionField) -> Option<IcebergType> {
    let of = |schema: &iceberg::spec::SchemaRef| schema.field_by_id(field.source_id).map(|f| (*f.field_type).clone());
    of(metadata.current_schema()).or_else(|| {
        let mut schemas: Vec<_> = metadata.schemas_iter().collect();
        schemas.sort_by_key(|s| std::cmp::Reverse(s.schema_id()));
        schemas.into_iter().find_map(of)
    })
}

/// A value as written.
enum Raw<'a> {
    Boolean(bool),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

fn value(decoder: &mut Decoder<'_>, ty: &Type, wanted: Option<&PrimitiveType>) -> Result<Option<Literal>> {
    let Some(written) = decoder.branch(ty)? else { return Ok(None) };
    let raw = match &written.kind {
        TypeKind::Boolean => Raw::Boolean(decoder.take(1)?[0] != 0),
        TypeKind::Int => {
            let value = decoder.long()?;
            Raw::Int(i32::try_from(value).map_err(|_| decoder.error(format!("{value} does not fit 32 bits")))?)
        }
        TypeKind::Long => Raw::Long(decoder.long()?),
        TypeKind::Float => Raw::Float(f32::from_le_bytes(array(decoder.take(4)?))),
        TypeKind::Double => Raw::Double(f64::from_le_bytes(array(decoder.take(8)?))),
        TypeKind::Text => Raw::Text(decoder.opt_text(written)?.unwrap_or_default()),
        TypeKind::Bytes | TypeKind::Fixed(_) => Raw::Bytes(decoder.opt_bytes(written)?.unwrap_or_default()),
        _ => return Err(decoder.error("partition value is not primitive")),
    };
    let own = own_type(written);
    let wanted = wanted.or(own.as_ref()).ok_or_else(|| decoder.error("partition value is not primitive"))?;
    let literal = convert(&raw, written.logical, wanted).ok_or_else(|| {
        let name = own.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        let error = decoder.error(format!("partition value of type {name} cannot be read as {wanted}"));
        Error::unsupported(error.to_string())
    })?;
    Ok(Some(Literal::Primitive(literal)))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(bytes);
    out
}

/// The Iceberg type that an avro type stands for.
fn own_type(written: &Type) -> Option<PrimitiveType> {
    Some(match (&written.kind, written.logical) {
        (TypeKind::Boolean, _) => PrimitiveType::Boolean,
        (TypeKind::Int, Some(Logical::Date)) => PrimitiveType::Date,
        (TypeKind::Int, _) => PrimitiveType::Int,
        (TypeKind::Long, Some(Logical::Time)) => PrimitiveType::Time,
        (TypeKind::Long, Some(Logical::Timestamp { utc: false })) => PrimitiveType::Timestamp,
        (TypeKind::Long, Some(Logical::Timestamp { utc: true })) => PrimitiveType::Timestamptz,
        (TypeKind::Long, Some(Logical::TimestampNanos { utc: false })) => PrimitiveType::TimestampNs,
        (TypeKind::Long, Some(Logical::TimestampNanos { utc: true })) => PrimitiveType::TimestamptzNs,
        (TypeKind::Long, _) => PrimitiveType::Long,
        (TypeKind::Float, _) => PrimitiveType::Float,
        (TypeKind::Double, _) => PrimitiveType::Double,
        (TypeKind::Fixed(_) | TypeKind::Bytes, Some(Logical::Decimal { precision, scale })) => {
            PrimitiveType::Decimal { precision, scale }
        }
        (TypeKind::Fixed(_) | TypeKind::Text, Some(Logical::Uuid)) => PrimitiveType::Uuid,
        (TypeKind::Text, _) => PrimitiveType::String,
        (TypeKind::Fixed(n), _) => PrimitiveType::Fixed(*n as u64),
        (TypeKind::Bytes, _) => PrimitiveType::Binary,
        _ => return None,
    })
}

/// The value in the wanted type: as it is, or by one of Iceberg's promotions. `None`: there is no such promotion.
fn convert(raw: &Raw<'_>, logical: Option<Logical>, wanted: &PrimitiveType) -> Option<PrimitiveLiteral> {
    use PrimitiveLiteral as L;
    Some(match (raw, wanted) {
        (Raw::Boolean(v), PrimitiveType::Boolean) => L::Boolean(*v),
        // Day transforms are written as plain integers by some writers and as dates by others.
        (Raw::Int(v), PrimitiveType::Int | PrimitiveType::Date) => L::Int(*v),
        (Raw::Int(v), PrimitiveType::Long) if logical.is_none() => L::Long(i64::from(*v)),
        (Raw::Long(v), PrimitiveType::Long) if logical.is_none() => L::Long(*v),
        (Raw::Long(v), PrimitiveType::Time) if matches!(logical, None | Some(Logical::Time)) => L::Long(*v),
        (Raw::Long(v), PrimitiveType::Timestamp | PrimitiveType::Timestamptz)
            if matches!(logical, None | Some(Logical::Timestamp { .. })) =>
        {
            L::Long(*v)
        }
        (Raw::Long(v), PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs)
            if matches!(logical, None | Some(Logical::TimestampNanos { .. })) =>
        {
            L::Long(*v)
        }
        (Raw::Float(v), PrimitiveType::Float) => L::Float((*v).into()),
        (Raw::Float(v), PrimitiveType::Double) => L::Double(f64::from(*v).into()),
        (Raw::Double(v), PrimitiveType::Double) => L::Double((*v).into()),
        (Raw::Text(v), PrimitiveType::String) => L::String((*v).to_owned()),
        (Raw::Text(v), PrimitiveType::Uuid) => L::UInt128(uuid::Uuid::try_parse(v).ok()?.as_u128()),
        (Raw::Bytes(v), PrimitiveType::Uuid) => L::UInt128(u128::from_be_bytes((*v).try_into().ok()?)),
        (Raw::Bytes(v), PrimitiveType::Fixed(n)) if v.len() as u64 == *n && logical.is_none() => L::Binary(v.to_vec()),
        (Raw::Bytes(v), PrimitiveType::Binary) if logical.is_none() => L::Binary(v.to_vec()),
        (Raw::Bytes(v), PrimitiveType::Decimal { scale, .. }) => match logical {
            // Precision may grow; the scale never changes.
            Some(Logical::Decimal { scale: written, .. }) if written == *scale => L::Int128(big_endian(v)?),
            _ => return None,
        },
        _ => return None,
    })
}

/// A signed big-endian integer of up to 16 bytes.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let sign = if first & 0x80 == 0 { 0 } else { 0xff };
    let mut out = [sign; 16];
    let start = 16usize.checked_sub(bytes.len())?;
    out[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_written_before_a_promotion_equal_those_written_after() {
        let long = PrimitiveType::Long;
        assert_eq!(convert(&Raw::Int(-7), None, &long), convert(&Raw::Long(-7), None, &long));
        let double = PrimitiveType::Double;
        assert_eq!(convert(&Raw::Float(1.5), None, &double), convert(&Raw::Double(1.5), None, &double));
        let wide = PrimitiveType::Decimal { precision: 30, scale: 2 };
        let narrow = Some(Logical::Decimal { precision: 4, scale: 2 });
        assert_eq!(convert(&Raw::Bytes(&[0xff, 0x38]), narrow, &wide), Some(PrimitiveLiteral::Int128(-200)));
    }

    #[test]
    fn impossible_pairs_are_not_converted() {
        assert_eq!(convert(&Raw::Long(7), None, &PrimitiveType::Int), None);
        assert_eq!(convert(&Raw::Int(7), Some(Logical::Date), &PrimitiveType::Long), None);
        assert_eq!(convert(&Raw::Double(7.0), None, &PrimitiveType::Float), None);
        let scale = PrimitiveType::Decimal { precision: 30, scale: 3 };
        assert_eq!(convert(&Raw::Bytes(&[1]), Some(Logical::Decimal { precision: 4, scale: 2 }), &scale), None);
        assert_eq!(convert(&Raw::Text("x"), None, &PrimitiveType::Uuid), None);
        assert_eq!(convert(&Raw::Bytes(&[1, 2]), None, &PrimitiveType::Fixed(3)), None);
    }
}
