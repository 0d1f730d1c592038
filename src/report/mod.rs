//! What happened: run reports, metrics, log events. Reports change nothing.

pub mod events;
pub mod metrics;
pub mod run_report;

use serde::Serialize;

/// The three actions of maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Compaction.
    RewriteDataFiles,
    /// Snapshot expiry.
    ExpireSnapshots,
    /// Orphan removal.
    RemoveOrphanFiles,
}

impl Action {
    /// All of them, in the order of a run.
    pub const ALL: [Self; 3] = [Self::RewriteDataFiles, Self::ExpireSnapshots, Self::RemoveOrphanFiles];

    /// The name used in TOML, labels and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RewriteDataFiles => "rewrite-data-files",
            Self::ExpireSnapshots => "expire-snapshots",
            Self::RemoveOrphanFiles => "remove-orphan-files",
        }
    }
}

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Done, also when there was nothing to do.
    Success,
    /// Something failed; the report says what.
    Failed,
    /// Another writer won; the next run plans anew.
    Conflict,
    /// A commit's outcome could not be found out.
    Unknown,
    /// Not done, for a reason that is no failure.
    Skipped,
    /// Stopped from outside.
    Cancelled,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Failed, Self::Conflict, Self::Unknown, Self::Skipped, Self::Cancelled];

    /// A stable name for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Conflict => "conflict",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether somebody may have to look.
    pub fn is_failure(self) -> bool {
        match self {
            Self::Failed | Self::Conflict | Self::Unknown => true,
            Self::Success | Self::Skipped | Self::Cancelled => false,
        }
    }
}
