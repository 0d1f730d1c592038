//! From the columns of a file to the columns of the table: by field id, at every level, with hard errors. Pure.
//!
//! A value is found in this order: the column with the id; the file's identity partition value; the initial default;
//! NULL. A type pair that is no promotion of the specification is refused, and NULL at any level stays NULL.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, RecordBatchOptions, StructArray,
    TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Decimal128Type, FieldRef, Fields, SchemaRef as ArrowSchemaRef, TimeUnit, TimestampMicrosecondType,
};
use iceberg::spec::{Literal, NestedField, NestedFieldRef, PrimitiveType, Type};

use crate::error::{Error, ErrorKind, Result};
use crate::rewrite::constants::{repeat, single};
use crate::rewrite::fields::FileField;
use crate::rewrite::schema::{arrow_field, arrow_fields, arrow_schema, arrow_type, primitive_type};

/// Microseconds of 0000-01-01 and of 10000-01-01: an INT96 outside is damage, or has wrapped around.
const INT96_RANGE: std::ops::Range<i64> = -62_167_219_200_000_000..253_402_300_800_000_000;

/// Values that a file does not hold but its partition tuple does, by field id.
pub(crate) type PartitionConstants = HashMap<i32, Option<Literal>>;

/// How to make the table's columns out of one file's.
#[derive(Debug)]
pub(crate) struct Projection {
    pub leaves: Vec<usize>,
    schema: ArrowSchemaRef,
    sources: Vec<FieldSource>,
}

#[derive(Debug)]
enum FieldSource {
    /// A column of the decoded batch (or a child of the decoded struct), by position among the decoded ones.
    Column(usize, Node),
    /// The same value in every row.
    Constant(ArrayRef),
}

#[derive(Debug)]
enum Node {
    Leaf(LeafCast),
    Struct(Fields, Vec<FieldSource>),
    List(FieldRef, Box<Node>),
    Map(FieldRef, Box<Node>, Box<Node>),
}

#[derive(Debug, Clone, PartialEq)]
enum LeafCast {
    Same,
    Lossless(DataType),
    Decimal(u8, i8),
    Int96(DataType),
}

impl Projection {
    /// Plans how `target` fields are made from `file` fields; with `all_present`, a missing one is an error.
    pub(crate) fn new(
        file: &[FileField],
        target: &[NestedFieldRef],
        constants: &PartitionConstants,
        all_present: bool,
    ) -> Result<Self> {
        let mut leaves = BTreeSet::new();
        for field in target {
            if let Some(found) = find(file, field)? {
                collect(found, &field.field_type, &mut leaves)?;
            }
        }
        let planner = Planner { leaves: &leaves, constants, all_present };
        let sources = planner.sources(file, target)?;
        Ok(Self { leaves: leaves.into_iter().collect(), schema: arrow_schema(target)?, sources })
    }

    /// The table's columns of a batch decoded with [`Self::leaves`].
    pub(crate) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = apply_all(&self.sources, batch.columns(), rows)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| Error::invalid(format!("rows do not fit the table's schema: {e}")))
    }
}

fn find<'a>(file: &'a [FileField], target: &NestedField) -> Result<Option<&'a FileField>> {
    let mut found = file.iter().filter(|f| f.id == Some(target.id));
    let first = found.next();
    match found.next() {
        Some(_) => Err(Error::invalid(format!("the file has field id {} twice", target.id))),
        None => Ok(first),
    }
}

fn mismatch(file: &FileField, ty: &Type) -> Error {
    Error::unsupported(format!(
        "column {} (field id {}) is {} in the file and {ty} in the table, which is no allowed promotion",
        file.name,
        file.id.map_or_else(|| "none".into(), |id| id.to_string()),
        file.data_type,
    ))
}

/// A list's element, or a map's key or value: it must carry the table's field id.
fn expect_child<'a>(file: &'a FileField, at: usize, target: &NestedField) -> Result<&'a FileField> {
    match file.children.get(at) {
        Some(child) if child.id == Some(target.id) => Ok(child),
        _ => Err(Error::unsupported(format!(
            "the {} of column {} does not carry the table's field id {}",
            target.name, file.name, target.id
        ))),
    }
}

