//! Encodes batches into one row group in memory, independently of any file, so that row groups can be made in parallel.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef as ArrowSchemaRef};
use iceberg::spec::{PrimitiveType, StructType, Type};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

use crate::error::{Error, Result};
use crate::rewrite::delete_mask::KeyColumn;
use crate::rewrite::metrics::FloatStats;

/// Name of the root of a Parquet schema, as the reference implementation has it.
const SCHEMA_ROOT: &str = "table";

pub(crate) fn parquet_schema(arrow: &ArrowSchemaRef) -> Result<SchemaDescriptor> {
    Ok(ArrowSchemaConverter::new().schema_root(SCHEMA_ROOT).convert(arrow)?)
}

/// Float columns outside of lists and maps, which the rows must be asked about.
pub(crate) fn float_columns(fields: &StructType) -> Vec<(i32, KeyColumn)> {
    let mut found = Vec::new();
    for (column, field) in fields.fields().iter().enumerate() {
        floats_below(&field.field_type, field.id, column, &mut Vec::new(), &mut found);
    }
    found
}

fn floats_below(ty: &Type, id: i32, column: usize, path: &mut Vec<usize>, found: &mut Vec<(i32, KeyColumn)>) {
    match ty {
        Type::Primitive(PrimitiveType::Float | PrimitiveType::Double) => {
            found.push((id, KeyColumn { column, path: path.clone() }));
        }
        Type::Struct(s) => {
            for (i, field) in s.fields().iter().enumerate() {
                path.push(i);
                floats_below(&field.field_type, field.id, column, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Makes row groups of one schema with one set of properties. Shared by all workers of a group.
#[derive(Debug)]
pub(crate) struct RowGroupFactory {
    factory: ArrowRowGroupWriterFactory,
    arrow: ArrowSchemaRef,
    root: TypePtr,
    properties: WriterPropertiesPtr,
    floats: Vec<(i32, KeyColumn)>,
}

pub(crate) struct RowGroupEncoder {
    writers: Vec<ArrowColumnWriter>,
    factory: Arc<RowGroupFactory>,
    rows: u64,
    floats: HashMap<i32, FloatStats>,
}

/// An encoded row group, ready to be appended to a file.
pub(crate) struct EncodedRowGroup {
    /// Column chunks in schema order.
    pub chunks: Vec<ArrowColumnChunk>,
    pub rows: u64,
    pub bytes: u64,
    /// What the rows tell about float columns.
    pub floats: HashMap<i32, FloatStats>,
}

impl RowGroupFactory {
    /// A factory for an Arrow schema that stands for the Iceberg fields `fields`.
    pub(crate) fn new(arrow: ArrowSchemaRef, properties: WriterProperties, fields: &StructType) -> Result<Self> {
        let root = parquet_schema(&arrow)?.root_schema_ptr();
        let properties = Arc::new(properties);
        let nowhere = SerializedFileWriter::new(std::io::sink(), root.clone(), properties.clone())?;
        let factory = ArrowRowGroupWriterFactory::new(&nowhere, arrow.clone());
        Ok(Self { factory, arrow, root, properties, floats: float_columns(fields) })
    }

    /// The root of the Parquet schema and the properties, for a file that takes this factory's row groups.
    pub(crate) fn file_parts(&self) -> (TypePtr, WriterPropertiesPtr) {
        (self.root.clone(), self.properties.clone())
    }

    pub(crate) fn start(self: &Arc<Self>) -> Result<RowGroupEncoder> {
        // The index matters for encryption only.
        let writers = self.factory.create_column_writers(0)?;
        Ok(RowGroupEncoder { writers, factory: Arc::clone(self), rows: 0, floats: HashMap::new() })
    }
}

impl RowGroupEncoder {
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Encoded bytes, about, if the row group ended now. Never less than what it will be, but for page headers.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        self.writers.iter().map(|w| w.get_estimated_total_bytes() as u64).sum()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.writers.iter().map(|w| w.memory_size() as u64).sum()
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut writers = self.writers.iter_mut();
        for (field, column) in self.factory.arrow.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, column)? {
                writers.next().ok_or_else(|| Error::internal("more leaves than column writers"))?.write(&leaf)?;
            }
        }
        for (id, column) in &self.factory.floats {
            add_floats(self.floats.entry(*id).or_default(), column.values(batch)?.as_ref())?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<EncodedRowGroup> {
        let chunks = self.writers.into_iter().map(ArrowColumnWriter::close).collect::<Result<Vec<_>, _>>()?;
        let bytes = chunks.iter().map(|c| c.close().bytes_written).sum();
        Ok(EncodedRowGroup { chunks, rows: self.rows, bytes, floats: self.floats })
    }
}

fn add_floats(stats: &mut FloatStats, array: &dyn Array) -> Result<()> {
    match array.data_type() {
        DataType::Float32 => array.as_primitive::<Float32Type>().iter().flatten().for_each(|v| stats.add(v.into())),
        DataType::Float64 => array.as_primitive::<Float64Type>().iter().flatten().for_each(|v| stats.add(v)),
        other => return Err(Error::internal(format!("float metrics of {other}"))),
    }
    Ok(())
}
