//! The upsert table: rows are written by key, again and again, as a change stream brings them.
//!
//! Per bucket a commit adds a data file with the new rows, an equality-delete file with the keys it touches (older rows of
//! theirs go), and position deletes for rows that the commit itself replaced or removed again.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Int32Type;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataContentType, Literal, Schema, Struct, Transform};
use iceberg::transform::create_transform_function;

use super::file::{FileSpec, NewFile, encode, position_delete_schema};
use super::random::{below, pick};
use super::{CommitBatch, Expected};
use crate::error::{Error, Result};

const CHANGES: u64 = 2_000;
/// Different keys: each comes back every ten commits or so, some twice in one commit.
const KEYS: u64 = 20_000;
/// One change in this many removes its key.
const REMOVAL_EVERY: u64 = 50;
const BUCKETS: u32 = 2;
const ID: i32 = 1;

/// A change of one key; `version` numbers all changes ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OrderChange {
    id: i64,
    version: i64,
    removes: bool,
}

fn changes(checkpoint: u64) -> impl Iterator<Item = OrderChange> {
    (0..CHANGES).map(move |item| OrderChange {
        id: signed(below(KEYS, checkpoint, item, 0)),
        version: signed(checkpoint * CHANGES + item),
        removes: below(REMOVAL_EVERY, checkpoint, item, 1) == 0,
    })
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What the table holds after so many commits, found by replaying them.
pub fn expected_orders(checkpoint: u64) -> Expected {
    let mut live: HashMap<i64, i64> = HashMap::new();
    for change in (1..=checkpoint).flat_map(changes) {
        match change.removes {
            true => live.remove(&change.id),
            false => live.insert(change.id, change.version),
        };
    }
    Expected { rows: signed(live.len() as u64), id_sum: live.keys().sum(), version_sum: live.values().sum() }
}

/// What a commit does to one bucket.
#[derive(Debug, Default)]
struct Delta {
    rows: Vec<OrderChange>,
    equality_deletes: Vec<i64>,
    position_deletes: Vec<i64>,
    /// Where the live row of a key is among `rows`.
    written: HashMap<i64, i64>,
}

impl Delta {
    fn apply(&mut self, change: OrderChange) {
        match self.written.remove(&change.id) {
            Some(position) => self.position_deletes.push(position),
            None => self.equality_deletes.push(change.id),
        }
        if !change.removes {
            self.written.insert(change.id, signed(self.rows.len() as u64));
            self.rows.push(change);
        }
    }
}

pub(super) fn make_files(batch: &mut CommitBatch<'_>) -> Result<Vec<NewFile>> {
    let all: Vec<OrderChange> = changes(batch.checkpoint).collect();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(all.iter().map(|c| c.id)));
    let buckets = create_transform_function(&Transform::Bucket(BUCKETS))?.transform(ids)?;
    let buckets = buckets.as_primitive::<Int32Type>();
    let mut files = Vec::new();
    for bucket in 0..BUCKETS.cast_signed() {
        let mut delta = Delta::default();
        all.iter().zip(buckets.values()).filter(|(_, b)| **b == bucket).for_each(|(change, _)| delta.apply(*change));
        files.extend(delta_files(batch, bucket, delta)?);
    }
    Ok(files)
}

fn delta_files(batch: &mut CommitBatch<'_>, bucket: i32, mut delta: Delta) -> Result<Vec<NewFile>> {
    let location = batch.metadata.location();
    let mut spec = |content| FileSpec {
        path: batch.names.next(location, &format!("id_bucket={bucket}")),
        content,
        partition: Struct::from_iter([Some(Literal::int(bucket))]),
        equality_ids: None,
        referenced_data_file: None,
    };
    let schema = batch.metadata.current_schema();
    let mut files = Vec::new();
    if !delta.rows.is_empty() {
        let data = spec(DataContentType::Data);
        if !delta.position_deletes.is_empty() {
            delta.position_deletes.sort_unstable();
            let mut deletes = spec(DataContentType::PositionDeletes);
            deletes.referenced_data_file = Some(data.path.clone());
            files.push(encode(deletes, &position_delete_rows(&data.path, &delta.position_deletes)?)?);
        }
        files.push(encode(data, &order_rows(schema, batch.checkpoint, batch.now_ms, &delta.rows)?)?);
    }
    if !delta.equality_deletes.is_empty() {
        let mut deletes = spec(DataContentType::EqualityDeletes);
        deletes.equality_ids = Some(vec![ID]);
        files.push(encode(deletes, &equality_delete_rows(schema, &delta.equality_deletes)?)?);
    }
    Ok(files)
}

