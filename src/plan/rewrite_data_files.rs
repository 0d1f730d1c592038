//! Compaction: which files are rewritten, together with which, into how many.
//!
//! ```text
//! live data files -> partitions selected -> Parquet -> pools -> files picked -> bins -> groups picked -> cut -> ordered
//! ```
//!
//! Rules and numbers are those of the reference implementation's bin-pack planner. A pool is one partition of the table's
//! current spec; all files of other specs share one more pool. A file is picked if it is too small, too large or has too many
//! deletes; bins are filled in order; a group is picked if it has enough files, enough bytes, too many bytes, or a file with
//! too many deletes. `rewrite-all` picks every file and every group.
//!
//! Departures, each for a reason:
//! - **Fixed point.** The reference rewrites everything again on every `rewrite-all`. Here a group is left alone
//!   (`already_compacted`) if its files are of the current spec, no delete applies to any of them, none is above the maximum
//!   size, and a rewrite would not make fewer of them: they are no more than the expected output files, or they are the
//!   output of one run of ours with at most one file below the minimum size. Sort orders, codecs and other write properties
//!   are not looked at. A position delete for a partition that is older than the file itself does not count, here or for
//!   `delete-file-threshold`: a rewrite keeps the sequence number it was planned at, so the deletes of that very snapshot
//!   still apply by number, and hold nothing.
//! - **Order.** The reference packs in scan order, which follows manifests. Here files of a pool are packed by data sequence
//!   number, then path, so that neighbours in time stay neighbours; the order of manifests does not matter. Pools come by
//!   their newest sequence number: partitions that nobody writes to are done, and committed, before the busy ones.
//! - **Null partitions** of the current spec are a pool of their own; the reference mixes them with the other specs' files.
//! - **Key ranges** of equality deletes are not compared, so `delete-file-threshold` may count a delete that the reference
//!   rules out. A threshold of 0 is refused: it would select every file on every run.
//! - **Cut.** When `max-files-to-rewrite` leaves a group files that would come out as they are, they wait too.
//! - **Unwritable specs.** If some engine could not read what is written by the table's current spec, every file is left alone
//!   (`partition_spec_unwritable`).
//! - **Refused**: format version 3 and encrypted tables. **Left alone**: files that are not Parquet, and files with an
//!   applicable delete file that is not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::{DataContentType, DataFileFormat, FormatVersion};

use super::bin_pack::pack;
use super::partitions::{Selection, Verdict};
use super::sizes::Sizes;
use super::skips::{Reason, Skips};
use super::{FileGroup, RewritePlan, RewriteTask};
use crate::error::{Error, ErrorKind, Result};
use crate::policy::{RewriteDataFilesPolicy, RewriteJobOrder, TablePolicy};
use crate::run_id::RunId;
use crate::table::delete_index::{may_hold_rows_of, without_target};
use crate::table::{DeleteIndex, FileEntry, PartitionTuple, TableState, unwritable_spec};

/// Files that may be rewritten together.
#[derive(Debug, Default)]
struct Pool {
    /// `None` for the pool of other specs.
    partition: Option<Arc<PartitionTuple>>,
    tasks: Vec<RewriteTask>,
}

