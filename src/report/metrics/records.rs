//! What is told to the metrics.

use std::time::Duration;

use crate::action::{Action, Outcome};
use crate::clock::PhaseTimes;

/// Where a table is in its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing is due.
    Idle,
    /// An action runs.
    Running(Action),
    /// Compacted, and waiting before the clean-ups.
    Delay,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Running(Action::RewriteDataFiles),
        Self::Delay,
        Self::Running(Action::ExpireSnapshots),
        Self::Running(Action::RemoveOrphanFiles),
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running(action) => action.as_str(),
            Self::Delay => "delay",
        }
    }
}

/// A run of an action on a table that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// What ran.
    pub action: Action,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
    /// When it ended, milliseconds since the epoch.
    pub finished_ms: i64,
    /// What it did.
    pub counts: RunCounts,
    /// How long its phases took; names are in [`Action::phases`].
    pub phases: PhaseTimes,
    /// Whether the table was not touched since that would not have been safe.
    pub refused: bool,
}

/// What a run did, as far as it is certain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RunCounts {
    /// Data files replaced.
    pub rewritten_data_files: u64,
    /// Their bytes.
    pub rewritten_bytes: u64,
    /// Data files added.
    pub added_data_files: u64,
    /// Their bytes.
    pub added_bytes: u64,
    /// Delete files that left the table.
    pub removed_delete_files: u64,
    /// Snapshots that left the metadata.
    pub expired_snapshots: u64,
    /// Files deleted from storage.
    pub deleted_files: u64,
    /// Their bytes, where known.
    pub deleted_bytes: u64,
    /// Commits refused since the table had changed.
    pub commit_conflicts: u64,
    /// Commits whose answer was lost.
    pub commit_unknown: u64,
}

/// Whether failures keep a table waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Failed runs since the last one that did not fail.
    pub consecutive_failures: u32,
    /// When it is tried again, milliseconds since the epoch; `None`: it is not waiting.
    pub until_ms: Option<i64>,
    /// Not compacted until its metadata changes.
    pub quarantined: bool,
}

/// What the last listing found under a table's directories, without what was deleted after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    /// All files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that no metadata reaches.
    pub orphan_files: u64,
    /// Their bytes.
    pub orphan_bytes: u64,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What rewrites may take together.
    pub budget: u64,
    /// What running rewrites have reserved.
    pub reserved: u64,
    /// What summaries of manifests take.
    pub manifest_cache: u64,
}
