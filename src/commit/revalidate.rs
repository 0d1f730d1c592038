//! Is a finished rewrite still right for the table as it is now? Pure; asked anew at every attempt.
//!
//! A rewrite may replace its inputs if the rows that readers see in them are those that were rewritten. So at the head every
//! input must be live and unchanged, and the deletes that apply to inputs must be those of the starting snapshot. Equality
//! deletes newer than that apply to the outputs exactly as to the inputs, since outputs carry the starting sequence number.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{DataContentType, DataFile};

use super::StartSnapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::rewrite::RewriteResult;
use crate::table::delete_rule::{DeleteScope, DeleteTargets};
use crate::table::{FileEntry, PartitionValues, TableState};

/// The answer for a rewrite that can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The rewrite may be committed on this head.
    Valid,
    /// Every output is live and no input is: it has been committed.
    AlreadyCommitted,
}

fn conflict(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Conflict, message)
}

/// Whether the results contradict themselves, before any table is looked at.
pub(super) fn check_results(results: &[RewriteResult]) -> Result<()> {
    let mut inputs = HashSet::new();
    let mut outputs = HashSet::new();
    for result in results {
        let group = result.group;
        let wrong = |what: String| Err(Error::internal(format!("file group {group}: {what}")));
        if result.rewritten.is_empty() {
            return wrong("nothing is replaced".into());
        }
        for file in &result.rewritten {
            if file.content != DataContentType::Data || !inputs.insert(file.file_path.as_ref()) {
                return wrong(format!("{} is no data file or is replaced twice", file.file_path));
            }
        }
        for file in &result.added {
            if file.content_type() != DataContentType::Data || !outputs.insert(file.file_path()) {
                return wrong(format!("{} is no data file or is added twice", file.file_path()));
            }
        }
        let (read, written) = (records_in(result), records_out(result));
        if read != result.input_rows || written != result.output_rows {
            return wrong(format!("files hold {read} and {written} rows, the result says otherwise"));
        }
        if result.input_rows.checked_sub(result.deleted_rows) != Some(result.output_rows) {
            let RewriteResult { input_rows, deleted_rows, output_rows, .. } = result;
            return wrong(format!("{input_rows} rows less {deleted_rows} deleted are not {output_rows}"));
        }
    }
    if let Some(path) = outputs.iter().find(|path| inputs.contains(**path)) {
        return Err(Error::internal(format!("{path} is both replaced and added")));
    }
    if results.is_empty() { Err(Error::internal("nothing to commit")) } else { Ok(()) }
}

fn records_in(result: &RewriteResult) -> u64 {
    result.rewritten.iter().map(|f| f.record_count).sum()
}

fn records_out(result: &RewriteResult) -> u64 {
    result.added.iter().map(iceberg::spec::DataFile::record_count).sum()
}

/// Whether `results`, made from `start`, may replace their inputs in `head`. `start_deletes`: delete files live at the start.
///
/// Errors: [`ErrorKind::Conflict`] if the table went on in a way that needs a new plan; [`ErrorKind::DataInvalid`] if the table
/// itself is damaged; [`ErrorKind::Internal`] if an output is already live though this commit did not happen.
pub(super) fn revalidate(
    head: &TableState,
    start: &StartSnapshot,
    start_deletes: &[Arc<FileEntry>],
    results: &[RewriteResult],
) -> Result<Verdict> {
    check_table(head, start)?;
    let live = by_path(head, results)?;
    if check_outputs(&live, results)? == Verdict::AlreadyCommitted {
        return Ok(Verdict::AlreadyCommitted);
    }
    check_history(head, start)?;
    check_inputs(&live, start, results)?;
    check_partitions(start, results)?;
    check_deletes(head, start, start_deletes, results)?;
    check_moved_rows(head, start, results)?;
    Ok(Verdict::Valid)
}

fn check_table(head: &TableState, start: &StartSnapshot) -> Result<()> {
    let metadata = &head.loaded.metadata;
    let now = StartSnapshot::at(&head.loaded, start.snapshot_id, start.sequence_number);
    if now.table_uuid != start.table_uuid {
        let (was, is) = (start.table_uuid, now.table_uuid);
        return Err(conflict(format!("another table has taken the name: uuid {was} became {is}")));
    }
    for (what, was, is) in [
        ("format version", start.format_version as i32, metadata.format_version() as i32),
        ("current schema", start.schema_id, now.schema_id),
        ("default partition spec", start.default_spec_id, now.default_spec_id),
    ] {
        if was != is {
            return Err(conflict(format!("the table's {what} changed from {was} to {is} since planning")));
        }
    }
    Ok(())
}

