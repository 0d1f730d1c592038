//! What actions did, in one shape: outcome, numbers and reasons. [`ActionDetail`] is what an action tells in full, with stable keys.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::expire_snapshots::ExpireOutline;
use super::rewrite_data_files::{RewriteOutline, RewriteReport};
use super::words::LabelledLines;
use crate::action::{Action, Outcome, RunStep};
use crate::clean::{ExpireReport, OrphanReport, Refused};
use crate::clock::PhaseTimes;
use crate::error::{Error, ErrorKind};

/// What an action did to a table.
#[derive(Debug)]
pub struct ActionReport {
    pub action: Action,
    pub outcome: Outcome,
    /// Why nothing was done, or what went wrong.
    pub reason: Option<String>,
    /// The first of several small things that went wrong, where there is no `reason`.
    pub failure: Option<String>,
    /// Whether the table, or a part of it, was not touched since that would not have been safe.
    pub refused: bool,
    /// Why it was refused although the table itself wants it: somebody has to look.
    pub refusal: Option<Refused>,
    /// Whether the table's metadata contradicts the specification, so that the table is left alone until it changes.
    pub metadata_invalid: bool,
    /// When the last commit was made, milliseconds since the epoch.
    pub last_commit_ms: Option<i64>,
    pub duration: Duration,
    /// How long its phases took, those that were begun.
    pub phases: PhaseTimes,
    /// What it did, in numbers.
    pub counts: RunCounts,
    /// What it left under the table's directories, if it listed them.
    pub stored: Option<StoredFiles>,
    /// The same for a trace.
    pub span_counts: Vec<(&'static str, u64)>,
    /// The same for people, in a line.
    pub summary: String,
    /// The same for people, at length.
    pub lines: LabelledLines,
    /// Everything; `None` if the action was not begun.
    pub detail: Option<ActionDetail>,
}

/// What an action tells in full, of a run or of a plan. Serialised by `--json`; keys are stable.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum ActionDetail {
    RewriteReport(Box<RewriteReport>),
    RewriteOutline(RewriteOutline),
    ExpireReport(Box<ExpireReport>),
    ExpireOutline(ExpireOutline),
    OrphanReport(Box<OrphanReport>),
}

/// What a run did, as far as it is certain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
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

/// What the last listing found under a table's directories, without what was deleted after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredFiles {
    /// All files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that no metadata reaches.
    pub orphan_files: u64,
    /// Their bytes.
    pub orphan_bytes: u64,
}

impl ActionReport {
    /// A report of nothing done yet.
    pub fn new(action: Action) -> Self {
        Self {
            action,
            outcome: Outcome::Skipped,
            reason: None,
            failure: None,
            refused: false,
            refusal: None,
            metadata_invalid: false,
            last_commit_ms: None,
            duration: Duration::ZERO,
            phases: PhaseTimes::default(),
            counts: RunCounts::default(),
            stored: None,
            span_counts: Vec::new(),
            summary: String::new(),
            lines: Vec::new(),
            detail: None,
        }
    }

    /// It was not begun although nothing is wrong.
    pub fn skipped(action: Action, reason: impl Into<String>) -> Self {
        Self::not_begun(action, Outcome::Skipped, reason.into())
    }

    /// It could not begin.
    pub fn refused(action: Action, error: &Error) -> Self {
        let outcome = match Outcome::of(error.kind()) {
            Outcome::Skipped | Outcome::Cancelled => Outcome::Skipped,
            Outcome::Success | Outcome::Failed | Outcome::Conflict | Outcome::Unknown => Outcome::Failed,
        };
        let refused = error.kind() == ErrorKind::Unsupported;
        Self { refused, ..Self::not_begun(action, outcome, error.to_string()) }
    }

