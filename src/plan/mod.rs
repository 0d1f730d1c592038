//! What should be done to a table, and why, and why not. Pure: metadata, policy and `now` in, plans out.
//! It never sees a store or a catalog. Golden plans lie in `tests/layouts`, properties in `tests/it/plan_properties.rs`.

pub mod bin_pack;
pub mod changes;
pub mod check;
mod doubtful;
mod draw;
mod new_spec;
mod partitions;
pub mod rewrite_data_files;
pub mod sizes;
mod skips;
mod window;

pub mod expire_snapshots;
pub mod remove_orphan_files;
mod writer_state;

use std::sync::Arc;

pub use changes::changed_since_last_rewrite;
pub use check::check_rewrite_plan;
pub use rewrite_data_files::plan_rewrite_data_files;

use crate::table::SnapshotRef;
use crate::table::{ApplicableDeletes, FileEntry, PartitionTuple};

/// A data file to rewrite with the delete files that apply to it.
#[derive(Debug, Clone)]
pub struct RewriteTask {
    pub data_file: Arc<FileEntry>,
    /// Delete files that apply to it by sequence number, spec and partition; lists are shared between tasks.
    pub delete_files: ApplicableDeletes,
}

/// A unit of rewriting: files of one partition, written anew into the table's default spec.
#[derive(Debug, Clone)]
pub struct FileGroup {
    /// Number within the plan, from 0.
    pub index: usize,
    /// Output spec and, where every input has it, the partition values. `None`: inputs of other specs are pooled,
    /// and each row's partition must be computed.
    pub partition: Option<Arc<PartitionTuple>>,
    pub output_spec_id: i32,
    pub tasks: Vec<RewriteTask>,
    /// Sum of the inputs' sizes.
    pub input_bytes: u64,
    /// How many files should come out.
    pub expected_output_files: u64,
    /// Target size of an output file in bytes.
    pub input_split_size_bytes: u64,
    /// An output file is closed before it grows past this.
    pub write_max_file_size_bytes: u64,
}

#[derive(Debug, Clone, Default)]
pub struct RewritePlan {
    /// The snapshot planned from.
    pub snapshot: Option<SnapshotRef>,
    pub groups: Vec<FileGroup>,
    /// What was left alone and why, one line per reason.
    pub skipped: Vec<Skipped>,
    /// Live data files looked at: those in groups and those in `skipped` together.
    pub considered_data_files: usize,
    /// Live delete files that apply to no live data file; they can leave with the next commit.
    pub dangling_delete_files: usize,
}

impl RewritePlan {
    /// Nothing is to be rewritten.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Files were left out since their metadata, or that of their deletes, contradicts itself: nobody but the table's writers
    /// can settle that.
    pub fn leaves_out_doubtful_files(&self) -> bool {
        self.skipped.iter().any(|line| skips::is_doubt(line.reason))
    }
}

/// Something that was left alone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// Stable name of the reason, for labels and goldens, such as `right_size`.
    pub reason: &'static str,
    /// For a person: what and why, and what would change it.
    pub detail: String,
    pub files: usize,
    pub bytes: u64,
}

/// What shall leave the metadata.
#[derive(Debug, Clone, Default)]
pub struct ExpirePlan {
    pub remove_snapshots: Vec<i64>,
    /// Branches and tags to remove (too old, or naming a snapshot that is gone).
    pub remove_refs: Vec<String>,
    /// Every ref and its snapshot as the plan saw them; the commit asserts them all.
    pub refs_seen: std::collections::BTreeMap<String, i64>,
    /// What was kept and why, one line per reason.
    pub skipped: Vec<Skipped>,
}

impl ExpirePlan {
    /// Nothing would change.
    pub fn is_empty(&self) -> bool {
        self.remove_snapshots.is_empty() && self.remove_refs.is_empty()
    }
}
