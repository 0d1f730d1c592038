//! Why files are left alone: a closed set of reasons, counted while planning.

use std::collections::BTreeMap;

use super::sizes::Sizes;
use super::{RewriteTask, Skipped};
use crate::table::FileEntry;

/// Why a data file is not in a plan, in the order of the questions asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SkipReason {
    Disabled,
    PartitionSpecUnwritable,
    PartitionFieldMissing,
    PartitionValueUnreadable,
    PartitionNotSelected,
    DuplicatePath,
    InvalidEntry,
    Encrypted,
    Format,
    DeleteFormat,
    RightSize,
    SingleFile,
    TooFewFiles,
    OtherSpec,
    AlreadyCompacted,
    TruncatedByMaxFiles,
}

impl SkipReason {
    /// The name in labels, goldens and reports.
    fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::PartitionSpecUnwritable => "partition_spec_unwritable",
            Self::PartitionFieldMissing => "partition_field_missing",
            Self::PartitionValueUnreadable => "partition_value_unreadable",
            Self::PartitionNotSelected => "partition_not_selected",
            Self::DuplicatePath => "duplicate_path",
            Self::InvalidEntry => "invalid_entry",
            Self::Encrypted => "encrypted",
            Self::Format => "format",
            Self::DeleteFormat => "delete_format",
            Self::RightSize => "right_size",
            Self::SingleFile => "single_file",
            Self::TooFewFiles => "too_few_files",
            Self::OtherSpec => "other_spec",
            Self::AlreadyCompacted => "already_compacted",
            Self::TruncatedByMaxFiles => "truncated_by_max_files",
        }
    }

    fn detail(self, sizes: Option<&Sizes>, min_input_files: usize) -> String {
        let (min, max) = sizes.map_or((0, 0), |sizes| (sizes.min_bytes, sizes.max_bytes));
        match self {
            Self::Disabled => "rewrite-data-files is switched off by the policy".to_string(),
            Self::PartitionSpecUnwritable => {
                "nothing is written by such a spec; change the table's partition spec".to_string()
            }
            Self::PartitionFieldMissing => {
                "their partition spec lacks the column that the policy selects by; partitions = \"all\" includes them"
                    .to_string()
            }
            Self::PartitionValueUnreadable => {
                "their partition value is not written as the policy's format says; correct format".to_string()
            }
            Self::PartitionNotSelected => "the policy selects other partitions now".to_string(),
            Self::DuplicatePath => {
                "a data file of their partition, or a delete file that may apply to them, is live twice, and a rewrite would \
                 settle silently what that means; remove one of the entries"
                    .to_string()
            }
            Self::InvalidEntry => {
                "the manifest entry of one of their partition, or of a delete file that may apply to them, contradicts the \
                 specification; whoever wrote it has to mend it"
                    .to_string()
            }
            Self::Encrypted => "they, or delete files that apply to them, are encrypted; this version rewrites plain files only".to_string(),
            Self::Format => "not Parquet; this version rewrites Parquet only".to_string(),
            Self::DeleteFormat => {
                "a delete file that applies to them is not Parquet; this version reads Parquet only".to_string()
            }
            Self::RightSize => {
                format!("{min} to {max} bytes and few deletes; rewrite-all, or a lower delete threshold, includes them")
            }
            Self::SingleFile => "alone in their group, and not too large".to_string(),
            Self::TooFewFiles => format!(
                "fewer than min-input-files ({min_input_files}) in their group, and together not above the target size"
            ),
            Self::OtherSpec => {
                "of an older partition spec, and written into the current one they might become as many files or more; \
                 rewrite-all includes them"
                    .to_string()
            }
            Self::AlreadyCompacted => {
                "no deletes ask for it and a rewrite would not make fewer files; changes when files or deletes arrive"
                    .to_string()
            }
            Self::TruncatedByMaxFiles => "beyond max-files-to-rewrite; their turn comes with a later run".to_string(),
        }
    }
}

/// Whether the reason of this name is a contradiction in the table's metadata.
pub(super) fn is_doubt(name: &str) -> bool {
    [SkipReason::DuplicatePath, SkipReason::InvalidEntry].iter().any(|reason| reason.as_str() == name)
}

/// Counts of files left alone.
#[derive(Debug, Default)]
pub(super) struct Skips {
    counts: BTreeMap<SkipReason, (usize, u64)>,
    examples: BTreeMap<SkipReason, String>,
}

impl Skips {
    pub(super) fn add(&mut self, reason: SkipReason, file: &FileEntry) {
        let (files, bytes) = self.counts.entry(reason).or_default();
        *files += 1;
        *bytes = bytes.saturating_add(file.file_size_bytes);
    }

    pub(super) fn add_all(&mut self, reason: SkipReason, tasks: &[RewriteTask]) {
        for task in tasks {
            self.add(reason, &task.data_file);
        }
    }

    /// Something to name beside a reason; the first by text, whatever the order in which they come.
    pub(super) fn example(&mut self, reason: SkipReason, text: String) {
        let known = self.examples.entry(reason).or_insert_with(|| text.clone());
        if text < *known {
            *known = text;
        }
    }

    /// One line per reason. `sizes` explain the reasons about sizes.
    pub(super) fn finish(self, sizes: Option<&Sizes>, min_input_files: usize) -> Vec<Skipped> {
        let line = |(reason, (files, bytes)): (SkipReason, (usize, u64))| Skipped {
            reason: reason.as_str(),
            detail: match self.examples.get(&reason) {
                Some(example) => format!("{}: {example}", reason.detail(sizes, min_input_files)),
                None => reason.detail(sizes, min_input_files),
            },
            files,
            bytes,
        };
        self.counts.iter().map(|(reason, counts)| (*reason, *counts)).map(line).collect()
    }
}
