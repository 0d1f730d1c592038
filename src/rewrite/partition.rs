//! Computes each row's partition, for inputs that were written under another spec. Pure.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int32Array, RecordBatch,
};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use iceberg::spec::{Literal, PartitionSpec, PrimitiveLiteral, PrimitiveType, Struct, StructType, Transform, Type};

use crate::error::{Error, Result};
use crate::rewrite::delete_mask::KeyColumn;
use crate::rewrite::transform::{as_longs, as_views, transform};

/// Splits batches by the partition of their rows.
pub(crate) struct Partitioner {
    fields: Vec<PartitionColumn>,
}

struct PartitionColumn {
    name: String,
    /// UUIDs are numbers in partition tuples and bytes in arrays.
    uuid: bool,
    /// `None`: the transform is void.
    source: Option<(KeyColumn, Transform)>,
}

/// The rows of a batch that fall into one partition.
#[derive(Debug)]
pub(crate) struct PartitionRows {
    /// Comparable bytes of the partition's values.
    pub key: Vec<u8>,
    /// The first of the rows, to take the partition's values from.
    pub first: usize,
    /// Row numbers, ascending.
    pub rows: Vec<u32>,
}

impl Partitioner {
    /// For rows of the struct `fields`.
    pub(crate) fn new(spec: &PartitionSpec, fields: &StructType) -> Result<Self> {
        let fields = spec
            .fields()
            .iter()
            .map(|field| {
                let mut path = Vec::new();
                let source = match field.transform {
                    Transform::Void => None,
                    transform => {
                        if !find_source(fields, field.source_id, &mut path) {
                            return Err(Error::unsupported(format!(
                                "the source column of partition field {} has left the schema",
                                field.name
                            )));
                        }
                        let column = KeyColumn { column: path[0], path: path[1..].to_vec() };
                        Some((column, transform))
                    }
                };
                let source_type = primitive_type_of(fields, &path);
                let uuid = field.transform == Transform::Identity && source_type == Some(PrimitiveType::Uuid);
                Ok(PartitionColumn { name: field.name.clone(), uuid, source })
            })
            .collect::<Result<_>>()?;
        Ok(Self { fields })
    }

    /// The partition values of every row, one array per partition field.
    pub(crate) fn values(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.fields
            .iter()
            .map(|field| match &field.source {
                None => Ok(arrow::array::new_null_array(&DataType::Boolean, batch.num_rows())),
                Some((column, transform)) => self::transform(*transform, &column.values(batch)?)
                    .map_err(|e| e.context(format!("compute partition field {}", field.name))),
            })
            .collect()
    }

    /// The partition tuple of one row of [`Self::values`].
    pub(crate) fn tuple(&self, values: &[ArrayRef], row: usize) -> Result<Struct> {
        let mut literals = Vec::with_capacity(values.len());
        for (field, array) in self.fields.iter().zip(values) {
            literals.push(match literal(array, row)? {
                Some(Literal::Primitive(PrimitiveLiteral::Binary(bytes))) if field.uuid => {
                    let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| Error::internal("a UUID of another length"))?;
                    Some(Literal::Primitive(PrimitiveLiteral::UInt128(u128::from_be_bytes(bytes))))
                }
                other => other,
            });
        }
        Ok(literals.into_iter().collect())
    }
}

/// Finds the field with this id, going through structs only; `path` gets the positions from the top.
pub(crate) fn find_source(fields: &StructType, id: i32, path: &mut Vec<usize>) -> bool {
    fields.fields().iter().enumerate().any(|(i, field)| {
        path.push(i);
        let found =
            field.id == id || matches!(field.field_type.as_ref(), Type::Struct(below) if find_source(below, id, path));
        if !found {
            path.pop();
        }
        found
    })
}

fn primitive_type_of(fields: &StructType, path: &[usize]) -> Option<PrimitiveType> {
    let (first, rest) = path.split_first()?;
    match fields.fields().get(*first)?.field_type.as_ref() {
        Type::Primitive(p) => Some(p.clone()),
        Type::Struct(below) => primitive_type_of(below, rest),
        _ => None,
    }
}

/// Groups rows by equal partition values, in order of first appearance.
pub(crate) fn group_rows(values: &[ArrayRef], rows: usize) -> Result<Vec<PartitionRows>> {
    let fields = values.iter().map(|v| SortField::new(v.data_type().clone())).collect();
    let converted = RowConverter::new(fields)?.convert_columns(values)?;
    let mut groups: Vec<PartitionRows> = Vec::new();
    let mut index: hashbrown::HashMap<Vec<u8>, usize> = hashbrown::HashMap::new();
    for row in 0..rows {
        let bytes = converted.row(row);
        let key = bytes.as_ref();
        let number = u32::try_from(row).map_err(|_| Error::internal("a batch of too many rows"))?;
        match index.get(key) {
            Some(at) => groups[*at].rows.push(number),
            None => {
                index.insert(key.to_vec(), groups.len());
                groups.push(PartitionRows { key: key.to_vec(), first: row, rows: vec![number] });
            }
        }
    }
    Ok(groups)
}

/// One value of a partition column.
pub(crate) fn literal(array: &ArrayRef, row: usize) -> Result<Option<Literal>> {
    use PrimitiveLiteral as V;
    if array.is_null(row) {
        return Ok(None);
    }
    let any = array.as_any();
    let one = array.slice(row, 1);
    let value = if let Some(a) = any.downcast_ref::<Int32Array>() {
        V::Int(a.value(row))
    } else if let Some(a) = any.downcast_ref::<BooleanArray>() {
        V::Boolean(a.value(row))
    } else if let Some(a) = any.downcast_ref::<Float32Array>() {
        V::Float(a.value(row).into())
    } else if let Some(a) = any.downcast_ref::<Float64Array>() {
        V::Double(a.value(row).into())
    } else if let Some(a) = any.downcast_ref::<Decimal128Array>() {
        let (value, precision) = (a.value(row), a.precision());
        // Rounding down may leave the precision. The reference cannot write such a partition either.
        if value.unsigned_abs() >= 10_u128.pow(precision.into()) {
            return Err(Error::unsupported(format!("a partition value of more than {precision} digits")));
        }
        V::Int128(value)
    } else if let Some(longs) = as_longs(&one)? {
        match array.data_type() {
            DataType::Date32 => {
                V::Int(i32::try_from(longs.value(0)).map_err(|_| Error::internal("a date out of range"))?)
            }
            _ => V::Long(longs.value(0)),
        }
    } else if let Some(views) = as_views(&one)? {
        match views.as_string_view_opt() {
            Some(texts) => V::String(texts.value(0).to_string()),
            None => V::Binary(views.as_binary_view().value(0).to_vec()),
        }
    } else {
        return Err(Error::unsupported(format!("partition values of type {}", array.data_type())));
    };
    Ok(Some(Literal::Primitive(value)))
}
