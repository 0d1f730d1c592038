//! Compaction: which files are rewritten, together with which, into how many.
//!
//! ```text
//! live data files -> partitions selected -> Parquet -> pools -> files picked -> bins -> groups picked -> cut -> ordered
//! ```
//!
//! Rules and numbers are those of the reference implementation's bin-pack planner. A pool is one partition of the table's
//! current spec; all files of other specs share one more pool. A file is picked if it is too small, too large or has too many
//! deletes; bins are filled in order; a group is picked if it has enough files, enough bytes, a file that is too large, or a
//! file with too many deletes. `rewrite-all` picks every file and every group.
//!
//! Departures, each for a reason:
//! - **Fixed point.** The reference rewrites the same files again and again: all of them with `rewrite-all`, and otherwise
//!   those that come out below the minimum size or above the maximum. Here a group is left alone (`already_compacted`) unless
//!   a rewrite takes out deletes, splits a file that is too large, brings files of older specs into the current one, or makes
//!   fewer files. Fewer are expected if there are more than the expected output files; of files that runs of ours wrote, two
//!   must not be full besides, which a run under other settings has left or several runs have. So a run's own result is not
//!   taken up again, whatever encoding made of the sizes; where limits have cut a partition into several groups, what each
//!   left is merged by further runs, into fewer files each time. Sort orders, codecs and other write properties are not
//!   looked at. A position delete for a partition that is older than the file itself does not count, here or for
//!   `delete-file-threshold`: a rewrite keeps the sequence number it was planned at, so the deletes of that very snapshot
//!   still apply by number, and hold nothing.
//! - **Large files** are split only if about full files come out of it: from one and a half times the target, and of more
//!   than one row. The reference cuts a sliver off a file that is a little above the maximum.
//! - **Older specs.** The reference writes files of older specs into the current one whenever they are picked. Here plain
//!   bin-packing does so only if fewer files come out for certain (as many, if deletes go): a finer spec would turn small
//!   files into more and smaller ones (`other_spec`). `rewrite-all` asks for it.
//! - **Order.** The reference packs in scan order, which follows manifests. Here files of a pool are packed by data sequence
//!   number, then path, so that neighbours in time stay neighbours; the order of manifests does not matter. Pools come by
//!   their newest sequence number: partitions that nobody writes to are done, and committed, before the busy ones.
//! - **Null partitions** of the current spec are a pool of their own; the reference mixes them with the other specs' files.
//! - **Key ranges** of equality deletes are not compared, so `delete-file-threshold` may count a delete that the reference
//!   rules out. A threshold of 0 is refused: it would select every file on every run.
//! - **Cut.** When `max-files-to-rewrite` leaves a group files of which a rewrite gains nothing, they wait too.
//! - **Unwritable specs.** If some engine could not read what is written by the table's current spec, every file is left alone
//!   (`partition_spec_unwritable`).
//! - **Refused**: format version 3 and encrypted tables. **Left alone**, while everything else is planned: files that are not
//!   Parquet or encrypted, and files with such a delete file; a partition in which a path is live twice (`duplicate_path`);
//!   files whose entry, or the entry of a delete that may apply to them, contradicts the specification (`invalid_entry`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::TableMetadata;

use super::bin_pack::pack;
use super::doubtful::Doubtful;
use super::new_spec::partitions_at_most;
use super::partitions::{PartitionVerdict, SelectedPartitions};
use super::sizes::Sizes;
use super::skips::{SkipReason, Skips};
use super::{FileGroup, RewritePlan, RewriteTask};
use crate::error::{Error, ErrorKind, Result};
use crate::policy::{RewriteDataFilesPolicy, RewriteJobOrder, TablePolicy};
use crate::run_id::RunId;
use crate::table::delete_rule::{may_hold_rows_of, without_target};
use crate::table::supports::{self, FileLimit, unwritable_spec};
use crate::table::{DeleteIndex, FileEntry, PartitionTuple, TableState};

