//! What a policy can say, where it says it, and how that changes a [`TablePolicy`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::value::AsToml;
use super::{
    CommitInterval, PartitionSelection, RewriteJobOrder, Schedule, Span, TablePattern, TablePatterns, TablePolicy,
};

/// A place in the configuration file; lines and columns count from 1, columns and widths in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub line: u32,
    /// Column of the first character.
    pub column: u32,
    /// Characters, as far as they stand on this line.
    pub width: u32,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed<T> {
    pub value: T,
    /// Where it was read.
    pub place: Place,
}

/// Where a value of a resolved policy comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was said about it.
    BuiltIn,
    /// The `[defaults]` section.
    Defaults(Place),
    /// A policy of this name.
    Policy(Arc<str>, Place),
}

impl Origin {
    /// Where it stands in the file, unless built in.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::BuiltIn => None,
            Self::Defaults(place) | Self::Policy(_, place) => Some(*place),
        }
    }

    /// Whether both were said in the same section.
    pub fn same_section(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::BuiltIn, Self::BuiltIn) | (Self::Defaults(_), Self::Defaults(_)) => true,
            (Self::Policy(a, _), Self::Policy(b, _)) => a == b,
            (Self::BuiltIn | Self::Defaults(_) | Self::Policy(..), _) => false,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in default"),
            Self::Defaults(place) => write!(f, "[defaults] line {}", place.line),
            Self::Policy(name, place) => write!(f, "policy \"{name}\" line {}", place.line),
        }
    }
}

/// A section of settings: `[defaults]`, or one of `[[policies]]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layer {
    /// The policy's name; `None` for `[defaults]`.
    pub name: Option<Arc<str>>,
    /// Which tables it speaks of; empty for `[defaults]`.
    pub tables: Vec<Placed<TablePattern>>,
    /// The key paths of the settings that it says, and where.
    pub said: BTreeMap<&'static str, Place>,
    /// What it says; the fields of all other settings mean nothing.
    pub values: TablePolicy,
}

impl Layer {
    /// The origin of a setting of this section.
    pub(super) fn origin(&self, place: Place) -> Origin {
        match &self.name {
            Some(name) => Origin::Policy(name.clone(), place),
            None => Origin::Defaults(place),
        }
    }
}

/// A value of the configuration that a setting reads. `None`: it cannot be used, and that was reported.
pub trait SettingReader {
    /// `true` or `false`.
    fn boolean(&self) -> Option<bool>;
    /// A whole number of at least `min`.
    fn count(&self, min: usize) -> Option<usize>;
    /// A share above 0, at most 1.
    fn ratio(&self) -> Option<f64>;
    /// Bytes, above 0.
    fn size(&self) -> Option<u64>;
    fn size_or_zero(&self) -> Option<u64>;
    /// A duration or a multiple of the commit interval.
    fn span(&self) -> Option<Span>;
    /// A span that a schedule is made of.
    fn wait(&self) -> Option<Span>;
    /// A duration, or `auto`.
    fn commit_interval(&self) -> Option<CommitInterval>;
    fn cron(&self) -> Option<Schedule>;
    /// An IANA name.
    fn time_zone(&self) -> Option<String>;
    /// One of the words of an order.
    fn rewrite_job_order(&self) -> Option<RewriteJobOrder>;
    /// All, a window, or conditions.
    fn partitions(&self) -> Option<PartitionSelection>;
    /// A list that may be empty.
    fn patterns(&self) -> Option<TablePatterns>;
}

/// One thing that a policy can say: a key of the configuration and a field of [`TablePolicy`].
pub struct Setting {
    /// The key path, relative to the policy.
    pub key: &'static str,
    /// Makes the policy say what the value says.
    pub read: fn(&dyn SettingReader, &mut TablePolicy) -> Option<()>,
    /// Makes the second policy say what the first one says.
    pub(super) copy: fn(&TablePolicy, &mut TablePolicy),
    /// The policy's value as it would be written in TOML; `None`: nothing is said, and the value follows from the table or from
    /// other settings.
    pub(super) as_toml: fn(&TablePolicy) -> Option<String>,
}

