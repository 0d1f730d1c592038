//! The only place that changes a table. `engine` is the one loop: refresh, look for our own, prepare against the head, send,
//! settle, clean. What it brings in is an `engine::Change`: `replace` and `expire`. Changes that add a snapshot share
//! `own_snapshot`.
//! It never chooses what to do, and of files it deletes only its own metadata files of attempts that lost: only
//! [`CommitResult::NotCommitted`] lets the caller delete outputs. Neither happens after a request was sent until a later look
//! at the table has shown that the request can bring nothing in any more.

mod change;
mod engine;
mod expire;
mod own_snapshot;
mod replace;
mod revalidate;

use std::time::Duration;

use iceberg::spec::FormatVersion;
use iceberg::{TableRequirement, TableUpdate};

pub use expire::commit_expire;
pub use replace::{commit_dangling_deletes, commit_rewrite};

use crate::catalog::CommitOutcome;
use crate::catalog::TableHandle;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, Result};
use crate::run_id::RunId;
use crate::table::{LoadedTable, Metadata, Snapshot};

/// What became of a commit, after retries and after finding out about lost answers.
#[derive(Debug)]
#[must_use]
pub enum CommitResult {
    /// It is in the table.
    Committed(Box<Committed>),
    /// It is definitely not in the table and never will be.
    NotCommitted(Error),
    /// The catalog said no, and the table did not have it after that. A second delivery of the request may still bring it in:
    /// delete nothing. What is left behind is garbage once the run's time is over.
    Denied(Error),
    /// It may be in the table, now or later: delete nothing.
    Unknown(Error),
}

/// A commit that is in the table.
#[derive(Debug)]
pub struct Committed {
    /// The table with the metadata after the commit.
    pub table: TableHandle,
    /// The metadata file that the first request was made against; `None` if none was sent.
    pub base_location: Option<String>,
    /// The snapshot made, if the commit made one.
    pub snapshot_id: Option<i64>,
    /// Delete files that left with it.
    pub removed_delete_files: usize,
    /// Snapshots that left with it: those that this commit asked for, not what somebody else removed before.
    pub expired_snapshots: usize,
    /// Branches and tags that left with it, likewise.
    pub removed_refs: Vec<String>,
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
    pub table_uuid: uuid::Uuid,
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
    /// Attempts after the first, in all: parts of an expiry share them.
    pub retries: u32,
    /// First wait; doubles each time.
    pub min_wait: Duration,
    pub max_wait: Duration,
    /// Further keys for the summary of the snapshot.
    pub summary: Vec<(&'static str, String)>,
    /// The time for it; `None`: any.
    pub limit: Option<CommitLimit>,
}

/// How long a commit may take. What a run wrote counts as garbage some time after the run's end, so that a commit that comes
/// later would name files which others have rightly deleted.
#[derive(Debug, Clone, Copy)]
pub struct CommitLimit {
    /// For all attempts together.
    pub time: Duration,
    /// A request without an answer is given up after this; what became of it is unknown then.
    pub request: Duration,
    /// The run's own limits, if the run wrote files.
    pub run: Option<RunLimit>,
}

/// What a run allows its commits.
#[derive(Debug, Clone, Copy)]
pub struct RunLimit {
    /// No request is sent after this.
    pub until: Deadline,
    /// After this, files that the run wrote are looked at again before each request.
    pub trusted_until: Deadline,
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
            limit: None,
        }
    }

    /// When a commit that begins now must be over.
    fn until(&self, clock: &dyn Clock) -> Option<Deadline> {
        let limit = self.limit?;
        let until = Deadline::new(clock, clock.now_ms(), limit.time);
        Some(limit.run.map_or(until, |run| run.until.earliest(until)))
    }

    /// Sends one request, within the time for it.
    async fn send(
        &self,
        table: &TableHandle,
        until: Option<Deadline>,
        clock: &dyn Clock,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        let may_send = || may_send(until, clock);
        let sending = table.catalog.commit_table(&table.ident, requirements, updates, &may_send);
        let Some(limit) = self.limit else { return sending.await };
        tokio::time::timeout(limit.request, sending).await.unwrap_or_else(|_| {
            let seconds = limit.request.as_secs();
            CommitOutcome::Unknown(Error::new(ErrorKind::CommitUnknown, format!("no answer within {seconds} s")))
        })
    }

    /// As the table's `commit.retry.*` properties say, within reason: at most 100 retries and 10 minutes between two. What is
    /// no number does not count.
    pub fn of_table(run_id: RunId, metadata: &Metadata) -> Self {
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

/// An error once the time is over. Asked right before each request is sent.
fn may_send(until: Option<Deadline>, clock: &dyn Clock) -> Result<()> {
    match until {
        Some(until) if until.left(clock).is_zero() => Err(Error::unavailable(
            "the time for this commit is over (`limits.run-timeout`); nothing more is sent, since others may count the \
             run's files as garbage by now",
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
