//! What becomes of a file that no retained metadata refers to. Pure.
//!
//! Two ages count. [`OrphanRules::older_than_ms`] is short, a few commit intervals, and holds only for what is provably
//! garbage: left by a run of this project that is over, once referenced by a committed snapshot that has expired since,
//! or left by a writer that has committed past it. Anything else may be the uncommitted work of a slow writer and must
//! reach [`OrphanRules::unproven_min_age_ms`]. Some files go at no age.
//!
//! Without a proof a file also stays if its name is none that writers of tables give ([`file_names::is_of_a_table`]), or if it lies
//! below a name that begins with `_` or `.`, where engines keep what is theirs; directories of partitions (`_field=value`) are
//! no such place. There no proof by name counts either, since copies have the same names. What is referenced is referenced wherever it lies. `.<name>.crc`, a checksum that Hadoop's local file system puts
//! beside `<name>`, shares the fate of the file it belongs to.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

use crate::error::Result;
use crate::run_id::RunId;
use crate::table::ListedFile;
use crate::table::LoadedTable;
use crate::table::file_names::{self, WriterProgress, checksum_subject, file_name};
use crate::table::path::CanonicalPath;
use crate::table::path_set::{Fingerprint, PathSet};
use crate::table::references::{CLOCK_SKEW_LIMIT_MS, flink_job_ids, metadata_files};
use crate::table::scope::Scope;

const HOUR_MS: i64 = 60 * 60 * 1000;

/// Ages and the time they count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanRules {
    /// Now, milliseconds since the epoch.
    pub now_ms: i64,
    /// Age at which provable garbage goes, milliseconds.
    pub older_than_ms: i64,
    /// Age at which other unreferenced files go, milliseconds.
    pub unproven_min_age_ms: i64,
    /// A run of ours is over this long after its start, wherever it ran, milliseconds.
    pub run_timeout_ms: i64,
}

impl OrphanRules {
    /// Whether a file is old enough to go by some rule. Younger ones need no further look.
    pub fn may_go(&self, last_modified_ms: i64) -> bool {
        self.older(last_modified_ms, self.older_than_ms.min(self.unproven_min_age_ms))
    }

    /// Whether a run that wrote a file at this time may still have a commit on its way, however long ago it began: another
    /// process may have had a longer run timeout, or this one before it was started anew. With one and the same timeout no
    /// file of a run that is over is so young, since its last third, an hour at most, is the grace in which nothing is written.
    pub fn wrote_lately(&self, last_modified_ms: i64) -> bool {
        !self.older(last_modified_ms, (self.run_timeout_ms / 3).min(HOUR_MS))
    }

    /// When the store says that the file was last modified, if that can be.
    fn modified_ms(&self, file: &ListedFile) -> Option<i64> {
        file.last_modified_ms.filter(|ms| *ms > 0 && *ms <= self.now_ms)
    }

    fn older(&self, last_modified_ms: i64, age_ms: i64) -> bool {
        last_modified_ms < self.now_ms.saturating_sub(age_ms.max(0))
    }
}

/// Why an unreferenced file may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Garbage {
    /// Written by a run of this project that is over.
    RunOver,
    /// A committed snapshot referred to it that has expired since.
    OnceReferenced,
    /// Its writer, or the commit that made it, has committed something later.
    WriterCommittedPast,
    /// A metadata file of this table older than every file in the metadata log, by its version or by what it says itself.
    FellOutOfMetadataLog,
    /// Without proof, but older than the longest writer is expected to take.
    Unproven,
}

/// Why an unreferenced file stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepReason {
    /// Provable garbage that has not reached `older-than`.
    TooYoung,
    /// Not provably garbage, and younger than `unproven-min-age`.
    Unproven,
    /// The store told no last modification, zero, or a time to come.
    UnknownAge,
    /// Made by a run of this project that is, or may still be, active, or has written a file a short while ago.
    ActiveRun,
    /// A manifest that only a Flink checkpoint may know of: it carries the id of a job that commits to this table.
    FlinkCheckpoint,
    /// The hint that tells Hadoop tables their version.
    VersionHint,
    /// A metadata file at or after the current version: a commit may be under way.
    NewerMetadata,
    /// A metadata file without a version in its name that does not tell its age either.
    MetadataVersionUnknown,
    /// Lies in an external data or metadata directory, which tables that are not known here may share, and is not provably this
    /// table's.
    ExternalDirectory,
    /// Not below a directory of the table.
    OutsideTable,
    /// Not a file but the marker of a directory.
    DirectoryMarker,
    /// A manifest of a Flink checkpoint could not be read, so what it refers to is not known.
    FlinkCheckpointUnreadable,
    /// Content files that it lists could not be deleted, and it is the proof about them.
    ContentNotDeleted,
    /// One run takes a bounded number of files; the next goes on.
    RunLimit,
    /// Became referenced after the listing.
    ReferencedMeanwhile,
    /// Another table refers to it.
    ReferencedElsewhere,
    /// Another table cannot be read, and may refer to it.
    NeighbourUnreadable,
    /// Below a name that begins with `_` or `.`, where engines keep checkpoints, markers and staged files.
    Hidden,
    /// By its name no file that writers of tables make.
    Foreign,
    /// May be a file that metadata names by another path.
    OtherName,
}

