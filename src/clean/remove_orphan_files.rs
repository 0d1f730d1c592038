//! Orphan removal: list, compare, prove, then delete. Detection is complete before deletion starts; any retained
//! metadata that cannot be read, any doubt whose files these are, and nothing is deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use super::clocks::clock_apart;
use super::deletion::{Deleter, Doomed, grow, two_names};
use super::elsewhere::{Answer, Elsewhere, Suspects};
use super::listing::{Comparison, Listing};
use super::once_referenced::OnceReferenced;
use super::other_names::{Likeness, OtherNames};
use super::ownership::{check_metadata_files, compare_with_neighbours, date_metadata_files};
use super::reachable::{READS, Reachable, entries_of};
use super::report::{FileKind, OrphanReport, Refused, Tally};
use crate::action::Phase;
use crate::catalog::TableHandle;
use crate::clock::Stopwatch;
use crate::error::{ErrorKind, Result};
use crate::meta::unlisted_manifest;
use crate::plan::expire_snapshots::ahead_of_clock;
use crate::plan::remove_orphan_files::{Evidence, Garbage, Kept, NamesInUse, OrphanRules, Verdict, judge};
use crate::policy::TablePolicy;
use crate::run_id::RunId;
use crate::storage::delete_files::Proof;
use crate::table::ListedFile;
use crate::table::path::CanonicalPath;
use crate::table::path_set::PathSet;
use crate::table::references::{clock_skew_ms, gc_enabled};
use crate::telemetry::phase_span;

/// Unreferenced files that one run takes at most, if the caller has no other wish.
pub const CANDIDATES_PER_RUN: usize = 1_000_000;

/// A wish to find, or to find and remove, orphan files.
#[derive(Clone, Copy)]
pub struct OrphanRequest<'a> {
    /// The table's policy.
    pub policy: &'a TablePolicy,
    /// How often the table's writer commits.
    pub commit_interval: Duration,
    /// A run of this project is over this long after its start, on whatever machine it ran.
    pub run_timeout: Duration,
    /// Now, milliseconds since the epoch.
    pub now_ms: i64,
    /// Whether a run is active in this process.
    pub is_active: &'a (dyn Fn(RunId) -> bool + Sync),
    /// Directories of every other table within sight, each with the table's name: its location, and its external data
    /// and metadata directories ([`crate::table::references::own_directories`]).
    pub neighbours: &'a [(String, String)],
    /// What other tables reach. Asked only when something may go.
    pub elsewhere: &'a dyn Elsewhere,
    /// Unreferenced files kept in memory at most, [`CANDIDATES_PER_RUN`] by default.
    pub candidates_max: usize,
}

impl OrphanRequest<'_> {
    fn rules(&self) -> OrphanRules {
        let millis = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        let (older_than, unproven_min_age) = self.policy.remove_orphan_files.ages(self.commit_interval);
        OrphanRules {
            now_ms: self.now_ms,
            older_than_ms: millis(older_than),
            unproven_min_age_ms: millis(unproven_min_age),
            run_timeout_ms: millis(self.run_timeout),
        }
    }

    fn comparison<'a>(
        &'a self,
        reachable: &'a Reachable,
        names: &'a NamesInUse,
        rules: &'a OrphanRules,
    ) -> Comparison<'a> {
        Comparison { reachable, names, rules, is_active: self.is_active, candidates_max: self.candidates_max }
    }
}

/// Finds orphan files and says what would become of them, and why. Deletes nothing.
pub async fn find_orphan_files(table: &TableHandle, request: &OrphanRequest<'_>) -> OrphanReport {
    match find(table, request, &mut Stopwatch::start()).await {
        Ok(found) => found.report,
        Err(error) => OrphanReport { error: Some(error.context("find orphan files")), ..OrphanReport::default() },
    }
}

/// Finds orphan files and deletes those that may go. Errors and refusals are in the report.
pub async fn remove_orphan_files(table: &TableHandle, request: &OrphanRequest<'_>) -> OrphanReport {
    let mut stopwatch = Stopwatch::start();
    let Found { mut report, doomed, proofs_stay, known, turn: _turn, .. } =
        match find(table, request, &mut stopwatch).await {
            Ok(found) => found,
            Err(error) => {
                let error = Some(error.context("find orphan files (nothing was deleted)"));
                return OrphanReport { error, phases_ms: stopwatch.times(), ..OrphanReport::default() };
            }
        };
    if let Some((table, reachable)) = known {
        stopwatch.end(Phase::Check);
        let deleter = Deleter::new(table, reachable, Proof::Orphan);
        delete(deleter, doomed, proofs_stay, &mut report).instrument(phase_span!("delete")).await;
        stopwatch.end(Phase::Delete);
    }
    report.phases_ms = stopwatch.times();
    report
}

