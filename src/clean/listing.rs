//! The table's directories, listed and compared with what is reachable, in bounded memory: only files that nothing
//! refers to are kept in mind, and of those only a limited number.

use std::collections::{BinaryHeap, HashSet};
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use futures::TryStreamExt;

use super::judged::Searched;
use super::ownership::shared;
use super::reachable::Reachable;
use super::referenced::Unreferenced;
use super::report::{FileKind, OrphanError, OrphanReport, Refused};
use crate::error::{Context, Result};
use crate::plan::remove_orphan_files::{Evidence, KeepReason, Prospect, prospect};
use crate::run_id::RunId;
use crate::storage::StoreRef;
use crate::table::ListedFile;
use crate::table::file_names::{file_name, is_metadata_file};
use crate::table::path::CanonicalPath;
use crate::table::path_set::PathSet;

/// Unreferenced metadata files, manifest lists and checkpoint manifests looked into by one run at most, each.
pub(super) const LOOKED_INTO_MAX: usize = 10_000;

/// A bounded choice among files. What is likely to go comes first; among the others it is another choice each time, so that files
/// that stay in every run do not hide the rest for ever.
#[derive(Debug)]
pub(super) struct Choice {
    max: usize,
    seed: FixedState,
    /// Each with its rank, of which the largest leaves first, and with what is said of it then.
    chosen: BinaryHeap<((bool, u64), ListedFile, KeepReason)>,
}

impl Choice {
    /// `seed` should differ from run to run.
    pub(super) fn new(max: usize, seed: i64) -> Self {
        Self { max, seed: FixedState::with_seed(seed.cast_unsigned()), chosen: BinaryHeap::new() }
    }

    /// Takes a file in; returns the one that is left out for it, if there is no room for both. `unlikely`: why the file will
    /// stay unless more comes to light.
    pub(super) fn push(&mut self, file: ListedFile, unlikely: Option<KeepReason>) -> Option<(KeepReason, ListedFile)> {
        let rank = (unlikely.is_some(), self.seed.hash_one(&file.path));
        self.chosen.push((rank, file, unlikely.unwrap_or(KeepReason::RunLimit)));
        let (_, file, kept) = (self.chosen.len() > self.max).then(|| self.chosen.pop()).flatten()?;
        Some((kept, file))
    }

    /// The files, by path.
    pub(super) fn into_files(self) -> Vec<ListedFile> {
        let mut files: Vec<ListedFile> = self.chosen.into_iter().map(|(_, file, _)| file).collect();
        files.sort_unstable();
        files
    }
}

struct Choices {
    candidates: Choice,
    metadata_files: Choice,
    lists: Choice,
}

/// A file in the table's directories to which nothing referred when it was listed, old enough to go by some rule.
///
/// Rule: what lies outside of these directories, and what is reachable already, is never considered. This alone proves nothing:
/// between the first reading of metadata and the listing a writer may have committed the file.
#[derive(Debug)]
pub(super) struct ListedCandidate(ListedFile);

impl ListedCandidate {
    pub(super) fn file(&self) -> &ListedFile {
        &self.0
    }
}

#[derive(Debug, Default)]
pub(super) struct OrphanListing {
    /// Files that may go if what is found out allows.
    pub(super) candidates: Vec<ListedCandidate>,
    /// Unreferenced metadata files of any age.
    pub(super) metadata_files: Vec<ListedFile>,
    /// There were more of them than could be looked into.
    pub(super) metadata_backlog: bool,
    /// Unreferenced manifest lists that are old enough to go by some rule.
    pub(super) lists: Vec<ListedFile>,
    /// There was no room for some that are likely to go.
    pub(super) likely_left_out: bool,
    /// There was no room for some that go only if they are proven to be garbage.
    pub(super) unlikely_left_out: bool,
    /// Runs of this project that have written unreferenced files a short while ago.
    pub(super) writing: HashSet<RunId>,
    /// Manifests of Flink checkpoints of any age.
    pub(super) checkpoints: Vec<ListedFile>,
    /// There were more of them than could be looked into.
    pub(super) checkpoints_overflow: bool,
}

