//! Orphan removal: list, compare, prove, then delete. Detection is complete before deletion starts; any retained
//! metadata that cannot be read, any doubt whose files these are, and nothing is deleted.

use std::collections::HashSet;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use super::clocks::clock_apart;
use super::deletion::{Deleter, Doomed};
use super::elsewhere::{Elsewhere, Unneeded, unneeded_elsewhere};
use super::judged::{JudgedGarbage, Searched};
use super::listing::{Comparison, OrphanListing};
use super::once_referenced::OnceReferenced;
use super::other_names::without_other_name;
use super::ownership::{check_metadata_files, compare_with_neighbours, date_metadata_files};
use super::reachable::Reachable;
use super::referenced::{References, Unreferenced};
use super::report::{OrphanError, OrphanReport, Refused};
use crate::action::Phase;
use crate::catalog::TableHandle;
use crate::clock::Stopwatch;
use crate::error::Result;
use crate::plan::expire_snapshots::left_alone;
use crate::plan::remove_orphan_files::{Evidence, KeepReason, NamesInUse, OrphanContents, OrphanRules};
use crate::policy::TablePolicy;
use crate::run_id::RunId;
use crate::storage::delete_files::Proof;
use crate::table::file_names::WriterProgress;
use crate::telemetry::phase_span;

/// Unreferenced files that one run takes at most, if the caller has no other wish.
pub const CANDIDATES_PER_RUN: usize = 1_000_000;

/// A wish to find, or to find and remove, orphan files.
#[derive(Clone, Copy)]
pub struct OrphanRequest<'a> {
    pub policy: &'a TablePolicy,
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

    /// What is known before anything is searched for.
    fn evidence<'a>(
        &'a self,
        reachable: &'a Reachable,
        names: &'a NamesInUse,
        progress: &'a WriterProgress,
    ) -> Evidence<'a> {
        let once_referenced = reachable.left().into_iter().collect();
        let (rules, scope, is_active) = (self.rules(), reachable.scope(), self.is_active);
        Evidence { rules, names, scope, progress, once_referenced, is_active }
    }
}

/// Finds orphan files and says what would become of them, and why. Deletes nothing.
pub async fn find_orphan_files(table: &TableHandle, request: &OrphanRequest<'_>) -> OrphanReport {
    match find(table, request, &mut Stopwatch::start()).await {
        Ok(found) => found.report,
        Err(error) => without_finding(error, "find orphan files"),
    }
}

/// Finds orphan files and deletes those that may go. Errors and refusals are in the report.
pub async fn remove_orphan_files(table: &TableHandle, request: &OrphanRequest<'_>) -> OrphanReport {
    let mut stopwatch = Stopwatch::start();
    let mut report = match find(table, request, &mut stopwatch).await {
        Ok(found) => {
            stopwatch.end(Phase::Check);
            let report = delete(found).instrument(phase_span!("delete")).await;
            stopwatch.end(Phase::Delete);
            report
        }
        Err(error) => without_finding(error, "find orphan files (nothing was deleted)"),
    };
    report.phases_ms = stopwatch.times();
    report
}

fn without_finding(error: OrphanError, what: &'static str) -> OrphanReport {
    match error {
        OrphanError::Refused(refused) => OrphanReport { refused: Some(refused), ..OrphanReport::default() },
        OrphanError::Failed(error) => OrphanReport { error: Some(error.context(what)), ..OrphanReport::default() },
    }
}

struct FoundOrphans {
    report: OrphanReport,
    orphans: Vec<Unneeded>,
    /// Not all files could be taken: those that prove something about the rest stay for the next run.
    proofs_stay: bool,
    /// The table as last loaded and what it reaches.
    references: References,
    /// Held while files are deleted.
    turn: Option<OwnedSemaphorePermit>,
}

/// Refuses tables that must be left alone, and clocks by which ages mean nothing.
async fn require_allowed(table: &TableHandle, request: &OrphanRequest<'_>) -> Result<(), Refused> {
    let enabled = request.policy.remove_orphan_files.enabled;
    let refused = match left_alone(&table.loaded, "remove-orphan-files", enabled, request.now_ms) {
        None => clock_apart(table, request.now_ms).await.map(|detail| ("clock_skew", detail)),
        refused => refused,
    };
    refused.map_or(Ok(()), |(reason, detail)| Err(Refused::new(reason, detail)))
}

