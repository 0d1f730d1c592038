//! Rewrites a group whose inputs were written under other specs: each row goes to the partition that the output spec computes.
//!
//! Workers decode in parallel; one thread routes and encodes, with one open file per partition. Buffers are bounded: when
//! they add up to too much, the largest row group is ended early.

use std::sync::Arc;
use std::sync::mpsc as blocking;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use hashbrown::HashMap;
use iceberg::spec::{PartitionSpec, Struct};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::error::{Error, ErrorKind, Result};
use crate::rewrite::encode::RowGroupEncoder;
use crate::rewrite::location::partition_path;
use crate::rewrite::partition::{Partitioner, group_rows};
use crate::rewrite::pipeline::Tasks;
use crate::rewrite::segments::Item;
use crate::rewrite::work::{Work, cancelled};
use crate::rewrite::writer::{OutputFile, WrittenFile};

/// Partitions that one group may write at the same time.
const MAX_OPEN_WRITERS: usize = 256;
/// Batches decoded ahead per worker.
const BATCHES_AHEAD: usize = 2;

enum Message {
    Batch(RecordBatch),
    Done(OwnedSemaphorePermit),
}

/// Memory that the open writers may take together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouterLimits {
    /// Encoded bytes over all writers.
    pub buffer_bytes: u64,
    /// A file is ended when it reaches this.
    pub target_file_bytes: u64,
}

/// Rewrites `segments` with `workers` decoding workers and one router.
pub(crate) async fn rewrite(
    work: &Arc<Work>,
    segments: Vec<Vec<Item>>,
    workers: usize,
    spec: Arc<PartitionSpec>,
    limits: RouterLimits,
) -> Result<Vec<WrittenFile>> {
    let slots = Arc::new(Semaphore::new(workers.max(1)));
    let mut tasks = Tasks::new(work);
    let (to_router, incoming) = blocking::channel();
    let (router_work, count) = (Arc::clone(work), segments.len());
    tasks.spawn(move || route(&router_work, spec, limits, count, &incoming));
    for items in segments {
        let slot = tokio::select! {
            biased;
            () = work.cancel.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.map_err(|_| Error::internal("slots were closed"))?,
        };
        let (sender, receiver) = blocking::sync_channel(BATCHES_AHEAD);
        if to_router.send(receiver).is_err() {
            break;
        }
        let (to_worker, from_feeder) = mpsc::channel(1);
        let (worker, number) = (Arc::clone(work), items.len());
        drop(tokio::spawn(Arc::clone(work).feed(items, to_worker)));
        tasks.spawn(move || {
            let send = |message| sender.send(message).map_err(|_| cancelled());
            worker.segment_rows(number, from_feeder, &mut |batch| send(Message::Batch(batch)))?;
            send(Message::Done(slot))?;
            Ok(Vec::new())
        });
    }
    drop(to_router);
    let files = tasks.join().await?;
    if work.cancel.is_cancelled() { Err(cancelled()) } else { Ok(files) }
}

fn route(
    work: &Work,
    spec: Arc<PartitionSpec>,
    limits: RouterLimits,
    segments: usize,
    incoming: &blocking::Receiver<blocking::Receiver<Message>>,
) -> Result<Vec<WrittenFile>> {
    let partitioner = Partitioner::new(&spec, work.metadata.current_schema().as_struct())?;
    let mut router =
        Router { work, spec, partitioner, limits, writers: Vec::new(), index: HashMap::new(), files: Vec::new() };
    let result = (0..segments).try_for_each(|_| {
        let segment = incoming.recv().map_err(|_| cancelled())?;
        loop {
            match segment.recv().map_err(|_| cancelled())? {
                Message::Batch(batch) => router.write(&batch)?,
                Message::Done(slot) => {
                    drop(slot);
                    return Ok(());
                }
            }
        }
    });
    match result.and_then(|()| router.close_all()) {
        Ok(()) => Ok(router.files),
        Err(e) => {
            router.writers.into_iter().filter_map(|w| w.file).for_each(OutputFile::abort);
            Err(e)
        }
    }
}