impl OrphanListing {
    /// With more unreferenced metadata files than could be looked into, some may belong to another table. Those that were
    /// looked into are this table's for sure, so they go first, and nothing else does in this run.
    pub(super) fn leave_for_later(&mut self, report: &mut OrphanReport) {
        if !self.metadata_backlog {
            return;
        }
        let checked: HashSet<&str> = self.metadata_files.iter().map(|f| f.path.as_str()).collect();
        let later = self.candidates.extract_if(.., |listed| !checked.contains(listed.0.path.as_str()));
        later.for_each(|listed| report.keep(KeepReason::RunLimit, listed.0.size));
    }
}

pub(super) struct Comparison<'a> {
    pub(super) reachable: &'a Reachable,
    /// What is known before the listing ends.
    pub(super) evidence: Evidence<'a>,
    /// Directories that are not listed, by their place in the scope.
    pub(super) left_out: &'a HashSet<usize>,
    /// Candidates kept in mind at most.
    pub(super) candidates_max: usize,
}

impl Comparison<'_> {
    /// Lists the table's directories and compares each file. Files that stay whatever else is found out are only counted.
    pub(super) async fn list(&self, store: &StoreRef, report: &mut OrphanReport) -> Result<OrphanListing, OrphanError> {
        let mut listing = OrphanListing::default();
        let seed = self.evidence.rules.now_ms;
        let mut choices = Choices {
            candidates: Choice::new(self.candidates_max, seed),
            metadata_files: Choice::new(LOOKED_INTO_MAX, seed),
            lists: Choice::new(LOOKED_INTO_MAX, seed),
        };
        for (index, directory) in self.directories() {
            let seen_before = report.referenced.files;
            let mut files = store.list(directory);
            while let Some(file) = files.try_next().await? {
                self.take(&mut listing, &mut choices, report, index, file)?;
            }
            let expected = self.reachable.references_inside(index);
            if expected > 0 && report.referenced.files == seen_before {
                let detail = format!(
                    "{expected} files in {directory} are referenced but the listing shows none of them: \
                     check the store's endpoint and bucket, and the spelling of the table's location"
                );
                return Err(Refused::new("listing_mismatch", detail).into());
            }
        }
        listing.candidates = choices.candidates.into_files().into_iter().map(ListedCandidate).collect();
        listing.metadata_files = choices.metadata_files.into_files();
        listing.lists = choices.lists.into_files();
        Ok(listing)
    }

    fn directories(&self) -> impl Iterator<Item = (usize, &str)> {
        let all =
            self.reachable.scope().directories.iter().enumerate().map(|(index, (path, _))| (index, path.as_str()));
        all.filter(|(index, _)| !self.left_out.contains(index))
    }

    fn take(
        &self,
        listing: &mut OrphanListing,
        choices: &mut Choices,
        report: &mut OrphanReport,
        directory: usize,
        file: ListedFile,
    ) -> Result<(), OrphanError> {
        let canonical = CanonicalPath::parse(&file.path).context(|| "compare a listed file")?;
        match self.reachable.scope().directory(&canonical) {
            // Directories may be nested; each file counts once.
            Some(home) if home != directory => return Ok(()),
            Some(_) => {}
            None => {
                report.keep(KeepReason::OutsideTable, file.size);
                return Ok(());
            }
        }
        report.listed.add(file.size);
        if self.reachable.contains(&file.path)? {
            report.referenced.add(file.size);
            return Ok(());
        }
        if self.reachable.has_alias(&canonical) {
            let detail = format!(
                "{} is not referenced, but a file of the same key in another store or bucket is: if both names mean \
                 one place, rewrite the metadata to one of them",
                file.path
            );
            return Err(Refused::new("prefix_mismatch", detail).into());
        }
        if let Some(format) = self.foreign_format(&canonical, directory) {
            let detail = format!(
                "{} belongs to a {format} table at the same place: its files look like garbage here",
                file.path
            );
            return Err(shared(detail).into());
        }
        self.note(listing, choices, &file, self.reachable.scope().hides(&canonical));
        let unlikely = match prospect(&file, &self.evidence)? {
            Prospect::Likely => None,
            Prospect::Unlikely(kept) => Some(kept),
            Prospect::Stays(kept) => {
                report.keep(kept, file.size);
                return Ok(());
            }
        };
        if let Some((kept, left_out)) = choices.candidates.push(file, unlikely) {
            listing.likely_left_out |= kept == KeepReason::RunLimit;
            listing.unlikely_left_out |= kept != KeepReason::RunLimit;
            report.keep(kept, left_out.size);
        }
        Ok(())
    }

    /// Lists once more, for the files that there was no room for and that are garbage by what has been found out since.
    pub(super) async fn list_proven(
        &self,
        store: &StoreRef,
        searched: &Searched<'_>,
        candidates: &[Unreferenced],
        report: &mut OrphanReport,
    ) -> Result<Vec<ListedCandidate>> {
        let mut known = PathSet::default();
        for candidate in candidates {
            known.insert(&candidate.file().path)?;
        }
        let mut proven = Vec::new();
        for (index, directory) in self.directories() {
            let mut files = store.list(directory);
            while let Some(file) = files.try_next().await? {
                if proven.len() >= self.candidates_max {
                    return Ok(proven);
                }
                let is_here = self.reachable.scope().directory(&CanonicalPath::parse(&file.path)?) == Some(index);
                if !is_here || self.reachable.contains(&file.path)? || known.contains(&file.path)? {
                    continue;
                }
                // Metadata files are looked into by another rule, which has its own limit.
                if is_metadata_file(file_name(&file.path)) {
                    continue;
                }
                let Prospect::Unlikely(before) = prospect(&file, &self.evidence)? else { continue };
                if searched.judge(&file)?.is_ok() {
                    report.kept.entry(before).or_default().take_out(file.size);
                    proven.push(ListedCandidate(file));
                }
            }
        }
        Ok(proven)
    }

    /// The other table format, if a file tells that the directory holds a table of one: these formats share data files
    /// with Iceberg, and keep their logs where no Iceberg metadata refers to.
    fn foreign_format(&self, path: &CanonicalPath, directory: usize) -> Option<&'static str> {
        let (_, home) = self.reachable.scope().directories.get(directory)?;
        let relative = path.as_str().strip_prefix(home.as_str())?.trim_start_matches('/');
        let mut directories = relative.split('/').rev().skip(1);
        if directories.clone().any(|d| d == "_delta_log") {
            return Some("Delta");
        }
        if directories.any(|d| d == ".hoodie") {
            return Some("Hudi");
        }
        let is_paimon = matches!(relative, "snapshot/LATEST" | "snapshot/EARLIEST" | "schema/schema-0");
        is_paimon.then_some("Paimon")
    }

    /// Sets files aside that must be looked into, whatever their age.
    fn note(&self, listing: &mut OrphanListing, choices: &mut Choices, file: &ListedFile, hidden: bool) {
        if file.last_modified_ms.is_some_and(|ms| self.evidence.rules.wrote_lately(ms)) {
            listing.writing.extend(RunId::from_file_name(&file.path));
        }
        if is_metadata_file(file_name(&file.path)) {
            // Where people keep copies nothing goes by its name, whatever table it belongs to.
            listing.metadata_backlog |= !hidden && choices.metadata_files.push(file.clone(), None).is_some();
        } else if self.evidence.names.is_flink_checkpoint(&file.path) {
            if file.path.ends_with(".avro") {
                listing.checkpoints_overflow |= listing.checkpoints.len() >= LOOKED_INTO_MAX;
                listing.checkpoints.extend((!listing.checkpoints_overflow).then(|| file.clone()));
            }
        } else if FileKind::of_listed(&file.path) == FileKind::ManifestList
            && file.last_modified_ms.is_some_and(|ms| self.evidence.rules.may_go(ms))
        {
            choices.lists.push(file.clone(), None);
        }
    }
}