/// Plans a compaction of the table's current snapshot.
///
/// `commit_interval` gives multiples of it a length; `now_ms` (milliseconds since the epoch) moves partition windows. The
/// order of the state's files does not matter.
///
/// [`ErrorKind::Config`] if policy, table properties and partition specs contradict each other, [`ErrorKind::Unsupported`]
/// for format version 3 and encrypted tables, [`ErrorKind::DataInvalid`] for a file that is live twice, a file of an unknown spec, or
/// deletes that cannot be attached.
pub fn plan_rewrite_data_files(
    state: &TableState,
    policy: &TablePolicy,
    commit_interval: Duration,
    now_ms: i64,
) -> Result<RewritePlan> {
    let options = &policy.rewrite_data_files;
    let mut skips = Skips::default();
    let mut plan = RewritePlan {
        snapshot: state.snapshot.clone(),
        considered_data_files: state.data_files.len(),
        ..RewritePlan::default()
    };
    if !options.enabled {
        state.data_files.iter().for_each(|file| skips.add(Reason::Disabled, file));
        plan.skipped = skips.finish(None, options.min_input_files);
        return Ok(plan);
    }
    let metadata = state.loaded.typed()?;
    check_supported(state)?;
    check_options(options)?;
    check_files(state)?;
    if let Some(why) = unwritable_spec(metadata, metadata.default_partition_spec_id()) {
        state.data_files.iter().for_each(|file| skips.add(Reason::PartitionSpecUnwritable, file));
        plan.skipped = skips.finish(None, options.min_input_files);
        plan.skipped.iter_mut().for_each(|line| line.detail = format!("{why}; {}", line.detail));
        return Ok(plan);
    }
    let sizes = Sizes::resolve(options, metadata.properties())?;
    let selection = Selection::resolve(&options.partitions, metadata, &policy.time_zone, commit_interval, now_ms)?;
    let mut bins = Vec::new();
    for pool in pools(state, &selection, &mut skips)? {
        bins.extend(pick(pool, options, &sizes, &mut skips));
    }
    truncate(&mut bins, options.max_files_to_rewrite, &sizes, &mut skips);
    let output_spec_id = metadata.default_partition_spec_id();
    plan.groups = bins.into_iter().map(|bin| group(bin, &sizes, output_spec_id)).collect();
    order(&mut plan.groups, options.rewrite_job_order);
    plan.dangling_delete_files = without_target(metadata, &state.data_files, &state.delete_files).len();
    plan.skipped = skips.finish(Some(&sizes), options.min_input_files);
    Ok(plan)
}

fn check_supported(state: &TableState) -> Result<()> {
    let metadata = &state.loaded.metadata;
    if metadata.format_version() > FormatVersion::V2 {
        return Err(Error::unsupported(format!(
            "format version {} cannot be compacted by this version: row lineage and deletion vectors would be lost; \
             disable rewrite-data-files for this table",
            metadata.format_version()
        )));
    }
    let encrypted_file = state.data_files.iter().chain(&state.delete_files).find(|file| file.encrypted);
    if metadata.properties().contains_key("encryption.key-id") || encrypted_file.is_some() {
        return Err(Error::unsupported(
            "encrypted tables cannot be compacted by this version; disable rewrite-data-files for this table",
        ));
    }
    Ok(())
}

fn check_options(options: &RewriteDataFilesPolicy) -> Result<()> {
    let ratio = options.delete_ratio_threshold;
    let wrong = [
        (options.min_input_files == 0, "min-input-files must be at least 1"),
        (options.max_file_group_size_bytes == 0, "max-file-group-size must be at least 1 byte"),
        (options.max_file_group_input_files == Some(0), "max-file-group-input-files must be at least 1"),
        (options.max_files_to_rewrite == Some(0), "max-files-to-rewrite must be at least 1; leave it out for no limit"),
        (
            options.delete_file_threshold == Some(0),
            "delete-file-threshold must be at least 1: 0 would select every file on every run; use rewrite-all instead",
        ),
        (!(ratio > 0.0 && ratio <= 1.0), "delete-ratio-threshold must be above 0 and at most 1"),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, message)) => Err(Error::new(ErrorKind::Config, message)),
        None => Ok(()),
    }
}

fn check_files(state: &TableState) -> Result<()> {
    let metadata = state.loaded.typed()?;
    let mut seen: HashSet<&str> = HashSet::with_capacity(state.data_files.len());
    for file in &state.data_files {
        if file.content != DataContentType::Data {
            return Err(Error::invalid(format!("{} is a delete file in a data manifest", file.file_path)));
        }
        if !seen.insert(&file.file_path) {
            return Err(Error::invalid(format!(
                "data file {} is live twice in the snapshot: its rows count twice, and a rewrite would settle that silently",
                file.file_path
            )));
        }
        if metadata.partition_spec_by_id(file.partition.spec_id).is_none() {
            return Err(Error::invalid(format!(
                "data file {} has partition spec {}, which the table metadata does not hold",
                file.file_path, file.partition.spec_id
            )));
        }
    }
    Ok(())
}

