//! Loads the deletes of a file group, each file once, in key-only form, within the memory budget.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use futures::TryStreamExt;
use iceberg::spec::{DataContentType, NestedField, NestedFieldRef, PrimitiveType, StructType, Type};
use roaring::RoaringTreemap;

use crate::concurrent::concurrent;
use crate::error::{Error, Result};
use crate::plan::FileGroup;
use crate::rewrite::delete_mask::{EqualitySet, FileDeletes, GroupDeletes, KeyColumn, add_positions};
use crate::rewrite::keys::{KeySet, estimate_bytes};
use crate::rewrite::memory::{MemoryBudget, Permit};
use crate::rewrite::project::PartitionConstants;
use crate::rewrite::reader::{
    OpenFile, Piece, ReadTarget, WHOLE_FILE_LIMIT, open_large, read_whole, row_group_piece, whole_piece,
};
use crate::rewrite::schema::primitive_type;
use crate::rewrite::scopes::{EqualityScope, ReadColumns};
use crate::rewrite::{RewriteContext, on_blocking_thread};
use crate::table::FileEntry;
use crate::table::delete_rule::applies_by_sequence;

/// Field ids of a position delete file's columns.
const FILE_PATH_ID: i32 = 2_147_483_546;
const POS_ID: i32 = 2_147_483_545;
/// Delete files read at the same time.
const CONCURRENT_READS: usize = 4;
/// Bytes of a roaring bitmap per position, at worst.
const POSITION_BYTES: u64 = 8;

/// Bytes that the deletes of a group take when loaded, by the counts in the manifests.
pub(crate) fn estimate(group: &FileGroup, scopes: &[EqualityScope], columns: &ReadColumns) -> Result<u64> {
    let mut bytes = position_files(group).values().map(|(f, _)| f.record_count.saturating_mul(POSITION_BYTES)).sum();
    for scope in scopes {
        let types = key_types(scope, columns)?;
        let keys = scope.files.iter().map(|f| f.record_count).sum();
        bytes = u64::saturating_add(bytes, estimate_bytes(&types, keys, key_bytes(&types, scope, keys)));
    }
    // One delete file is being decoded while the keys grow.
    let largest = group.tasks.iter().flat_map(|t| t.delete_files.iter()).map(|f| f.file_size_bytes).max().unwrap_or(0);
    Ok(bytes.saturating_add(largest.min(WHOLE_FILE_LIMIT) * CONCURRENT_READS as u64))
}

/// Bytes of one key in comparable form: fixed widths, and for the rest what the files' sizes suggest.
fn key_bytes(types: &[DataType], scope: &EqualityScope, keys: u64) -> u64 {
    let file_bytes: u64 = scope.files.iter().map(|f| f.file_size_bytes).sum();
    let average = file_bytes.saturating_mul(3) / keys.max(1);
    types.iter().map(|ty| ty.primitive_width().map_or(average.clamp(18, 1 << 20), |w| w as u64 + 1)).sum()
}

fn key_types(scope: &EqualityScope, columns: &ReadColumns) -> Result<Vec<DataType>> {
    scope
        .ids
        .iter()
        .map(|id| match columns.key(*id)?.1.field_type.as_ref() {
            Type::Primitive(p) => primitive_type(p),
            other => Err(Error::unsupported(format!("equality deletes by a column of type {other}"))),
        })
        .collect()
}

/// Position delete files with the tasks they are listed for, by path.
fn position_files(group: &FileGroup) -> BTreeMap<Arc<str>, (Arc<FileEntry>, Vec<usize>)> {
    let mut files: BTreeMap<Arc<str>, (Arc<FileEntry>, Vec<usize>)> = BTreeMap::new();
    for (task_index, task) in group.tasks.iter().enumerate() {
        for file in task.delete_files.iter() {
            let applies = applies_by_sequence(file, task.data_file.data_sequence_number);
            if file.content == DataContentType::PositionDeletes && applies {
                files.entry(file.file_path.clone()).or_insert_with(|| (file.clone(), Vec::new())).1.push(task_index);
            }
        }
    }
    files
}

