//! The words of maintenance: what is done to a table, in which steps and phases, and how it ended.

use serde::{Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

use crate::error::ErrorKind;

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

    /// The phases of a run of the action, in order.
    pub const fn phases(self) -> &'static [Phase] {
        match self {
            Self::RewriteDataFiles => &[Phase::Inspect, Phase::Plan, Phase::Rewrite, Phase::Commit],
            Self::ExpireSnapshots => &[Phase::Plan, Phase::Commit, Phase::Delete],
            Self::RemoveOrphanFiles => &[Phase::List, Phase::Check, Phase::Delete],
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an action is busy with, as reports, spans and metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Reads manifests.
    Inspect,
    /// Chooses what to do.
    Plan,
    /// Reads and writes data files.
    Rewrite,
    /// Changes the table. File groups that do not belong to the commit go on meanwhile.
    Commit,
    /// Lists the table's directories.
    List,
    /// Asks who needs what was found.
    Check,
    /// Deletes files.
    Delete,
}

impl Phase {
    pub const ALL: [Self; 7] =
        [Self::Inspect, Self::Plan, Self::Rewrite, Self::Commit, Self::List, Self::Check, Self::Delete];

    /// The name in reports, spans, metrics and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::Plan => "plan",
            Self::Rewrite => "rewrite",
            Self::Commit => "commit",
            Self::List => "list",
            Self::Check => "check",
            Self::Delete => "delete",
        }
    }
}

/// The steps of a run, each with its name and its actions. The actions of a step follow one another at once; between two steps
/// lies the delay.
const STEPS: [(&str, &[Action]); 2] = [
    ("rewrite-data-files", &[Action::RewriteDataFiles]),
    ("clean-up", &[Action::ExpireSnapshots, Action::RemoveOrphanFiles]),
];

/// A step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunStep(usize);

impl RunStep {
    pub const COUNT: usize = STEPS.len();
    /// What the schedule starts.
    pub const FIRST: Self = Self(0);
    /// What comes after the delay.
    pub const LAST: Self = Self(Self::COUNT - 1);

    /// All steps, in the order of a run.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    /// A stable name for labels and reports.
    pub fn as_str(self) -> &'static str {
        STEPS[self.0].0
    }

    /// The step's actions, in order.
    pub fn actions(self) -> &'static [Action] {
        STEPS[self.0].1
    }

    /// The place among the steps of a run.
    pub fn index(self) -> usize {
        self.0
    }

    /// The step after this one, if need be of the next run.
    #[must_use]
    pub fn next(self) -> Self {
        Self((self.0 + 1) % Self::COUNT)
    }
}

/// What a table is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It waits for its next run.
    Idle,
    /// An action runs.
    Running(Action),
    /// It waits between two steps of a run.
    Delay,
}

impl Doing {
    /// Everything that a table can do, in the order of a run.
    pub fn all() -> Vec<Self> {
        let steps = RunStep::all().map(|step| step.actions().iter().copied().map(Self::Running).collect());
        let steps: Vec<Vec<Self>> = steps.collect();
        [vec![Self::Idle], steps.join(&Self::Delay)].concat()
    }

    /// What a table does that waits for this step.
    pub fn waiting_for(step: RunStep) -> Self {
        if step == RunStep::FIRST { Self::Idle } else { Self::Delay }
    }

    /// The name in labels and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running(action) => action.as_str(),
            Self::Delay => "delay",
        }
    }
}

impl Serialize for Doing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl utoipa::PartialSchema for Doing {
    fn schema() -> RefOr<Schema> {
        let names = Self::all().into_iter().map(Self::as_str);
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("What a table is doing."))
            .enum_values(Some(names))
            .into()
    }
}

impl utoipa::ToSchema for Doing {}

/// How an action ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
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
    #[default]
    Skipped,
    /// The run was told to stop.
    Cancelled,
}

impl Outcome {
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Failed, Self::Conflict, Self::Unknown, Self::Skipped, Self::Cancelled];

    /// What an error means for an action.
    pub fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unsupported => Self::Skipped,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::CommitUnknown => Self::Unknown,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::Config
            | ErrorKind::Unavailable
            | ErrorKind::Forbidden
            | ErrorKind::NotFound
            | ErrorKind::OutOfMemory
            | ErrorKind::DataInvalid
            | ErrorKind::Internal => Self::Failed,
        }
    }

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