/// What was found.
#[derive(Default)]
struct Found {
    report: OrphanReport,
    /// What may go unless another table needs it.
    suspects: Vec<(Doomed, Garbage)>,
    /// What may go, what lists other files last.
    doomed: Vec<Doomed>,
    /// Not all files could be taken: those that prove something about the rest stay for the next run.
    proofs_stay: bool,
    /// The table as last loaded and what it reaches; `None` if the run was refused.
    known: Option<(TableHandle, Reachable)>,
    /// Held while files are deleted.
    turn: Option<OwnedSemaphorePermit>,
}

impl Found {
    fn refused(refused: Refused) -> Self {
        Self { report: OrphanReport { refused: Some(refused), ..OrphanReport::default() }, ..Self::default() }
    }
}

fn refusal(table: &TableHandle, request: &OrphanRequest<'_>) -> Option<Refused> {
    let refused = |reason, detail| Some(Refused::new(reason, detail));
    if !request.policy.remove_orphan_files.enabled {
        return refused("disabled", "remove-orphan-files is disabled by policy".into());
    }
    if !gc_enabled(&table.loaded) {
        return refused(
            "gc_disabled",
            "the table's property gc.enabled = false forbids deleting its files: they may belong to others".into(),
        );
    }
    let skew_ms = clock_skew_ms(&table.loaded, request.now_ms)?;
    refused("clock_skew", ahead_of_clock(skew_ms))
}

/// Ends the phase `list`; the phase `check` is over when this is.
async fn find(table: &TableHandle, request: &OrphanRequest<'_>, stopwatch: &mut Stopwatch) -> Result<Found> {
    let table = table.refresh().await?;
    if let Some(refused) = refusal(&table, request) {
        return Ok(Found::refused(refused));
    }
    if let Some(detail) = clock_apart(&table, request.now_ms).await {
        return Ok(Found::refused(Refused::new("clock_skew", detail)));
    }
    let reachable = Reachable::new(&table.loaded, true)?;
    let left_out = match compare_with_neighbours(reachable.scope(), &table.name(), request.neighbours) {
        Ok(left_out) => left_out,
        Err(refused) => return Ok(Found::refused(refused)),
    };
    let reachable = reachable.with_table(&table.store, &table.loaded).await?;
    let names = NamesInUse::of(&table.loaded)?;
    let rules = request.rules();
    let comparison = request.comparison(&reachable, &names, &rules);
    let listed = comparison.list(&table.store, &left_out).instrument(phase_span!("list")).await;
    stopwatch.end(Phase::List);
    let mut listing = match listed? {
        Ok(listing) => listing,
        Err(refused) => return Ok(Found::refused(refused)),
    };
    if let Some(refused) = check_metadata_files(&table.store, &table.loaded, &listing.metadata_files).await? {
        return Ok(Found::refused(refused));
    }
    leave_for_later(&mut listing);
    // Checkpoint manifests first, the metadata after them: what moves from the one to the other is seen in between.
    let (checkpointed, checkpoints_known) = read_checkpoints(&table, &listing).await?;
    let (table, reachable) = grow(&table, reachable).await?;
    let mut candidates =
        drop_referenced(std::mem::take(&mut listing.candidates), &mut listing.kept, &reachable, &checkpointed)?;
    let names = NamesInUse::of(&table.loaded)?;
    let mut progress = reachable.progress();
    let once = OnceReferenced::search(&table, &reachable, &listing.lists, &mut progress).await?;
    let dated = date_metadata_files(&table.store, &candidates, request.now_ms).await;
    let writing = std::mem::take(&mut listing.writing);
    let evidence = Evidence {
        names: &names,
        progress: &progress,
        once_referenced: &|path| Ok(reachable.has_left(path)? || once.contains(path)?),
        is_active: &|run| (request.is_active)(run) || writing.contains(&run),
        hidden: &|path| Ok(reachable.scope().hides(&CanonicalPath::parse(path)?)),
        in_location: &|path| Ok(reachable.scope().directory(&CanonicalPath::parse(path)?) == Some(0)),
        last_updated_ms: &|path| dated.get(path).copied(),
        checkpoints_known,
    };
    if listing.unlikely_left_out && !listing.metadata_backlog {
        let comparison = request.comparison(&reachable, &names, &rules);
        let proven = comparison.list_proven(&table.store, &left_out, &evidence, &candidates, &mut listing.kept).await?;
        candidates.extend(drop_referenced(proven, &mut listing.kept, &reachable, &checkpointed)?);
    }
    let mut found = Found { proofs_stay: listing.likely_left_out && !listing.metadata_backlog, ..Found::default() };
    for file in candidates {
        judge_candidate(file, &rules, &evidence, &mut listing, &mut found)?;
    }
    if let Some(refused) = spare_other_names(&table, &reachable, &mut listing, &mut found).await? {
        return Ok(Found::refused(refused));
    }
    spare_what_others_need(request.elsewhere, &table, &mut listing, &mut found).await?;
    found.doomed.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    finish(&mut found, listing);
    found.known = Some((table, reachable));
    Ok(found)
}

