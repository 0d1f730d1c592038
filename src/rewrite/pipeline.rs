//! Rewrites a group of one partition on all cores.
//!
//! ```text
//! run 0 : segment 0 -> worker -> row groups \
//!         segment 1 -> worker -> row groups  > assembler -> files, one after another -> store
//! run 1 : segment 2 -> ...
//! ```
//! Segments start in order and only while a slot is free; a slot is given back when the assembler has appended the
//! segment's last row group. So at most two row groups per slot are alive, and the order of rows is the inputs'.

use std::sync::Arc;
use std::sync::mpsc as blocking;

use arrow::array::RecordBatch;
use iceberg::spec::Struct;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::error::{Error, ErrorKind, Result};
use crate::rewrite::encode::{EncodedRowGroup, RowGroupEncoder};
use crate::rewrite::filling::Filler;
use crate::rewrite::segments::InputSegments;
use crate::rewrite::work::{Fetched, Work, cancelled};
use crate::rewrite::writer::{OutputFile, WrittenFile};

/// Batches between a decoding and an encoding thread.
const BATCHES_BETWEEN: usize = 3;

/// A batch is cut into pieces of this part of a row group at most, about ...
const PIECES_PER_ROW_GROUP: u64 = 16;
/// ... but not into smaller ones than this.
const PIECE_BYTES_MIN: u64 = 16 << 10;

enum Encoded {
    RowGroup(Box<EncodedRowGroup>),
    /// The segment is complete; its slot goes back when this is dropped.
    Done(OwnedSemaphorePermit),
}

/// Where all files of the group go.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub partition: Struct,
    pub path: String,
}

/// Tasks of a group; the first error ends them all and is the one reported.
pub(crate) struct Tasks<'a> {
    work: &'a Work,
    set: JoinSet<Result<Vec<WrittenFile>>>,
}

impl<'a> Tasks<'a> {
    pub(crate) fn new(work: &'a Work) -> Self {
        Self { work, set: JoinSet::new() }
    }

    /// Runs `task` on a thread that may block; its failure stops the others.
    pub(crate) fn spawn(&mut self, task: impl FnOnce() -> Result<Vec<WrittenFile>> + Send + 'static) {
        let cancel = self.work.cancel.clone();
        self.set.spawn_blocking(move || {
            let result = task();
            if result.is_err() {
                cancel.cancel();
            }
            result
        });
    }

    /// Waits for all of them.
    pub(crate) async fn join(mut self) -> Result<Vec<WrittenFile>> {
        let mut files = Vec::new();
        let mut failure: Option<Error> = None;
        while let Some(joined) = self.set.join_next().await {
            let result = joined.unwrap_or_else(|e| {
                self.work.cancel.cancel();
                Err(Error::internal(format!("a worker died: {e}")))
            });
            match result {
                Ok(more) => files.extend(more),
                // A cancelled task only says that another one failed first.
                Err(e) if failure.as_ref().is_none_or(|f| f.kind() == ErrorKind::Cancelled) => failure = Some(e),
                Err(_) => {}
            }
        }
        failure.map_or(Ok(files), Err)
    }
}

/// Rewrites `runs` with `workers` workers.
pub(crate) async fn rewrite(
    work: &Arc<Work>,
    runs: Vec<InputSegments>,
    workers: usize,
    threads: usize,
    destination: Destination,
) -> Result<Vec<WrittenFile>> {
    let slots = Arc::new(Semaphore::new(workers.max(1)));
    let segments: usize = runs.iter().map(Vec::len).sum();
    // With fewer segments than threads, each gets a second thread: one decodes, one encodes.
    let two_threads = segments.min(workers) < threads;
    let mut tasks = Tasks::new(work);
    let last = runs.len().saturating_sub(1);
    'all: for (number, run) in runs.into_iter().enumerate() {
        let (to_assembler, segments_of_run) = blocking::channel();
        let count = run.len();
        let bytes = run.iter().map(|segment| segment.iter().map(|item| item.bytes).sum()).collect();
        // Only the last run may leave a small file.
        let filler = Filler::new(work.output.filling, number != last, bytes);
        let (assembler, to) = (Arc::clone(work), destination.clone());
        tasks.spawn(move || assemble(&assembler, &to, filler, count, &segments_of_run));
        for items in run {
            let slot = tokio::select! {
                biased;
                () = work.cancel.cancelled() => break 'all,
                slot = Arc::clone(&slots).acquire_owned() => slot.map_err(|_| Error::internal("slots were closed"))?,
            };
            // Nothing is queued: a worker goes on only when its row group was taken.
            let (sender, receiver) = blocking::sync_channel(0);
            if to_assembler.send(receiver).is_err() {
                break 'all;
            }
            let (to_worker, from_feeder) = mpsc::channel(1);
            let worker = Arc::clone(work);
            let number = items.len();
            drop(tokio::spawn(Arc::clone(work).feed(items, to_worker)));
            tasks.spawn(move || {
                encode_segment(&worker, number, from_feeder, &sender, two_threads)?;
                sender.send(Encoded::Done(slot)).map_err(|_| cancelled())?;
                Ok(Vec::new())
            });
        }
    }
    let files = tasks.join().await?;
    if work.cancel.is_cancelled() { Err(cancelled()) } else { Ok(files) }
}

