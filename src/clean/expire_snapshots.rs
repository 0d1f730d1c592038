//! Expiry, and deletion of what only expired snapshots reached.
//!
//! Everything is read before the commit: what retained snapshots reach, and what the expiring ones reach beyond that. If
//! anything retained cannot be read, nothing is committed. After a confirmed commit the metadata is loaded anew, what it
//! reaches is added to the first set, and only then does deletion start; each batch looks at the metadata again.
//!
//! Unlike the reference implementation, this keeps files outside of the table's own directories (imported files may belong
//! to another table), and keeps manifests and lists whose content files could not all be deleted: they are the proof by
//! which a later orphan run finds the rest.

use std::collections::{BTreeMap, HashSet};

use futures::StreamExt;
use iceberg::spec::{DataContentType, ManifestFile, SnapshotReference};
use tracing::Instrument;

use super::clocks::clock_apart;
use super::deletion::{Deleter, Doomed, refresh};
use super::ownership::{compare_with_neighbours, read_metadata};
use super::reachable::Reachable;
use super::report::{ExpireOutcome, ExpireReport, FileKind, Refused, Tally};
use crate::action::Phase;
use crate::catalog::TableHandle;
use crate::clock::{Clock, Stopwatch};
use crate::commit::{CommitContext, CommitResult, commit_expire};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::snapshot::{manifests_of, paths_of};
use crate::plan::ExpirePlan;
use crate::storage::delete_files::Proof;
use crate::table::SnapshotRef;
use crate::table::path::CanonicalPath;
use crate::table::path_set::PathSet;
use crate::table::references::{metadata_files, require_gc, statistics_files};
use crate::telemetry::phase_span;

/// Content files that one run deletes at most; the rest is left to orphan removal, with its manifests as proof.
const CONTENT_FILES_PER_RUN: usize = 1_000_000;

/// Metadata files read at most to see whether a ref was lost: as many as commits could have come between.
const LOG_ENTRIES: usize = 100;

/// Expires what the plan names and deletes the files that nothing needs any more.
///
/// Nothing is sent for an empty plan, and nothing is deleted unless the commit is confirmed. Errors are in the report.
///
/// `neighbours` are the directories of every other table within sight, as in [`super::OrphanRequest`], or the reason why they do
/// not tell which files are this table's alone. If one of them lies in this table's location or around it, or if there is
/// such a reason, the files stay: another table may have been registered from this one's metadata.
pub async fn expire_snapshots(
    table: &TableHandle,
    plan: &ExpirePlan,
    ctx: &CommitContext,
    clock: &dyn Clock,
    neighbours: Result<&[(String, String)], &'static str>,
) -> ExpireReport {
    if plan.is_empty() {
        let why: Vec<&str> = plan.skipped.iter().map(|skipped| skipped.detail.as_str()).collect();
        let reason = if why.is_empty() { "the table has no snapshots".to_owned() } else { why.join("; ") };
        return ExpireReport { reason: Some(reason), ..ExpireReport::default() };
    }
    let mut stopwatch = Stopwatch::start();
    let mut report = expire(table, plan, ctx, clock, neighbours, &mut stopwatch).await;
    report.phases_ms = stopwatch.times();
    report
}

async fn expire(
    table: &TableHandle,
    plan: &ExpirePlan,
    ctx: &CommitContext,
    clock: &dyn Clock,
    neighbours: Result<&[(String, String)], &'static str>,
    stopwatch: &mut Stopwatch,
) -> ExpireReport {
    let mut report = ExpireReport::default();
    if let Some(detail) = clock_apart(table, clock.now_ms()).await {
        report.outcome = ExpireOutcome::NotCommitted;
        report.refused = true;
        report.error = Some(Error::unsupported(format!("refused (clock_skew): {detail}")));
        return report;
    }
    let prepared = prepare(table, plan).instrument(phase_span!("plan")).await;
    stopwatch.end(Phase::Plan);
    let (retained, candidates) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            report.outcome = ExpireOutcome::NotCommitted;
            report.refused = matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unsupported);
            report.error = Some(error.context("find out what expiring snapshots reach (nothing was changed)"));
            return report;
        }
    };
    let result = commit_expire(table, plan, ctx, clock).instrument(phase_span!("commit")).await;
    stopwatch.end(Phase::Commit);
    let base = match result {
        CommitResult::Committed(committed) => {
            report.outcome = ExpireOutcome::Committed;
            report.conflicts = committed.conflicts;
            report.unknown_outcomes = committed.unknown_outcomes;
            report.error = committed.incomplete.map(|e| e.context("expire the rest of the snapshots"));
            report.expired_snapshots = committed.expired_snapshots;
            report.removed_refs = committed.removed_refs;
            if report.expired_snapshots == 0 && report.removed_refs.is_empty() {
                report.outcome = ExpireOutcome::Nothing;
                report.reason = Some("somebody else has expired them meanwhile".to_owned());
                return report;
            }
            committed.base_location.unwrap_or_default()
        }
        CommitResult::NotCommitted(error) | CommitResult::Denied(error) => {
            report.outcome = ExpireOutcome::NotCommitted;
            report.error = Some(error);
            return report;
        }
        CommitResult::Unknown(error) => {
            report.outcome = ExpireOutcome::Unknown;
            report.error = Some(error);
            return report;
        }
    };
    let shared = match neighbours.map(|others| compare_with_neighbours(retained.scope(), &table.name(), others)) {
        Err(reason) => Some((reason, None)),
        Ok(Err(refused)) => Some(("shared-location", Some(refused))),
        Ok(Ok(_)) => None,
    };
    if let Some((reason, refused)) = shared {
        report.files_stay = refused.filter(|_| !candidates.files.is_empty());
        candidates.files.iter().for_each(|file| report.kept.entry(reason).or_default().add(file.bytes));
        return report;
    }
    match after_commit(table, &base, plan, retained).await {
        Ok(deleter) => delete(deleter, candidates, &mut report).instrument(phase_span!("delete")).await,
        Err(error) => report.error = Some(error.context("read the table after its expiry (no file was deleted)")),
    }
    stopwatch.end(Phase::Delete);
    report
}

