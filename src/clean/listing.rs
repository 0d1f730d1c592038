//! The table's directories, listed and compared with what is reachable, in bounded memory: only files that nothing
//! refers to are kept in mind, and of those only a limited number.

use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use futures::TryStreamExt;

use super::ownership::shared;
use super::reachable::Reachable;
use super::report::{FileKind, Refused, Tally};
use crate::error::{Context, Result};
use crate::plan::remove_orphan_files::{Evidence, Kept, NamesInUse, OrphanRules, Verdict, judge};
use crate::run_id::RunId;
use crate::storage::StoreRef;
use crate::table::ListedFile;
use crate::table::file_names::{WriterProgress, file_name, is_metadata_file};
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
    chosen: BinaryHeap<Chosen>,
}

/// A file with its rank: the largest leaves first.
#[derive(Debug)]
struct Chosen {
    rank: (bool, u64),
    file: ListedFile,
    /// What is said of the file if it is left out.
    otherwise: Kept,
}

impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Chosen {}

impl PartialOrd for Chosen {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Chosen {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl Choice {
    /// `seed` should differ from run to run.
    pub(super) fn new(max: usize, seed: i64) -> Self {
        Self { max, seed: FixedState::with_seed(seed.cast_unsigned()), chosen: BinaryHeap::new() }
    }

    /// Takes a file in; returns the one that is left out for it, if there is no room for both. `unlikely`: why the file will
    /// stay unless more comes to light.
    pub(super) fn push(&mut self, file: ListedFile, unlikely: Option<Kept>) -> Option<(Kept, ListedFile)> {
        let rank = (unlikely.is_some(), self.seed.hash_one(&file.path));
        self.chosen.push(Chosen { rank, file, otherwise: unlikely.unwrap_or(Kept::RunLimit) });
        let left_out = (self.chosen.len() > self.max).then(|| self.chosen.pop()).flatten()?;
        Some((left_out.otherwise, left_out.file))
    }

    /// The files, by path.
    pub(super) fn into_files(self) -> Vec<ListedFile> {
        let mut files: Vec<ListedFile> = self.chosen.into_iter().map(|chosen| chosen.file).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }
}

/// What is chosen while a listing goes on.
struct Choices {
    candidates: Choice,
    metadata_files: Choice,
    lists: Choice,
}

/// What a listing found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) listed: Tally,
    pub(super) referenced: Tally,
    /// Unreferenced files that are old enough to go by some rule and may go if what is found out allows.
    pub(super) candidates: Vec<ListedFile>,
    /// Unreferenced files that stay, whatever else is found out.
    pub(super) kept: BTreeMap<Kept, Tally>,
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

/// What a listing is compared with.
pub(super) struct Comparison<'a> {
    pub(super) reachable: &'a Reachable,
    pub(super) names: &'a NamesInUse,
    pub(super) rules: &'a OrphanRules,
    pub(super) is_active: &'a (dyn Fn(RunId) -> bool + Sync),
    /// Candidates kept in mind at most.
    pub(super) candidates_max: usize,
}

impl Comparison<'_> {
    /// Lists all directories of the table but those left out, and compares each file.
    pub(super) async fn list(&self, store: &StoreRef, left_out: &HashSet<usize>) -> Result<Result<Listing, Refused>> {
        let mut listing = Listing::default();
        let seed = self.rules.now_ms;
        let mut choices = Choices {
            candidates: Choice::new(self.candidates_max, seed),
            metadata_files: Choice::new(LOOKED_INTO_MAX, seed),
            lists: Choice::new(LOOKED_INTO_MAX, seed),
        };
        let progress = self.reachable.progress();
        let references = self.reachable.references_inside();
        for (index, (directory, _)) in self.reachable.scope().directories.iter().enumerate() {
            if left_out.contains(&index) {
                continue;
            }
            let seen_before = listing.referenced.files;
            let mut files = store.list(directory);
            while let Some(file) = files.try_next().await? {
                if let Some(refused) = self.take(&mut listing, &mut choices, &progress, index, file)? {
                    return Ok(Err(refused));
                }
            }
            let expected = references.get(&index).copied().unwrap_or(0);
            if expected > 0 && listing.referenced.files == seen_before {
                let detail = format!(
                    "{expected} files in {directory} are referenced but the listing shows none of them: \
                     check the store's endpoint and bucket, and the spelling of the table's location"
                );
                return Ok(Err(Refused::new("listing_mismatch", detail)));
            }
        }
        listing.candidates = choices.candidates.into_files();
        listing.metadata_files = choices.metadata_files.into_files();
        listing.lists = choices.lists.into_files();
        Ok(Ok(listing))
    }

