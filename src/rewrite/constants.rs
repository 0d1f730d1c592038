//! Arrays of one value: partition values and initial defaults of columns that a file does not hold. Pure.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int32Array, Int64Array, StringViewArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, UInt32Array, new_null_array,
};
use arrow::datatypes::DataType;
use iceberg::spec::{Literal, PrimitiveLiteral, PrimitiveType, Type};

use crate::error::{Error, Result};
use crate::rewrite::schema::{arrow_fields, arrow_type};

/// One value that stands for every row; `None` is NULL.
pub(crate) fn single(value: Option<&Literal>, ty: &Type) -> Result<ArrayRef> {
    let Some(value) = value else { return Ok(new_null_array(&arrow_type(ty)?, 1)) };
    match (ty, value) {
        (Type::Primitive(p), Literal::Primitive(v)) => primitive(v, p),
        (Type::Struct(s), Literal::Struct(values)) if values.fields().len() == s.fields().len() => {
            let children = s
                .fields()
                .iter()
                .zip(values.iter())
                .map(|(f, v)| single(v, &f.field_type))
                .collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(arrow_fields(s.fields())?, children, None, 1)?))
        }
        _ => Err(Error::unsupported(format!("default values of type {ty} are not handled by this version"))),
    }
}

/// The value of `one` (an array of length 1), `rows` times.
pub(crate) fn repeat(one: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    if one.is_null(0) {
        return Ok(new_null_array(one.data_type(), rows));
    }
    Ok(arrow::compute::take(one, &UInt32Array::from(vec![0; rows]), None)?)
}

fn primitive(value: &PrimitiveLiteral, ty: &PrimitiveType) -> Result<ArrayRef> {
    use PrimitiveLiteral as V;
    use PrimitiveType as T;
    Ok(match (ty, value) {
        (T::Boolean, V::Boolean(v)) => Arc::new(BooleanArray::from(vec![*v])),
        (T::Int, V::Int(v)) => Arc::new(Int32Array::from(vec![*v])),
        (T::Date, V::Int(v)) => Arc::new(Date32Array::from(vec![*v])),
        (T::Long, V::Long(v)) => Arc::new(Int64Array::from(vec![*v])),
        // A partition value written before its column was widened.
        (T::Long, V::Int(v)) => Arc::new(Int64Array::from(vec![i64::from(*v)])),
        (T::Double, V::Float(v)) => Arc::new(Float64Array::from(vec![f64::from(v.into_inner())])),
        (T::Float, V::Float(v)) => Arc::new(Float32Array::from(vec![v.into_inner()])),
        (T::Double, V::Double(v)) => Arc::new(Float64Array::from(vec![v.into_inner()])),
        (T::Time, V::Long(v)) => Arc::new(Time64MicrosecondArray::from(vec![*v])),
        (T::Timestamp, V::Long(v)) => Arc::new(TimestampMicrosecondArray::from(vec![*v])),
        (T::Timestamptz, V::Long(v)) => Arc::new(TimestampMicrosecondArray::from(vec![*v]).with_timezone("UTC")),
        (T::String, V::String(v)) => Arc::new(StringViewArray::from(vec![v.as_str()])),
        (T::Uuid, V::UInt128(v)) => fixed(&v.to_be_bytes())?,
        (T::Fixed(width), V::Binary(v)) if u64::try_from(v.len()) == Ok(*width) => fixed(v)?,
        (T::Binary, V::Binary(v)) => Arc::new(BinaryViewArray::from(vec![v.as_slice()])),
        (T::Decimal { .. }, V::Int128(v)) => {
            let DataType::Decimal128(p, s) = arrow_type(&Type::Primitive(ty.clone()))? else {
                return Err(Error::internal("a decimal column that is no decimal in Arrow"));
            };
            Arc::new(Decimal128Array::from(vec![*v]).with_precision_and_scale(p, s)?)
        }
        _ => return Err(Error::invalid(format!("a value of another type where {ty} is due"))),
    })
}

fn fixed(bytes: &[u8]) -> Result<ArrayRef> {
    Ok(Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(bytes))?))
}