/// Loads everything that applies to the group's data files. `permit` holds `allowed` bytes for it.
pub(crate) async fn load(
    ctx: &RewriteContext,
    group: &FileGroup,
    scopes: Vec<EqualityScope>,
    columns: &ReadColumns,
    (permit, mut allowed): (&mut Permit, u64),
) -> Result<GroupDeletes> {
    let mut deletes = GroupDeletes::default();
    for task in &group.tasks {
        let data_sequence = task.data_file.data_sequence_number;
        deletes.files.push(FileDeletes { data_sequence, ..FileDeletes::default() });
    }
    load_positions(ctx, group, &mut deletes).await?;
    let marked = deletes.files.iter().map(|f| &f.positions).filter(|p| !p.is_empty());
    let positions = marked.map(|p| p.serialized_size() as u64).sum();
    account(&ctx.memory, permit, &mut allowed, positions)?;
    for scope in scopes {
        for task in &scope.tasks {
            deletes.files[*task].sets.push(deletes.sets.len());
        }
        let set = load_scope(ctx, &scope, columns).await?;
        account(&ctx.memory, permit, &mut allowed, set.keys.bytes())?;
        deletes.sets.push(set);
    }
    Ok(deletes)
}

/// Takes more of the budget if keys turn out larger than estimated.
fn account(budget: &MemoryBudget, permit: &mut Permit, allowed: &mut u64, bytes: u64) -> Result<()> {
    if bytes > *allowed {
        let missing = bytes - *allowed;
        budget.grow(permit, missing).map_err(|e| e.context("load equality deletes"))?;
        *allowed = 0;
    } else {
        *allowed -= bytes;
    }
    Ok(())
}

async fn load_positions(ctx: &RewriteContext, group: &FileGroup, deletes: &mut GroupDeletes) -> Result<()> {
    let path = NestedField::required(FILE_PATH_ID, "file_path", Type::Primitive(PrimitiveType::String));
    let pos = NestedField::required(POS_ID, "pos", Type::Primitive(PrimitiveType::Long));
    let target =
        Arc::new(ReadTarget { fields: vec![Arc::new(path), Arc::new(pos)], own: 2, mapping: None, all_present: true });
    let files = position_files(group).into_values();
    let mut loads = concurrent(CONCURRENT_READS, files, |(file, tasks)| {
        let wanted: HashMap<Arc<str>, usize> =
            tasks.iter().map(|t| (group.tasks[*t].data_file.file_path.clone(), *t)).collect();
        load_position_file(ctx, file, Arc::clone(&target), Arc::new(wanted))
    });
    while let Some(found) = loads.try_next().await? {
        for (task, positions) in found {
            deletes.files[task].positions |= positions;
        }
    }
    Ok(())
}

async fn load_position_file(
    ctx: &RewriteContext,
    file: Arc<FileEntry>,
    target: Arc<ReadTarget>,
    wanted: Arc<HashMap<Arc<str>, usize>>,
) -> Result<HashMap<usize, RoaringTreemap>> {
    let mut found = HashMap::new();
    let mut pieces = Pieces::open(ctx, &file, target).await?;
    while let Some(piece) = pieces.next(ctx).await? {
        let wanted = Arc::clone(&wanted);
        found = on_blocking_thread(move || {
            piece.decode(&mut |_, batch| add_positions(&batch, &wanted, &mut found))?;
            Ok(found)
        })
        .await
        .map_err(|e| e.context_of("load position deletes", &file.file_path))?;
    }
    Ok(found)
}

