//! Which delete files share a key set, and which columns of which schema their keys are. Pure.
//!
//! A set is exact: for every data file it holds precisely the delete files that the plan lists for it, apart from those
//! that the strictly-older rule of sequence numbers tells from the keys themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use iceberg::spec::{DataContentType, NestedField, NestedFieldRef, PrimitiveType, StructType, TableMetadata, Type};

use crate::error::{Error, Result};
use crate::plan::FileGroup;
use crate::rewrite::delete_mask::KeyColumn;
use crate::table::delete_rule::applies_by_sequence;
use crate::table::{FileEntry, PartitionTuple};

/// Delete files that are loaded into one key set.
#[derive(Debug, Clone)]
pub(crate) struct EqualityScope {
    /// Field ids of the key, ascending.
    pub ids: Vec<i32>,
    pub files: Vec<Arc<FileEntry>>,
    pub tasks: BTreeSet<usize>,
}

/// Sorts the equality deletes of a group into sets.
pub(crate) fn equality_scopes(group: &FileGroup) -> Vec<EqualityScope> {
    let mut files: BTreeMap<Arc<str>, Arc<FileEntry>> = BTreeMap::new();
    let mut listed_by: HashMap<Arc<str>, BTreeSet<usize>> = HashMap::new();
    for (task_index, task) in group.tasks.iter().enumerate() {
        for file in task.delete_files.iter() {
            let applies = applies_by_sequence(file, task.data_file.data_sequence_number);
            if file.content == DataContentType::EqualityDeletes && applies {
                files.insert(file.file_path.clone(), file.clone());
                listed_by.entry(file.file_path.clone()).or_default().insert(task_index);
            }
        }
    }
    let mut by_partition: Vec<(Vec<i32>, Vec<Arc<FileEntry>>)> = Vec::new();
    let mut place: HashMap<(Vec<i32>, Arc<PartitionTuple>), usize> = HashMap::new();
    for file in files.into_values() {
        let mut ids = file.equality_ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let at = *place.entry((ids.clone(), file.partition.clone())).or_insert_with(|| {
            by_partition.push((ids, Vec::new()));
            by_partition.len() - 1
        });
        by_partition[at].1.push(file);
    }
    by_partition.into_iter().flat_map(|(ids, files)| split_exactly(group, ids, files, &listed_by)).collect()
}

/// One set if sequence numbers alone tell who is affected; otherwise one set per exact list of data files.
fn split_exactly(
    group: &FileGroup,
    ids: Vec<i32>,
    files: Vec<Arc<FileEntry>>,
    listed_by: &HashMap<Arc<str>, BTreeSet<usize>>,
) -> Vec<EqualityScope> {
    let nobody = BTreeSet::new();
    let lists = |file: &FileEntry| listed_by.get(&file.file_path).unwrap_or(&nobody);
    let mut listed: BTreeMap<usize, usize> = BTreeMap::new();
    for task in files.iter().flat_map(|file| lists(file)) {
        *listed.entry(*task).or_default() += 1;
    }
    let mut sequences: Vec<i64> = files.iter().map(|f| f.data_sequence_number).collect();
    sequences.sort_unstable();
    // Lists hold strictly newer files only, so one that is as long as it can be holds all of those.
    let exact = listed.iter().all(|(task, count)| {
        let data_sequence = group.tasks[*task].data_file.data_sequence_number;
        sequences.len() - sequences.partition_point(|s| *s <= data_sequence) == *count
    });
    if exact {
        return vec![EqualityScope { ids, files, tasks: listed.into_keys().collect() }];
    }
    let mut by_list: BTreeMap<BTreeSet<usize>, Vec<Arc<FileEntry>>> = BTreeMap::new();
    for file in files {
        by_list.entry(lists(&file).clone()).or_default().push(file);
    }
    by_list.into_iter().map(|(tasks, files)| EqualityScope { ids: ids.clone(), files, tasks }).collect()
}

/// The columns that rewriting a group reads: the table's own, then those that only deletes still need.
#[derive(Debug, Clone)]
pub(crate) struct ReadColumns {
    pub fields: Vec<NestedFieldRef>,
    /// How many of them, from the front, are the table's own.
    pub own: usize,
    keys: HashMap<i32, (KeyColumn, NestedFieldRef)>,
}

impl ReadColumns {
    /// The table's columns and the given key columns, wherever in the table's history they are defined.
    pub(crate) fn new(metadata: &TableMetadata, key_ids: &BTreeSet<i32>) -> Result<Self> {
        let current = metadata.current_schema().as_struct();
        let mut columns = Self { fields: current.fields().to_vec(), own: current.fields().len(), keys: HashMap::new() };
        for id in key_ids {
            let mut way = Vec::new();
            if find_leaf(current, *id, &mut way)? {
                let field = columns.fields[way[0]].clone();
                let leaf = leaf_of(&field, &way[1..])?;
                columns.keys.insert(*id, (KeyColumn { column: way[0], path: way[1..].to_vec() }, leaf));
                continue;
            }
            let dropped = dropped_field(metadata, *id)?;
            let depth = depth_of(&dropped);
            let leaf = leaf_of(&dropped, &vec![0; depth])?;
            columns.keys.insert(*id, (KeyColumn { column: columns.fields.len(), path: vec![0; depth] }, leaf));
            columns.fields.push(dropped);
        }
        Ok(columns)
    }

