//! One thing a policy says, where it says it, and how it changes a [`TablePolicy`].

use std::fmt;
use std::sync::Arc;

use super::value::AsToml;
use super::{
    CommitInterval, PartitionSelection, RewriteJobOrder, Schedule, Span, TablePattern, TablePatterns, TablePolicy,
};

/// A place in the configuration file; lines and columns count from 1, columns and widths in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Line.
    pub line: u32,
    /// Column of the first character.
    pub column: u32,
    /// Characters, as far as they stand on this line.
    pub width: u32,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed<T> {
    /// The value.
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
    /// What it says.
    pub settings: Vec<Placed<Setting>>,
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

/// Declares [`Setting`]: variant, type, key path and the field of [`TablePolicy`] it sets.
macro_rules! settings {
    ($($(#[$doc:meta])* $variant:ident($type:ty) = $key:literal => $($field:ident).+;)*) => {
        /// One thing that a policy can say.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Setting {
            $($(#[$doc])* $variant($type),)*
        }

        impl Setting {
            /// The key paths of all settings.
            pub const KEYS: &[&'static str] = &[$($key),*];

            /// The key path, relative to the policy.
            pub fn key(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $key,)*
                }
            }

            /// Makes the policy say this.
            pub fn apply(self, policy: &mut TablePolicy) {
                match self {
                    $(Self::$variant(value) => policy.$($field).+ = value.into(),)*
                }
            }

            /// Every key path with the policy's value as it would be written in TOML; `None`: nothing is said, and the
            /// value follows from the table or from other settings.
            pub fn values(policy: &TablePolicy) -> Vec<(&'static str, Option<String>)> {
                vec![$(($key, policy.$($field).+.as_toml())),*]
            }
        }
    };
}

settings! {
    /// How often the writer commits.
    CommitInterval(CommitInterval) = "commit-interval" => commit_interval;
    /// `schedule` or `every`.
    Schedule(Schedule) = "schedule" => schedule;
    /// IANA zone.
    TimeZone(String) = "time-zone" => time_zone;
    /// Wait before the clean-ups.
    Delay(Span) = "delay" => delay;
    /// Whether compaction runs.
    RewriteEnabled(bool) = "rewrite-data-files.enabled" => rewrite_data_files.enabled;
    /// Every file, whatever its size.
    RewriteAll(bool) = "rewrite-data-files.rewrite-all" => rewrite_data_files.rewrite_all;
    /// Bytes.
    TargetFileSize(u64) = "rewrite-data-files.target-file-size" => rewrite_data_files.target_file_size_bytes;
    /// Bytes.
    MinFileSize(u64) = "rewrite-data-files.min-file-size" => rewrite_data_files.min_file_size_bytes;
    /// Bytes.
    MaxFileSize(u64) = "rewrite-data-files.max-file-size" => rewrite_data_files.max_file_size_bytes;
    /// Files.
    MinInputFiles(usize) = "rewrite-data-files.min-input-files" => rewrite_data_files.min_input_files;
    /// Bytes.
    MaxFileGroupSize(u64) = "rewrite-data-files.max-file-group-size" => rewrite_data_files.max_file_group_size_bytes;
    /// Files.
    MaxFileGroupInputFiles(usize) = "rewrite-data-files.max-file-group-input-files"
        => rewrite_data_files.max_file_group_input_files;
    /// Delete files.
    DeleteFileThreshold(usize) = "rewrite-data-files.delete-file-threshold" => rewrite_data_files.delete_file_threshold;
    /// Share of rows.
    DeleteRatioThreshold(f64) = "rewrite-data-files.delete-ratio-threshold"
        => rewrite_data_files.delete_ratio_threshold;
    /// Files.
    MaxFilesToRewrite(usize) = "rewrite-data-files.max-files-to-rewrite" => rewrite_data_files.max_files_to_rewrite;
    /// Order of groups.
    RewriteJobOrder(RewriteJobOrder) = "rewrite-data-files.rewrite-job-order" => rewrite_data_files.rewrite_job_order;
    /// Groups at a time.
    MaxConcurrentFileGroupRewrites(usize) = "rewrite-data-files.max-concurrent-file-group-rewrites"
        => rewrite_data_files.max_concurrent_file_group_rewrites;
    /// Several commits.
    PartialProgressEnabled(bool) = "rewrite-data-files.partial-progress.enabled"
        => rewrite_data_files.partial_progress.enabled;
    /// Commits.
    PartialProgressMaxCommits(usize) = "rewrite-data-files.partial-progress.max-commits"
        => rewrite_data_files.partial_progress.max_commits;
    /// Commits.
    PartialProgressMaxFailedCommits(usize) = "rewrite-data-files.partial-progress.max-failed-commits"
        => rewrite_data_files.partial_progress.max_failed_commits;
    /// Which partitions.
    Partitions(PartitionSelection) = "rewrite-data-files.partitions" => rewrite_data_files.partitions;
    /// Whether expiry runs.
    ExpireEnabled(bool) = "expire-snapshots.enabled" => expire_snapshots.enabled;
    /// Age.
    ExpireOlderThan(Span) = "expire-snapshots.older-than" => expire_snapshots.older_than;
    /// Snapshots.
    RetainLast(usize) = "expire-snapshots.retain-last" => expire_snapshots.retain_last;
    /// Time.
    WriterRetention(Span) = "expire-snapshots.writer-retention" => expire_snapshots.writer_retention;
    /// Whether orphan removal runs.
    OrphanEnabled(bool) = "remove-orphan-files.enabled" => remove_orphan_files.enabled;
    /// Age.
    OrphanOlderThan(Span) = "remove-orphan-files.older-than" => remove_orphan_files.older_than;
    /// Age.
    UnprovenMinAge(Span) = "remove-orphan-files.unproven-min-age" => remove_orphan_files.unproven_min_age;
    /// Other tables.
    IgnoreUnreadable(TablePatterns) = "remove-orphan-files.ignore-unreadable" => remove_orphan_files.ignore_unreadable;
}