/// What indexes and footers may add to a file of ours above the maximum.
const OWN_SLACK_BYTES: u64 = 1 << 20;

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
/// for format version 3 and encrypted tables. Files whose metadata contradicts itself are left out, and all that they concern.
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
        state.data_files.iter().for_each(|file| skips.add(SkipReason::Disabled, file));
        plan.skipped = skips.finish(None, options.min_input_files);
        return Ok(plan);
    }
    let metadata = state.loaded.typed()?;
    supports::check_table(metadata.format_version(), metadata.properties())?;
    check_options(options)?;
    if let Some(why) = unwritable_spec(metadata, metadata.default_partition_spec_id()) {
        state.data_files.iter().for_each(|file| skips.add(SkipReason::PartitionSpecUnwritable, file));
        plan.skipped = skips.finish(None, options.min_input_files);
        plan.skipped.iter_mut().for_each(|line| line.detail = format!("{why}; {}", line.detail));
        return Ok(plan);
    }
    let sizes = Sizes::resolve(options, metadata.properties())?;
    let selection =
        SelectedPartitions::resolve(&options.partitions, metadata, &policy.time_zone, commit_interval, now_ms)?;
    let doubtful = Doubtful::find(state, metadata, &mut skips);
    let judge = Judge { options, sizes: &sizes, metadata };
    let mut bins = Vec::new();
    for pool in pools(state, &selection, &doubtful, &mut skips)? {
        bins.extend(judge.pick(pool, &mut skips));
    }
    judge.truncate(&mut bins, &mut skips);
    let output_spec_id = metadata.default_partition_spec_id();
    plan.groups = bins.into_iter().map(|bin| group(bin, &sizes, output_spec_id)).collect();
    order(&mut plan.groups, options.rewrite_job_order);
    plan.dangling_delete_files = without_target(metadata, &state.data_files, [], &doubtful.usable_deletes).len();
    plan.skipped = skips.finish(Some(&sizes), options.min_input_files);
    Ok(plan)
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

/// Selected Parquet files with their deletes, by pool; pools and their tasks in packing order.
fn pools(
    state: &TableState,
    selection: &SelectedPartitions,
    doubtful: &Doubtful<'_>,
    skips: &mut Skips,
) -> Result<Vec<Pool>> {
    let index = DeleteIndex::build(state.loaded.typed()?, &doubtful.usable_deletes)?;
    let deletes_are_plain = doubtful.usable_deletes.iter().all(|file| unreadable(file).is_none());
    let current_spec = state.loaded.metadata.default_partition_spec_id();
    let mut by_partition: HashMap<&PartitionTuple, Vec<&Arc<FileEntry>>> = HashMap::new();
    for file in &state.data_files {
        by_partition.entry(&file.partition).or_default().push(file);
    }
    let mut pools = Vec::new();
    let mut other_specs = Pool::default();
    for (partition, files) in by_partition {
        let reason = match selection.verdict(partition) {
            PartitionVerdict::Selected => None,
            PartitionVerdict::NotSelected => Some(SkipReason::PartitionNotSelected),
            PartitionVerdict::FieldMissing => Some(SkipReason::PartitionFieldMissing),
            PartitionVerdict::Unreadable => Some(SkipReason::PartitionValueUnreadable),
        };
        if let Some(reason) = reason {
            files.iter().for_each(|file| skips.add(reason, file));
            continue;
        }
        let tasks = tasks(&files, &index, doubtful, deletes_are_plain, skips);
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
    doubtful: &Doubtful<'_>,
    deletes_are_plain: bool,
    skips: &mut Skips,
) -> Vec<RewriteTask> {
    let mut tasks = Vec::with_capacity(files.len());
    for file in files {
        if let Some(reason) = doubtful.reason(file).or_else(|| unreadable(file)) {
            skips.add(reason, file);
            continue;
        }
        let delete_files = match index.for_data_file(file) {
            Ok(delete_files) => delete_files,
            Err(error) => {
                skips.example(SkipReason::InvalidEntry, error.to_string());
                skips.add(SkipReason::InvalidEntry, file);
                continue;
            }
        };
        let unreadable_delete = || delete_files.iter().find_map(|delete| unreadable(delete));
        match if deletes_are_plain { None } else { unreadable_delete() } {
            None => tasks.push(RewriteTask { data_file: Arc::clone(file), delete_files }),
            Some(SkipReason::Format) => skips.add(SkipReason::DeleteFormat, file),
            Some(reason) => skips.add(reason, file),
        }
    }
    tasks
}

/// Why this version cannot read a file, if it cannot.
fn unreadable(file: &FileEntry) -> Option<SkipReason> {
    supports::file_limit(file).map(|limit| match limit {
        FileLimit::Encrypted => SkipReason::Encrypted,
        FileLimit::Format => SkipReason::Format,
    })
}

fn packing_key(task: &RewriteTask) -> (i64, &str) {
    (task.data_file.data_sequence_number, &task.data_file.file_path)
}

fn newest_sequence_number(task: &RewriteTask) -> i64 {
    let data = task.data_file.data_sequence_number;
    task.delete_files.max_sequence_number().map_or(data, |deletes| deletes.max(data))
}

/// Decides what is worth a rewrite.
struct Judge<'a> {
    options: &'a RewriteDataFilesPolicy,
    sizes: &'a Sizes,
    metadata: &'a TableMetadata,
}

