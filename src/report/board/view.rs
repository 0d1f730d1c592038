//! What the API shows, as it is sent. Times are milliseconds since the epoch; ids that do not fit JavaScript's numbers are texts.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::action::{Action, Doing, Outcome};
use crate::actions::report::RunCounts;
use crate::inspect::{PartitionStats, SizeBucket, SizeHistogram, TableStats};
use crate::policy::SettingValue;
use crate::report::health::{Health, Reason};
use crate::schedule::control::Pause;
use crate::schedule::observer::QueueStatus;

/// The process as a whole.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Version of this program.
    pub version: &'static str,
    /// The commit it was built from, if that is known.
    pub revision: &'static str,
    /// When the process started.
    pub started_at_ms: i64,
    /// The daemon's clock.
    pub now_ms: i64,
    /// Whether this process maintains tables; another one may be the leader.
    pub leader: bool,
    /// Whether the whole daemon is paused, and why.
    #[schema(required)]
    pub paused: Option<Pause>,
    /// Whether an admin token is configured, so that something can be done and not only looked at.
    pub admin: bool,
    /// The configured catalogs.
    pub catalogs: Vec<CatalogStatus>,
    /// Memory for rewriting.
    pub memory: MemoryStatus,
    /// Tables at work and waiting.
    pub queue: QueueStatus,
    /// The configuration.
    pub config: ConfigStatus,
}

/// A configured catalog.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CatalogStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Whether its tables could be listed the last time.
    pub up: bool,
    /// Why not.
    #[schema(required)]
    pub problem: Option<String>,
    /// Tables of it that are maintained.
    pub tables: usize,
}

/// Memory for rewriting.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MemoryStatus {
    /// Bytes that rewrites may take together: `limits.memory` without the sixteenth that summaries of manifests have.
    pub budget_bytes: u64,
    /// Bytes they have taken.
    pub reserved_bytes: u64,
    /// Bytes of manifest summaries, beside the budget.
    pub manifest_cache_bytes: u64,
}

/// The configuration.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ConfigStatus {
    /// When the configuration in use was loaded.
    pub loaded_at_ms: i64,
    /// Whether the last try to load it succeeded.
    pub last_load_successful: bool,
    /// Why not.
    #[schema(required)]
    pub problem: Option<String>,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

/// A page of tables, in the order of their names.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TableList {
    /// The daemon's clock.
    pub now_ms: i64,
    /// The tables.
    pub tables: Vec<TableSummary>,
    /// The last of them if there are more: `after` of the next page.
    #[schema(required)]
    pub next: Option<String>,
}

/// What a table waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Next {
    /// `rewrite-data-files`, or `clean-up`: expiry, then orphan removal.
    pub step: &'static str,
    /// When it is due.
    pub at_ms: i64,
    /// Why then.
    pub why: &'static str,
}

/// How far a compaction has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ProgressView {
    /// `inspect`, `plan`, `rewrite` or `commit`.
    pub phase: &'static str,
    /// File groups planned; 0 until the plan is made.
    pub planned_groups: u64,
    /// Of these, rewritten or given up.
    pub finished_groups: u64,
    /// Bytes of data files in the planned groups.
    pub planned_bytes: u64,
    /// Rows decoded.
    pub rows: u64,
    /// Bytes of data files and delete files read.
    pub read_bytes: u64,
    /// Bytes of new files written.
    pub written_bytes: u64,
    /// When it started.
    pub started_at_ms: i64,
}

/// One action of one run.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RunEntry {
    /// The run, as in file names and snapshot summaries; the actions of a run share it.
    pub run_id: String,
    /// What was done.
    pub action: Action,
    /// How it ended.
    pub outcome: Outcome,
    /// When it started.
    pub started_at_ms: i64,
    /// When it ended.
    pub finished_at_ms: i64,
    /// How long it took.
    pub duration_ms: i64,
    /// Why nothing was done, or what went wrong.
    #[schema(required)]
    pub reason: Option<String>,
    /// What was done, in numbers.
    pub counts: RunCounts,
    /// The action's full report as in `icewright once --json`; only in the view of one table, and only if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub report: Option<Box<RawValue>>,
}

