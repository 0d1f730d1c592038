//! Which rows of a batch are deleted. Pure: deletes and rows in, live rows out.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, make_array};
use arrow::buffer::NullBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use roaring::RoaringTreemap;

use crate::error::{Error, Result};
use crate::rewrite::keys::KeySet;

/// Where a key column is in a batch: a column, and the way down through structs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub column: usize,
    /// Position of the child at each struct on the way.
    pub path: Vec<usize>,
}

impl KeyColumn {
    /// The values; NULL wherever a struct on the way is NULL.
    pub(crate) fn values(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let mut array = Arc::clone(batch.column(self.column));
        for step in &self.path {
            let parent = array.as_struct_opt().ok_or_else(|| Error::internal("a key path through no struct"))?;
            let child = Arc::clone(parent.column(*step));
            array = if parent.null_count() == 0 {
                child
            } else {
                let nulls = NullBuffer::union(parent.nulls(), child.nulls());
                make_array(child.to_data().into_builder().nulls(nulls).build()?)
            };
        }
        Ok(array)
    }
}

/// Equality deletes that share their columns and the data files they apply to.
#[derive(Debug)]
pub(crate) struct EqualitySet {
    /// Columns of the key in the order of the set's keys.
    pub columns: Vec<KeyColumn>,
    pub keys: KeySet,
}

/// The deletes of one data file.
#[derive(Debug, Default)]
pub(crate) struct FileDeletes {
    pub positions: RoaringTreemap,
    /// Equality sets that apply, by index.
    pub sets: Vec<usize>,
    pub data_sequence: i64,
}

/// The deletes of a file group, loaded once and shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct GroupDeletes {
    pub sets: Vec<EqualitySet>,
    /// Per task, what applies to its data file.
    pub files: Vec<FileDeletes>,
}

impl GroupDeletes {
    /// The live rows of a batch whose first row is at `position` of task `task`'s data file.
    pub(crate) fn live_rows(&self, task: usize, position: u64, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(deletes) = self.files.get(task) else { return Ok(batch) };
        let rows = batch.num_rows() as u64;
        let has_positions = deletes.positions.range_cardinality(position..position + rows) > 0;
        if deletes.sets.is_empty() && !has_positions {
            return Ok(batch);
        }
        let mut keep = vec![true; batch.num_rows()];
        if has_positions {
            let mut deleted = deletes.positions.iter();
            deleted.advance_to(position);
            for at in deleted.take_while(|at| *at < position + rows) {
                keep[usize::try_from(at - position).map_err(|_| Error::internal("row offset"))?] = false;
            }
        }
        for set in &deletes.sets {
            let set = self.sets.get(*set).ok_or_else(|| Error::internal("an equality set that was not loaded"))?;
            let columns = set.columns.iter().map(|c| c.values(&batch)).collect::<Result<Vec<_>>>()?;
            set.keys.clear_deleted(&columns, deletes.data_sequence, &mut keep)?;
        }
        if keep.iter().all(|k| *k) {
            return Ok(batch);
        }
        Ok(filter_record_batch(&batch, &BooleanArray::from(keep))?)
    }
}

/// Adds the positions in a batch of a position delete file (`file_path`, `pos`) to the bitmaps of the wanted data files.
pub(crate) fn add_positions(
    batch: &RecordBatch,
    wanted: &HashMap<Arc<str>, usize>,
    found: &mut HashMap<usize, RoaringTreemap>,
) -> Result<()> {
    let paths = batch.column(0).as_string_view_opt().ok_or_else(|| Error::internal("file_path is no string"))?;
    let positions = batch.column(1).as_primitive_opt::<Int64Type>().ok_or_else(|| Error::internal("pos is no long"))?;
    let mut row = 0;
    while row < batch.num_rows() {
        let path = paths.value(row);
        let run = (row..batch.num_rows()).take_while(|r| paths.value(*r) == path).count();
        if let Some(task) = wanted.get(path) {
            let bitmap = found.entry(*task).or_default();
            for position in &positions.values()[row..row + run] {
                let position = u64::try_from(*position)
                    .map_err(|_| Error::invalid(format!("negative position {position} for {path}")))?;
                bitmap.insert(position);
            }
        }
        row += run;
    }
    Ok(())
}

/// The first `count` columns: what only the deletes needed is left out.
pub(crate) fn leading_columns(batch: &RecordBatch, count: usize) -> Result<RecordBatch> {
    if batch.num_columns() == count {
        return Ok(batch.clone());
    }
    Ok(batch.project(&(0..count).collect::<Vec<_>>())?)
}