async fn load_scope(ctx: &RewriteContext, scope: &EqualityScope, columns: &ReadColumns) -> Result<EqualitySet> {
    let types = key_types(scope, columns)?;
    let rows: u64 = scope.files.iter().map(|f| f.record_count).sum();
    let capacity = usize::try_from(rows).map_err(|_| Error::invalid("more delete rows than memory addresses"))?;
    let keys = Arc::new(Mutex::new(KeySet::new(&types, capacity)?));
    let mut fields: Vec<NestedFieldRef> = Vec::new();
    let mut in_file = Vec::new();
    let mut in_data = Vec::new();
    for id in &scope.ids {
        let (column, _) = columns.key(*id)?;
        in_file.push(KeyColumn { column: fields.len(), path: vec![0; column.path.len()] });
        fields.push(key_way(&columns.fields[column.column], &column.path)?);
        in_data.push(column.clone());
    }
    let target = Arc::new(ReadTarget { own: fields.len(), fields, mapping: None, all_present: true });
    let in_file = Arc::new(in_file);
    let loads = concurrent(CONCURRENT_READS, &scope.files, |file| {
        load_equality_file(ctx, file.clone(), Arc::clone(&target), Arc::clone(&in_file), Arc::clone(&keys))
    });
    loads.try_collect::<()>().await?;
    let keys = Arc::into_inner(keys).ok_or_else(|| Error::internal("a key set is still being filled"))?;
    let keys = keys.into_inner().map_err(|_| Error::internal("a thread panicked while filling a key set"))?;
    Ok(EqualitySet { columns: in_data, keys })
}

async fn load_equality_file(
    ctx: &RewriteContext,
    file: Arc<FileEntry>,
    target: Arc<ReadTarget>,
    columns: Arc<Vec<KeyColumn>>,
    keys: Arc<Mutex<KeySet>>,
) -> Result<()> {
    let mut pieces = Pieces::open(ctx, &file, target).await?;
    while let Some(piece) = pieces.next(ctx).await? {
        let (columns, keys, sequence) = (Arc::clone(&columns), Arc::clone(&keys), file.data_sequence_number);
        on_blocking_thread(move || {
            piece.decode(&mut |_, batch| {
                let values = columns.iter().map(|c| c.values(&batch)).collect::<Result<Vec<ArrayRef>>>()?;
                let mut keys = keys.lock().map_err(|_| Error::internal("a thread panicked while filling a key set"))?;
                keys.insert(&values, sequence)
            })
        })
        .await
        .map_err(|e| e.context_of("load equality deletes", &file.file_path))?;
    }
    Ok(())
}

/// The field with only the children on the way to a key column, all optional.
fn key_way(field: &NestedField, way: &[usize]) -> Result<NestedFieldRef> {
    let ty = match (way.split_first(), field.field_type.as_ref()) {
        (Some((step, rest)), Type::Struct(s)) => {
            let child = s.fields().get(*step).ok_or_else(|| Error::internal("a key path outside of its struct"))?;
            Type::Struct(StructType::new(vec![key_way(child, rest)?]))
        }
        (_, ty) => ty.clone(),
    };
    Ok(Arc::new(NestedField::optional(field.id, &field.name, ty)))
}

/// The pieces of one delete file, read one after the other.
struct Pieces {
    file: Arc<FileEntry>,
    target: Arc<ReadTarget>,
    open: Option<Arc<OpenFile>>,
    next: usize,
}

impl Pieces {
    async fn open(ctx: &RewriteContext, file: &Arc<FileEntry>, target: Arc<ReadTarget>) -> Result<Self> {
        let open = if file.file_size_bytes > WHOLE_FILE_LIMIT {
            Some(Arc::new(open_large(ctx.store.as_ref(), file, &target, &PartitionConstants::new()).await?))
        } else {
            None
        };
        Ok(Self { file: Arc::clone(file), target, open, next: 0 })
    }

    async fn next(&mut self, ctx: &RewriteContext) -> Result<Option<Piece>> {
        ctx.check_cancelled()?;
        let index = self.next;
        self.next += 1;
        match &self.open {
            None if index == 0 => {
                let bytes = read_whole(ctx.store.as_ref(), &self.file).await?;
                ctx.progress.add_read(bytes.len() as u64);
                let piece = whole_piece(bytes, &self.file, &self.target, &PartitionConstants::new())?;
                Ok(Some(piece))
            }
            Some(open) if index < open.footer().num_row_groups() => {
                ctx.progress.add_read(open.read_bytes(index));
                row_group_piece(ctx.store.as_ref(), &self.file, open, index).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}