/// Adds the leaf columns needed to make `ty` out of `file`.
fn collect(file: &FileField, ty: &Type, leaves: &mut BTreeSet<usize>) -> Result<()> {
    match (ty, &file.data_type) {
        (Type::Primitive(_), _) if file.children.is_empty() => {
            leaves.insert(file.leaves.start);
        }
        (Type::Struct(s), DataType::Struct(_)) => {
            let before = leaves.len();
            for field in s.fields() {
                if let Some(child) = find(&file.children, field)? {
                    collect(child, &field.field_type, leaves)?;
                }
            }
            // With no field left in common, whether the struct is NULL can still be told by any of its columns.
            if leaves.len() == before {
                let narrowest = file.children.iter().min_by_key(|c| c.leaves.len());
                leaves.extend(narrowest.into_iter().flat_map(|c| c.leaves.clone()));
            }
        }
        (Type::List(l), DataType::List(_)) => {
            collect(expect_child(file, 0, &l.element_field)?, &l.element_field.field_type, leaves)?;
        }
        (Type::Map(m), DataType::Map(..)) => {
            collect(expect_child(file, 0, &m.key_field)?, &m.key_field.field_type, leaves)?;
            collect(expect_child(file, 1, &m.value_field)?, &m.value_field.field_type, leaves)?;
        }
        _ => return Err(mismatch(file, ty)),
    }
    Ok(())
}

struct Planner<'a> {
    leaves: &'a BTreeSet<usize>,
    constants: &'a PartitionConstants,
    all_present: bool,
}

impl Planner<'_> {
    fn sources(&self, file: &[FileField], target: &[NestedFieldRef]) -> Result<Vec<FieldSource>> {
        // The reader leaves out what has no selected leaf, and keeps the file's order.
        let decoded: Vec<&FileField> =
            file.iter().filter(|f| self.leaves.range(f.leaves.clone()).next().is_some()).collect();
        target
            .iter()
            .map(|field| match decoded.iter().position(|f| f.id == Some(field.id)) {
                Some(i) => Ok(FieldSource::Column(i, self.node(decoded[i], &field.field_type)?)),
                None => self.missing(field),
            })
            .collect()
    }

    fn missing(&self, field: &NestedField) -> Result<FieldSource> {
        let value = match self.constants.get(&field.id) {
            Some(value) => value.as_ref(),
            None => field.initial_default.as_ref(),
        };
        if self.all_present {
            return Err(Error::invalid(format!(
                "column {} (field id {}) is missing in the file",
                field.name, field.id
            )));
        }
        if value.is_none() && field.required {
            return Err(Error::invalid(format!(
                "required column {} (field id {}) is missing in the file and has no default",
                field.name, field.id
            )));
        }
        single(value, &field.field_type)
            .map(FieldSource::Constant)
            .map_err(|e| e.context(format!("fill in column {} (field id {})", field.name, field.id)))
    }

    fn node(&self, file: &FileField, ty: &Type) -> Result<Node> {
        Ok(match ty {
            Type::Primitive(p) => Node::Leaf(leaf_cast(file, p)?),
            Type::Struct(s) => Node::Struct(arrow_fields(s.fields())?, self.sources(&file.children, s.fields())?),
            Type::List(l) => {
                let element = expect_child(file, 0, &l.element_field)?;
                let node = self.node(element, &l.element_field.field_type)?;
                Node::List(Arc::new(arrow_field(&l.element_field)?), Box::new(node))
            }
            Type::Map(m) => {
                let DataType::Map(entries, _) = arrow_type(ty)? else {
                    return Err(Error::internal("a map column that is no map in Arrow"));
                };
                let key = self.node(expect_child(file, 0, &m.key_field)?, &m.key_field.field_type)?;
                let value = self.node(expect_child(file, 1, &m.value_field)?, &m.value_field.field_type)?;
                Node::Map(entries, Box::new(key), Box::new(value))
            }
        })
    }
}