/// With more unreferenced metadata files than could be looked into, some may belong to another table. Those that were
/// looked into are this table's for sure, so they go first, and nothing else does in this run.
fn leave_for_later(listing: &mut Listing) {
    if !listing.metadata_backlog {
        return;
    }
    let checked: std::collections::HashSet<&str> = listing.metadata_files.iter().map(|f| f.path.as_str()).collect();
    let (now, later): (Vec<_>, Vec<_>) =
        std::mem::take(&mut listing.candidates).into_iter().partition(|f| checked.contains(f.path.as_str()));
    listing.candidates = now;
    for file in later {
        listing.kept.entry(Kept::RunLimit).or_default().add(file.size);
    }
}

/// Files that manifests of Flink checkpoints refer to: written, and to be committed when the job comes back.
#[derive(Default)]
struct Checkpointed {
    files: PathSet,
    names: OtherNames,
}

impl Checkpointed {
    fn may_contain(&self, file: &ListedFile) -> Result<bool> {
        Ok(self.files.contains(&file.path)? || self.names.by_name(&file.path, Some(file.size)) != Likeness::None)
    }
}

/// What checkpoints know of; `false` if some manifest could not be read.
async fn read_checkpoints(table: &TableHandle, listing: &Listing) -> Result<(Checkpointed, bool)> {
    let (mut known, mut all_known) = (Checkpointed::default(), !listing.checkpoints_overflow);
    let mut read = stream::iter(listing.checkpoints.clone())
        .map(|f| {
            entries_of(table.store.clone(), unlisted_manifest(f.path, i64::try_from(f.size).unwrap_or(i64::MAX), 0))
        })
        .buffer_unordered(READS);
    while let Some(result) = read.next().await {
        match result {
            Ok((_, entries)) => {
                for entry in entries {
                    // Whatever the entry's status: a checkpoint may yet use it.
                    known.files.insert(&entry.file_path)?;
                    known.names.note(&entry.file_path, Some(entry.file_size_bytes));
                }
            }
            // Its job has committed it or given it up since the listing.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                tracing::debug!(%error, "manifest of a checkpoint cannot be read");
                all_known = false;
            }
        }
    }
    Ok((known, all_known))
}

/// The files that still nothing refers to.
fn drop_referenced(
    files: Vec<ListedFile>,
    kept: &mut BTreeMap<Kept, Tally>,
    reachable: &Reachable,
    checkpointed: &Checkpointed,
) -> Result<Vec<ListedFile>> {
    let mut candidates = Vec::with_capacity(files.len());
    for file in files {
        if reachable.contains(&file.path)? {
            kept.entry(Kept::ReferencedMeanwhile).or_default().add(file.size);
        } else if checkpointed.may_contain(&file)? {
            kept.entry(Kept::FlinkCheckpoint).or_default().add(file.size);
        } else {
            candidates.push(file);
        }
    }
    Ok(candidates)
}

