//! What a run did, what it left alone, and why. Serialised by `--json`; keys are stable.

use std::time::Duration;

use serde::Serialize;

use crate::action::Outcome;
use crate::clock::PhaseTimes;
use crate::error::{Error, ErrorKind};
use crate::plan::Skipped;

/// The report of compacting one table.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RewriteReport {
    pub outcome: Outcome,
    /// Whether the table's metadata contradicts the specification, so that the table is not compacted until it changes.
    pub metadata_invalid: bool,
    /// Whether the table, or a part of it, was not touched since that would not have been safe; `reason` or `skipped` says why.
    pub refused: bool,
    /// Why nothing was done, or why it failed.
    pub reason: Option<String>,
    /// Live data files looked at.
    pub considered_data_files: usize,
    /// File groups planned. Always the sum of the four below.
    pub planned_groups: usize,
    /// Groups whose outputs are in the table.
    pub committed_groups: usize,
    /// Groups that could not be rewritten, or whose commit failed.
    pub failed_groups: usize,
    /// Groups that lost against another writer.
    pub conflicted_groups: usize,
    /// Groups not finished because the run was stopped or given up.
    pub abandoned_groups: usize,
    /// Data files replaced.
    pub rewritten_data_files: usize,
    /// Data files written in their place.
    pub added_data_files: usize,
    /// Delete files that left because they apply to nothing any more.
    pub removed_delete_files: usize,
    pub rewritten_bytes: u64,
    pub added_bytes: u64,
    pub input_rows: u64,
    /// Rows taken out by deletes.
    pub deleted_rows: u64,
    pub output_rows: u64,
    pub commits: usize,
    /// Commit attempts that lost a race, whether or not a later attempt won.
    pub conflicts: u32,
    /// Commits whose answer was lost, whether or not they were settled.
    pub unknown_commits: u32,
    /// Commits of which it is still not known whether they are in the table.
    pub unsettled_commits: u32,
    /// When the last commit was made, milliseconds since the epoch.
    pub last_commit_ms: Option<i64>,
    pub duration_ms: i64,
    /// How long its phases took, in milliseconds: `inspect`, `plan`, `rewrite`, `commit`, those that were begun.
    pub phases_ms: PhaseTimes,
    /// What was left alone, one entry per reason.
    pub skipped: Vec<Skipped>,
    /// What went wrong, one line per group or commit; at most [`RewriteReport::MAX_ERRORS`].
    pub errors: Vec<String>,
}

impl RewriteReport {
    /// Error lines kept; the counts go on.
    pub const MAX_ERRORS: usize = 20;

    /// Nothing to do, and why.
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::default() }
    }

    /// Could not even begin.
    pub fn failed(error: &Error) -> Self {
        let metadata_invalid = error.kind() == ErrorKind::DataInvalid;
        let refused = error.kind() == ErrorKind::Unsupported;
        let reason = Some(error.to_string());
        Self { outcome: Outcome::of(error.kind()), metadata_invalid, refused, reason, ..Self::default() }
    }

    /// Remembers an error line.
    pub fn note(&mut self, error: &Error) {
        if self.errors.len() < Self::MAX_ERRORS {
            self.errors.push(error.to_string());
        }
    }

    /// Decides the outcome from what happened; the first error gives the reason.
    pub fn conclude(&mut self) {
        self.outcome = if self.unsettled_commits > 0 {
            Outcome::Unknown
        } else if self.failed_groups > 0 {
            Outcome::Failed
        } else if self.conflicted_groups > 0 {
            Outcome::Conflict
        } else if self.abandoned_groups > 0 {
            Outcome::Cancelled
        } else {
            Outcome::Success
        };
        if self.outcome != Outcome::Success && self.reason.is_none() {
            self.reason = self.errors.first().cloned();
        }
    }

    /// The run was stopped since it took too long: unlike a stop of the process that is a failure.
    pub fn time_is_up(&mut self, run_timeout: Duration) {
        if self.outcome == Outcome::Cancelled {
            self.outcome = Outcome::Failed;
            let limit = run_timeout.as_secs();
            self.reason = Some(format!("given up: a run may take {limit} s (`limits.run-timeout`)"));
        }
    }
}
