//! Sets of equality delete keys: a key maps to the highest data sequence number it was deleted at. Pure.
//!
//! NULL equals NULL and nothing else; NaN equals NaN; 0.0 and -0.0 are two keys, as in the reference implementation's comparators.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type};
use arrow::row::{RowConverter, SortField};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable, hash_table};
use std::hash::BuildHasher;

use crate::error::{Error, Result};
use crate::table::partition_values::{one_nan_f32, one_nan_f64};

/// Rows of key bytes are kept in pieces of this size, so that growing never copies them.
const ARENA_PIECE: usize = 4 << 20;
/// Bytes of a table slot beside its entry.
const CONTROL: u64 = 1;
const INT_SLOT: u64 = 16 + CONTROL;
const ROW_SLOT: u64 = 16 + CONTROL;

/// Keys of one set of equality columns.
#[derive(Debug)]
pub(crate) enum KeySet {
    /// One integer-like column: no key bytes at all.
    Int(IntKeys),
    Rows(RowKeys),
}

/// Keys of a single integer-like column.
#[derive(Debug)]
pub(crate) struct IntKeys {
    deleted_at: HashMap<i64, i64, FixedState>,
    null_deleted_at: Option<i64>,
}

/// Keys as comparable bytes.
#[derive(Debug)]
pub(crate) struct RowKeys {
    converter: RowConverter,
    table: HashTable<KeyEntry>,
    hasher: FixedState,
    arena: Vec<Vec<u8>>,
    /// Sequence numbers that entries refer to.
    sequences: Vec<i64>,
}

#[derive(Debug, Clone, Copy)]
struct KeyEntry {
    piece: u32,
    offset: u32,
    len: u32,
    sequence: u32,
}

fn is_int(ty: &DataType) -> bool {
    matches!(ty, DataType::Int32 | DataType::Int64 | DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..))
}

/// Slots of a hash table for `keys` keys: a power of two, filled to 7/8 at most.
fn slots(keys: u64) -> u64 {
    keys.saturating_mul(8).div_ceil(7).max(4).checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// Bytes that a set of `keys` keys takes, if each key takes `key_bytes` bytes.
pub(crate) fn estimate_bytes(types: &[DataType], keys: u64, key_bytes: u64) -> u64 {
    match types {
        [only] if is_int(only) => slots(keys).saturating_mul(INT_SLOT),
        _ => slots(keys).saturating_mul(ROW_SLOT).saturating_add(keys.saturating_mul(key_bytes)),
    }
}

impl KeySet {
    /// An empty set for columns of `types`, with room for `capacity` keys.
    pub(crate) fn new(types: &[DataType], capacity: usize) -> Result<Self> {
        if let [only] = types
            && is_int(only)
        {
            let deleted_at = HashMap::with_capacity_and_hasher(capacity, FixedState::default());
            return Ok(Self::Int(IntKeys { deleted_at, null_deleted_at: None }));
        }
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        Ok(Self::Rows(RowKeys {
            converter,
            table: HashTable::with_capacity(capacity),
            hasher: FixedState::default(),
            arena: Vec::new(),
            sequences: Vec::new(),
        }))
    }

    /// Adds the keys in `columns`, deleted at `sequence`.
    pub(crate) fn insert(&mut self, columns: &[ArrayRef], sequence: i64) -> Result<()> {
        match self {
            Self::Int(keys) => keys.insert(columns, sequence),
            Self::Rows(keys) => keys.insert(columns, sequence),
        }
    }

    /// Clears `keep` for each row whose key was deleted after `data_sequence`.
    pub(crate) fn clear_deleted(&self, columns: &[ArrayRef], data_sequence: i64, keep: &mut [bool]) -> Result<()> {
        match self {
            Self::Int(keys) => keys.clear_deleted(columns, data_sequence, keep),
            Self::Rows(keys) => keys.clear_deleted(columns, data_sequence, keep),
        }
    }

    /// Bytes taken, as allocated.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Int(keys) => slots(keys.deleted_at.capacity() as u64) * INT_SLOT,
            Self::Rows(keys) => {
                let arena: usize = keys.arena.iter().map(Vec::capacity).sum();
                slots(keys.table.capacity() as u64) * ROW_SLOT + arena as u64
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Int(keys) => keys.deleted_at.len() + usize::from(keys.null_deleted_at.is_some()),
            Self::Rows(keys) => keys.table.len(),
        }
    }
}

