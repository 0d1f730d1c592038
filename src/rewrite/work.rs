//! What the workers of a group share, and how a worker turns inputs into live rows of the table's schema.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::StreamExt;
use iceberg::spec::{TableMetadata, Transform};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::rewrite::Progress;
use crate::rewrite::delete_mask::{GroupDeletes, leading_columns};
use crate::rewrite::project::PartitionConstants;
use crate::rewrite::reader::{OpenFile, Piece, ReadTarget, read_whole, row_group_piece, whole_piece};
use crate::rewrite::segments::ReadUnit;
use crate::rewrite::writer::OutputSettings;
use crate::storage::StoreRef;
use crate::table::{FileEntry, PartitionTuple};

/// Bytes of inputs in flight per worker, about.
pub(crate) const PREFETCH_BYTES: u64 = 32 << 20;
/// Inputs in flight per worker at most.
const PREFETCH_ITEMS: u64 = 16;

/// One rewrite of one group.
pub(crate) struct Work {
    pub store: StoreRef,
    pub metadata: Arc<TableMetadata>,
    /// The data files, by task.
    pub inputs: Vec<Arc<FileEntry>>,
    pub target: ReadTarget,
    /// Footers of large inputs by task.
    pub large: HashMap<usize, Arc<OpenFile>>,
    pub deletes: GroupDeletes,
    pub output: Arc<OutputSettings>,
    pub cancel: CancellationToken,
    pub progress: Arc<Progress>,
    pub rows_read: AtomicU64,
    /// Rows taken out.
    pub rows_deleted: AtomicU64,
}

/// An input in memory.
pub(crate) enum Fetched {
    /// A small file, not yet opened: parsing its footer is work for a worker.
    Whole(usize, Bytes),
    /// A row group of a large one.
    Piece(usize, Piece),
}

/// The run was told to stop, or something else in the group failed first.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the rewrite was cancelled")
}

/// Values that files of a partition need not hold: those of identity partition fields.
pub(crate) fn partition_constants(metadata: &TableMetadata, partition: &PartitionTuple) -> Result<PartitionConstants> {
    let spec = metadata
        .partition_spec_by_id(partition.spec_id)
        .ok_or_else(|| Error::invalid(format!("the table has no partition spec {}", partition.spec_id)))?;
    if spec.fields().len() != partition.values.fields().len() {
        return Err(Error::invalid(format!(
            "a partition tuple has {} values and spec {} has {} fields",
            partition.values.fields().len(),
            spec.spec_id(),
            spec.fields().len()
        )));
    }
    let fields = spec.fields().iter().zip(partition.values.iter());
    Ok(fields
        .filter(|(field, _)| field.transform == Transform::Identity)
        .map(|(field, value)| (field.source_id, value.cloned()))
        .collect())
}

impl Work {
    /// Reads a segment's inputs ahead of its worker, in order.
    pub(crate) async fn feed(self: Arc<Self>, items: Vec<ReadUnit>, to_worker: mpsc::Sender<Result<Fetched>>) {
        let largest = items.iter().map(|i| i.bytes).max().unwrap_or(0).max(1);
        let in_flight = (PREFETCH_BYTES / largest).clamp(1, PREFETCH_ITEMS);
        let in_flight = usize::try_from(in_flight).unwrap_or(1);
        let mut fetched = futures::stream::iter(items).map(|item| self.fetch(item)).buffered(in_flight);
        loop {
            let next = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return,
                next = fetched.next() => next,
            };
            let Some(next) = next else { return };
            let failed = next.is_err();
            if to_worker.send(next).await.is_err() || failed {
                return;
            }
        }
    }

    async fn fetch(&self, item: ReadUnit) -> Result<Fetched> {
        let entry = &self.inputs[item.task];
        let store = self.store.as_ref();
        let fetched = match (item.row_group, self.large.get(&item.task)) {
            (None, _) => Fetched::Whole(item.task, read_whole(store, entry).await?),
            (Some(row_group), Some(open)) => {
                Fetched::Piece(item.task, row_group_piece(store, entry, open, row_group).await?)
            }
            (Some(_), None) => return Err(Error::internal(format!("{} was not opened", entry.file_path))),
        };
        self.progress.add_read(item.bytes);
        Ok(fetched)
    }

    /// Decodes one input and hands on its live rows in the table's columns.
    pub(crate) fn live_rows(&self, fetched: Fetched, emit: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        let (task, piece) = match fetched {
            Fetched::Piece(task, piece) => (task, piece),
            Fetched::Whole(task, bytes) => {
                let entry = &self.inputs[task];
                let constants = partition_constants(&self.metadata, &entry.partition)?;
                (task, whole_piece(bytes, entry, &self.target, &constants)?)
            }
        };
        let doing = |e: Error| e.context_of("rewrite", &self.inputs[task].file_path);
        let rows = piece
            .decode(&mut |position, batch| {
                if self.cancel.is_cancelled() {
                    return Err(cancelled());
                }
                let before = batch.num_rows();
                let live = self.deletes.live_rows(task, position, batch)?;
                self.rows_deleted.fetch_add((before - live.num_rows()) as u64, Ordering::Relaxed);
                self.progress.add_rows(before as u64);
                if live.num_rows() == 0 {
                    return Ok(());
                }
                emit(leading_columns(&live, self.target.own)?)
            })
            .map_err(doing)?;
        self.rows_read.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    /// The live rows of everything that a segment's feeder sends. A feeder that ends early is an error.
    pub(crate) fn segment_rows(
        &self,
        items: usize,
        mut from_feeder: mpsc::Receiver<Result<Fetched>>,
        emit: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        for _ in 0..items {
            let fetched = from_feeder.blocking_recv().ok_or_else(cancelled)??;
            self.live_rows(fetched, emit)?;
        }
        Ok(())
    }
}