/// A table at a glance.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TableSummary {
    /// `catalog.namespace.table`: the name in paths, percent-encoded.
    pub table: String,
    /// Name of the catalog in the configuration.
    pub catalog: String,
    /// Namespace, its levels joined by dots.
    pub namespace: String,
    /// Name within the namespace.
    pub name: String,
    /// Whether somebody has to look.
    pub health: Health,
    /// Why.
    pub reasons: Vec<Reason>,
    /// What it is doing.
    pub step: Doing,
    /// Whether it is paused, and why.
    #[schema(required)]
    pub paused: Option<Pause>,
    /// What it waits for; `null` while a step is running.
    #[schema(required)]
    pub next_step: Option<Next>,
    /// Steps that failed in a row.
    pub consecutive_failures: u32,
    /// Whether its metadata is invalid, so that it is not compacted until that changes.
    pub quarantined: bool,
    /// The policies that match, least specific first.
    pub policies: Vec<String>,
    /// When its numbers were collected.
    #[schema(required)]
    pub collected_at_ms: Option<i64>,
    /// Its numbers.
    #[schema(required)]
    pub stats: Option<TableStats>,
    /// How far the running compaction has come.
    #[schema(required)]
    pub progress: Option<ProgressView>,
    /// The last run of each action since the process started, by action.
    pub last_runs: BTreeMap<Action, RunEntry>,
}

/// Everything about a table.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TableView {
    /// The daemon's clock.
    pub now_ms: i64,
    /// The table at a glance.
    #[serde(flatten)]
    pub summary: TableSummary,
    /// Its largest partitions, at most 100.
    #[schema(value_type = Vec<PartitionStats>)]
    pub partitions: Box<RawValue>,
    /// Its data files by size.
    #[schema(required)]
    pub size_histogram: Option<SizesView>,
    /// Its newest snapshots, newest first, at most 200.
    #[schema(value_type = Vec<SnapshotView>)]
    pub snapshots: Box<RawValue>,
    /// Its numbers over time, oldest first, at most 500.
    pub samples: Vec<Sample>,
    /// The actions since the process started, newest first, at most 50. Earlier runs show among the snapshots.
    pub runs: Vec<RunEntry>,
    /// What its policies say.
    #[schema(value_type = Vec<SettingValue>)]
    pub policy: Box<RawValue>,
    /// The last plan.
    #[schema(required)]
    pub plan: Option<Planned>,
}

/// Live data files by size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SizesView {
    /// The size in bytes that compaction aims at.
    pub target_bytes: u64,
    /// Files by size, in ascending order; each file is in one bucket.
    #[schema(value_type = Vec<SizeBucket>)]
    pub buckets: SizeHistogram,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotView {
    /// Its id, as a text.
    pub snapshot_id: String,
    /// Its parent's id.
    #[schema(required)]
    pub parent_id: Option<String>,
    /// Its place in the order of commits.
    pub sequence_number: i64,
    /// When it was made.
    pub timestamp_ms: i64,
    /// `append`, `replace`, `overwrite` or `delete`.
    pub operation: String,
    /// The run of this program that made it.
    #[schema(required)]
    pub run_id: Option<String>,
    /// Whether it is the table's current state.
    pub current: bool,
    /// Branches and tags that name it.
    pub refs: Vec<String>,
    /// Data files it holds, if its writer said so.
    #[schema(required)]
    pub total_data_files: Option<u64>,
    /// Delete files it holds, if its writer said so.
    #[schema(required)]
    pub total_delete_files: Option<u64>,
    /// What its writer said about it; at most 40 entries of 256 characters.
    pub summary: BTreeMap<String, String>,
}

/// A table's numbers at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Sample {
    /// When they were collected.
    pub at_ms: i64,
    /// Live data files.
    pub data_files: u64,
    /// Of these, smaller than the policy's minimum.
    pub small_data_files: u64,
    /// Live delete files of any kind.
    pub delete_files: u64,
    /// Manifests.
    pub manifests: u64,
    /// Bytes of live data files.
    pub data_file_bytes: u64,
    /// Files that retained snapshots reach.
    pub all_files: u64,
}

/// A plan that was made.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Planned {
    /// When.
    pub planned_at_ms: i64,
    /// The plan as in `icewright plan --json`. Of a plan made by a run, only `rewrite-data-files` is there.
    #[schema(value_type = Object)]
    pub plan: Box<RawValue>,
}
