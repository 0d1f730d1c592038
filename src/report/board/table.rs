//! What is remembered of one table.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::look::{TableLook, snapshots};
use super::pack::Packed;
use super::view::{Next, Planned, ProgressView, RunEntry, Sample, SizesView, TableSummary, TableView};
use crate::action::{Action, Doing};
use crate::inspect::TableStats;
use crate::report::health::{Health, Reason};
use crate::rewrite::Progress;
use crate::schedule::control::Pause;
use crate::table::TableName;

/// Samples kept of a table.
const SAMPLES_MAX: usize = 500;
/// Actions kept of a table.
const RUNS_MAX: usize = 50;

/// A table's state. Copied for a view, so what is large is shared.
#[derive(Debug, Clone)]
pub(super) struct ShownTable {
    pub(super) doing: Doing,
    pub(super) next: Option<Next>,
    pub(super) health: Health,
    pub(super) reasons: Vec<Reason>,
    failures: u32,
    quarantined: bool,
    pub(super) paused: Option<Pause>,
    pub(super) progress: Option<(Arc<Progress>, i64)>,
    looked: LookedAt,
    samples: VecDeque<Sample>,
    last_runs: BTreeMap<Action, RunEntry>,
    runs: VecDeque<(RunEntry, Packed)>,
    plan: Option<(i64, Packed)>,
}

/// What the last look at a table found, ready to be kept.
#[derive(Debug, Clone, Default)]
pub(super) struct LookedAt {
    policies: Vec<String>,
    stats: Option<(i64, Arc<TableStats>)>,
    sizes: Option<SizesView>,
    partitions: Packed,
    snapshots: Packed,
    settings: Packed,
}

impl LookedAt {
    pub(super) fn of(look: TableLook<'_>, at_ms: i64) -> Self {
        Self {
            policies: look.policy.names.clone(),
            settings: Packed::new(&look.policy.settings()),
            partitions: Packed::new(&look.partitions),
            snapshots: Packed::new(&snapshots(look.loaded)),
            sizes: Some(SizesView::of(&look)),
            stats: Some((at_ms, look.stats)),
        }
    }
}

impl ShownTable {
    pub(super) fn new() -> Self {
        Self {
            doing: Doing::Idle,
            next: None,
            health: Health::Unknown,
            reasons: Vec::new(),
            failures: 0,
            quarantined: false,
            paused: None,
            progress: None,
            looked: LookedAt::default(),
            samples: VecDeque::new(),
            last_runs: BTreeMap::new(),
            runs: VecDeque::new(),
            plan: None,
        }
    }

    pub(super) fn waits(&mut self, doing: Doing, next: Next, failures: u32, quarantined: bool) {
        (self.doing, self.next, self.progress) = (doing, Some(next), None);
        (self.failures, self.quarantined) = (failures, quarantined);
    }

    pub(super) fn looked(&mut self, looked: LookedAt) {
        if let Some((at_ms, stats)) = &looked.stats {
            self.sample(stats, *at_ms);
        }
        self.looked = looked;
    }

    pub(super) fn sample(&mut self, stats: &TableStats, at_ms: i64) {
        push(&mut self.samples, Sample::of(stats, at_ms), SAMPLES_MAX);
    }

    /// Takes in an action that ended, and its report.
    pub(super) fn ran(&mut self, run: RunEntry, report: Packed) {
        self.last_runs.insert(run.action, run.clone());
        push(&mut self.runs, (run, report), RUNS_MAX);
    }

    pub(super) fn planned(&mut self, plan: Packed, at_ms: i64) {
        self.plan = Some((at_ms, plan));
    }

    pub(super) fn summary(&self, name: &TableName) -> TableSummary {
        TableSummary {
            table: name.to_string(),
            catalog: name.catalog.clone(),
            namespace: name.namespace_text(),
            name: name.table.clone(),
            health: self.health,
            reasons: self.reasons.clone(),
            step: self.doing,
            paused: self.paused.clone(),
            next_step: self.next.clone(),
            consecutive_failures: self.failures,
            quarantined: self.quarantined,
            policies: self.looked.policies.clone(),
            collected_at_ms: self.looked.stats.as_ref().map(|(at_ms, _)| *at_ms),
            stats: self.looked.stats.as_ref().map(|(_, stats)| TableStats::clone(stats)),
            progress: self.progress.as_ref().map(|(progress, started_ms)| progress_view(progress, *started_ms)),
            last_runs: self.last_runs.clone(),
        }
    }

    pub(super) fn view(&self, name: &TableName, now_ms: i64) -> TableView {
        let planned = |(planned_at_ms, plan): &(i64, Packed)| {
            plan.get().map(|plan| Planned { planned_at_ms: *planned_at_ms, plan })
        };
        let run = |(run, report): &(RunEntry, Packed)| RunEntry { report: report.get(), ..run.clone() };
        TableView {
            now_ms,
            summary: self.summary(name),
            partitions: self.looked.partitions.list(),
            size_histogram: self.looked.sizes.clone(),
            snapshots: self.looked.snapshots.list(),
            samples: self.samples.iter().copied().collect(),
            runs: self.runs.iter().rev().map(run).collect(),
            policy: self.looked.settings.list(),
            plan: self.plan.as_ref().and_then(planned),
        }
    }
}

fn push<T>(ring: &mut VecDeque<T>, value: T, max: usize) {
    if ring.len() == max {
        ring.pop_front();
    }
    ring.push_back(value);
}

fn progress_view(progress: &Progress, started_at_ms: i64) -> ProgressView {
    ProgressView {
        phase: progress.phase().as_str(),
        planned_groups: progress.planned_groups(),
        finished_groups: progress.finished_groups(),
        planned_bytes: progress.planned_bytes(),
        rows: progress.rows(),
        read_bytes: progress.bytes_read(),
        written_bytes: progress.bytes_written(),
        started_at_ms,
    }
}
