//! One thing a policy says, where it says it, and how it changes a [`TablePolicy`].

use std::fmt;
use std::sync::Arc;

use super::{CommitInterval, PartitionSelection, RewriteJobOrder, Schedule, Span, TablePattern, TablePolicy};

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
    ($($(#[$doc:meta])* $variant:ident($type:ty) = $key:literal => |$policy:ident, $value:ident| $set:expr;)*) => {
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
                    $(Self::$variant($value) => { let $policy = policy; $set; })*
                }
            }
        }
    };
}

settings! {
    /// How often the writer commits.
    CommitInterval(CommitInterval) = "commit-interval" => |p, v| p.commit_interval = v;
    /// `schedule` or `every`.
    Schedule(Schedule) = "schedule" => |p, v| p.schedule = v;
    /// IANA zone.
    TimeZone(String) = "time-zone" => |p, v| p.time_zone = v;
    /// Wait before the clean-ups.
    Delay(Span) = "delay" => |p, v| p.delay = v;
    /// Whether compaction runs.
    RewriteEnabled(bool) = "rewrite-data-files.enabled" => |p, v| p.rewrite_data_files.enabled = v;
    /// Every file, whatever its size.
    RewriteAll(bool) = "rewrite-data-files.rewrite-all" => |p, v| p.rewrite_data_files.rewrite_all = v;
    /// Bytes.
    TargetFileSize(u64) = "rewrite-data-files.target-file-size"
        => |p, v| p.rewrite_data_files.target_file_size_bytes = Some(v);
    /// Bytes.
    MinFileSize(u64) = "rewrite-data-files.min-file-size" => |p, v| p.rewrite_data_files.min_file_size_bytes = Some(v);
    /// Bytes.
    MaxFileSize(u64) = "rewrite-data-files.max-file-size" => |p, v| p.rewrite_data_files.max_file_size_bytes = Some(v);
    /// Files.
    MinInputFiles(usize) = "rewrite-data-files.min-input-files" => |p, v| p.rewrite_data_files.min_input_files = v;
    /// Bytes.
    MaxFileGroupSize(u64) = "rewrite-data-files.max-file-group-size"
        => |p, v| p.rewrite_data_files.max_file_group_size_bytes = v;
    /// Files.
    MaxFileGroupInputFiles(usize) = "rewrite-data-files.max-file-group-input-files"
        => |p, v| p.rewrite_data_files.max_file_group_input_files = Some(v);
    /// Delete files.
    DeleteFileThreshold(usize) = "rewrite-data-files.delete-file-threshold"
        => |p, v| p.rewrite_data_files.delete_file_threshold = Some(v);
    /// Share of rows.
    DeleteRatioThreshold(f64) = "rewrite-data-files.delete-ratio-threshold"
        => |p, v| p.rewrite_data_files.delete_ratio_threshold = v;
    /// Files.
    MaxFilesToRewrite(usize) = "rewrite-data-files.max-files-to-rewrite"
        => |p, v| p.rewrite_data_files.max_files_to_rewrite = Some(v);
    /// Order of groups.
    RewriteJobOrder(RewriteJobOrder) = "rewrite-data-files.rewrite-job-order"
        => |p, v| p.rewrite_data_files.rewrite_job_order = v;
    /// Groups at a time.
    MaxConcurrentFileGroupRewrites(usize) = "rewrite-data-files.max-concurrent-file-group-rewrites"
        => |p, v| p.rewrite_data_files.max_concurrent_file_group_rewrites = v;
    /// Several commits.
    PartialProgressEnabled(bool) = "rewrite-data-files.partial-progress.enabled"
        => |p, v| p.rewrite_data_files.partial_progress.enabled = v;
    /// Commits.
    PartialProgressMaxCommits(usize) = "rewrite-data-files.partial-progress.max-commits"
        => |p, v| p.rewrite_data_files.partial_progress.max_commits = v;
    /// Commits.
    PartialProgressMaxFailedCommits(usize) = "rewrite-data-files.partial-progress.max-failed-commits"
        => |p, v| p.rewrite_data_files.partial_progress.max_failed_commits = Some(v);
    /// Which partitions.
    Partitions(PartitionSelection) = "rewrite-data-files.partitions" => |p, v| p.rewrite_data_files.partitions = v;
    /// Whether expiry runs.
    ExpireEnabled(bool) = "expire-snapshots.enabled" => |p, v| p.expire_snapshots.enabled = v;
    /// Age.
    ExpireOlderThan(Span) = "expire-snapshots.older-than" => |p, v| p.expire_snapshots.older_than = v;
    /// Snapshots.
    RetainLast(usize) = "expire-snapshots.retain-last" => |p, v| p.expire_snapshots.retain_last = v;
    /// Whether orphan removal runs.
    OrphanEnabled(bool) = "remove-orphan-files.enabled" => |p, v| p.remove_orphan_files.enabled = v;
    /// Age.
    OrphanOlderThan(Span) = "remove-orphan-files.older-than" => |p, v| p.remove_orphan_files.older_than = v;
    /// Age.
    UnprovenMinAge(Span) = "remove-orphan-files.unproven-min-age"
        => |p, v| p.remove_orphan_files.unproven_min_age = v;
}
