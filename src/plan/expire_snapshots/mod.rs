//! Which snapshots and refs shall leave the metadata, by the rules of the reference implementation, and more cautious
//! where those lose something. Pure.
//!
//! Whose word counts: a ref's own `max-snapshot-age-ms`, `min-snapshots-to-keep` and `max-ref-age-ms` first; then the
//! policy's `older-than` and `retain-last`, which stand where a caller of the reference's procedure gives arguments, so
//! the table's `history.expire.max-snapshot-age-ms` and `history.expire.min-snapshots-to-keep` do not count; the table's
//! `history.expire.max-ref-age-ms` counts, since the policy has no such key.
//!
//! Kept beyond those rules: what running work needs, and what restarting writers need (`writer_state.rs`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use iceberg::spec::{MAIN_BRANCH, SnapshotReference, SnapshotRetention};

use super::writer_state::{ProgressWriter, UNKNOWN_KEPT_MS, branch_writers, is_over, shown, unknown_keys, writers};
use super::{ExpirePlan, Skipped};
use crate::action::Action;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::{TablePolicy, human_duration};
use crate::table::history::last_own_run;
use crate::table::references::{GC_DISABLED, clock_skew_ms, gc_enabled};
use crate::table::{LoadedTable, Metadata, Snapshot, SnapshotRef};

/// Snapshots that one run expires at most, so that a commit request stays small. The oldest go first.
pub const SNAPSHOTS_PER_RUN: usize = 10_000;

/// Plans expiry as of `now_ms`.
///
/// A table whose clock is ahead of `now_ms` by more than ten minutes, and one with `gc.enabled=false`, gets an empty
/// plan that says so. Errors: a `main` without its snapshot, a malformed `history.expire.max-ref-age-ms`.
pub fn plan_expire_snapshots(
    loaded: &LoadedTable,
    policy: &TablePolicy,
    commit_interval: Duration,
    now_ms: i64,
) -> Result<ExpirePlan> {
    let refs = all_refs(loaded);
    let mut plan = ExpirePlan {
        refs_seen: refs.iter().map(|(name, r)| (name.clone(), r.snapshot_id)).collect(),
        ..ExpirePlan::default()
    };
    if let Some((reason, detail)) = left_alone(loaded, "expire-snapshots", policy.expire_snapshots.enabled, now_ms) {
        plan.skipped.push(Skipped { reason, detail, files: 0, bytes: 0 });
        return Ok(plan);
    }
    let age_ms = millis(policy.expire_snapshots.older_than.resolve(commit_interval));
    let defaults = Defaults {
        now_ms,
        cutoff_ms: now_ms.saturating_sub(age_ms),
        retain_last: policy.expire_snapshots.retain_last.max(1),
        max_ref_age_ms: max_ref_age_ms(loaded)?,
        writer_retention_ms: millis(policy.expire_snapshots.writer_retention(commit_interval)),
    };
    let mut kept = Retained::new(&loaded.metadata);
    for (name, reference) in &refs {
        if ref_stays(&loaded.metadata, name, reference, &defaults)? {
            kept.keep_by_ref(name, reference, &defaults);
        } else {
            plan.remove_refs.push(name.clone());
        }
    }
    kept.keep_named_by_writers();
    kept.keep_detached_writer_state(&defaults);
    kept.keep_young_unreferenced(defaults.cutoff_ms);
    kept.keep_own_run(loaded);
    kept.keep_staged(now_ms.saturating_sub(STAGED_MS));
    plan.remove_snapshots = kept.others();
    plan.skipped = kept.reasons();
    limit(&mut plan);
    Ok(plan)
}

/// Lines that say what is kept for one reason, such as one for each writer.
const LINES_PER_REASON: usize = 20;

/// Rows of snapshots on no branch that count for a writer, those that it wrote to last. A query whose commits are all staged
/// has one for each.
const DETACHED_ROWS_MAX: usize = 16;

/// How long a staged snapshot may await its audit: Iceberg's default age of snapshots.
const STAGED_MS: i64 = 5 * 24 * 60 * 60 * 1000;

/// The plan for a table that has moved on since: branches may have grown, which makes nothing needed again that was not
/// needed before. [`ErrorKind::Conflict`] for any other change of refs: then plan anew.
pub fn rebase(plan: &ExpirePlan, fresh: &LoadedTable) -> Result<ExpirePlan> {
    let refs = all_refs(fresh);
    let conflict = |name: &str| Error::new(ErrorKind::Conflict, format!("ref {name} changed since expiry was planned"));
    if let Some(name) = plan.refs_seen.keys().find(|name| !refs.contains_key(*name)) {
        return Err(conflict(name));
    }
    for (name, reference) in &refs {
        let grown = |before: i64| {
            let stays_branch = reference.is_branch() && !plan.remove_refs.contains(name);
            stays_branch && history(&fresh.metadata, reference.snapshot_id).iter().any(|s| s.snapshot_id() == before)
        };
        let seen = plan.refs_seen.get(name).copied();
        if !seen.is_some_and(|before| before == reference.snapshot_id || grown(before)) {
            return Err(conflict(name));
        }
    }
    let refs_seen = refs.iter().map(|(name, r)| (name.clone(), r.snapshot_id)).collect();
    Ok(ExpirePlan { refs_seen, ..plan.clone() })
}