impl KeepReason {
    /// Whether the file is in use or may be, as opposed to waiting for its age.
    pub fn is_protection(self) -> bool {
        match self {
            Self::ActiveRun
            | Self::FlinkCheckpoint
            | Self::VersionHint
            | Self::NewerMetadata
            | Self::DirectoryMarker
            | Self::OutsideTable
            | Self::ReferencedMeanwhile
            | Self::ReferencedElsewhere
            | Self::Hidden
            | Self::Foreign
            | Self::OtherName => true,
            Self::TooYoung
            | Self::Unproven
            | Self::UnknownAge
            | Self::MetadataVersionUnknown
            | Self::ExternalDirectory
            | Self::FlinkCheckpointUnreadable
            | Self::ContentNotDeleted
            | Self::NeighbourUnreadable
            | Self::RunLimit => false,
        }
    }

    /// Whether proof that comes to light later may let the file go in the same run.
    pub fn awaits_proof(self) -> bool {
        matches!(
            self,
            Self::Unproven | Self::Hidden | Self::Foreign | Self::ExternalDirectory | Self::MetadataVersionUnknown
        )
    }
}

/// What the table's metadata says about names, whatever the files' age.
#[derive(Debug, Clone, Default)]
pub struct NamesInUse {
    table: Uuid,
    flink_jobs: BTreeSet<String>,
    current_version: Option<(bool, u64)>,
    oldest_version: Option<u64>,
    last_updated_ms: i64,
    oldest_logged_ms: i64,
    /// What stands below the hash in the paths of data files, if they lie outside of the location in the layout for object storage.
    context: Option<String>,
}

impl NamesInUse {
    pub fn of(loaded: &LoadedTable) -> Result<Self> {
        let files = metadata_files(loaded)?;
        let versions: Vec<_> = files.into_iter().map(|f| file_names::metadata_version(file_name(f))).collect();
        let current_version = versions.first().copied().flatten();
        let same_kind = |v: &(bool, u64)| Some(v.0) == current_version.map(|c| c.0);
        let oldest_version = versions.into_iter().flatten().filter(same_kind).map(|(_, n)| n).min();
        let last_updated_ms = loaded.metadata.last_updated_ms();
        let logged = loaded.metadata.metadata_log().iter().map(|entry| entry.timestamp_ms);
        Ok(Self {
            table: loaded.metadata.uuid(),
            flink_jobs: flink_job_ids(loaded),
            current_version,
            oldest_version,
            last_updated_ms,
            oldest_logged_ms: logged.min().unwrap_or(last_updated_ms).min(last_updated_ms),
            context: object_storage_context(loaded),
        })
    }

    /// Whether the file's name begins with the id of a Flink job that has committed to this table.
    pub fn is_flink_checkpoint(&self, path: &str) -> bool {
        self.flink_jobs.iter().any(|job| file_name(path).starts_with(job.as_str()))
    }

    /// What a metadata file is by the version in its name, or why it stays.
    fn metadata_file(&self, name: &str) -> Result<Garbage, KeepReason> {
        match (file_names::metadata_version(name), self.current_version, self.oldest_version) {
            (Some((kind, version)), Some((current_kind, current)), Some(oldest)) if kind == current_kind => {
                if version >= current { Err(KeepReason::NewerMetadata) } else { Ok(behind_the_log(version < oldest)) }
            }
            _ => Err(KeepReason::MetadataVersionUnknown),
        }
    }

