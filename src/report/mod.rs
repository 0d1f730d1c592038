//! What happened, for people and machines. Job: run outcomes and table statistics -> metrics and reports.
//! It changes nothing and decides nothing.

pub mod metrics;

/// What icewright does to a table: one word per action, everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RewriteDataFiles => "rewrite-data-files",
            Self::ExpireSnapshots => "expire-snapshots",
            Self::RemoveOrphanFiles => "remove-orphan-files",
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