/// All refs. Metadata that names a current snapshot without a `main` ref has one all the same.
fn all_refs(loaded: &LoadedTable) -> BTreeMap<String, SnapshotReference> {
    let mut refs = loaded.refs.clone();
    if let Some(id) = loaded.metadata.current_snapshot_id() {
        let main = || SnapshotReference::new(id, SnapshotRetention::branch(None, None, None));
        refs.entry(MAIN_BRANCH.to_owned()).or_insert_with(main);
    }
    refs
}

/// Why snapshots and files of a table must be left alone: the reason's name, and what to say.
pub fn left_alone(loaded: &LoadedTable, action: &str, enabled: bool, now_ms: i64) -> Option<(&'static str, String)> {
    if !enabled {
        return Some(("disabled", format!("{action} is disabled by policy")));
    }
    if !gc_enabled(loaded) {
        return Some(("gc_disabled", GC_DISABLED.to_owned()));
    }
    let skew = human_duration(Duration::from_millis(clock_skew_ms(loaded, now_ms)?.max(0).unsigned_abs()));
    Some(("clock_skew", format!("the table's metadata is {skew} ahead of this clock: set the clocks right")))
}

struct Defaults {
    now_ms: i64,
    cutoff_ms: i64,
    retain_last: usize,
    max_ref_age_ms: i64,
    /// How long a writer may be silent.
    writer_retention_ms: i64,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn max_ref_age_ms(loaded: &LoadedTable) -> Result<i64> {
    let key = "history.expire.max-ref-age-ms";
    let Some(value) = loaded.metadata.properties().get(key) else { return Ok(i64::MAX) };
    let parsed: Option<i64> = value.trim().parse().ok().filter(|ms| *ms > 0);
    parsed
        .ok_or_else(|| Error::invalid(format!("table property {key} is {value:?}, not a positive number: correct it")))
}

fn ref_stays(metadata: &Metadata, name: &str, reference: &SnapshotReference, defaults: &Defaults) -> Result<bool> {
    let id = reference.snapshot_id;
    let Some(snapshot) = metadata.snapshot_by_id(id) else {
        return if name == MAIN_BRANCH {
            Err(Error::invalid(format!("branch main names snapshot {id}, which the metadata does not have")))
        } else {
            Ok(false)
        };
    };
    let (SnapshotRetention::Branch { max_ref_age_ms, .. } | SnapshotRetention::Tag { max_ref_age_ms }) =
        reference.retention;
    let age_ms = defaults.now_ms.saturating_sub(snapshot.timestamp_ms());
    Ok(name == MAIN_BRANCH || age_ms <= max_ref_age_ms.unwrap_or(defaults.max_ref_age_ms))
}

/// A snapshot and its ancestors, newest first, as far as the metadata has them. Ends at a loop.
fn history(metadata: &Metadata, head: i64) -> Vec<&SnapshotRef> {
    let mut seen = HashSet::new();
    let mut next = Some(head);
    std::iter::from_fn(|| {
        let snapshot = metadata.snapshot_by_id(next?).filter(|s| seen.insert(s.snapshot_id()))?;
        next = snapshot.parent_snapshot_id();
        Some(snapshot)
    })
    .collect()
}

/// What stays, each snapshot for the first reason found.
struct Retained<'a> {
    metadata: &'a Metadata,
    snapshots: BTreeSet<i64>,
    /// Ancestors of branch heads, and tagged snapshots: these never count as unreferenced.
    referenced: HashSet<i64>,
    on_branches: HashSet<i64>,
    /// Branches that stay, with their heads.
    branches: BTreeMap<String, i64>,
    /// Writers whose snapshots lie in the history of a branch.
    writers: BTreeSet<ProgressWriter>,
    /// Snapshots that writers look for, with these writers.
    named: BTreeMap<i64, ProgressWriter>,
    reasons: BTreeMap<(&'static str, String), usize>,
}

impl<'a> Retained<'a> {
    fn new(metadata: &'a Metadata) -> Self {
        Self {
            metadata,
            snapshots: BTreeSet::new(),
            referenced: HashSet::new(),
            on_branches: HashSet::new(),
            branches: BTreeMap::new(),
            named: BTreeMap::new(),
            writers: BTreeSet::new(),
            reasons: BTreeMap::new(),
        }
    }