    /// Where the key column with this id is in a batch, and its field.
    pub(crate) fn key(&self, id: i32) -> Result<&(KeyColumn, NestedFieldRef)> {
        self.keys.get(&id).ok_or_else(|| Error::internal(format!("key column {id} was not planned")))
    }
}

/// Finds a primitive field by id, going through structs only; `way` holds the positions from the top.
fn find_leaf(fields: &StructType, id: i32, way: &mut Vec<usize>) -> Result<bool> {
    for (i, field) in fields.fields().iter().enumerate() {
        way.push(i);
        match field.field_type.as_ref() {
            Type::Primitive(_) if field.id == id => return Ok(true),
            _ if field.id == id => {
                return Err(Error::unsupported(format!(
                    "equality deletes by column {} of type {}",
                    field.name, field.field_type
                )));
            }
            Type::Struct(below) if find_leaf(below, id, way)? => return Ok(true),
            _ => {}
        }
        way.pop();
    }
    Ok(false)
}

fn leaf_of(field: &NestedFieldRef, way: &[usize]) -> Result<NestedFieldRef> {
    let Some((step, rest)) = way.split_first() else { return Ok(field.clone()) };
    match field.field_type.as_ref() {
        Type::Struct(s) => {
            let child = s.fields().get(*step).ok_or_else(|| Error::internal("a key path outside of its struct"))?;
            leaf_of(child, rest)
        }
        _ => Err(Error::internal("a key path through no struct")),
    }
}

fn depth_of(field: &NestedField) -> usize {
    match field.field_type.as_ref() {
        Type::Struct(s) => s.fields().first().map_or(0, |f| 1 + depth_of(f)),
        _ => 0,
    }
}

/// A column that has left the schema, as old schemas knew it, in its widest type and with nothing beside it.
fn dropped_field(metadata: &TableMetadata, id: i32) -> Result<NestedFieldRef> {
    let mut schemas: Vec<_> = metadata.schemas_iter().collect();
    schemas.sort_by_key(|s| s.schema_id());
    let mut found: Option<(NestedFieldRef, PrimitiveType)> = None;
    for schema in schemas {
        let mut way = Vec::new();
        if !find_leaf(schema.as_struct(), id, &mut way)? {
            continue;
        }
        let top = &schema.as_struct().fields()[way[0]];
        let leaf = leaf_of(top, &way[1..])?;
        let Type::Primitive(ty) = leaf.field_type.as_ref() else { continue };
        let widest = match &found {
            Some((_, before)) => wider(before, ty)
                .ok_or_else(|| Error::invalid(format!("field id {id} was {before} and {ty} in the table's schemas")))?,
            None => ty.clone(),
        };
        found = Some((only_way(top, &way[1..], &widest)?, widest));
    }
    found.map(|(field, _)| field).ok_or_else(|| {
        Error::invalid(format!(
            "equality deletes name field id {id}, which no schema of the table has as a primitive column"
        ))
    })
}

fn wider(a: &PrimitiveType, b: &PrimitiveType) -> Option<PrimitiveType> {
    use PrimitiveType as T;
    match (a, b) {
        _ if a == b => Some(a.clone()),
        (T::Int, T::Long) | (T::Long, T::Int) => Some(T::Long),
        (T::Float, T::Double) | (T::Double, T::Float) => Some(T::Double),
        (T::Decimal { precision: p, scale: s }, T::Decimal { precision: q, scale: t }) if s == t => {
            Some(T::Decimal { precision: *p.max(q), scale: *s })
        }
        _ => None,
    }
}

/// The field with only the children on the way to one leaf, all optional: files that lack it read as NULL.
fn only_way(field: &NestedField, way: &[usize], leaf: &PrimitiveType) -> Result<NestedFieldRef> {
    let ty = match (way.split_first(), field.field_type.as_ref()) {
        (None, _) => Type::Primitive(leaf.clone()),
        (Some((step, rest)), Type::Struct(s)) => {
            let child = s.fields().get(*step).ok_or_else(|| Error::internal("a key path outside of its struct"))?;
            Type::Struct(StructType::new(vec![only_way(child, rest, leaf)?]))
        }
        _ => return Err(Error::internal("a key path through no struct")),
    };
    let mut kept = NestedField::optional(field.id, &field.name, ty);
    kept.initial_default = field.initial_default.clone().filter(|_| way.is_empty());
    Ok(Arc::new(kept))
}
