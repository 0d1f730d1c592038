//! The words of maintenance: what is done to a table, and how it ended.

use serde::Serialize;

/// What icewright does to a table: one word per action, everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Compaction.
    RewriteDataFiles,
    /// Snapshots leave the metadata, and then the files that only they reached.
    ExpireSnapshots,
    /// Files that no metadata reaches go.
    RemoveOrphanFiles,
}

impl Action {
    /// All actions, in the order of a run.
    pub const ALL: [Self; 3] = [Self::RewriteDataFiles, Self::ExpireSnapshots, Self::RemoveOrphanFiles];

    /// The action's name in configuration, labels, snapshot summaries and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RewriteDataFiles => "rewrite-data-files",
            Self::ExpireSnapshots => "expire-snapshots",
            Self::RemoveOrphanFiles => "remove-orphan-files",
        }
    }

    /// The phases of a run of the action, in order, as reports and metrics name them.
    pub const fn phases(self) -> &'static [&'static str] {
        match self {
            Self::RewriteDataFiles => &["inspect", "plan", "rewrite", "commit"],
            Self::ExpireSnapshots => &["plan", "commit", "delete"],
            Self::RemoveOrphanFiles => &["list", "check", "delete"],
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Everything planned was done.
    Success,
    /// Something planned was not done.
    Failed,
    /// Somebody else's commits stood in the way to the end; the next run plans anew.
    Conflict,
    /// A commit may or may not have happened.
    Unknown,
    /// There was nothing to do, or a reason that is no failure not to do it.
    Skipped,
    /// The run was told to stop.
    Cancelled,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Failed, Self::Conflict, Self::Unknown, Self::Skipped, Self::Cancelled];

    /// The label value.
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
