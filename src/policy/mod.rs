//! What an operator wants for a table. Job: TOML policies -> one [`TablePolicy`] per table, each value with its origin.
//! Pure. It must never look at a catalog or a store.

mod check;
mod human;
mod resolve;
mod schedule;
mod select;
mod setting;
mod value;

use std::time::Duration;

pub use check::{Finding, Severity, check};
pub use human::human_duration;
pub use resolve::{PolicySet, ResolvedPolicy, SettingValue};
pub use schedule::time_zone;
pub use select::{Specificity, TablePattern, TablePatterns};
pub use setting::{Layer, Origin, Place, Placed, Setting, SettingReader, key};

use crate::action::Action;

/// A length of time, or a multiple of the table's commit interval (`"3x"`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Span {
    Fixed(Duration),
    /// So many commit intervals.
    Intervals(f64),
}

impl Span {
    /// The duration this span means for a table that commits every `commit_interval`.
    pub fn resolve(self, commit_interval: Duration) -> Duration {
        match self {
            Self::Fixed(d) => d,
            Self::Intervals(n) => {
                Duration::try_from_secs_f64(commit_interval.as_secs_f64() * n).unwrap_or(Duration::MAX)
            }
        }
    }
}

/// How often the table's writer commits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CommitInterval {
    Fixed(Duration),
    /// Inferred from the table's own snapshots.
    Auto,
}

impl CommitInterval {
    /// As configured, else as `inferred`.
    pub fn resolve(self, inferred: Duration) -> Duration {
        match self {
            Self::Fixed(interval) => interval,
            Self::Auto => inferred,
        }
    }
}

/// When runs start.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// Every so often, counted from the last run.
    Every(Duration),
    /// A cron expression, in the policy's time zone.
    Cron(String),
}

/// Everything the daemon wants to know about one table's maintenance; all defaults are filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct TablePolicy {
    /// How often the writer commits.
    pub commit_interval: CommitInterval,
    pub schedule: Schedule,
    /// IANA zone name of the schedule and of partition windows.
    pub time_zone: String,
    /// Wait between compaction and the two clean-ups.
    pub delay: Span,
    pub rewrite_data_files: RewriteDataFilesPolicy,
    pub expire_snapshots: ExpireSnapshotsPolicy,
    pub remove_orphan_files: RemoveOrphanFilesPolicy,
}

impl Default for TablePolicy {
    fn default() -> Self {
        Self {
            commit_interval: CommitInterval::Auto,
            schedule: Schedule::Every(Duration::from_secs(60 * 60)),
            time_zone: "UTC".to_owned(),
            delay: Span::Intervals(3.0),
            rewrite_data_files: RewriteDataFilesPolicy::default(),
            expire_snapshots: ExpireSnapshotsPolicy::default(),
            remove_orphan_files: RemoveOrphanFilesPolicy::default(),
        }
    }
}

impl TablePolicy {
    /// Whether the action runs at all.
    pub fn is_enabled(&self, action: Action) -> bool {
        match action {
            Action::RewriteDataFiles => self.rewrite_data_files.enabled,
            Action::ExpireSnapshots => self.expire_snapshots.enabled,
            Action::RemoveOrphanFiles => self.remove_orphan_files.enabled,
        }
    }
}

/// Options of compaction: Iceberg's names and defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct RewriteDataFilesPolicy {
    pub enabled: bool,
    /// Rewrite every file, whatever its size.
    pub rewrite_all: bool,
    /// `None`: the table's `write.target-file-size-bytes`, else 512 MiB.
    pub target_file_size_bytes: Option<u64>,
    /// `None`: 0.75 x target, truncated.
    pub min_file_size_bytes: Option<u64>,
    /// `None`: 1.8 x target, truncated.
    pub max_file_size_bytes: Option<u64>,
    /// A group of at least this many files (and at least 2) is rewritten.
    pub min_input_files: usize,
    /// Input bytes of a file group at most.
    pub max_file_group_size_bytes: u64,
    /// Input files of a file group at most.
    pub max_file_group_input_files: Option<usize>,
    /// A data file with this many delete files is rewritten.
    pub delete_file_threshold: Option<usize>,
    /// A data file with this share of its rows deleted by file-scoped deletes is rewritten.
    pub delete_ratio_threshold: f64,
    /// Input files of a run at most.
    pub max_files_to_rewrite: Option<usize>,
    pub rewrite_job_order: RewriteJobOrder,
    /// File groups rewritten at the same time.
    pub max_concurrent_file_group_rewrites: usize,
    /// Whether to commit in several batches.
    pub partial_progress: PartialProgress,
    pub partitions: PartitionSelection,
}