    /// A step could not be done at all; its first action stands for it.
    pub fn of_error(step: RunStep, error: &Error) -> Self {
        let (outcome, refused) = (Outcome::of(error.kind()), error.kind() == ErrorKind::Unsupported);
        Self { refused, ..Self::not_begun(step.actions()[0], outcome, error.to_string()) }
    }

    fn not_begun(action: Action, outcome: Outcome, reason: String) -> Self {
        let word = outcome.as_str();
        Self {
            outcome,
            summary: format!("{word}, {reason}"),
            lines: vec![(action.to_string(), format!("{word}: {reason}"))],
            reason: Some(reason),
            ..Self::new(action)
        }
    }

    /// Where the report stands among others for people: what was begun first, then what was skipped.
    fn rank(&self) -> usize {
        match self.detail {
            Some(_) => 0,
            None if self.outcome.is_failure() => 2,
            None => 1,
        }
    }
}

/// What a step of a run did.
#[derive(Debug)]
pub struct StepReport {
    pub step: RunStep,
    /// What its actions did, in order.
    pub actions: Vec<ActionReport>,
}

impl StepReport {
    /// What was done, in the order in which people are told.
    pub fn told(&self) -> Vec<&ActionReport> {
        let mut told: Vec<&ActionReport> = self.actions.iter().collect();
        told.sort_by_key(|report| report.rank());
        told
    }

    /// What was done, in a line.
    pub fn summary(&self) -> String {
        let part = |report: &&ActionReport| format!("{}: {}", report.action, report.summary);
        self.told().iter().map(part).collect::<Vec<_>>().join("; ")
    }

    /// The step's outcome as a whole.
    pub fn outcome(&self) -> Outcome {
        let worse = |sum: Outcome, next| if sum.is_failure() || next == Outcome::Skipped { sum } else { next };
        self.actions.iter().map(|report| report.outcome).reduce(worse).unwrap_or(Outcome::Skipped)
    }

    /// What went wrong; the first thing if there are several.
    pub fn problem(&self) -> Option<String> {
        let failed = self.actions.iter().find(|report| report.outcome.is_failure())?;
        failed.reason.clone().or(failed.failure.clone())
    }

    /// Why an action was refused although the table itself wants it, the last first: somebody has to look.
    pub fn refusal(&self) -> Option<&Refused> {
        self.actions.iter().rev().find_map(|report| report.refusal.as_ref())
    }

    /// When the last commit was made, milliseconds since the epoch.
    pub fn last_commit_ms(&self) -> Option<i64> {
        self.actions.iter().filter_map(|report| report.last_commit_ms).max()
    }

    /// The full report of an action, if it was begun.
    pub fn detail(&self, action: Action) -> Option<&ActionDetail> {
        self.actions.iter().find(|report| report.action == action)?.detail.as_ref()
    }
}

impl Serialize for StepReport {
    /// The action that gives the step its name is told flat, others by their words.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct View<'a> {
            step: &'static str,
            #[serde(flatten)]
            lead: Option<&'a ActionDetail>,
            #[serde(flatten)]
            others: BTreeMap<Action, Option<&'a ActionDetail>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            skipped: Option<BTreeMap<Action, &'a str>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            errors: Option<BTreeMap<Action, &'a str>>,
        }
        let step = self.step.as_str();
        let (lead, others): (Vec<_>, Vec<_>) = self.actions.iter().partition(|report| report.action.as_str() == step);
        let reasons = |rank| {
            let wanted = others.iter().filter(|report| report.rank() == rank);
            wanted.map(|report| (report.action, report.reason.as_deref().unwrap_or_default())).collect()
        };
        // A report that is told flat has keys of its own for these two.
        let keyed = lead.is_empty();
        View {
            step,
            lead: lead.first().and_then(|report| report.detail.as_ref()),
            skipped: keyed.then(|| reasons(1)),
            errors: keyed.then(|| reasons(2)),
            others: others.iter().map(|report| (report.action, report.detail.as_ref())).collect(),
        }
        .serialize(serializer)
    }
}
