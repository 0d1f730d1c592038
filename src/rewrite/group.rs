//! The story of one rewrite: check, open, admit, load deletes, rewrite, reconcile, reopen.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use iceberg::spec::{DEFAULT_SCHEMA_NAME_MAPPING, NameMapping, Struct, TableMetadata};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::concurrent::concurrent;
use crate::error::{Error, Result};
use crate::plan::FileGroup;
use crate::rewrite::check::{RowCounts, check_group, reconcile};
use crate::rewrite::encode::{RowGroupFactory, parquet_schema};
use crate::rewrite::filling::Filling;
use crate::rewrite::location::{DataLocation, partition_path};
use crate::rewrite::memory::{Need, workers_within};
use crate::rewrite::metrics_modes::{footer_bounds, metrics_modes};
use crate::rewrite::partition_proof::PartitionProof;
use crate::rewrite::pipeline::Destination;
use crate::rewrite::pooled::RouterLimits;
use crate::rewrite::properties::file_settings;
use crate::rewrite::reader::{BATCH_BYTES, OpenFile, ReadTarget, WHOLE_FILE_LIMIT, open_large};
use crate::rewrite::schema::arrow_schema;
use crate::rewrite::scopes::{ReadColumns, equality_scopes};
use crate::rewrite::segments::{InputSegments, ReadUnit, runs};
use crate::rewrite::verify::verify;
use crate::rewrite::work::{PREFETCH_BYTES, Work, partition_constants};
use crate::rewrite::writer::{OutputNames, OutputSettings, OwnOutputs, WrittenFile};
use crate::rewrite::{RewriteContext, RewriteResult, deletes, pipeline, pooled};
use crate::storage::delete_files::{Proof, delete_files};

/// Footers read, or outputs reopened, at the same time.
const CONCURRENT_FOOTERS: usize = 8;
/// Bytes of an output of which several are read again at a time.
const SMALL_OUTPUT: u64 = 8 << 20;
/// Bytes that the open writers of a pooled group may take at least, per worker, where the budget is large enough: with less,
/// files would come out tiny.
const POOLED_BYTES: u64 = 64 << 20;
/// Output files of a run at least, about.
const FILES_PER_RUN: u64 = 16;
/// Decoded batches alive per worker at most: being decoded, filtered, between threads, encoded.
pub(crate) const BATCHES_ALIVE: u64 = 8;

/// Rewrites one file group: new files that hold exactly the live rows of its inputs, in the table's current schema.
///
/// On any error, also [`crate::error::ErrorKind::Cancelled`], the files written so far are deleted first. Dropping the
/// future stops the work but deletes nothing. Must be called within a tokio runtime.
///
/// Errors: [`crate::error::ErrorKind::Unsupported`] for what this version cannot rewrite without loss,
/// [`crate::error::ErrorKind::OutOfMemory`] if the group does not fit the budget,
/// [`crate::error::ErrorKind::DataInvalid`] if inputs contradict the manifests or the specification.
pub async fn rewrite_file_group(ctx: &RewriteContext, group: &FileGroup) -> Result<RewriteResult> {
    let outputs = Arc::new(OwnOutputs::default());
    let stop = ctx.cancel.child_token();
    let _stop_when_dropped = stop.clone().drop_guard();
    let result = rewrite(ctx, group, &outputs, &stop).await;
    if let Err(error) = &result {
        let paths = outputs.paths();
        if !paths.is_empty() {
            let report = delete_files(ctx.store.as_ref(), &paths, Proof::OwnUncommittedOutput(ctx.run_id)).await;
            for (path, failure) in &report.failed {
                tracing::warn!(%path, %failure, "an output of a failed rewrite could not be deleted");
            }
        }
        tracing::debug!(group = group.index, %error, deleted = paths.len(), "rewrite given up");
    }
    result.map_err(|e| e.context(format!("rewrite file group {}", group.index)))
}

async fn rewrite(
    ctx: &RewriteContext,
    group: &FileGroup,
    outputs: &Arc<OwnOutputs>,
    stop: &CancellationToken,
) -> Result<RewriteResult> {
    ctx.check_cancelled()?;
    let metadata = ctx.loaded.typed()?;
    check_group(metadata, group)?;
    let scopes = equality_scopes(group);
    let key_ids: BTreeSet<i32> = scopes.iter().flat_map(|s| s.ids.iter().copied()).collect();
    let columns = ReadColumns::new(metadata, &key_ids)?;
    let target = ReadTarget {
        fields: columns.fields.clone(),
        own: columns.own,
        mapping: name_mapping(metadata)?,
        all_present: false,
    };
    let output = Arc::new(output_settings(ctx, group, outputs)?);
    let large = open_large_files(ctx, group, &target).await?;
    let items = items(group, &large);
    let delete_keys = deletes::estimate(group, &scopes, &columns)?;
    let need = need(group, &items, &output, delete_keys, ctx.memory.total());
    let runs = cut(group, &items, &output);
    let threads = ctx.threads.max(1);
    let segments = runs.iter().map(Vec::len).sum::<usize>().max(1);
    let (workers, bytes) = workers_within(&need, threads.min(segments) as u64, ctx.memory.total())?;
    let mut permit = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(crate::rewrite::work::cancelled()),
        permit = ctx.memory.acquire(bytes) => permit?,
    };
    let deletes = deletes::load(ctx, group, scopes, &columns, (&mut permit, need.delete_keys)).await?;
    let work = Arc::new(Work {
        store: Arc::clone(&ctx.store),
        metadata: Arc::clone(metadata),
        inputs: group.tasks.iter().map(|t| Arc::clone(&t.data_file)).collect(),
        target,
        large,
        deletes,
        output,
        cancel: stop.clone(),
        progress: Arc::clone(&ctx.progress),
        rows_read: AtomicU64::new(0),
        rows_deleted: AtomicU64::new(0),
    });
    let workers = usize::try_from(workers).unwrap_or(1);
    let files = run(&work, group, runs, (workers, threads), &need).await?;
    prove_partitions(ctx, group, &files).await?;
    drop(permit);
    finish(ctx, group, &work, files).await
}