/// Data files by path. A path that is live twice leaves open what its removal would mean, so no input may be one; what else is
/// live twice is left as it is.
fn by_path<'a>(head: &'a TableState, results: &[RewriteResult]) -> Result<HashMap<&'a str, &'a Arc<FileEntry>>> {
    let inputs: HashSet<&str> = results.iter().flat_map(|r| &r.rewritten).map(|f| f.file_path.as_ref()).collect();
    let mut map = HashMap::with_capacity(head.data_files.len());
    let twice = |file: &FileEntry| {
        let (path, manifest) = (&file.file_path, &file.manifest_path);
        conflict(format!("input {path} is live twice by now, once more in manifest {manifest}"))
    };
    for file in &head.data_files {
        if map.insert(file.file_path.as_ref(), file).is_some() && inputs.contains(file.file_path.as_ref()) {
            return Err(twice(file));
        }
    }
    match head.delete_files.iter().find(|file| inputs.contains(file.file_path.as_ref())) {
        Some(file) => Err(twice(file)),
        None => Ok(map),
    }
}

fn check_outputs(live: &HashMap<&str, &Arc<FileEntry>>, results: &[RewriteResult]) -> Result<Verdict> {
    let mut outputs = results.iter().flat_map(|r| &r.added).map(iceberg::spec::DataFile::file_path).peekable();
    let first = outputs.peek().copied();
    let there = outputs.clone().filter(|path| live.contains_key(path)).count();
    let inputs = results.iter().flat_map(|r| &r.rewritten).filter(|f| live.contains_key(f.file_path.as_ref())).count();
    match (there, first) {
        (0, _) | (_, None) => Ok(Verdict::Valid),
        (_, Some(_)) if there == outputs.count() && inputs == 0 => Ok(Verdict::AlreadyCommitted),
        (_, Some(first)) => {
            Err(Error::internal(format!("{there} outputs are live already, beside inputs (first {first})")))
        }
    }
}

/// The starting snapshot must still be there and lie below the head.
fn check_history(head: &TableState, start: &StartSnapshot) -> Result<()> {
    let metadata = &head.loaded.metadata;
    if metadata.snapshot_by_id(start.snapshot_id).is_none() {
        return Err(conflict(format!("starting snapshot {} has been expired", start.snapshot_id)));
    }
    let mut at = head.snapshot.as_ref();
    // Each snapshot is visited once at most, also if damaged metadata has a loop.
    for _ in 0..=metadata.snapshots().len() {
        match at {
            Some(snapshot) if snapshot.snapshot_id() == start.snapshot_id => return Ok(()),
            Some(snapshot) => at = snapshot.parent_snapshot_id().and_then(|id| metadata.snapshot_by_id(id)),
            None => break,
        }
    }
    Err(conflict(format!("starting snapshot {} is no ancestor of the head of main", start.snapshot_id)))
}

fn check_inputs(live: &HashMap<&str, &Arc<FileEntry>>, start: &StartSnapshot, results: &[RewriteResult]) -> Result<()> {
    for file in results.iter().flat_map(|r| &r.rewritten) {
        let path = &file.file_path;
        let Some(now) = live.get(path.as_ref()) else {
            return Err(conflict(format!("missing input: {path} is not live any more")));
        };
        let same = now.data_sequence_number == file.data_sequence_number
            && now.record_count == file.record_count
            && now.file_size_bytes == file.file_size_bytes
            && now.partition == file.partition;
        if !same {
            return Err(conflict(format!("missing input: {path} has been removed and added again")));
        }
        if file.data_sequence_number > start.sequence_number {
            let (number, start) = (file.data_sequence_number, start.sequence_number);
            return Err(Error::internal(format!(
                "{path} has sequence number {number}, newer than the start's {start}"
            )));
        }
    }
    Ok(())
}