/// A commit can only require refs to stand where they stood, not that no new one comes. A catalog drops a ref that was
/// set on an expiring snapshot at the last moment without a word; metadata files since `base` tell.
async fn require_no_ref_lost(table: &TableHandle, base: &str, plan: &ExpirePlan) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Before {
        #[serde(default)]
        refs: BTreeMap<String, SnapshotReference>,
    }
    if table.loaded.metadata_location == base {
        // Somebody else had expired them before, so nothing was committed here.
        return Ok(());
    }
    let expired: HashSet<i64> = plan.remove_snapshots.iter().copied().collect();
    for file in metadata_files(&table.loaded)?.into_iter().skip(1).take_while(|file| *file != base).take(LOG_ENTRIES) {
        let before: Before = read_metadata(table.store.as_ref(), file).await?;
        let lost =
            before.refs.iter().find(|(name, r)| expired.contains(&r.snapshot_id) && !plan.remove_refs.contains(name));
        if let Some((name, reference)) = lost {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "ref {name} was set on snapshot {} while that expired, and is lost; its files are still there, and \
                     {file} describes the table before",
                    reference.snapshot_id
                ),
            ));
        }
    }
    Ok(())
}

/// A file that only expiring snapshots reach. It is doomed once they have expired.
#[derive(Debug)]
pub(super) struct OnlyExpiring {
    path: String,
    kind: FileKind,
    bytes: u64,
}

/// The same after the expiry was confirmed, and the metadata loaded anew shows that no ref was lost by it: the [`Deleter`] knows
/// what that metadata reaches.
#[derive(Debug)]
pub(super) struct OnlyExpired(OnlyExpiring);

impl OnlyExpired {
    pub(super) fn into_parts(self) -> (String, FileKind, u64) {
        (self.0.path, self.0.kind, self.0.bytes)
    }
}

/// Files that only expiring snapshots reach.
#[derive(Debug, Default)]
struct Candidates {
    files: Vec<OnlyExpiring>,
    /// How many of them are content files.
    content_files: usize,
    /// Files outside of the table's directories.
    outside: Tally,
    /// Lists and manifests of expiring snapshots that are gone or broken, or were left for a later run.
    not_followed: Tally,
}

async fn prepare(table: &TableHandle, plan: &ExpirePlan) -> Result<(Reachable, Candidates)> {
    let loaded = &table.loaded;
    require_gc(loaded)?;
    let expiring: HashSet<i64> = plan.remove_snapshots.iter().copied().collect();
    let retained = Reachable::new(loaded, false)?;
    let retained = retained.with_snapshots(&table.store, loaded, |id| !expiring.contains(&id)).await?;
    let mut candidates = Candidates::default();
    let snapshots: Vec<SnapshotRef> =
        loaded.metadata.snapshots().filter(|s| expiring.contains(&s.snapshot_id())).cloned().collect();
    let manifests = candidates.take_lists(table, snapshots, &retained).await?;
    candidates.take_manifests(table, manifests, &retained).await?;
    for statistics in statistics_files(loaded).into_iter().filter(|s| expiring.contains(&s.snapshot_id)) {
        if !retained.contains(&statistics.path)?
            && candidates.is_own(&retained, &statistics.path, statistics.size_bytes)?
        {
            let (path, bytes) = (statistics.path, statistics.size_bytes);
            candidates.files.push(OnlyExpiring { path, kind: FileKind::StatisticsFile, bytes });
        }
    }
    Ok((retained, candidates))
}

/// What an expiring snapshot names may be gone or broken already: that must not keep it from expiring.
/// Anything else, such as a store that does not answer, stops the action before it has changed anything.
fn tolerate<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DataInvalid | ErrorKind::Unsupported) => {
            tracing::debug!(%error, "metadata of an expiring snapshot cannot be read");
            Ok(None)
        }
        read => read.map(Some),
    }
}