/// Ends the phase `list`; the phase `check` is over when this is.
async fn find(
    table: &TableHandle,
    request: &OrphanRequest<'_>,
    stopwatch: &mut Stopwatch,
) -> Result<FoundOrphans, OrphanError> {
    let table = table.refresh().await?;
    require_allowed(&table, request).await?;
    let mut report = OrphanReport::default();
    let reachable = Reachable::new(&table.loaded, true)?;
    let left_out = compare_with_neighbours(reachable.scope(), &table.name(), request.neighbours)?;
    let reachable = reachable.with_table(&table.store, &table.loaded).await?;
    let (names, progress) = (NamesInUse::of(&table.loaded)?, reachable.progress());
    let evidence = request.evidence(&reachable, &names, &progress);
    let (left_out, candidates_max) = (&left_out, request.candidates_max);
    let comparison = Comparison { reachable: &reachable, evidence, left_out, candidates_max };
    let listing = comparison.list(&table.store, &mut report).instrument(phase_span!("list")).await;
    stopwatch.end(Phase::List);
    let mut listing = listing?;
    check_metadata_files(&table.store, &table.loaded, &listing.metadata_files).await?;
    listing.leave_for_later(&mut report);

    let references = References::read_after(&listing, &table, reachable).await?;
    let unreferenced = references.unreferenced(std::mem::take(&mut listing.candidates), &mut report)?;
    let judged = judge_all(unreferenced, request, &listing, &references, left_out, &mut report).await?;
    let judged = without_other_name(judged, &references, &mut report).await?;
    let (orphans, turn) = unneeded_elsewhere(judged, request.elsewhere, &references.table.loaded, &mut report).await?;
    let unprotected = report.kept.iter().filter(|(kept, _)| !kept.is_protection()).map(|(_, tally)| tally);
    report.removable.values().chain(unprotected).for_each(|tally| report.orphans.absorb(*tally));
    let proofs_stay = listing.likely_left_out && !listing.metadata_backlog;
    Ok(FoundOrphans { report, orphans, proofs_stay, references, turn })
}

/// Searches for proofs, and judges by them; also the files that there was no room for in the listing.
async fn judge_all(
    mut unreferenced: Vec<Unreferenced>,
    request: &OrphanRequest<'_>,
    listing: &OrphanListing,
    references: &References,
    left_out: &HashSet<usize>,
    report: &mut OrphanReport,
) -> Result<Vec<JudgedGarbage>> {
    let References { table, reachable, checkpoints_known, .. } = references;
    let (names, mut progress) = (NamesInUse::of(&table.loaded)?, reachable.progress());
    let once = OnceReferenced::search(table, reachable, &listing.lists, &mut progress).await?;
    let last_updated_ms = date_metadata_files(&table.store, &unreferenced, request.now_ms).await;
    let is_active = |run| (request.is_active)(run) || listing.writing.contains(&run);
    let mut searched = Searched {
        evidence: Evidence { is_active: &is_active, ..request.evidence(reachable, &names, &progress) },
        contents: OrphanContents { last_updated_ms, checkpoints_known: *checkpoints_known },
    };
    searched.evidence.once_referenced.push(once.files());
    if listing.unlikely_left_out && !listing.metadata_backlog {
        let before = reachable.progress();
        let (evidence, candidates_max) = (request.evidence(reachable, &names, &before), request.candidates_max);
        let comparison = Comparison { reachable, evidence, left_out, candidates_max };
        let proven = comparison.list_proven(&table.store, &searched, &unreferenced, report).await?;
        unreferenced.extend(references.unreferenced(proven, report)?);
    }
    searched.garbage(unreferenced, report)
}

/// Deletes what was found; files that prove something about those that are left stay with them.
async fn delete(found: FoundOrphans) -> OrphanReport {
    let FoundOrphans { mut report, orphans, proofs_stay, references, turn: _turn } = found;
    let mut doomed: Vec<Doomed> = orphans.into_iter().map(Doomed::from).collect();
    doomed.sort_by(|a, b| a.path().cmp(b.path()));
    let mut deleter = Deleter::new(references.table, references.reachable, Proof::Orphan);
    let sum = deleter.delete(doomed, |_| !proofs_stay).await;
    for (kept, tally) in [
        (KeepReason::ContentNotDeleted, sum.proof),
        (KeepReason::ReferencedMeanwhile, sum.referenced),
        (KeepReason::OtherName, sum.other_name),
    ] {
        if tally.files > 0 {
            report.kept.entry(kept).or_default().absorb(tally);
        }
    }
    report.deleted = sum.deleted;
    report.failed = sum.failed;
    report.failures = sum.failures;
    report.error = sum.stopped;
    report
}