fn judge_candidate(
    file: ListedFile,
    rules: &OrphanRules,
    evidence: &Evidence<'_>,
    listing: &mut Listing,
    found: &mut Found,
) -> Result<()> {
    match judge(&file, rules, evidence)? {
        Verdict::Keep(kept) => listing.kept.entry(kept).or_default().add(file.size),
        Verdict::Remove(garbage) => {
            tracing::debug!(path = %file.path, ?garbage, "orphan file found");
            let kind = FileKind::of_listed(&file.path);
            found.suspects.push((Doomed { path: file.path, kind, bytes: file.size }, garbage));
        }
    }
    Ok(())
}

/// Takes out the suspects that metadata may name by another path. A refusal if it does so for one of them: then the listing and
/// the metadata speak of the same files by different names.
async fn spare_other_names(
    table: &TableHandle,
    reachable: &Reachable,
    listing: &mut Listing,
    found: &mut Found,
) -> Result<Option<Refused>> {
    let suspects = std::mem::take(&mut found.suspects);
    let files: Vec<&Doomed> = suspects.iter().map(|(file, _)| file).collect();
    let likenesses = reachable.likenesses(&table.store, &files).await?;
    if let Some((file, _)) = files.iter().zip(&likenesses).find(|(_, likeness)| **likeness == Likeness::Surely) {
        return Ok(Some(Refused::new("other_name", two_names(table, &file.path).await)));
    }
    for (suspect, likeness) in suspects.into_iter().zip(likenesses) {
        if likeness == Likeness::None {
            found.suspects.push(suspect);
        } else {
            listing.kept.entry(Kept::OtherName).or_default().add(suspect.0.bytes);
        }
    }
    Ok(None)
}

/// Dooms the suspects that no other table needs; none of them, and the run is refused, if that cannot be told.
async fn spare_what_others_need(
    elsewhere: &dyn Elsewhere,
    table: &TableHandle,
    listing: &mut Listing,
    found: &mut Found,
) -> Result<()> {
    let suspects = std::mem::take(&mut found.suspects);
    if suspects.is_empty() {
        return Ok(());
    }
    let files = suspects.iter().map(|(file, _)| (file.path.clone(), file.bytes));
    let suspected = Suspects::new(&table.loaded, files)?.identified(&table.store).await?;
    let Answer { needed, refused, turn } = elsewhere.referenced(suspected).await;
    let mut needed = needed.into_iter();
    for (file, garbage) in suspects {
        let needed = needed.next().unwrap_or(true);
        if needed || refused.is_some() {
            let why = if needed { Kept::ReferencedElsewhere } else { Kept::NeighbourUnreadable };
            listing.kept.entry(why).or_default().add(file.bytes);
        } else {
            found.report.removable.entry(garbage).or_default().add(file.bytes);
            found.report.orphans.add(file.bytes);
            found.doomed.push(file);
        }
    }
    found.report.refused = refused;
    found.turn = turn;
    Ok(())
}

fn finish(found: &mut Found, listing: Listing) {
    let report = &mut found.report;
    report.listed = listing.listed;
    report.referenced = listing.referenced;
    for (kept, tally) in &listing.kept {
        if !kept.is_protection() {
            report.orphans.absorb(*tally);
        }
    }
    report.kept = listing.kept;
}

/// Deletes stage by stage; a stage that is not complete keeps the files that prove it.
async fn delete(mut deleter: Deleter, doomed: Vec<Doomed>, proofs_stay: bool, report: &mut OrphanReport) {
    let (proofs, content): (Vec<_>, Vec<_>) = doomed.into_iter().partition(|f| f.kind.is_proof());
    let mut sum = deleter.delete(&content).await;
    for kind in [FileKind::Manifest, FileKind::ManifestList, FileKind::MetadataFile] {
        let stage: Vec<Doomed> = proofs.iter().filter(|f| f.kind == kind).cloned().collect();
        if sum.is_complete() && !proofs_stay {
            sum.absorb(deleter.delete(&stage).await);
        } else {
            for file in &stage {
                report.kept.entry(Kept::ContentNotDeleted).or_default().add(file.bytes);
            }
        }
    }
    for (kept, tally) in [(Kept::ReferencedMeanwhile, sum.referenced), (Kept::OtherName, sum.other_name)] {
        if tally.files > 0 {
            report.kept.entry(kept).or_default().absorb(tally);
        }
    }
    report.deleted = sum.deleted;
    report.failed = sum.failed;
    report.failures = sum.failures;
    report.error = sum.stopped;
}