impl Judge<'_> {
    /// The groups of a pool that are worth a rewrite.
    fn pick(&self, pool: Pool, skips: &mut Skips) -> Vec<Pool> {
        let Pool { partition, mut tasks } = pool;
        if !self.options.rewrite_all {
            tasks.retain(|task| {
                let picked = self.has_wrong_size(task) || self.has_too_many_deletes(task);
                if !picked {
                    skips.add(SkipReason::RightSize, &task.data_file);
                }
                picked
            });
        }
        let max_files = self.options.max_file_group_input_files.unwrap_or(usize::MAX);
        let max_bytes = self.options.max_file_group_size_bytes;
        let mut picked = Vec::new();
        for tasks in pack(tasks, |task| task.data_file.file_size_bytes, max_bytes, max_files) {
            let bin = Pool { partition: partition.clone(), tasks };
            match self.not_worth_it(&bin) {
                Some(reason) => skips.add_all(reason, &bin.tasks),
                None => picked.push(bin),
            }
        }
        picked
    }

    /// Why a group is left alone.
    fn not_worth_it(&self, bin: &Pool) -> Option<SkipReason> {
        let options = self.options;
        let (files, bytes) = (bin.tasks.len(), input_bytes(&bin.tasks));
        let several = files > 1 && (files >= options.min_input_files || bytes > self.sizes.target_bytes);
        let single = || bin.tasks.iter().any(|task| self.is_too_large(task) || self.has_too_many_deletes(task));
        if !(options.rewrite_all || several || single()) {
            return Some(if files == 1 { SkipReason::SingleFile } else { SkipReason::TooFewFiles });
        }
        let otherwise = if bin.partition.is_some() { SkipReason::AlreadyCompacted } else { SkipReason::OtherSpec };
        (!self.gains(bin)).then_some(otherwise)
    }

    /// Whether a rewrite takes out deletes, splits what is too large, brings files into the current spec where that is wanted,
    /// or makes fewer files.
    fn gains(&self, bin: &Pool) -> bool {
        let has_deletes = |task: &RewriteTask| match self.options.rewrite_all {
            true => effective_deletes(task).next().is_some(),
            false => self.has_too_many_deletes(task),
        };
        let deletes = bin.tasks.iter().any(has_deletes);
        if bin.partition.is_some() {
            return deletes || bin.tasks.iter().any(|task| self.is_too_large(task)) || self.makes_fewer(bin);
        }
        // As many files as before are a gain only if deletes go.
        let most = (bin.tasks.len() as u64).saturating_sub(u64::from(!deletes));
        self.options.rewrite_all || self.outputs_at_most(bin).is_some_and(|outputs| outputs <= most)
    }

    fn has_wrong_size(&self, task: &RewriteTask) -> bool {
        task.data_file.file_size_bytes < self.sizes.min_bytes || self.is_too_large(task)
    }

    /// Whether a rewrite would make several files of about the target of this one. A row is not divided, and what a run of
    /// ours left a little above the maximum would come out like that again.
    fn is_too_large(&self, task: &RewriteTask) -> bool {
        let FileEntry { file_size_bytes: bytes, record_count: rows, .. } = *task.data_file;
        let slack = if is_ours(task) { OWN_SLACK_BYTES } else { 0 };
        rows > 1 && self.sizes.can_be_split(bytes) && bytes > self.sizes.max_bytes.saturating_add(slack)
    }

    fn has_too_many_deletes(&self, task: &RewriteTask) -> bool {
        let threshold = self.options.delete_file_threshold;
        if threshold.is_some_and(|threshold| effective_deletes(task).take(threshold).count() >= threshold) {
            return true;
        }
        let rows = task.data_file.record_count;
        let deleted = task
            .delete_files
            .file_scoped()
            .fold(0_u64, |sum, delete| sum.saturating_add(delete.record_count))
            .min(rows);
        rows > 0 && deleted as f64 / rows as f64 >= self.options.delete_ratio_threshold
    }

    /// Whether fewer files should come out than go in.
    ///
    /// Sizes after encoding are not foreseen exactly, so that alone could go on for ever. Hence what runs of ours wrote is only
    /// merged if it holds two files that a run under these settings would have filled: each rewrite leaves fewer files of
    /// others, or fewer of those.
    fn makes_fewer(&self, bin: &Pool) -> bool {
        let not_full = bin.tasks.iter().filter(|task| !self.sizes.is_full(task.data_file.file_size_bytes)).count();
        let expected = self.sizes.expected_output_files(input_bytes(&bin.tasks));
        bin.tasks.len() as u64 > expected && (not_full > 1 || !bin.tasks.iter().all(is_ours))
    }

    /// How many files at most the current spec makes of files of older ones, if metadata tells.
    fn outputs_at_most(&self, bin: &Pool) -> Option<u64> {
        let partitions = partitions_at_most(&bin.tasks, self.metadata)?;
        // Each partition has one file that is not full.
        Some(partitions.saturating_add(self.sizes.full_files_at_most(input_bytes(&bin.tasks))))
    }

    /// Cuts the plan to `max-files-to-rewrite`, in plan order: the group that no longer fits keeps its first ones. Where those
    /// gain nothing they wait for a run with more room, and groups behind them have the room left.
    fn truncate(&self, bins: &mut Vec<Pool>, skips: &mut Skips) {
        let Some(mut left) = self.options.max_files_to_rewrite else {
            return;
        };
        bins.retain_mut(|bin| {
            if bin.tasks.len() > left {
                let beyond = bin.tasks.split_off(left);
                skips.add_all(SkipReason::TruncatedByMaxFiles, &beyond);
                if bin.tasks.is_empty() || !self.gains(bin) {
                    skips.add_all(SkipReason::TruncatedByMaxFiles, &bin.tasks);
                    return false;
                }
            }
            left -= bin.tasks.len();
            true
        });
    }
}

/// Delete files that may hold something about the file, beyond applying by number.
fn effective_deletes(task: &RewriteTask) -> impl Iterator<Item = &Arc<FileEntry>> {
    task.delete_files.iter().filter(|delete| may_hold_rows_of(delete, &task.data_file))
}

/// Whether a run of icewright wrote the file.
fn is_ours(task: &RewriteTask) -> bool {
    RunId::from_file_name(&task.data_file.file_path).is_some()
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