/// Any integer-like column as 64-bit integers.
fn as_longs(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let [column] = columns else { return Err(Error::internal("an integer key set takes one column")) };
    Ok(match column.data_type() {
        DataType::Int64 => column.clone(),
        DataType::Date32 => cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(column, &DataType::Int64)?,
    })
}

impl IntKeys {
    fn insert(&mut self, columns: &[ArrayRef], sequence: i64) -> Result<()> {
        let longs = as_longs(columns)?;
        for key in longs.as_primitive::<Int64Type>() {
            match key {
                Some(key) => {
                    let at = self.deleted_at.entry(key).or_insert(sequence);
                    *at = sequence.max(*at);
                }
                None => self.null_deleted_at = self.null_deleted_at.max(Some(sequence)),
            }
        }
        Ok(())
    }

    fn clear_deleted(&self, columns: &[ArrayRef], data_sequence: i64, keep: &mut [bool]) -> Result<()> {
        let longs = as_longs(columns)?;
        for (key, keep) in longs.as_primitive::<Int64Type>().iter().zip(keep) {
            let deleted_at = match key {
                Some(key) => self.deleted_at.get(&key).copied(),
                None => self.null_deleted_at,
            };
            if deleted_at.is_some_and(|at| at > data_sequence) {
                *keep = false;
            }
        }
        Ok(())
    }
}

/// One bit pattern for all NaNs; everything else as it is.
pub(crate) fn canonical(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let one_nan: Float32Array = column.as_primitive::<Float32Type>().unary(one_nan_f32);
            Arc::new(one_nan)
        }
        DataType::Float64 => {
            let one_nan: Float64Array = column.as_primitive::<Float64Type>().unary(one_nan_f64);
            Arc::new(one_nan)
        }
        _ => column.clone(),
    }
}

impl RowKeys {
    fn insert(&mut self, columns: &[ArrayRef], sequence: i64) -> Result<()> {
        let columns: Vec<ArrayRef> = columns.iter().map(canonical).collect();
        let rows = self.converter.convert_columns(&columns)?;
        let sequence_index = self.sequence_index(sequence)?;
        for row in &rows {
            let bytes = row.as_ref();
            let hash = self.hasher.hash_one(bytes);
            let (arena, hasher, sequences) = (&self.arena, &self.hasher, &self.sequences);
            let slot =
                self.table.entry(hash, |e| key_bytes(arena, e) == bytes, |e| hasher.hash_one(key_bytes(arena, e)));
            match slot {
                hash_table::Entry::Occupied(mut found) => {
                    let entry = found.get_mut();
                    if sequences[entry.sequence as usize] < sequence {
                        entry.sequence = sequence_index;
                    }
                }
                hash_table::Entry::Vacant(free) => {
                    let entry = store(&mut self.arena, bytes, sequence_index)?;
                    free.insert(entry);
                }
            }
        }
        Ok(())
    }

    fn sequence_index(&mut self, sequence: i64) -> Result<u32> {
        let index = self.sequences.iter().rposition(|s| *s == sequence).unwrap_or_else(|| {
            self.sequences.push(sequence);
            self.sequences.len() - 1
        });
        u32::try_from(index).map_err(|_| Error::internal("more sequence numbers than a set can hold"))
    }

    fn clear_deleted(&self, columns: &[ArrayRef], data_sequence: i64, keep: &mut [bool]) -> Result<()> {
        let columns: Vec<ArrayRef> = columns.iter().map(canonical).collect();
        let rows = self.converter.convert_columns(&columns)?;
        for (row, keep) in rows.iter().zip(keep) {
            let bytes = row.as_ref();
            let found = self.table.find(self.hasher.hash_one(bytes), |e| key_bytes(&self.arena, e) == bytes);
            if found.is_some_and(|e| self.sequences[e.sequence as usize] > data_sequence) {
                *keep = false;
            }
        }
        Ok(())
    }
}