/// Declares every [`Setting`]: the name of its key, the key, the field, and how its value is read.
macro_rules! settings {
    ($($name:ident = $key:literal => $($field:ident).+, $read:ident($($min:literal)?);)*) => {
        /// The key paths of settings.
        pub mod key {
            $(pub const $name: &str = $key;)*
        }

        impl Setting {
            /// The key paths of all settings.
            pub const KEYS: &[&'static str] = &[$($key),*];

            /// All settings, in the order of the configuration reference.
            pub const ALL: &[Self] = &[$(Self {
                key: $key,
                read: |value, policy| value.$read($($min)?).map(|value| policy.$($field).+ = value.into()),
                copy: |from, to| to.$($field).+.clone_from(&from.$($field).+),
                as_toml: |policy| policy.$($field).+.as_toml(),
            }),*];
        }
    };
}

settings! {
    COMMIT_INTERVAL = "commit-interval" => commit_interval, commit_interval();
    SCHEDULE = "schedule" => schedule, cron();
    TIME_ZONE = "time-zone" => time_zone, time_zone();
    DELAY = "delay" => delay, wait();
    REWRITE_ENABLED = "rewrite-data-files.enabled" => rewrite_data_files.enabled, boolean();
    REWRITE_ALL = "rewrite-data-files.rewrite-all" => rewrite_data_files.rewrite_all, boolean();
    TARGET_FILE_SIZE = "rewrite-data-files.target-file-size" => rewrite_data_files.target_file_size_bytes, size();
    MIN_FILE_SIZE = "rewrite-data-files.min-file-size" => rewrite_data_files.min_file_size_bytes, size_or_zero();
    MAX_FILE_SIZE = "rewrite-data-files.max-file-size" => rewrite_data_files.max_file_size_bytes, size();
    MIN_INPUT_FILES = "rewrite-data-files.min-input-files" => rewrite_data_files.min_input_files, count(1);
    MAX_FILE_GROUP_SIZE = "rewrite-data-files.max-file-group-size"
        => rewrite_data_files.max_file_group_size_bytes, size();
    MAX_FILE_GROUP_INPUT_FILES = "rewrite-data-files.max-file-group-input-files"
        => rewrite_data_files.max_file_group_input_files, count(1);
    DELETE_FILE_THRESHOLD = "rewrite-data-files.delete-file-threshold"
        => rewrite_data_files.delete_file_threshold, count(1);
    DELETE_RATIO_THRESHOLD = "rewrite-data-files.delete-ratio-threshold"
        => rewrite_data_files.delete_ratio_threshold, ratio();
    MAX_FILES_TO_REWRITE = "rewrite-data-files.max-files-to-rewrite"
        => rewrite_data_files.max_files_to_rewrite, count(1);
    REWRITE_JOB_ORDER = "rewrite-data-files.rewrite-job-order"
        => rewrite_data_files.rewrite_job_order, rewrite_job_order();
    MAX_CONCURRENT_FILE_GROUP_REWRITES = "rewrite-data-files.max-concurrent-file-group-rewrites"
        => rewrite_data_files.max_concurrent_file_group_rewrites, count(1);
    PARTIAL_PROGRESS_ENABLED = "rewrite-data-files.partial-progress.enabled"
        => rewrite_data_files.partial_progress.enabled, boolean();
    PARTIAL_PROGRESS_MAX_COMMITS = "rewrite-data-files.partial-progress.max-commits"
        => rewrite_data_files.partial_progress.max_commits, count(1);
    PARTIAL_PROGRESS_MAX_FAILED_COMMITS = "rewrite-data-files.partial-progress.max-failed-commits"
        => rewrite_data_files.partial_progress.max_failed_commits, count(0);
    PARTITIONS = "rewrite-data-files.partitions" => rewrite_data_files.partitions, partitions();
    EXPIRE_ENABLED = "expire-snapshots.enabled" => expire_snapshots.enabled, boolean();
    EXPIRE_OLDER_THAN = "expire-snapshots.older-than" => expire_snapshots.older_than, span();
    RETAIN_LAST = "expire-snapshots.retain-last" => expire_snapshots.retain_last, count(1);
    WRITER_RETENTION = "expire-snapshots.writer-retention" => expire_snapshots.writer_retention, wait();
    ORPHAN_ENABLED = "remove-orphan-files.enabled" => remove_orphan_files.enabled, boolean();
    ORPHAN_OLDER_THAN = "remove-orphan-files.older-than" => remove_orphan_files.older_than, span();
    UNPROVEN_MIN_AGE = "remove-orphan-files.unproven-min-age" => remove_orphan_files.unproven_min_age, span();
    IGNORE_UNREADABLE = "remove-orphan-files.ignore-unreadable" => remove_orphan_files.ignore_unreadable, patterns();
}