fn name_mapping(metadata: &TableMetadata) -> Result<Option<NameMapping>> {
    match metadata.properties().get(DEFAULT_SCHEMA_NAME_MAPPING) {
        Some(json) => serde_json::from_str(json)
            .map(Some)
            .map_err(|e| Error::invalid(format!("table property {DEFAULT_SCHEMA_NAME_MAPPING} cannot be read: {e}"))),
        None => Ok(None),
    }
}

pub(super) fn output_settings(
    ctx: &RewriteContext,
    group: &FileGroup,
    outputs: &Arc<OwnOutputs>,
) -> Result<OutputSettings> {
    let metadata = ctx.loaded.typed()?;
    let schema = metadata.current_schema();
    let arrow = arrow_schema(schema.as_struct().fields())?;
    let modes = metrics_modes(metadata);
    let settings = file_settings(metadata.properties(), schema, &parquet_schema(&arrow)?, footer_bounds(&modes))?;
    let factory = RowGroupFactory::new(arrow, settings.writer, schema.as_struct())?;
    let filling = Filling::new(group.input_split_size_bytes, group.write_max_file_size_bytes);
    let row_group_bytes = filling.row_group_bytes(settings.row_group_bytes);
    // Each row group has dictionaries of its own: where files are small, memory for a whole one keeps them few.
    let whole_file = settings.row_group_bytes.min(group.write_max_file_size_bytes);
    Ok(OutputSettings {
        store: Arc::clone(&ctx.store),
        runtime: Handle::current(),
        factory: Arc::new(factory),
        location: DataLocation::new(metadata),
        schema: Arc::clone(schema),
        modes,
        spec_id: group.output_spec_id,
        filling,
        row_group_bytes,
        row_group_memory: row_group_bytes.saturating_mul(2).max(whole_file),
        growth: settings.growth,
        names: OutputNames::new(group.index, ctx.run_id, metadata.uuid()),
        outputs: Arc::clone(outputs),
        progress: Arc::clone(&ctx.progress),
    })
}

/// Reads the footers of inputs that are too large to be read as a whole.
async fn open_large_files(
    ctx: &RewriteContext,
    group: &FileGroup,
    target: &ReadTarget,
) -> Result<HashMap<usize, Arc<OpenFile>>> {
    let metadata = ctx.loaded.typed()?;
    let large = group.tasks.iter().enumerate().filter(|(_, t)| t.data_file.file_size_bytes > WHOLE_FILE_LIMIT);
    let opening = concurrent(CONCURRENT_FOOTERS, large, |(task_index, task)| async move {
        ctx.check_cancelled()?;
        let constants = partition_constants(metadata, &task.data_file.partition)?;
        let open = open_large(ctx.store.as_ref(), &task.data_file, target, &constants).await?;
        Ok::<_, Error>((task_index, Arc::new(open)))
    });
    opening.try_collect().await
}

/// Everything to read, in order.
fn items(group: &FileGroup, large: &HashMap<usize, Arc<OpenFile>>) -> Vec<ReadUnit> {
    let mut items = Vec::new();
    for (task, input) in group.tasks.iter().enumerate() {
        match large.get(&task) {
            Some(open) => items.extend((0..open.footer().num_row_groups()).map(|row_group| ReadUnit {
                task,
                row_group: Some(row_group),
                bytes: open.read_bytes(row_group),
            })),
            None => items.push(ReadUnit { task, row_group: None, bytes: input.data_file.file_size_bytes }),
        }
    }
    items
}

/// Cuts the inputs into runs and segments. Segments a little below a row group's size mostly give one row group each. Runs are
/// written side by side; with few files in each, their ends could not be spread over the others.
fn cut(group: &FileGroup, items: &[ReadUnit], output: &OutputSettings) -> Vec<InputSegments> {
    let segment_bytes = (output.row_group_bytes - output.row_group_bytes / 10).max(1);
    runs(items, (group.expected_output_files / FILES_PER_RUN).max(1), segment_bytes)
}