/// The promotions of the specification, and representations that are the same Iceberg type in Parquet.
fn leaf_cast(file: &FileField, ty: &PrimitiveType) -> Result<LeafCast> {
    use DataType as D;
    let wanted = primitive_type(ty)?;
    if file.int96 {
        return match ty {
            PrimitiveType::Timestamp | PrimitiveType::Timestamptz => Ok(LeafCast::Int96(wanted)),
            _ => Err(mismatch(file, &Type::Primitive(ty.clone()))),
        };
    }
    if file.data_type == wanted {
        return Ok(LeafCast::Same);
    }
    match (&file.data_type, &wanted) {
        (D::Int32, D::Int64) | (D::Float32, D::Float64) => Ok(LeafCast::Lossless(wanted)),
        (D::Int8 | D::Int16 | D::UInt8 | D::UInt16, D::Int32 | D::Int64) => Ok(LeafCast::Lossless(wanted)),
        // Old writers left the string annotation out; the cast checks that it is UTF-8.
        (D::BinaryView, D::Utf8View) => Ok(LeafCast::Lossless(wanted)),
        (D::Decimal128(p, s), D::Decimal128(wide, scale)) if s == scale && p <= wide => {
            Ok(LeafCast::Decimal(*wide, *scale))
        }
        (D::Timestamp(TimeUnit::Microsecond, Some(_)), D::Timestamp(TimeUnit::Microsecond, Some(_))) => {
            Ok(LeafCast::Lossless(wanted))
        }
        _ => Err(mismatch(file, &Type::Primitive(ty.clone()))),
    }
}

fn apply_all(sources: &[FieldSource], columns: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
    sources
        .iter()
        .map(|source| match source {
            FieldSource::Constant(one) => repeat(one, rows),
            FieldSource::Column(i, node) => {
                let column = columns.get(*i).ok_or_else(|| Error::internal("a decoded column is missing"))?;
                apply(node, column)
            }
        })
        .collect()
}

fn apply(node: &Node, array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match node {
        Node::Leaf(cast) => apply_leaf(cast, array)?,
        Node::Struct(fields, sources) => {
            let input = array.as_struct_opt().ok_or_else(|| Error::internal("a decoded struct is no struct"))?;
            let columns = apply_all(sources, input.columns(), input.len())?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, input.nulls().cloned(), input.len())?)
        }
        Node::List(field, element) => {
            let input = array.as_list_opt::<i32>().ok_or_else(|| Error::internal("a decoded list is no list"))?;
            let values = apply(element, input.values())?;
            Arc::new(ListArray::try_new(field.clone(), input.offsets().clone(), values, input.nulls().cloned())?)
        }
        Node::Map(field, key, value) => {
            let input = array.as_map_opt().ok_or_else(|| Error::internal("a decoded map is no map"))?;
            let columns = vec![apply(key, input.keys())?, apply(value, input.values())?];
            let DataType::Struct(fields) = field.data_type() else {
                return Err(Error::internal("map entries that are no struct"));
            };
            let entries = StructArray::try_new_with_length(fields.clone(), columns, None, input.entries().len())?;
            let (offsets, nulls) = (input.offsets().clone(), input.nulls().cloned());
            Arc::new(MapArray::try_new(field.clone(), offsets, entries, nulls, false)?)
        }
    })
}

fn apply_leaf(cast: &LeafCast, array: &ArrayRef) -> Result<ArrayRef> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    Ok(match cast {
        LeafCast::Same => array.clone(),
        LeafCast::Lossless(ty) => cast_with_options(array, ty, &strict)?,
        LeafCast::Decimal(p, s) => {
            let decimals = array
                .as_primitive_opt::<Decimal128Type>()
                .ok_or_else(|| Error::internal("a decoded decimal is no decimal"))?;
            Arc::new(decimals.clone().with_precision_and_scale(*p, *s)?)
        }
        LeafCast::Int96(ty) => {
            let micros = array
                .as_primitive_opt::<TimestampMicrosecondType>()
                .ok_or_else(|| Error::internal("a decoded INT96 is no timestamp"))?;
            check_int96(micros)?;
            let DataType::Timestamp(_, zone) = ty else {
                return Err(Error::internal("INT96 for a column that is no timestamp"));
            };
            Arc::new(micros.clone().with_timezone_opt(zone.clone()))
        }
    })
}

fn check_int96(micros: &TimestampMicrosecondArray) -> Result<()> {
    match micros.iter().flatten().find(|v| !INT96_RANGE.contains(v)) {
        Some(bad) => {
            Err(Error::new(ErrorKind::DataInvalid, format!("INT96 timestamp out of range: {bad} microseconds")))
        }
        None => Ok(()),
    }
}
