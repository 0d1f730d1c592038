//! What the clean-up actions did, in numbers and reasons.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::clock::PhaseTimes;
use crate::error::Error;
use crate::plan::remove_orphan_files::{Garbage, KeepReason};
use crate::table::file_names::{ManifestListName, file_name, is_metadata_file};

/// Failures told in full at most; the rest is only counted.
const FAILURES_TOLD: usize = 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub files: u64,
    /// Their bytes, where known.
    pub bytes: u64,
}

impl Tally {
    pub fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn take_out(&mut self, bytes: u64) {
        self.files = self.files.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub fn absorb(&mut self, other: Self) {
        self.files += other.files;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Kinds of files, in the order in which they are deleted: what lists others goes after what it lists, since it is the
/// proof about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    DataFile,
    /// Position deletes or deletion vectors.
    PositionDeleteFile,
    EqualityDeleteFile,
    /// Found by listing and neither of the kinds below.
    Other,
    /// Table or partition statistics.
    StatisticsFile,
    Manifest,
    ManifestList,
    MetadataFile,
}

impl FileKind {
    /// What a listed file is, by its name.
    pub(super) fn of_listed(path: &str) -> Self {
        let name = file_name(path);
        if is_metadata_file(name) {
            Self::MetadataFile
        } else if ManifestListName::parse(name).is_some() || (name.starts_with("snap-") && name.ends_with(".avro")) {
            Self::ManifestList
        } else if name.ends_with(".avro") {
            Self::Manifest
        } else {
            Self::Other
        }
    }

    /// Whether it lists other files.
    pub(super) fn is_proof(self) -> bool {
        matches!(self, Self::Manifest | Self::ManifestList | Self::MetadataFile)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpireOutcome {
    /// There was nothing to expire; nothing was sent.
    #[default]
    Nothing,
    /// The snapshots are gone from the metadata.
    Committed,
    /// They are not; nothing changed.
    NotCommitted,
    /// It could not be found out; nothing was deleted.
    Unknown,
}

fn error_text<S: Serializer>(error: &Option<Error>, serializer: S) -> Result<S::Ok, S::Error> {
    error.as_ref().map(ToString::to_string).serialize(serializer)
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExpireReport {
    pub outcome: ExpireOutcome,
    /// Why there was nothing to expire.
    pub reason: Option<String>,
    /// Snapshots that left the metadata.
    pub expired_snapshots: usize,
    /// Branches and tags that left the metadata.
    pub removed_refs: Vec<String>,
    pub deleted: BTreeMap<FileKind, Tally>,
    /// Files that could not be deleted and may still be there, by kind.
    pub failed: BTreeMap<FileKind, Tally>,
    /// What failed, for the first few.
    pub failures: Vec<String>,
    /// Files that no retained snapshot needs and that stay all the same, by reason.
    pub kept: BTreeMap<&'static str, Tally>,
    /// Why none of them was deleted, if it could not be told that they are this table's alone: somebody has to look.
    #[serde(skip)]
    pub files_stay: Option<Refused>,
    /// Conflicts met before the commit went through.
    pub conflicts: u32,
    /// Answers lost on the way.
    pub unknown_outcomes: u32,
    /// Whether nothing was tried since that would not have been safe; `error` says why.
    pub refused: bool,
    /// How long the phases took, in milliseconds: `plan`, `commit`, `delete`, those that were begun.
    pub phases_ms: PhaseTimes,
    /// What stopped the action, if something did.
    #[serde(serialize_with = "error_text")]
    pub error: Option<Error>,
}

/// Why an orphan run did not start, or stopped before it deleted anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Stable name: `disabled`, `gc_disabled`, `clock_skew`, `shared_location`, `prefix_mismatch`, `listing_mismatch`,
    /// `neighbour_unreadable`, `registered_twice`, `other_name`.
    pub reason: &'static str,
    /// For a person: what was found, and the cure.
    pub detail: String,
    /// Whether somebody only gave no answer: that may pass by itself.
    #[serde(skip)]
    pub passes: bool,
}

impl Refused {
    /// A refusal that lasts until somebody does something about it.
    pub fn new(reason: &'static str, detail: String) -> Self {
        Self { reason, detail, passes: false }
    }
}

/// A search for orphan files, and their removal if that was asked for.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OrphanReport {
    pub refused: Option<Refused>,
    /// Files listed in the table's directories.
    pub listed: Tally,
    /// Of these, referenced by retained metadata.
    pub referenced: Tally,
    /// Of these, referenced by nothing and not protected, whatever their age.
    pub orphans: Tally,
    /// Unreferenced files that may go, by proof (found, not yet deleted).
    pub removable: BTreeMap<Garbage, Tally>,
    /// Unreferenced files that stay, by reason.
    pub kept: BTreeMap<KeepReason, Tally>,
    pub deleted: BTreeMap<FileKind, Tally>,
    /// Files that could not be deleted, by kind.
    pub failed: BTreeMap<FileKind, Tally>,
    /// What failed, for the first few.
    pub failures: Vec<String>,
    /// How long the phases took, in milliseconds: `list`, `check`, `delete`, those that were begun.
    pub phases_ms: PhaseTimes,
    /// What stopped the action, if something did.
    #[serde(serialize_with = "error_text")]
    pub error: Option<Error>,
}

impl OrphanReport {
    pub(super) fn keep(&mut self, why: KeepReason, bytes: u64) {
        self.kept.entry(why).or_default().add(bytes);
    }
}

/// Why a search for orphan files ended before it knew what may go. Nothing was deleted.
#[derive(Debug)]
pub(super) enum OrphanError {
    Refused(Refused),
    Failed(Error),
}

impl From<Refused> for OrphanError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Error> for OrphanError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) fn note_failure(failures: &mut Vec<String>, path: &str, error: &Error) {
    if failures.len() < FAILURES_TOLD {
        failures.push(error.clone().context_of("delete", path).to_string());
    }
}
