//! The only place that changes a table: refresh -> revalidate -> attempt -> settle.
//! Input: what was rewritten or what shall expire, and the snapshot it was planned from.
//! It never chooses what to do, and it deletes nothing: only [`CommitResult::NotCommitted`] lets the caller delete outputs.

mod expire;

use std::time::Duration;

pub use expire::commit_expire;

use crate::error::Error;
use crate::run_id::RunId;
use crate::table::TableHandle;

/// What became of a commit, after retries and after finding out about lost answers.
#[derive(Debug)]
#[must_use]
pub enum CommitResult {
    /// It is in the table.
    Committed(Box<Committed>),
    /// It is definitely not in the table and never will be.
    NotCommitted(Error),
    /// It may be in the table, now or later: delete nothing.
    Unknown(Error),
}

/// A commit that is in the table.
#[derive(Debug)]
pub struct Committed {
    /// The table with the metadata after the commit.
    pub table: TableHandle,
    /// The snapshot made, if the commit made one.
    pub snapshot_id: Option<i64>,
    /// Delete files that left with it.
    pub removed_delete_files: usize,
    /// Conflicts met before it went through.
    pub conflicts: u32,
    /// Answers lost on the way (settled since).
    pub unknown_outcomes: u32,
    /// Why the rest of an expiry in several commits is missing, if it is.
    pub incomplete: Option<Error>,
}

/// Who commits, and how stubbornly. Defaults are Iceberg's `commit.retry.*`.
#[derive(Debug, Clone)]
pub struct CommitContext {
    /// The run, for file names and the summary.
    pub run_id: RunId,
    /// Attempts after the first.
    pub retries: u32,
    /// First wait; doubles each time.
    pub min_wait: Duration,
    /// Longest wait.
    pub max_wait: Duration,
}

impl CommitContext {
    /// Iceberg's defaults: 4 retries, from 100 ms to 60 s.
    pub fn new(run_id: RunId) -> Self {
        Self { run_id, retries: 4, min_wait: Duration::from_millis(100), max_wait: Duration::from_secs(60) }
    }
}
