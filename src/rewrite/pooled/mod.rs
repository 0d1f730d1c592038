//! Rewrites a group whose inputs were written under other specs: each row goes to the partition that the output spec computes.
//!
//! Workers decode in parallel; one thread routes and encodes, with one open file per partition. Buffers are bounded: when
//! they add up to too much, the writer that holds most ends its row group, or its file.
//!
//! Writers are bounded too. When all are in use and another partition comes, the largest is closed, and if its partition comes
//! again, another file begins. So that this happens seldom, rows are gathered from then on, and sorted by partition before they
//! are written: a partition gets at most one more file for each such gathering.

use std::sync::Arc;
use std::sync::mpsc as blocking;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use hashbrown::HashMap;
use iceberg::spec::{PartitionSpec, Struct};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::error::{Error, Result};
use crate::rewrite::encode::RowGroupEncoder;
use crate::rewrite::location::partition_path;
use crate::rewrite::partition::{PartitionRows, Partitioner, group_rows};
use crate::rewrite::pipeline::Tasks;
use crate::rewrite::segments::ReadUnit;
use crate::rewrite::work::{Work, cancelled};
use crate::rewrite::writer::{OutputFile, WrittenFile};

/// Partitions that one group may write at the same time.
const MAX_OPEN_WRITERS: usize = 256;
/// Batches decoded ahead per worker.
const BATCHES_AHEAD: usize = 2;

enum Decoded {
    Batch(RecordBatch),
    Done(OwnedSemaphorePermit),
}

/// Memory that the open writers may take together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouterLimits {
    /// Bytes over all writers. Gathered rows may take half as many besides.
    pub buffer_bytes: u64,
    /// A file is ended when it reaches this.
    pub target_file_bytes: u64,
}