struct PartitionWriter {
    partition: Struct,
    path: String,
    file: Option<OutputFile>,
    encoder: Option<RowGroupEncoder>,
}

struct Router<'a> {
    work: &'a Work,
    spec: Arc<PartitionSpec>,
    partitioner: Partitioner,
    limits: RouterLimits,
    writers: Vec<PartitionWriter>,
    index: HashMap<Vec<u8>, usize>,
    files: Vec<WrittenFile>,
}

impl Router<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let values = self.partitioner.values(batch)?;
        for group in group_rows(&values, batch.num_rows())? {
            let writer = match self.index.get(&group.key) {
                Some(writer) => *writer,
                None => self.add_writer(group.key, self.partitioner.tuple(&values, group.first)?)?,
            };
            let rows = take_record_batch(batch, &UInt32Array::from(group.rows))?;
            let factory = &self.work.output.factory;
            let slot = &mut self.writers[writer].encoder;
            let encoder = match slot {
                Some(encoder) => encoder,
                None => slot.insert(factory.start()?),
            };
            encoder.write(&rows)?;
            let encoded = encoder.estimated_bytes();
            let file_bytes = self.writers[writer].file.as_ref().map_or(0, OutputFile::bytes);
            if encoded >= self.work.output.row_group_bytes || file_bytes + encoded >= self.limits.target_file_bytes {
                self.end_row_group(writer)?;
            }
        }
        self.bound_buffers()
    }

    fn add_writer(&mut self, key: Vec<u8>, partition: Struct) -> Result<usize> {
        if self.writers.len() >= MAX_OPEN_WRITERS {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "rows of one file group fall into more than {MAX_OPEN_WRITERS} partitions of spec {}: lower max-file-group-size-bytes or rewrite fewer files at once",
                    self.spec.spec_id()
                ),
            ));
        }
        let path = partition_path(&self.spec, self.work.metadata.current_schema(), &partition)?;
        self.index.insert(key, self.writers.len());
        self.writers.push(PartitionWriter { partition, path, file: None, encoder: None });
        Ok(self.writers.len() - 1)
    }

    /// Ends the largest row groups until the rest fits.
    fn bound_buffers(&mut self) -> Result<()> {
        loop {
            let sizes = self.writers.iter().map(|w| w.encoder.as_ref().map_or(0, RowGroupEncoder::memory_bytes));
            let (mut total, mut largest) = (0u64, (0u64, 0usize));
            for (writer, bytes) in sizes.enumerate() {
                total += bytes;
                largest = largest.max((bytes, writer));
            }
            if total <= self.limits.buffer_bytes || largest.0 == 0 {
                return Ok(());
            }
            self.end_row_group(largest.1)?;
        }
    }

    fn end_row_group(&mut self, writer: usize) -> Result<()> {
        let settings = &self.work.output;
        let writer = &mut self.writers[writer];
        let Some(encoder) = writer.encoder.take().filter(|e| e.rows() > 0) else { return Ok(()) };
        let group = encoder.finish()?;
        if let Some(full) = writer.file.take_if(|file| !file.fits(group.bytes)) {
            self.files.push(full.close()?);
        }
        let file = match &mut writer.file {
            Some(file) => file,
            None => writer.file.insert(OutputFile::create(settings, &writer.partition, &writer.path)?),
        };
        file.append(group)?;
        if let Some(full) = writer.file.take_if(|file| file.bytes() >= self.limits.target_file_bytes) {
            self.files.push(full.close()?);
        }
        Ok(())
    }

    fn close_all(&mut self) -> Result<()> {
        for writer in 0..self.writers.len() {
            self.end_row_group(writer)?;
            if let Some(file) = self.writers[writer].file.take() {
                self.files.push(file.close()?);
            }
        }
        Ok(())
    }
}