    /// The same without a version in its name, by the time at which it says the table was last updated.
    fn dated_metadata_file(&self, last_updated_ms: i64) -> Result<Garbage, KeepReason> {
        if last_updated_ms >= self.last_updated_ms {
            return Err(KeepReason::NewerMetadata);
        }
        // Writers' clocks differ.
        Ok(behind_the_log(last_updated_ms < self.oldest_logged_ms.saturating_sub(CLOCK_SKEW_LIMIT_MS)))
    }

    /// Whether this table's runs put files into external directories by such paths. In the layout for object storage many tables
    /// share a data path, and the paths name the table.
    fn is_path_of_a_run(&self, path: &str) -> bool {
        let is_content = !file_name(path).to_ascii_lowercase().ends_with(".avro");
        self.context.as_ref().is_none_or(|context| !is_content || path.contains(&format!("/{context}/")))
    }
}

fn behind_the_log(is_behind: bool) -> Garbage {
    if is_behind { Garbage::FellOutOfMetadataLog } else { Garbage::Unproven }
}

fn object_storage_context(loaded: &LoadedTable) -> Option<String> {
    let properties = loaded.metadata.properties();
    properties.get("write.object-storage.enabled").filter(|v| v.trim().eq_ignore_ascii_case("true"))?;
    let mut last = loaded.metadata.location().rsplit('/').filter(|s| !s.is_empty());
    let name = last.next()?;
    Some(last.next().map_or_else(|| name.to_owned(), |parent| format!("{parent}/{name}")))
}

/// What is known about unreferenced files by their names, places and ages alone: first from retained snapshots, later also
/// from what was searched for. It only grows, so what is proven once stays proven.
pub struct Evidence<'a> {
    pub rules: OrphanRules,
    /// Names that metadata protects.
    pub names: &'a NamesInUse,
    pub scope: &'a Scope,
    pub progress: &'a WriterProgress,
    /// Files to which a committed snapshot or metadata file, retained or not, referred.
    pub once_referenced: Vec<&'a PathSet>,
    /// Whether a run may still have a commit on its way, whatever its age.
    pub is_active: &'a (dyn Fn(RunId) -> bool + Sync),
}

/// What was read of unreferenced files.
#[derive(Debug, Default)]
pub struct OrphanContents {
    /// When metadata files of this table, without a version in their names, say that the table was last updated, in milliseconds
    /// since the epoch, by path. Others were not looked into.
    pub last_updated_ms: HashMap<String, i64>,
    /// Whether everything that Flink checkpoints refer to is known.
    pub checkpoints_known: bool,
}

/// What a file may come to, by its name, place and age alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prospect {
    /// It stays, whatever else is found out.
    Stays(KeepReason),
    /// It goes unless something needs it.
    Likely,
    /// It stays for this reason unless more comes to light.
    Unlikely(KeepReason),
}

pub fn prospect(file: &ListedFile, evidence: &Evidence<'_>) -> Result<Prospect> {
    let is_old = evidence.rules.modified_ms(file).is_some_and(|ms| evidence.rules.may_go(ms));
    Ok(match PlacedFile::of(file, evidence)?.judge_by_name() {
        Ok(_) if is_old => Prospect::Likely,
        Ok(_) => Prospect::Stays(KeepReason::TooYoung),
        Err(kept) if is_old && kept.awaits_proof() => Prospect::Unlikely(kept),
        Err(kept) => Prospect::Stays(kept),
    })
}

/// Judges a file that no retained metadata refers to, once everything was searched: why it may go, or why it stays.
pub fn judge(
    file: &ListedFile,
    evidence: &Evidence<'_>,
    contents: &OrphanContents,
) -> Result<Result<Garbage, KeepReason>> {
    let placed = PlacedFile::of(file, evidence)?;
    let dated = contents.last_updated_ms.get(placed.subject.as_ref());
    let judged = match (placed.judge_by_name(), dated) {
        (Err(KeepReason::MetadataVersionUnknown), Some(updated_ms)) => {
            evidence.names.dated_metadata_file(*updated_ms).and_then(|garbage| placed.weigh(garbage))
        }
        (judged, _) => judged,
    };
    Ok(match judged {
        Ok(Garbage::Unproven) if !contents.checkpoints_known => Err(KeepReason::FlinkCheckpointUnreadable),
        judged => judged,
    })
}

/// A file, and what its path says of it.
struct PlacedFile<'a> {
    file: &'a ListedFile,
    evidence: &'a Evidence<'a>,
    /// The path by which it is judged: a checksum's is that of the file it belongs to.
    subject: Cow<'a, str>,
    key: Fingerprint,
    /// Outside of the table's location, which no other table shares.
    is_external: bool,
    is_hidden: bool,
    in_hidden_directory: bool,
}