/// Selected Parquet files with their deletes, by pool; pools and their tasks in packing order.
fn pools(state: &TableState, selection: &Selection, skips: &mut Skips) -> Result<Vec<Pool>> {
    let index = DeleteIndex::build(state.loaded.typed()?, &state.delete_files)?;
    let has_other_formats = state.delete_files.iter().any(|file| file.file_format != DataFileFormat::Parquet);
    let current_spec = state.loaded.metadata.default_partition_spec_id();
    let mut by_partition: HashMap<&PartitionTuple, Vec<&Arc<FileEntry>>> = HashMap::new();
    for file in &state.data_files {
        by_partition.entry(&file.partition).or_default().push(file);
    }
    let mut pools = Vec::new();
    let mut other_specs = Pool::default();
    for (partition, files) in by_partition {
        let reason = match selection.verdict(partition) {
            Verdict::Selected => None,
            Verdict::NotSelected => Some(Reason::PartitionNotSelected),
            Verdict::FieldMissing => Some(Reason::PartitionFieldMissing),
            Verdict::Unreadable => Some(Reason::PartitionValueUnreadable),
        };
        if let Some(reason) = reason {
            files.iter().for_each(|file| skips.add(reason, file));
            continue;
        }
        let tasks = tasks(&files, &index, has_other_formats, skips)?;
        if partition.spec_id != current_spec {
            other_specs.tasks.extend(tasks);
        } else if let Some(first) = tasks.first() {
            pools.push(Pool { partition: Some(first.data_file.partition.clone()), tasks });
        }
    }
    if !other_specs.tasks.is_empty() {
        pools.push(other_specs);
    }
    for pool in &mut pools {
        pool.tasks.sort_by(|a, b| packing_key(a).cmp(&packing_key(b)));
    }
    pools.sort_by_cached_key(|pool| {
        let newest = pool.tasks.iter().map(newest_sequence_number).max();
        (newest, pool.tasks.first().map(|task| task.data_file.file_path.clone()))
    });
    Ok(pools)
}

fn tasks(
    files: &[&Arc<FileEntry>],
    index: &DeleteIndex,
    has_other_formats: bool,
    skips: &mut Skips,
) -> Result<Vec<RewriteTask>> {
    let mut tasks = Vec::with_capacity(files.len());
    for file in files {
        if file.file_format != DataFileFormat::Parquet {
            skips.add(Reason::Format, file);
            continue;
        }
        let delete_files = index.for_data_file(file)?;
        if has_other_formats && delete_files.iter().any(|delete| delete.file_format != DataFileFormat::Parquet) {
            skips.add(Reason::DeleteFormat, file);
            continue;
        }
        tasks.push(RewriteTask { data_file: Arc::clone(file), delete_files });
    }
    Ok(tasks)
}

fn packing_key(task: &RewriteTask) -> (i64, &str) {
    (task.data_file.data_sequence_number, &task.data_file.file_path)
}

fn newest_sequence_number(task: &RewriteTask) -> i64 {
    let data = task.data_file.data_sequence_number;
    task.delete_files.max_sequence_number().map_or(data, |deletes| deletes.max(data))
}

/// The groups of a pool that are worth a rewrite.
fn pick(pool: Pool, options: &RewriteDataFilesPolicy, sizes: &Sizes, skips: &mut Skips) -> Vec<Pool> {
    let Pool { partition, mut tasks } = pool;
    if !options.rewrite_all {
        tasks.retain(|task| {
            let picked = !sizes.is_right(task.data_file.file_size_bytes) || has_too_many_deletes(task, options);
            if !picked {
                skips.add(Reason::RightSize, &task.data_file);
            }
            picked
        });
    }
    let max_files = options.max_file_group_input_files.unwrap_or(usize::MAX);
    let bins = pack(tasks, |task| task.data_file.file_size_bytes, options.max_file_group_size_bytes, max_files);
    let mut picked = Vec::new();
    for tasks in bins {
        let bin = Pool { partition: partition.clone(), tasks };
        let reason = if options.rewrite_all {
            is_compacted(&bin, sizes).then_some(Reason::AlreadyCompacted)
        } else {
            not_worth_it(&bin, options, sizes)
        };
        match reason {
            Some(reason) => skips.add_all(reason, &bin.tasks),
            None => picked.push(bin),
        }
    }
    picked
}

fn has_too_many_deletes(task: &RewriteTask, options: &RewriteDataFilesPolicy) -> bool {
    if options
        .delete_file_threshold
        .is_some_and(|threshold| effective_deletes(task).take(threshold).count() >= threshold)
    {
        return true;
    }
    let rows = task.data_file.record_count;
    let deleted =
        task.delete_files.file_scoped().fold(0_u64, |sum, delete| sum.saturating_add(delete.record_count)).min(rows);
    rows > 0 && deleted as f64 / rows as f64 >= options.delete_ratio_threshold
}