fn encode_segment(
    work: &Work,
    items: usize,
    from_feeder: mpsc::Receiver<Result<Fetched>>,
    to_assembler: &blocking::SyncSender<Encoded>,
    two_threads: bool,
) -> Result<()> {
    let mut encoder = SegmentEncoder { work, current: None, to_assembler };
    if two_threads {
        std::thread::scope(|scope| {
            let (to_encoder, batches) = blocking::sync_channel::<RecordBatch>(BATCHES_BETWEEN);
            let decoder = scope.spawn(move || {
                work.segment_rows(items, from_feeder, &mut |batch| to_encoder.send(batch).map_err(|_| cancelled()))
            });
            let encoded = batches.iter().try_for_each(|batch| encoder.write(&batch));
            drop(batches);
            let decoded = decoder.join().map_err(|_| Error::internal("a decoding thread panicked"))?;
            // If encoding failed, decoding was only cut off.
            encoded.and(decoded)
        })?;
    } else {
        work.segment_rows(items, from_feeder, &mut |batch| encoder.write(&batch))?;
    }
    encoder.end_row_group()
}

/// Fills row groups and hands them on.
struct SegmentEncoder<'a> {
    work: &'a Work,
    current: Option<RowGroupEncoder>,
    to_assembler: &'a blocking::SyncSender<Encoded>,
}

impl SegmentEncoder<'_> {
    /// Writes a batch, in pieces that are small beside a row group, so that row groups end about where they should.
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let piece_bytes = (self.work.output.row_group_bytes / PIECES_PER_ROW_GROUP).max(PIECE_BYTES_MIN);
        let pieces = (batch.get_array_memory_size() as u64).div_ceil(piece_bytes).max(1);
        let rows = batch.num_rows();
        let step = rows.div_ceil(usize::try_from(pieces).unwrap_or(usize::MAX)).max(1);
        (0..rows).step_by(step).try_for_each(|from| self.write_piece(&batch.slice(from, step.min(rows - from))))
    }

    fn write_piece(&mut self, batch: &RecordBatch) -> Result<()> {
        let settings = &self.work.output;
        let mut encoder = match self.current.take() {
            Some(encoder) => encoder,
            None => settings.factory.start()?,
        };
        encoder.write(batch)?;
        let full = encoder.estimated_bytes() >= settings.row_group_bytes
            || encoder.memory_bytes() >= settings.row_group_memory;
        self.current = Some(encoder);
        if full { self.end_row_group() } else { Ok(()) }
    }

    fn end_row_group(&mut self) -> Result<()> {
        match self.current.take() {
            Some(encoder) if encoder.rows() > 0 => {
                let message = Encoded::RowGroup(Box::new(encoder.finish()?));
                self.to_assembler.send(message).map_err(|_| cancelled())
            }
            _ => Ok(()),
        }
    }
}

/// Writes the row groups of a run's segments, in order, into files of about the target size.
fn assemble(
    work: &Work,
    destination: &Destination,
    mut filler: Filler,
    segments: usize,
    incoming: &blocking::Receiver<blocking::Receiver<Encoded>>,
) -> Result<Vec<WrittenFile>> {
    let mut files = Vec::new();
    let mut open: Option<OutputFile> = None;
    let result = (0..segments).try_for_each(|_| {
        let segment = incoming.recv().map_err(|_| cancelled())?;
        loop {
            match segment.recv().map_err(|_| cancelled())? {
                Encoded::RowGroup(group) => {
                    if filler.ends_before(open.as_ref().map(OutputFile::bytes), group.bytes)
                        && let Some(full) = open.take()
                    {
                        files.push(full.close()?);
                    }
                    let file = match &mut open {
                        Some(file) => file,
                        None => {
                            open.insert(OutputFile::create(&work.output, &destination.partition, &destination.path)?)
                        }
                    };
                    file.append(*group)?;
                }
                Encoded::Done(slot) => {
                    drop(slot);
                    filler.end_segment();
                    return Ok(());
                }
            }
        }
    });
    match (result, open) {
        (Ok(()), Some(file)) => files.push(file.close()?),
        (Ok(()), None) => {}
        (Err(e), open) => {
            open.into_iter().for_each(OutputFile::abort);
            return Err(e);
        }
    }
    Ok(files)
}