fn need(group: &FileGroup, items: &[ReadUnit], output: &OutputSettings, delete_keys: u64, budget: u64) -> Need {
    let total: u64 = items.iter().map(|i| i.bytes).sum();
    let largest_read = items.iter().map(|i| i.bytes).max().unwrap_or(0);
    let whole_output = total.saturating_mul(output.growth).saturating_add(1 << 20);
    let batches = (BATCH_BYTES * BATCHES_ALIVE).min(whole_output.saturating_mul(4));
    let row_group = (output.row_group_memory / 2).min(whole_output);
    // Pooled groups keep the row groups and files of many partitions open.
    let row_group = match group.partition {
        Some(_) => row_group,
        None => row_group.saturating_mul(2).max(POOLED_BYTES.min(whole_output).min(budget / 8)),
    };
    Need { largest_read, prefetch: PREFETCH_BYTES.max(largest_read).min(total), row_group, batches, delete_keys }
}

async fn run(
    work: &Arc<Work>,
    group: &FileGroup,
    runs: Vec<InputSegments>,
    (workers, threads): (usize, usize),
    need: &Need,
) -> Result<Vec<WrittenFile>> {
    let metadata = &work.metadata;
    let spec = metadata
        .partition_spec_by_id(group.output_spec_id)
        .ok_or_else(|| Error::invalid(format!("the table has no partition spec {}", group.output_spec_id)))?;
    let partition = match &group.partition {
        Some(partition) => Some(partition.values.as_struct().clone()),
        None if spec.is_unpartitioned() => Some(spec.fields().iter().map(|_| None).collect::<Struct>()),
        None => None,
    };
    match partition {
        Some(partition) => {
            let path = match spec.is_unpartitioned() {
                true => String::new(),
                false => partition_path(spec, metadata.current_schema(), &partition)?,
            };
            pipeline::rewrite(work, runs, workers, threads, Destination { partition, path }).await
        }
        None => {
            let limits = RouterLimits {
                buffer_bytes: need.row_group.saturating_mul(workers as u64),
                target_file_bytes: group.input_split_size_bytes.min(group.write_max_file_size_bytes.max(1)),
            };
            pooled::rewrite(work, runs.into_iter().flatten().collect(), workers, Arc::clone(spec), limits).await
        }
    }
}

/// Rows whose partition was computed are read again. Where inputs and outputs share a partition there is nothing to compute:
/// what the manifests say of the inputs is taken for true, as every reader does.
async fn prove_partitions(ctx: &RewriteContext, group: &FileGroup, files: &[WrittenFile]) -> Result<()> {
    let metadata = ctx.loaded.typed()?;
    let spec = metadata.partition_spec_by_id(group.output_spec_id).filter(|spec| !spec.is_unpartitioned());
    let Some(spec) = spec.filter(|_| group.partition.is_none()) else { return Ok(()) };
    let proof = Arc::new(PartitionProof::new(spec, metadata.current_schema())?);
    // Many small files at a time, large ones one after the other: the memory of the writers is free, and enough for that.
    let (small, large): (Vec<_>, Vec<_>) =
        files.iter().map(|f| &f.data_file).partition(|f| f.file_size_in_bytes() <= SMALL_OUTPUT);
    for (files, concurrency) in [(small, CONCURRENT_FOOTERS), (large, 1)] {
        ctx.check_cancelled()?;
        let checks = concurrent(concurrency, files, |file| Arc::clone(&proof).check(ctx.store.as_ref(), file, spec));
        checks.try_collect::<()>().await?;
    }
    Ok(())
}

/// Proves the outputs and describes them.
async fn finish(
    ctx: &RewriteContext,
    group: &FileGroup,
    work: &Work,
    files: Vec<WrittenFile>,
) -> Result<RewriteResult> {
    let schema = work.metadata.current_schema();
    let verifying = concurrent(CONCURRENT_FOOTERS, &files, |file| verify(ctx.store.as_ref(), &file.data_file, schema));
    let written: u64 = verifying.try_fold(0, |sum, rows| async move { Ok(sum + rows) }).await?;
    let counts = RowCounts {
        listed: group.tasks.iter().map(|t| t.data_file.record_count).sum(),
        read: work.rows_read.load(Ordering::Relaxed),
        deleted: work.rows_deleted.load(Ordering::Relaxed),
        written,
    };
    reconcile(counts)?;
    ctx.check_cancelled()?;
    let mut added: Vec<_> = files.into_iter().map(|f| f.data_file).collect();
    added.sort_by(|a, b| a.file_path().cmp(b.file_path()));
    Ok(RewriteResult {
        group: group.index,
        rewritten: group.tasks.iter().map(|t| Arc::clone(&t.data_file)).collect(),
        input_rows: counts.read,
        deleted_rows: counts.deleted,
        output_rows: counts.written,
        input_bytes: group.tasks.iter().map(|t| t.data_file.file_size_bytes).sum(),
        output_bytes: added.iter().map(|f| f.file_size_in_bytes()).sum(),
        added,
    })
}