impl Candidates {
    /// Whether a file lies in the table's directories; if not, it is counted.
    fn is_own(&mut self, retained: &Reachable, path: &str, bytes: u64) -> Result<bool> {
        let own = retained.scope().directory(&CanonicalPath::parse(path)?).is_some();
        if !own {
            self.outside.add(bytes);
        }
        Ok(own)
    }

    /// Reads the lists of expiring snapshots; returns manifests that no retained snapshot has.
    async fn take_lists(
        &mut self,
        table: &TableHandle,
        snapshots: Vec<SnapshotRef>,
        retained: &Reachable,
    ) -> Result<Vec<ManifestFile>> {
        let (mut lists, mut seen, mut manifests) = (PathSet::default(), PathSet::default(), Vec::new());
        let mut read = manifests_of(&table.store, snapshots);
        while let Some((snapshot, found)) = read.next().await {
            let Some((found, bytes)) = tolerate(found)? else {
                self.not_followed.add(0);
                continue;
            };
            let list = snapshot.manifest_list();
            if !list.is_empty()
                && !retained.contains(list)?
                && lists.insert(list)?
                && self.is_own(retained, list, bytes)?
            {
                self.files.push(OnlyExpiring { path: list.to_owned(), kind: FileKind::ManifestList, bytes });
            }
            for manifest in found {
                if !retained.has_manifest(&manifest.manifest_path)? && seen.insert(&manifest.manifest_path)? {
                    manifests.push(manifest);
                }
            }
        }
        Ok(manifests)
    }

    /// Reads these manifests and takes what no retained snapshot reaches.
    async fn take_manifests(
        &mut self,
        table: &TableHandle,
        manifests: Vec<ManifestFile>,
        retained: &Reachable,
    ) -> Result<()> {
        let mut seen = PathSet::default();
        let mut read = paths_of(&table.store, manifests);
        while let Some(result) = read.next().await {
            let room = CONTENT_FILES_PER_RUN.saturating_sub(self.content_files);
            let followed = tolerate(result)?.filter(|(_, entries)| entries.len() <= room);
            let Some((manifest, entries)) = followed else {
                self.not_followed.add(0);
                continue;
            };
            for entry in entries.into_iter().filter(|e| e.live) {
                let (path, bytes) = (&entry.file_path, entry.file_size_bytes);
                if !retained.contains(path)? && seen.insert(path)? && self.is_own(retained, path, bytes)? {
                    let kind = match entry.content {
                        DataContentType::Data => FileKind::DataFile,
                        DataContentType::PositionDeletes => FileKind::PositionDeleteFile,
                        DataContentType::EqualityDeletes => FileKind::EqualityDeleteFile,
                    };
                    self.files.push(OnlyExpiring { path: path.to_string(), kind, bytes });
                    self.content_files += 1;
                }
            }
            let (path, bytes) = (manifest.manifest_path, u64::try_from(manifest.manifest_length).unwrap_or(0));
            if self.is_own(retained, &path, bytes)? {
                self.files.push(OnlyExpiring { path, kind: FileKind::Manifest, bytes });
            }
        }
        Ok(())
    }
}

/// The metadata as it is after the commit, and all that it reaches added to what was known to stay.
async fn after_commit(table: &TableHandle, base: &str, plan: &ExpirePlan, retained: Reachable) -> Result<Deleter> {
    let fresh = refresh(table).await?;
    require_no_ref_lost(&fresh, base, plan).await?;
    let retained = retained.with_table(&fresh.store, &fresh.loaded).await?;
    Ok(Deleter::new(fresh, retained, Proof::Expired))
}

/// Content first, then manifests, then lists; lists stay if one of their manifests could not be followed.
async fn delete(mut deleter: Deleter, candidates: Candidates, report: &mut ExpireReport) {
    let Candidates { files, outside, not_followed, .. } = candidates;
    let files: Vec<Doomed> = files.into_iter().map(|file| OnlyExpired(file).into()).collect();
    match deleter.other_name(&files).await {
        Ok(None) => {}
        Ok(Some(why)) => {
            tracing::warn!(%why, "files of expired snapshots stay");
            files.iter().for_each(|file| report.kept.entry("other-name").or_default().add(file.bytes()));
            report.files_stay = Some(Refused::new("other_name", why));
            return;
        }
        Err(error) => {
            report.error = Some(error.context("find out whether files have other names (no file was deleted)"));
            return;
        }
    }
    let sum = deleter.delete(files, |kind| kind != FileKind::ManifestList || not_followed.files == 0).await;
    let kept = [
        ("content-not-deleted", sum.proof),
        ("outside-table", outside),
        ("not-followed", not_followed),
        ("referenced-again", sum.referenced),
        ("other-name", sum.other_name),
    ];
    report.kept.extend(kept.into_iter().filter(|(_, tally)| tally.files > 0));
    report.deleted = sum.deleted;
    report.failed = sum.failed;
    report.failures = sum.failures;
    report.error = sum.stopped.or(report.error.take());
}