    fn keep(&mut self, id: i64, reason: &'static str, why: &str) {
        if self.snapshots.insert(id) {
            *self.reasons.entry((reason, why.to_owned())).or_default() += 1;
        }
    }

    fn keep_by_ref(&mut self, name: &str, reference: &SnapshotReference, defaults: &Defaults) {
        let id = reference.snapshot_id;
        let SnapshotRetention::Branch { min_snapshots_to_keep, max_snapshot_age_ms, .. } = reference.retention else {
            self.referenced.insert(id);
            return self.keep(id, "tag", &format!("named by tag {name}"));
        };
        let own_minimum = min_snapshots_to_keep.map(|n| usize::try_from(n).unwrap_or(0).max(1));
        let minimum = own_minimum.unwrap_or(defaults.retain_last);
        let cutoff_ms = max_snapshot_age_ms.map_or(defaults.cutoff_ms, |age| defaults.now_ms.saturating_sub(age));
        let history = history(self.metadata, id);
        self.referenced.extend(history.iter().map(|s| s.snapshot_id()));
        self.on_branches.extend(history.iter().map(|s| s.snapshot_id()));
        let age = Duration::from_millis(u64::try_from(defaults.now_ms.saturating_sub(cutoff_ms)).unwrap_or(0));
        let why = format!(
            "among the last {minimum} of branch {name}, or not older than {} in an unbroken row",
            human_duration(age)
        );
        let stay = history.iter().enumerate().take_while(|(n, s)| *n < minimum || s.timestamp_ms() >= cutoff_ms);
        for (_, snapshot) in stay {
            self.keep(snapshot.snapshot_id(), "branch", &why);
        }
        self.branches.insert(name.to_owned(), id);
        self.keep_writer_state(name, &history, defaults);
        self.keep_unknown(name, &history, defaults);
    }

    fn keep_writer_state(&mut self, branch: &str, history: &[&SnapshotRef], defaults: &Defaults) {
        let found = branch_writers(history, defaults.now_ms, defaults.writer_retention_ms);
        for state in &found.live {
            let why = format!("newest of {} on branch {branch}, which the writer reads at a restart", state.writer);
            self.keep(history[state.position].snapshot_id(), "writer_state", &why);
        }
        let way_to = found.live.iter().map(|state| state.way_to + 1).max().unwrap_or(0);
        let why = format!("on the way from the head of branch {branch} to the newest snapshot of a live writer");
        for snapshot in &history[..way_to] {
            self.keep(snapshot.snapshot_id(), "writer_state_way", &why);
        }
        self.named.extend(found.live.into_iter().filter_map(|state| Some((state.names?, state.writer))));
        self.writers.extend(found.seen);
    }

    /// A key that nothing is known of may be some writer's progress.
    fn keep_unknown(&mut self, branch: &str, history: &[&SnapshotRef], defaults: &Defaults) {
        let kept_ms = UNKNOWN_KEPT_MS.min(defaults.writer_retention_ms);
        let for_time = human_duration(Duration::from_millis(kept_ms.unsigned_abs()));
        for unknown in unknown_keys(history, defaults.now_ms, kept_ms) {
            let key = shown(&unknown.key);
            let why = format!(
                "newest with summary key {key} on branch {branch}, which an unknown writer may read within {for_time}"
            );
            for position in unknown.positions {
                self.keep(history[position].snapshot_id(), "unknown_writer_state", &why);
            }
            let why = format!("on the way from the head of branch {branch} to those with summary key {key}");
            for snapshot in &history[..unknown.way_to] {
                self.keep(snapshot.snapshot_id(), "unknown_writer_state", &why);
            }
        }
    }

    /// A writer that looks for a certain snapshot walks there along the branch that has it.
    fn keep_named_by_writers(&mut self) {
        let metadata = self.metadata;
        for (id, writer) in std::mem::take(&mut self.named) {
            let why = format!("looked for by {writer}, or on the way to it");
            self.keep_existing(id, "writer_state", &why);
            for head in self.branches.values().copied().collect::<Vec<_>>() {
                let history = history(metadata, head);
                let way_to = history.iter().position(|s| s.snapshot_id() == id).unwrap_or(0);
                for snapshot in &history[..way_to] {
                    self.keep(snapshot.snapshot_id(), "writer_state", &why);
                }
            }
        }
    }