/// Delete files that may hold something about the file, beyond applying by number.
fn effective_deletes(task: &RewriteTask) -> impl Iterator<Item = &Arc<FileEntry>> {
    task.delete_files.iter().filter(|delete| may_hold_rows_of(delete, &task.data_file))
}

fn not_worth_it(bin: &Pool, options: &RewriteDataFilesPolicy, sizes: &Sizes) -> Option<Reason> {
    let files = bin.tasks.len();
    let bytes = input_bytes(&bin.tasks);
    let several = files > 1 && (files >= options.min_input_files || bytes > sizes.target_bytes);
    let worth_it =
        several || bytes > sizes.max_bytes || bin.tasks.iter().any(|task| has_too_many_deletes(task, options));
    match (worth_it, files) {
        (true, _) => None,
        (false, 1) => Some(Reason::SingleFile),
        (false, _) => Some(Reason::TooFewFiles),
    }
}

/// Whether a rewrite of everything would give what is there already.
fn is_compacted(bin: &Pool, sizes: &Sizes) -> bool {
    let clean = bin.partition.is_some()
        && bin
            .tasks
            .iter()
            .all(|task| task.data_file.file_size_bytes <= sizes.max_bytes && effective_deletes(task).next().is_none());
    if !clean {
        return false;
    }
    let files = bin.tasks.len() as u64;
    files <= sizes.expected_output_files(input_bytes(&bin.tasks)) || is_output_of_one_run(&bin.tasks, sizes)
}

/// A run's own output is what it is: file sizes after compression are not predicted exactly, and without this rule a last
/// small file would be rewritten with its neighbours for ever.
fn is_output_of_one_run(tasks: &[RewriteTask], sizes: &Sizes) -> bool {
    let run_of = |task: &RewriteTask| RunId::from_file_name(&task.data_file.file_path);
    let Some(run) = tasks.first().and_then(run_of) else {
        return false;
    };
    let small = tasks.iter().filter(|task| task.data_file.file_size_bytes < sizes.min_bytes).count();
    small <= 1 && tasks.iter().all(|task| run_of(task) == Some(run))
}

/// Cuts the plan to `max_files` files, in plan order: the group that no longer fits keeps its first ones. Where those would
/// come out as they are, they wait for a run with more room, and groups behind them have the room left.
fn truncate(bins: &mut Vec<Pool>, max_files: Option<usize>, sizes: &Sizes, skips: &mut Skips) {
    let Some(mut left) = max_files else {
        return;
    };
    bins.retain_mut(|bin| {
        if bin.tasks.len() > left {
            let beyond = bin.tasks.split_off(left);
            skips.add_all(Reason::TruncatedByMaxFiles, &beyond);
            if bin.tasks.is_empty() || is_compacted(bin, sizes) {
                skips.add_all(Reason::TruncatedByMaxFiles, &bin.tasks);
                return false;
            }
        }
        left -= bin.tasks.len();
        true
    });
}

fn group(bin: Pool, sizes: &Sizes, output_spec_id: i32) -> FileGroup {
    let input_bytes = input_bytes(&bin.tasks);
    FileGroup {
        index: 0,
        partition: bin.partition,
        output_spec_id,
        input_bytes,
        expected_output_files: sizes.expected_output_files(input_bytes),
        input_split_size_bytes: sizes.input_split_size_bytes(input_bytes),
        write_max_file_size_bytes: sizes.write_max_bytes(),
        tasks: bin.tasks,
    }
}

/// Orders groups for execution (stable: ties stay in plan order) and numbers them.
fn order(groups: &mut [FileGroup], job_order: RewriteJobOrder) {
    use std::cmp::Reverse;
    match job_order {
        RewriteJobOrder::None => {}
        RewriteJobOrder::BytesAsc => groups.sort_by_key(|group| group.input_bytes),
        RewriteJobOrder::BytesDesc => groups.sort_by_key(|group| Reverse(group.input_bytes)),
        RewriteJobOrder::FilesAsc => groups.sort_by_key(|group| group.tasks.len()),
        RewriteJobOrder::FilesDesc => groups.sort_by_key(|group| Reverse(group.tasks.len())),
    }
    for (index, group) in groups.iter_mut().enumerate() {
        group.index = index;
    }
}

fn input_bytes(tasks: &[RewriteTask]) -> u64 {
    tasks.iter().fold(0, |sum, task| sum.saturating_add(task.data_file.file_size_bytes))
}
