//! One [`crate::plan::FileGroup`] in, one [`RewriteResult`] out: new files that hold exactly the live rows of the inputs.
//! It never commits, never deletes a file that it did not write, and never chooses what to rewrite.
//!
//! ```text
//! scopes, deletes -> delete_mask (keys)          schema, fields, constants
//!                          |                               |
//! reader -> project -> work -> pipeline | pooled -> encode -> writer -> verify
//!                                |         |          |         |           |
//!                            segments  partition  properties  filling     partition_proof
//!                                      transform              location
//!                                                             metrics
//! ```

mod bounds;
mod check;
mod constants;
mod delete_mask;
mod deletes;
mod encode;
mod fields;
mod filling;
mod group;
mod keys;
mod location;
pub mod memory;
mod metrics;
mod metrics_modes;
mod partition;
mod partition_proof;
mod pipeline;
mod pooled;
mod project;
mod properties;
mod reader;
mod schema;
mod scopes;
mod segments;
mod transform;
mod verify;
mod work;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use iceberg::spec::DataFile;
use tokio_util::sync::CancellationToken;

use crate::action::Phase;
use crate::error::{Error, Result};
use crate::plan::FileGroup;
use crate::run_id::RunId;
use crate::storage::StoreRef;
use crate::table::FileEntry;
use crate::table::LoadedTable;

pub use group::rewrite_file_group;
pub use memory::MemoryBudget;

/// New files in place of old ones, proven to hold the same rows less the deleted ones.
#[derive(Debug, Clone)]
pub struct RewriteResult {
    /// Index of the file group.
    pub group: usize,
    /// Output files, ready for a manifest (their partition spec is the group's output spec).
    pub added: Vec<DataFile>,
    pub rewritten: Vec<Arc<FileEntry>>,
    pub input_rows: u64,
    /// Rows taken out by deletes.
    pub deleted_rows: u64,
    pub output_rows: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
}

/// What a rewrite works with.
#[derive(Clone)]
pub struct RewriteContext {
    pub store: StoreRef,
    /// The table as planned from.
    pub loaded: Arc<LoadedTable>,
    /// The run, for file names.
    pub run_id: RunId,
    /// The budget that groups are admitted to.
    pub memory: Arc<MemoryBudget>,
    /// Stops the rewrite between batches.
    pub cancel: CancellationToken,
    /// Threads to use at most, about.
    pub threads: usize,
    /// Counters for onlookers.
    pub progress: Arc<Progress>,
}

/// How far a compaction has come, for whoever watches. All counters only grow.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    phase: AtomicU8,
    planned_groups: AtomicU64,
    planned_bytes: AtomicU64,
    finished_groups: AtomicU64,
}

impl Progress {
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Bytes of inputs and delete files read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Bytes of outputs sent to the store.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// What is being done.
    pub fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Inspect)
    }

    /// File groups planned; 0 until the plan is made.
    pub fn planned_groups(&self) -> u64 {
        self.planned_groups.load(Ordering::Relaxed)
    }

    /// Bytes of data files in the planned groups.
    pub fn planned_bytes(&self) -> u64 {
        self.planned_bytes.load(Ordering::Relaxed)
    }

    /// Groups rewritten or given up.
    pub fn finished_groups(&self) -> u64 {
        self.finished_groups.load(Ordering::Relaxed)
    }

    /// Something else is being done from now on.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// The plan is made.
    pub fn planned(&self, groups: &[FileGroup]) {
        self.planned_groups.store(groups.len() as u64, Ordering::Relaxed);
        self.planned_bytes.store(groups.iter().map(|group| group.input_bytes).sum(), Ordering::Relaxed);
    }

    /// A group is done, well or not.
    pub fn finish_group(&self) {
        self.finished_groups.fetch_add(1, Ordering::Relaxed);
    }

    fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    fn add_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    fn add_written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl RewriteContext {
    fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(work::cancelled()) } else { Ok(()) }
    }
}

/// Runs work that keeps a core busy where it does not hold up I/O.
async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(Error::internal(format!("a worker died: {e}"))))
}