/// Rewrites `segments` with `workers` decoding workers and one router.
pub(crate) async fn rewrite(
    work: &Arc<Work>,
    segments: Vec<Vec<ReadUnit>>,
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
            worker.segment_rows(number, from_feeder, &mut |batch| send(Decoded::Batch(batch)))?;
            send(Decoded::Done(slot))?;
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
    incoming: &blocking::Receiver<blocking::Receiver<Decoded>>,
) -> Result<Vec<WrittenFile>> {
    let partitioner = Partitioner::new(&spec, work.metadata.current_schema().as_struct())?;
    let mut router = PartitionRouter::new(work, spec, partitioner, limits);
    let result = (0..segments).try_for_each(|_| {
        let segment = incoming.recv().map_err(|_| cancelled())?;
        loop {
            match segment.recv().map_err(|_| cancelled())? {
                Decoded::Batch(batch) => router.write(batch)?,
                Decoded::Done(slot) => {
                    drop(slot);
                    return Ok(());
                }
            }
        }
    });
    match result.and_then(|()| router.close_all()) {
        Ok(()) => Ok(router.files),
        Err(e) => {
            router.writers.into_values().filter_map(|w| w.file).for_each(OutputFile::abort);
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

impl PartitionWriter {
    /// Bytes of memory in the row group, and in the file before they are sent.
    fn memory_bytes(&self) -> (u64, u64) {
        (
            self.encoder.as_ref().map_or(0, RowGroupEncoder::memory_bytes),
            self.file.as_ref().map_or(0, OutputFile::buffered_bytes),
        )
    }

    fn encoded_bytes(&self) -> u64 {
        self.encoder.as_ref().map_or(0, RowGroupEncoder::estimated_bytes)
            + self.file.as_ref().map_or(0, OutputFile::bytes)
    }
}

/// The rows of some batches that fall into one partition.
struct GatheredRows {
    key: Vec<u8>,
    partition: Struct,
    /// Numbers of a batch and of rows in it.
    rows: Vec<(usize, Vec<u32>)>,
}

struct PartitionRouter<'a> {
    work: &'a Work,
    spec: Arc<PartitionSpec>,
    partitioner: Partitioner,
    limits: RouterLimits,
    writers: HashMap<Vec<u8>, PartitionWriter>,
    /// Whether the partitions have turned out to be more than the writers.
    crowded: bool,
    gathered: Vec<RecordBatch>,
    gathered_bytes: u64,
    files: Vec<WrittenFile>,
}

impl<'a> PartitionRouter<'a> {
    fn new(work: &'a Work, spec: Arc<PartitionSpec>, partitioner: Partitioner, limits: RouterLimits) -> Self {
        Self {
            work,
            spec,
            partitioner,
            limits,
            writers: HashMap::new(),
            crowded: false,
            gathered: Vec::new(),
            gathered_bytes: 0,
            files: Vec::new(),
        }
    }

    fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.gathered_bytes += batch.get_array_memory_size() as u64;
        self.gathered.push(batch);
        if self.crowded && self.gathered_bytes < self.limits.buffer_bytes / 2 { Ok(()) } else { self.write_gathered() }
    }

    fn write_gathered(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        let mut places = self.places(&batches)?;
        // Partitions that are open come first, so that none is closed just before it is needed.
        places.sort_by_key(|place| !self.writers.contains_key(&place.key));
        for GatheredRows { key, partition, rows } in places {
            if !self.writers.contains_key(&key) {
                self.add_writer(&key, partition)?;
            }
            for (batch, rows) in rows {
                self.append(&key, &take_record_batch(&batches[batch], &UInt32Array::from(rows))?)?;
            }
            if self.crowded {
                self.bound_buffers()?;
            }
        }
        self.bound_buffers()
    }

    /// The rows by partition, in order of first appearance.
    fn places(&self, batches: &[RecordBatch]) -> Result<Vec<GatheredRows>> {
        let mut places: Vec<GatheredRows> = Vec::new();
        let mut index: HashMap<Vec<u8>, usize> = HashMap::new();
        for (number, batch) in batches.iter().enumerate() {
            let values = self.partitioner.values(batch)?;
            for PartitionRows { key, first, rows } in group_rows(&values, batch.num_rows())? {
                match index.get(&key) {
                    Some(at) => places[*at].rows.push((number, rows)),
                    None => {
                        index.insert(key.clone(), places.len());
                        let partition = self.partitioner.tuple(&values, first)?;
                        places.push(GatheredRows { key, partition, rows: vec![(number, rows)] });
                    }
                }
            }
        }
        Ok(places)
    }

    fn append(&mut self, key: &[u8], rows: &RecordBatch) -> Result<()> {
        let settings = &self.work.output;
        let Some(writer) = self.writers.get_mut(key) else { return Err(Error::internal("no writer was opened")) };
        let encoder = match &mut writer.encoder {
            Some(encoder) => encoder,
            None => writer.encoder.insert(settings.factory.start()?),
        };
        encoder.write(rows)?;
        let full = encoder.estimated_bytes() >= settings.row_group_bytes;
        if full || writer.encoded_bytes() >= self.limits.target_file_bytes { self.end_row_group(key) } else { Ok(()) }
    }

    fn add_writer(&mut self, key: &[u8], partition: Struct) -> Result<()> {
        if self.writers.len() >= MAX_OPEN_WRITERS {
            self.crowded = true;
            let largest = self.writers.iter().max_by_key(|(key, writer)| (writer.encoded_bytes(), *key));
            if let Some(largest) = largest.map(|(key, _)| key.clone()) {
                self.close(&largest)?;
            }
        }
        let path = partition_path(&self.spec, self.work.metadata.current_schema(), &partition)?;
        self.writers.insert(key.to_vec(), PartitionWriter { partition, path, file: None, encoder: None });
        Ok(())
    }

    /// Lets the writers that hold most end what they hold, until the rest fits.
    fn bound_buffers(&mut self) -> Result<()> {
        loop {
            let sizes = self.writers.iter().map(|(key, writer)| (writer.memory_bytes(), key));
            let (mut total, mut largest) = (0u64, None);
            for ((row_group, file), key) in sizes {
                total += row_group + file;
                largest = largest.max(Some((row_group + file, row_group >= file, key)));
            }
            match largest {
                Some((bytes, in_row_group, key)) if total > self.limits.buffer_bytes && bytes > 0 => {
                    let key = key.clone();
                    if in_row_group { self.end_row_group(&key)? } else { self.close(&key)? }
                }
                _ => return Ok(()),
            }
        }
    }

    fn end_row_group(&mut self, key: &[u8]) -> Result<()> {
        let settings = &self.work.output;
        let Some(writer) = self.writers.get_mut(key) else { return Ok(()) };
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

    /// Ends a partition's file; the next row of the partition begins another.
    fn close(&mut self, key: &[u8]) -> Result<()> {
        self.end_row_group(key)?;
        if let Some(file) = self.writers.remove(key).and_then(|writer| writer.file) {
            self.files.push(file.close()?);
        }
        Ok(())
    }

    fn close_all(&mut self) -> Result<()> {
        self.write_gathered()?;
        let mut keys: Vec<Vec<u8>> = self.writers.keys().cloned().collect();
        keys.sort_unstable();
        keys.iter().try_for_each(|key| self.close(key))
    }
}

#[cfg(test)]
mod tests;