fn order_rows(schema: &Schema, checkpoint: u64, now_ms: i64, rows: &[OrderChange]) -> Result<RecordBatch> {
    // What a row holds beside its key depends on its version alone.
    let item = |change: &OrderChange| change.version.unsigned_abs();
    let longs = |value: &dyn Fn(&OrderChange) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(value)))
    };
    let texts = |value: &dyn Fn(&OrderChange) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(value).collect::<StringArray>())
    };
    let status = ["placed", "paid", "packed", "shipped", "delivered", "returned"];
    let columns = vec![
        longs(&|c| c.id),
        texts(&|c| Some(format!("customer-{:05}", below(3_000, 0, c.id.unsigned_abs(), 2)))),
        texts(&|c| Some(pick(&status, checkpoint, item(c), 3).to_string())),
        longs(&|c| signed(below(1_000_000, checkpoint, item(c), 4))),
        longs(&|c| c.version),
        Arc::new(TimestampMicrosecondArray::from_value(now_ms * 1_000, rows.len()).with_timezone("+00:00")),
        texts(&|c| {
            let n = below(u64::MAX, checkpoint, item(c), 5);
            (!n.is_multiple_of(4)).then(|| format!("note {n:016x} {:016x}", below(u64::MAX, checkpoint, item(c), 6)))
        }),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema_to_arrow_schema(schema)?), columns)?)
}

fn equality_delete_rows(schema: &Schema, ids: &[i64]) -> Result<RecordBatch> {
    let arrow = schema_to_arrow_schema(schema)?;
    let index = schema.as_struct().fields().iter().position(|f| f.id == ID);
    let index = index.ok_or_else(|| Error::invalid("the table's key column is gone"))?;
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.iter().copied()));
    Ok(RecordBatch::try_new(Arc::new(arrow.project(&[index])?), vec![keys])?)
}

fn position_delete_rows(path: &str, positions: &[i64]) -> Result<RecordBatch> {
    let paths: ArrayRef = Arc::new(StringArray::from_iter_values(positions.iter().map(|_| path)));
    let positions: ArrayRef = Arc::new(Int64Array::from_iter_values(positions.iter().copied()));
    Ok(RecordBatch::try_new(position_delete_schema(), vec![paths, positions])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_leaves_the_last_row_of_each_key() {
        let change = |id, version, removes| OrderChange { id, version, removes };
        let mut delta = Delta::default();
        for c in [
            change(1, 10, false),
            change(2, 11, false),
            change(1, 12, false),
            change(2, 13, true),
            change(3, 14, true),
            change(3, 15, false),
        ] {
            delta.apply(c);
        }
        let live: Vec<i64> = (0..)
            .zip(&delta.rows)
            .filter(|(i, _)| !delta.position_deletes.contains(i))
            .map(|(_, c)| c.version)
            .collect();
        assert_eq!(live, [12, 15]);
        assert_eq!(delta.equality_deletes, [1, 2, 3, 3]);
        assert_eq!(delta.position_deletes, [0, 1]);
    }

    #[test]
    fn commits_repeat_keys_and_remove_some() {
        let all: Vec<OrderChange> = changes(1).collect();
        let keys: std::collections::HashSet<i64> = all.iter().map(|c| c.id).collect();
        assert!(keys.len() < all.len() && all.iter().any(|c| c.removes));
        assert_eq!(all, changes(1).collect::<Vec<_>>());
        assert_eq!(expected_orders(0), Expected::default());
        let (one, five) = (expected_orders(1), expected_orders(5));
        assert!(one.rows < five.rows && five.rows < signed(5 * CHANGES), "{one:?} {five:?}");
    }
}