    fn take(
        &self,
        listing: &mut Listing,
        choices: &mut Choices,
        progress: &WriterProgress,
        directory: usize,
        file: ListedFile,
    ) -> Result<Option<Refused>> {
        let canonical = CanonicalPath::parse(&file.path).context(|| "compare a listed file")?;
        match self.reachable.scope().directory(&canonical) {
            // Directories may be nested; each file counts once.
            Some(home) if home != directory => return Ok(None),
            Some(_) => {}
            None => {
                listing.kept.entry(Kept::OutsideTable).or_default().add(file.size);
                return Ok(None);
            }
        }
        listing.listed.add(file.size);
        if self.reachable.contains(&file.path)? {
            listing.referenced.add(file.size);
            return Ok(None);
        }
        if self.reachable.has_alias(&canonical) {
            let detail = format!(
                "{} is not referenced, but a file of the same key in another store or bucket is: if both names mean \
                 one place, rewrite the metadata to one of them",
                file.path
            );
            return Ok(Some(Refused::new("prefix_mismatch", detail)));
        }
        if let Some(format) = self.foreign_format(&canonical, directory) {
            let detail = format!(
                "{} belongs to a {format} table at the same place: its files look like garbage here",
                file.path
            );
            return Ok(Some(shared(detail)));
        }
        self.note(listing, choices, &file, self.reachable.scope().hides(&canonical));
        let modified_ms = file.last_modified_ms.filter(|ms| *ms > 0 && *ms <= self.rules.now_ms);
        let is_old = modified_ms.is_some_and(|ms| self.rules.may_go(ms));
        let unlikely = match self.judge_early(&file, progress)? {
            Verdict::Remove(_) if is_old => None,
            Verdict::Remove(_) => return Ok(listing.keep(Kept::TooYoung, &file)),
            Verdict::Keep(kept) if is_old && kept.awaits_proof() => Some(kept),
            Verdict::Keep(kept) => return Ok(listing.keep(kept, &file)),
        };
        if let Some((kept, left_out)) = choices.candidates.push(file, unlikely) {
            listing.likely_left_out |= kept == Kept::RunLimit;
            listing.unlikely_left_out |= kept != Kept::RunLimit;
            listing.keep(kept, &left_out);
        }
        Ok(None)
    }

    /// Lists once more, for the files that there was no room for and that are garbage by what has been found out since.
    pub(super) async fn list_proven(
        &self,
        store: &StoreRef,
        left_out: &HashSet<usize>,
        evidence: &Evidence<'_>,
        candidates: &[ListedFile],
        kept: &mut BTreeMap<Kept, Tally>,
    ) -> Result<Vec<ListedFile>> {
        let (mut known, progress) = (PathSet::default(), self.reachable.progress());
        for file in candidates {
            known.insert(&file.path)?;
        }
        let mut proven = Vec::new();
        for (index, (directory, _)) in self.reachable.scope().directories.iter().enumerate() {
            if left_out.contains(&index) {
                continue;
            }
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
                let Verdict::Keep(before) = self.judge_early(&file, &progress)? else { continue };
                if before.awaits_proof() && matches!(judge(&file, self.rules, evidence)?, Verdict::Remove(_)) {
                    kept.entry(before).or_default().take_out(file.size);
                    proven.push(file);
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
    fn note(&self, listing: &mut Listing, choices: &mut Choices, file: &ListedFile, hidden: bool) {
        if file.last_modified_ms.is_some_and(|ms| self.rules.wrote_lately(ms)) {
            listing.writing.extend(RunId::from_file_name(&file.path));
        }
        if is_metadata_file(file_name(&file.path)) {
            // Where people keep copies nothing goes by its name, whatever table it belongs to.
            listing.metadata_backlog |= !hidden && choices.metadata_files.push(file.clone(), None).is_some();
        } else if self.names.is_flink_checkpoint(&file.path) {
            if file.path.ends_with(".avro") {
                listing.checkpoints_overflow |= !push_limited(&mut listing.checkpoints, file.clone());
            }
        } else if FileKind::of_listed(&file.path) == FileKind::ManifestList
            && file.last_modified_ms.is_some_and(|ms| self.rules.may_go(ms))
        {
            choices.lists.push(file.clone(), None);
        }
    }

    /// What becomes of a file by what is known before the listing ends.
    fn judge_early(&self, file: &ListedFile, progress: &WriterProgress) -> Result<Verdict> {
        let scope = self.reachable.scope();
        let evidence = Evidence {
            names: self.names,
            progress,
            once_referenced: &|path| self.reachable.has_left(path),
            is_active: self.is_active,
            hidden: &|path| Ok(scope.hides(&CanonicalPath::parse(path)?)),
            in_location: &|path| Ok(scope.directory(&CanonicalPath::parse(path)?) == Some(0)),
            last_updated_ms: &|_| None,
            checkpoints_known: true,
        };
        judge(file, self.rules, &evidence)
    }
}

impl Listing {
    /// Counts a file that stays. Nothing about it speaks against the rest.
    fn keep(&mut self, kept: Kept, file: &ListedFile) -> Option<Refused> {
        self.kept.entry(kept).or_default().add(file.size);
        None
    }
}

/// Whether there was room.
fn push_limited<T>(items: &mut Vec<T>, item: T) -> bool {
    let room = items.len() < LOOKED_INTO_MAX;
    if room {
        items.push(item);
    }
    room
}