/// Rows of one partition and spec stay in their partition.
fn check_partitions(start: &StartSnapshot, results: &[RewriteResult]) -> Result<()> {
    for result in results.iter().filter(|r| !changes_spec(r, start)) {
        let partitions: HashSet<&PartitionValues> = result.rewritten.iter().map(|f| &f.partition.values).collect();
        let strays = |f: &&DataFile| !partitions.contains(&PartitionValues::from(f.partition().clone()));
        if let Some(file) = result.added.iter().find(strays) {
            return Err(Error::internal(format!("{} lies in a partition that no input has", file.file_path())));
        }
    }
    Ok(())
}

fn changes_spec(result: &RewriteResult, start: &StartSnapshot) -> bool {
    result.rewritten.iter().any(|f| f.partition.spec_id != start.default_spec_id)
}

pub(super) fn output_partitions<'a>(results: impl IntoIterator<Item = &'a RewriteResult>) -> HashSet<PartitionValues> {
    results.into_iter().flat_map(|r| &r.added).map(|f| f.partition().clone().into()).collect()
}

/// The deletes that can hit an input must be those of the start, but for newer equality deletes.
fn check_deletes(
    head: &TableState,
    start: &StartSnapshot,
    start_deletes: &[Arc<FileEntry>],
    results: &[RewriteResult],
) -> Result<()> {
    fn key(file: &FileEntry) -> (&str, Option<i64>, i64) {
        (file.file_path.as_ref(), file.content_offset, file.data_sequence_number)
    }
    let metadata = head.loaded.typed()?;
    let mut inputs = DeleteTargets::of_deletes(head.delete_files.iter().chain(start_deletes));
    results.iter().flat_map(|r| &r.rewritten).for_each(|file| inputs.add(file));
    let names_an_input = |delete: &FileEntry| match (&delete.referenced_data_file, &delete.path_bound) {
        // Of a delete file that has left the table it is not known whether its bound was cut.
        (None, Some(bound)) => results.iter().flat_map(|r| &r.rewritten).any(|f| f.file_path.starts_with(&**bound)),
        _ => true,
    };
    let may_hit = |delete: &FileEntry| inputs.may_be_hit_by(delete, metadata) && names_an_input(delete);
    let before: HashSet<_> = start_deletes.iter().map(|f| key(f)).collect();
    let now: HashSet<_> = head.delete_files.iter().map(|f| key(f)).collect();
    let newer =
        |f: &FileEntry| f.content == DataContentType::EqualityDeletes && f.data_sequence_number > start.sequence_number;
    let appeared = head.delete_files.iter().filter(|f| !before.contains(&key(f)) && !newer(f));
    if let Some(file) = appeared.into_iter().find(|f| may_hit(f)) {
        let (path, id) = (&file.file_path, file.snapshot_id);
        return Err(conflict(format!(
            "delete file {path} of snapshot {id} may apply to an input and came after the start"
        )));
    }
    let gone = start_deletes.iter().filter(|f| !now.contains(&key(f)));
    if let Some(file) = gone.into_iter().find(|f| may_hit(f)) {
        let path = &file.file_path;
        return Err(conflict(format!("delete file {path} was applied to an input and has since left the table")));
    }
    Ok(())
}

/// Rows that move to another spec or partition come under other partition-scoped equality deletes: newer ones must not tell
/// the two places apart.
fn check_moved_rows(head: &TableState, start: &StartSnapshot, results: &[RewriteResult]) -> Result<()> {
    let moved = || results.iter().filter(|r| changes_spec(r, start));
    let outputs = output_partitions(moved());
    let mut places: HashSet<(i32, &PartitionValues)> = outputs.iter().map(|v| (start.default_spec_id, v)).collect();
    places.extend(moved().flat_map(|r| &r.rewritten).map(|f| (f.partition.spec_id, &f.partition.values)));
    let metadata = head.loaded.typed()?;
    let tells_apart = |f: &FileEntry| match DeleteScope::of(f, metadata) {
        DeleteScope::Partition(partition) => places.contains(&(partition.spec_id, &partition.values)),
        DeleteScope::Table | DeleteScope::DataFile(_) => false,
    };
    let newer =
        |f: &FileEntry| f.content == DataContentType::EqualityDeletes && f.data_sequence_number > start.sequence_number;
    let hit = head.delete_files.iter().find(|f| newer(f) && tells_apart(f));
    match hit {
        None => Ok(()),
        Some(file) => Err(conflict(format!(
            "equality delete file {} came after the start, while rows of its partition move to another spec",
            file.file_path
        ))),
    }
}
