//! The only place that changes a table: refresh -> revalidate -> attempt -> settle.
//! Input: what was rewritten or what shall expire, and the snapshot it was planned from.
//! It never chooses what to do, and of files it deletes only its own metadata files of attempts that lost:
//! only [`CommitResult::NotCommitted`] lets the caller delete outputs.

mod change;
mod expire;
mod replace;
mod revalidate;
mod settle;

use std::time::Duration;

use iceberg::spec::{FormatVersion, Snapshot, TableMetadata};

pub use expire::commit_expire;
pub use replace::{commit_dangling_deletes, commit_rewrite};

use crate::catalog::LoadedTable;
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
    /// Why only part of it is in the table: an expiry of many snapshots goes in several commits.
    pub incomplete: Option<Error>,
}

/// What a rewrite was planned from. All of it is fixed at planning: the snapshot may be gone when the commit is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartSnapshot {
    /// The table.
    pub table_uuid: uuid::Uuid,
    /// The snapshot.
    pub snapshot_id: i64,
    /// Its sequence number, which the outputs will carry; 0 in version 1.
    pub sequence_number: i64,
    /// Format version of the table.
    pub format_version: FormatVersion,
    /// The table's current schema.
    pub schema_id: i32,
    /// The table's default partition spec, which the outputs are written in.
    pub default_spec_id: i32,
}

impl StartSnapshot {
    /// Planning from `snapshot` of a table as loaded.
    pub fn of(loaded: &LoadedTable, snapshot: &Snapshot) -> Self {
        Self::at(loaded, snapshot.snapshot_id(), snapshot.sequence_number())
    }

    fn at(loaded: &LoadedTable, snapshot_id: i64, sequence_number: i64) -> Self {
        let metadata = &loaded.metadata;
        Self {
            table_uuid: metadata.uuid(),
            snapshot_id,
            sequence_number,
            format_version: metadata.format_version(),
            schema_id: metadata.current_schema_id(),
            default_spec_id: metadata.default_partition_spec_id(),
        }
    }
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
    /// Further keys for the summary of the snapshot.
    pub summary: Vec<(&'static str, String)>,
}

impl CommitContext {
    /// Iceberg's defaults: 4 retries, from 100 ms to 60 s.
    pub fn new(run_id: RunId) -> Self {
        Self {
            run_id,
            retries: 4,
            min_wait: Duration::from_millis(100),
            max_wait: Duration::from_secs(60),
            summary: Vec::new(),
        }
    }

    /// As the table's `commit.retry.*` properties say, within reason: at most 100 retries and 10 minutes between two. What is
    /// no number does not count.
    pub fn of_table(run_id: RunId, metadata: &TableMetadata) -> Self {
        let number = |key: &str| metadata.properties().get(key).and_then(|text| text.trim().parse::<u64>().ok());
        let wait = |key: &str| number(key).map(|ms| Duration::from_millis(ms).min(Duration::from_secs(600)));
        let defaults = Self::new(run_id);
        Self {
            retries: number("commit.retry.num-retries").map_or(defaults.retries, |n| n.min(100) as u32),
            min_wait: wait("commit.retry.min-wait-ms").unwrap_or(defaults.min_wait),
            max_wait: wait("commit.retry.max-wait-ms").unwrap_or(defaults.max_wait),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests;