    /// A branch may have been replaced or rolled back, and some writers search all snapshots. Which of the snapshots on no
    /// branch were on one before cannot be told, so each row of them counts.
    fn keep_detached_writer_state(&mut self, defaults: &Defaults) {
        let metadata = self.metadata;
        let detached = |id: i64| !self.on_branches.contains(&id);
        let has_child: HashSet<i64> =
            metadata.snapshots().filter(|s| detached(s.snapshot_id())).filter_map(|s| s.parent_snapshot_id()).collect();
        let ends = metadata.snapshots().map(|s| s.snapshot_id()).filter(|id| detached(*id) && !has_child.contains(id));
        let mut found = Vec::new();
        for end in ends {
            let mut seen = self.writers.clone();
            for snapshot in history(metadata, end).into_iter().take_while(|s| detached(s.snapshot_id())) {
                let new = writers(snapshot.summary()).into_iter().filter(|w| seen.insert(w.clone()));
                let live = new.filter(|w| !is_over(w, snapshot, defaults.now_ms, defaults.writer_retention_ms));
                found.extend(live.map(|w| (snapshot.timestamp_ms(), snapshot.snapshot_id(), w)));
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        let mut rows: BTreeMap<ProgressWriter, usize> = BTreeMap::new();
        for (_, id, writer) in found {
            let why = format!("newest of {writer}, which the writer reads at a restart");
            let rows = rows.entry(writer).or_default();
            *rows += 1;
            if *rows <= DETACHED_ROWS_MAX {
                self.keep(id, "writer_state", &why);
            }
        }
    }

    fn keep_existing(&mut self, id: i64, reason: &'static str, why: &str) {
        if self.metadata.snapshot_by_id(id).is_some() {
            self.keep(id, reason, why);
        }
    }

    fn keep_young_unreferenced(&mut self, cutoff_ms: i64) {
        for snapshot in self.metadata.snapshots() {
            if !self.referenced.contains(&snapshot.snapshot_id()) && snapshot.timestamp_ms() >= cutoff_ms {
                self.keep(snapshot.snapshot_id(), "unreferenced_young", "on no branch, but younger than older-than");
            }
        }
    }

    /// The newest compaction tells a restart when the last run was. Until the next one nearly all of its files are live anyway.
    fn keep_own_run(&mut self, loaded: &LoadedTable) {
        if let Some(own) = last_own_run(loaded, Action::RewriteDataFiles) {
            self.keep(own.snapshot_id, "own_run", "the newest compaction, which tells a restart what is due");
        }
    }

    /// Staged snapshots that await their audit (write-audit-publish) are on no branch yet, and their rows are nowhere else.
    fn keep_staged(&mut self, cutoff_ms: i64) {
        let key = |snapshot: &Snapshot, key: &str| snapshot.summary().additional_properties.get(key).cloned();
        let published: HashSet<String> = self.metadata.snapshots().filter_map(|s| key(s, "published-wap-id")).collect();
        for snapshot in self.metadata.snapshots() {
            let staged = key(snapshot, "wap.id").is_some_and(|id| !published.contains(&id));
            if staged && !self.referenced.contains(&snapshot.snapshot_id()) && snapshot.timestamp_ms() >= cutoff_ms {
                self.keep(snapshot.snapshot_id(), "staged", "staged for an audit (wap.id) less than five days ago");
            }
        }
    }

    /// What does not stay, oldest first.
    fn others(&self) -> Vec<i64> {
        let gone = self.metadata.snapshots().filter(|s| !self.snapshots.contains(&s.snapshot_id()));
        let mut gone: Vec<_> = gone.map(|s| (s.sequence_number(), s.timestamp_ms(), s.snapshot_id())).collect();
        gone.sort_unstable();
        gone.into_iter().map(|(_, _, id)| id).collect()
    }

    /// What stays and why, each reason on a limited number of lines.
    fn reasons(self) -> Vec<Skipped> {
        let line =
            |reason, n: usize, why: &str| Skipped { reason, detail: format!("{n} kept: {why}"), files: 0, bytes: 0 };
        let mut lines: Vec<Skipped> = Vec::new();
        let mut further: BTreeMap<&'static str, usize> = BTreeMap::new();
        for ((reason, why), n) in self.reasons {
            if lines.iter().filter(|line| line.reason == reason).count() < LINES_PER_REASON {
                lines.push(line(reason, n, &why));
            } else {
                *further.entry(reason).or_default() += n;
            }
        }
        lines.extend(further.into_iter().map(|(reason, n)| line(reason, n, "further ones for the same reason")));
        lines
    }
}

fn limit(plan: &mut ExpirePlan) {
    if plan.remove_snapshots.len() > SNAPSHOTS_PER_RUN {
        let rest = plan.remove_snapshots.len() - SNAPSHOTS_PER_RUN;
        plan.remove_snapshots.truncate(SNAPSHOTS_PER_RUN);
        let detail = format!("{rest} kept for the next run: one run expires {SNAPSHOTS_PER_RUN} at most");
        plan.skipped.push(Skipped { reason: "run_limit", detail, files: 0, bytes: 0 });
    }
}

#[cfg(test)]
mod tests;