impl Default for RewriteDataFilesPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            rewrite_all: false,
            target_file_size_bytes: None,
            min_file_size_bytes: None,
            max_file_size_bytes: None,
            min_input_files: 5,
            max_file_group_size_bytes: 100 << 30,
            max_file_group_input_files: None,
            delete_file_threshold: None,
            delete_ratio_threshold: 0.3,
            max_files_to_rewrite: None,
            rewrite_job_order: RewriteJobOrder::None,
            max_concurrent_file_group_rewrites: 5,
            partial_progress: PartialProgress::default(),
            partitions: PartitionSelection::All,
        }
    }
}

/// Order in which file groups are rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteJobOrder {
    None,
    BytesAsc,
    BytesDesc,
    FilesAsc,
    FilesDesc,
}

impl RewriteJobOrder {
    /// As the configuration says them.
    pub const WORDS: &[(&str, Self)] = &[
        ("none", Self::None),
        ("bytes-asc", Self::BytesAsc),
        ("bytes-desc", Self::BytesDesc),
        ("files-asc", Self::FilesAsc),
        ("files-desc", Self::FilesDesc),
    ];
}

/// `partial-progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialProgress {
    /// Commit in up to `max_commits` batches instead of one.
    pub enabled: bool,
    /// Batches at most.
    pub max_commits: usize,
    /// `None`: as many as `max_commits`.
    pub max_failed_commits: Option<usize>,
}

impl Default for PartialProgress {
    fn default() -> Self {
        Self { enabled: false, max_commits: 10, max_failed_commits: None }
    }
}

/// Which partitions a rewrite looks at.
#[derive(Debug, Clone, PartialEq)]
pub enum PartitionSelection {
    All,
    /// The partition of one time window before now, in the policy's time zone.
    Window {
        /// The partition field (or its source column) holding a formatted local time or a time transform.
        column: String,
        window: Window,
        /// strftime format of a string partition value; `None` for day and hour transforms.
        format: Option<String>,
    },
    /// Conditions that must all hold.
    Conditions(Vec<PartitionCondition>),
}

/// A window of local time, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The hour before the current one.
    PreviousHour,
    /// The day before the current one.
    PreviousDay,
}

impl Window {
    /// As the configuration says them.
    pub const WORDS: &[(&str, Self)] = &[("previous-hour", Self::PreviousHour), ("previous-day", Self::PreviousDay)];
}

/// One condition on a partition value.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionCondition {
    /// The partition field (or its source column).
    pub column: String,
    /// What must hold.
    pub test: PartitionTest,
}

/// What must hold for a partition value. Values are text, parsed by the partition field's type.
#[derive(Debug, Clone, PartialEq)]
pub enum PartitionTest {
    /// One of these values.
    Equal(Vec<String>),
    /// The value as a time is more than this before now.
    Older {
        /// Age.
        than: Span,
        /// strftime format of a string value.
        format: Option<String>,
    },
    /// The value as a time is at most this before now.
    Newer {
        /// Age.
        than: Span,
        /// strftime format of a string value.
        format: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExpireSnapshotsPolicy {
    pub enabled: bool,
    /// Snapshots older than this expire, unless a ref keeps them.
    pub older_than: Span,
    /// Ancestors kept on each branch whatever their age, unless the branch has its own number.
    pub retain_last: usize,
    /// How long a writer may be silent before the snapshot that holds its progress may expire.
    pub writer_retention: Span,
}

impl Default for ExpireSnapshotsPolicy {
    fn default() -> Self {
        let two_weeks = Duration::from_secs(14 * 24 * 60 * 60);
        Self {
            enabled: true,
            older_than: Span::Intervals(2.0),
            retain_last: 1,
            writer_retention: Span::Fixed(two_weeks),
        }
    }
}

impl ExpireSnapshotsPolicy {
    /// How long a writer may be silent: at least as long as it takes to commit again.
    pub fn writer_retention(&self, commit_interval: Duration) -> Duration {
        self.writer_retention.resolve(commit_interval).max(commit_interval)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RemoveOrphanFilesPolicy {
    pub enabled: bool,
    /// Age at which provable garbage goes.
    pub older_than: Span,
    /// Age at which a file goes that no one refers to, without further proof.
    pub unproven_min_age: Span,
    /// Other tables that may be unreadable: they surely need no file in this table's folders. What can be read of them counts.
    pub ignore_unreadable: TablePatterns,
}

impl Default for RemoveOrphanFilesPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            older_than: Span::Intervals(2.0),
            unproven_min_age: Span::Fixed(Duration::from_secs(24 * 60 * 60)),
            ignore_unreadable: TablePatterns::default(),
        }
    }
}

impl RemoveOrphanFilesPolicy {
    /// The ages at which a file may go: provable garbage, and a file that no one refers to. A file of the streaming
    /// writer waits up to a commit interval for its commit, so neither age is less than one; and what is not proven never
    /// goes sooner than what is.
    pub fn ages(&self, commit_interval: Duration) -> (Duration, Duration) {
        let older_than = self.older_than.resolve(commit_interval).max(commit_interval);
        (older_than, self.unproven_min_age.resolve(commit_interval).max(older_than))
    }
}