fn key_bytes<'a>(arena: &'a [Vec<u8>], entry: &KeyEntry) -> &'a [u8] {
    &arena[entry.piece as usize][entry.offset as usize..][..entry.len as usize]
}

fn store(arena: &mut Vec<Vec<u8>>, bytes: &[u8], sequence: u32) -> Result<KeyEntry> {
    let fits = arena.last().is_some_and(|piece| piece.capacity() - piece.len() >= bytes.len());
    if !fits {
        arena.push(Vec::with_capacity(bytes.len().max(ARENA_PIECE)));
    }
    let number = arena.len() - 1;
    let piece = &mut arena[number];
    let small = |n: usize| u32::try_from(n).map_err(|_| Error::unsupported("equality delete keys of over 4 GiB"));
    let entry = KeyEntry { piece: small(number)?, offset: small(piece.len())?, len: small(bytes.len())?, sequence };
    piece.extend_from_slice(bytes);
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};

    use super::*;

    fn deleted(set: &KeySet, columns: &[ArrayRef], data_sequence: i64) -> Vec<bool> {
        let mut keep = vec![true; columns[0].len()];
        set.clear_deleted(columns, data_sequence, &mut keep).expect("keys of the set's types");
        keep.into_iter().map(|k| !k).collect()
    }

    #[test]
    fn an_integer_key_is_deleted_only_in_strictly_older_data() {
        let mut set = KeySet::new(&[DataType::Int64], 0).expect("integers");
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
        set.insert(&[keys], 5).expect("insert");
        set.insert(&[Arc::new(Int64Array::from(vec![2]))], 3).expect("an older delete of the same key");
        let data: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3), None]));
        assert_eq!(deleted(&set, std::slice::from_ref(&data), 4), [true, true, false, true]);
        assert_eq!(deleted(&set, &[data], 5), [false; 4]);
        assert_eq!(set.len(), 3);
    }

    #[test]
    fn null_is_a_key_of_its_own_beside_every_other_column() {
        let types = [DataType::Int64, DataType::Utf8View];
        let mut set = KeySet::new(&types, 0).expect("two columns");
        let longs = |v: Vec<Option<i64>>| Arc::new(Int64Array::from(v)) as ArrayRef;
        let texts = |v: Vec<Option<&str>>| Arc::new(StringViewArray::from(v)) as ArrayRef;
        set.insert(&[longs(vec![Some(1), None]), texts(vec![None, Some("x")])], 2).expect("insert");
        let data = [longs(vec![Some(1), Some(1), None, None]), texts(vec![None, Some(""), Some("x"), None])];
        assert_eq!(deleted(&set, &data, 1), [true, false, true, false]);
    }

    #[test]
    fn nan_equals_nan_and_the_two_zeros_differ() {
        let mut set = KeySet::new(&[DataType::Float64], 0).expect("floats");
        let odd_nan = f64::from_bits(0xfff8_0000_0000_0001);
        set.insert(&[Arc::new(Float64Array::from(vec![f64::NAN, -0.0]))], 2).expect("insert");
        let data: ArrayRef = Arc::new(Float64Array::from(vec![odd_nan, 0.0, -0.0, 1.0]));
        assert_eq!(deleted(&set, &[data], 1), [true, false, true, false]);
    }

    #[test]
    fn ten_million_integers_fit_forty_bytes_each() {
        assert!(estimate_bytes(&[DataType::Int64], 10_000_000, 8) <= 40 * 10_000_000);
        let mut set = KeySet::new(&[DataType::Int64], 1000).expect("integers");
        set.insert(&[Arc::new(Int64Array::from_iter_values(0..1000))], 1).expect("insert");
        assert_eq!(set.bytes(), estimate_bytes(&[DataType::Int64], 1000, 8));
    }
}