impl<'a> PlacedFile<'a> {
    fn of(file: &'a ListedFile, evidence: &'a Evidence<'a>) -> Result<Self> {
        let subject = checksum_subject(&file.path).map_or(Cow::Borrowed(file.path.as_str()), Cow::Owned);
        let path = CanonicalPath::parse(&subject)?;
        let directory = CanonicalPath::parse(subject.rsplit_once('/').map_or("", |(directory, _)| directory));
        Ok(Self {
            key: Fingerprint::of_text(path.as_str()),
            is_external: evidence.scope.directory(&path) != Some(0),
            is_hidden: evidence.scope.hides(&path),
            in_hidden_directory: directory.map_or(true, |directory| evidence.scope.hides(&directory)),
            file,
            evidence,
            subject,
        })
    }

    fn judge_by_name(&self) -> Result<Garbage, KeepReason> {
        if self.file.path.ends_with('/') {
            return Err(KeepReason::DirectoryMarker);
        }
        self.weigh(self.garbage()?)
    }

    /// Which kind of garbage the file is, whatever its age, or why it goes at no age.
    fn garbage(&self) -> Result<Garbage, KeepReason> {
        let Evidence { rules, names, progress, once_referenced, is_active, .. } = self.evidence;
        let (path, name) = (self.subject.as_ref(), file_name(&self.subject));
        if name == "version-hint.text" {
            return Err(KeepReason::VersionHint);
        }
        if names.is_flink_checkpoint(path) {
            return Err(KeepReason::FlinkCheckpoint);
        }
        let once_referenced = once_referenced.iter().any(|files| files.contains_fingerprint(self.key));
        if file_names::is_metadata_file(name) {
            return match names.metadata_file(name) {
                Err(KeepReason::MetadataVersionUnknown) if once_referenced => Ok(Garbage::OnceReferenced),
                judged => judged,
            };
        }
        if let Some(run) = RunId::from_file_name(path) {
            let over = run.started_ms().saturating_add(rules.run_timeout_ms) < rules.now_ms;
            if !over || is_active(run) {
                return Err(KeepReason::ActiveRun);
            }
            if RunId::may_be_for(path, names.table) {
                return Ok(Garbage::RunOver);
            }
        }
        Ok(if once_referenced {
            Garbage::OnceReferenced
        } else if progress.is_past(path) {
            Garbage::WriterCommittedPast
        } else {
            Garbage::Unproven
        })
    }

    /// Whether garbage of this kind goes, by the file's age and place.
    fn weigh(&self, garbage: Garbage) -> Result<Garbage, KeepReason> {
        let Evidence { rules, names, .. } = self.evidence;
        let modified_ms = rules.modified_ms(self.file).ok_or(KeepReason::UnknownAge)?;
        let old = rules.older(modified_ms, rules.unproven_min_age_ms);
        let name = file_name(&self.subject);
        match garbage {
            // Copies of a table's files have the same names.
            Garbage::RunOver | Garbage::WriterCommittedPast | Garbage::FellOutOfMetadataLog
                if self.in_hidden_directory =>
            {
                Err(KeepReason::Hidden)
            }
            Garbage::RunOver if !file_names::is_of_a_run(name) => Err(KeepReason::Foreign),
            // Runs of earlier versions did not say which table they worked on. External directories that another known table has are
            // not even listed, and all of them are asked; against one that is not known stand the path's form and the long age.
            Garbage::RunOver if self.is_external && names.is_path_of_a_run(&self.subject) => {
                if old {
                    Ok(garbage)
                } else {
                    Err(KeepReason::Unproven)
                }
            }
            Garbage::Unproven | Garbage::RunOver if self.is_external => Err(KeepReason::ExternalDirectory),
            Garbage::Unproven if self.is_hidden => Err(KeepReason::Hidden),
            Garbage::Unproven if !file_names::is_of_a_table(name) => Err(KeepReason::Foreign),
            Garbage::Unproven => {
                if old {
                    Ok(garbage)
                } else {
                    Err(KeepReason::Unproven)
                }
            }
            _ if rules.older(modified_ms, rules.older_than_ms) => Ok(garbage),
            _ => Err(KeepReason::TooYoung),
        }
    }
}

#[cfg(test)]
mod tests;
