//! What the scheduler knows of one table, and what changes it. Pure.

use std::sync::Arc;

use super::control::Pause;
use super::due::{Failures, NextStep, Standing, StepEnd};
use super::run_table::TableRun;
use super::worker::{Task, WaitedStep};
use crate::action::RunStep;
use crate::fleet::FleetChange;
use crate::inspect::TableStats;

#[derive(Debug)]
pub(super) struct TableEntry {
    /// What it waits for, or what runs.
    pub(super) next: NextStep,
    /// The run whose delay `next` waits for, or whose step is running.
    pub(super) run: Option<TableRun>,
    pub(super) running: bool,
    pub(super) failures: Failures,
    /// The metadata that was found invalid: until it changes, the table is not compacted.
    pub(super) quarantine: Option<String>,
    pub(super) paused: Option<Pause>,
    /// What the collector found last, and when, milliseconds since the epoch. No decision is taken by it yet.
    pub(super) numbers: Option<(Arc<TableStats>, i64)>,
    /// It left the catalog or the policies while a step was running.
    pub(super) gone: bool,
    /// The table is looked at before anything is done to it, since where it stands is not known.
    look: Option<PendingLook>,
    /// An operator waits for a compaction.
    asked: bool,
    /// What a new configuration changed while a step was running.
    changed: Option<FleetChange>,
}

/// A look at the table that is to come.
#[derive(Debug, Default)]
struct PendingLook {
    /// Failures of its steps so far; failures of looks are not counted on.
    failures: Failures,
    /// What it waited for before its policy changed, or the wait after a failure that goes on.
    before: Option<NextStep>,
}

impl TableEntry {
    /// A table just found.
    pub(super) fn new(now_ms: i64) -> Self {
        Self {
            next: look_now(now_ms, "just found"),
            run: None,
            running: false,
            failures: Failures::default(),
            quarantine: None,
            paused: None,
            numbers: None,
            gone: false,
            look: Some(PendingLook::default()),
            asked: false,
            changed: None,
        }
    }

    /// Whether it waits for a worker.
    pub(super) fn is_due(&self, now_ms: i64) -> bool {
        !self.running && self.paused.is_none() && self.next.at_ms <= now_ms
    }

    /// Its place among the tables that are due: those asked for first, then the longest overdue.
    pub(super) fn turn(&self) -> (bool, i64) {
        (!self.asked, self.next.at_ms)
    }

    /// Begins what is due. `fresh` is used if that is a new run.
    pub(super) fn begin(&mut self, fresh: impl FnOnce() -> TableRun) -> (TableRun, Task) {
        self.running = true;
        let task = match &self.look {
            Some(PendingLook { before, failures }) => {
                let waiting = |next: NextStep| WaitedStep { failing: failures.of(next.step) > 0, next };
                Task::Look(before.clone().map(waiting))
            }
            None => Task::Do(self.next.step),
        };
        let run = match (&task, self.run) {
            // The clean-ups belong to the run whose delay they waited for.
            (Task::Look(_) | Task::Do(RunStep::LAST), Some(run)) => run,
            (Task::Look(_) | Task::Do(_), _) => fresh(),
        };
        self.run = Some(run);
        self.asked &= task != Task::Do(RunStep::FIRST);
        (run, task)
    }

    /// The table was looked at.
    pub(super) fn looked(&mut self, run: TableRun, standing: Standing) {
        let look = self.look.take().unwrap_or_default();
        self.failures = look.failures;
        self.run = Some(TableRun { since_ms: standing.since_ms, ..run });
        self.next = standing.next;
    }

    /// The same must be tried again, later each time.
    pub(super) fn stuck(&mut self, step: RunStep, now_ms: i64) {
        self.next = self.failures.after(step, StepEnd::Stuck, self.next.clone(), now_ms);
    }

    /// What was begun is over; wishes that came meanwhile are heard.
    pub(super) fn end(&mut self, now_ms: i64) {
        self.running = false;
        if let Some(change) = self.changed.take() {
            self.reconsider(change, now_ms);
        }
        // A look that fails is not repeated without a wait, whoever wants it.
        if self.asked && self.look.is_none() {
            self.next = NextStep::asked_for(now_ms);
        }
    }

    /// A new configuration changed something for this table.
    pub(super) fn reconsider(&mut self, change: FleetChange, now_ms: i64) {
        if self.running {
            self.changed = self.changed.max(Some(change));
            return;
        }
        let failures = self.look.as_ref().map_or(self.failures, |look| look.failures);
        match (change, &self.look) {
            // The look that is to come uses the new policy anyway.
            (FleetChange::Policy, Some(_)) => {}
            (FleetChange::Policy, None) => {
                self.look = Some(PendingLook { failures, before: Some(self.next.clone()) });
                self.next = look_now(now_ms, "its policy changed");
            }
            (FleetChange::Catalog | FleetChange::Left, look) => {
                // Where it stands is found out anew, but a wait after a failure stays. It may be one in which nothing may be
                // deleted, as a commit is in the open.
                let before = look.as_ref().map_or(Some(&self.next), |look| look.before.as_ref());
                let before = before.filter(|next| failures.of(next.step) > 0).cloned();
                self.look = Some(PendingLook { failures, before });
                self.run = None;
                self.next = look_now(now_ms, "its catalog changed, or the clock was set");
            }
        }
    }

    /// The wall clock was set by so much, back if below zero: where the table stands is found out anew, as after a start, since
    /// what it waited for was a time of the old clock, and a step may have been refused for that. A wait after a failure goes on
    /// for the time that is left of it.
    pub(super) fn clock_set(&mut self, by_ms: i64, now_ms: i64) {
        let before = self.look.as_mut().and_then(|look| look.before.as_mut());
        for next in [Some(&mut self.next), before].into_iter().flatten() {
            next.at_ms = next.at_ms.saturating_add(by_ms);
        }
        self.reconsider(FleetChange::Catalog, now_ms);
    }

    /// An operator wants a compaction now.
    pub(super) fn run_now(&mut self, now_ms: i64) {
        let compacting = self.running && self.look.is_none() && self.next.step == RunStep::FIRST;
        if !compacting {
            self.asked = true;
        }
        if !self.running {
            self.next = NextStep::asked_for(now_ms);
        }
    }
}

/// Until the look tells, nothing but compaction is assumed.
fn look_now(now_ms: i64, why: &'static str) -> NextStep {
    NextStep { step: RunStep::FIRST, at_ms: now_ms, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_id::RunId;

    fn fresh() -> TableRun {
        TableRun { run_id: RunId(uuid::Uuid::nil()), since_ms: 0 }
    }

    /// A table that was looked at and waits for a compaction.
    fn known() -> TableEntry {
        let mut entry = TableEntry::new(0);
        let (run, _) = entry.begin(fresh);
        let next = NextStep { step: RunStep::FIRST, at_ms: 1000, why: "schedule" };
        entry.looked(run, Standing { next, since_ms: 0 });
        entry.end(0);
        entry
    }

    #[test]
    fn a_wait_in_which_nothing_may_be_deleted_outlives_another_catalog() {
        let mut entry = known();
        entry.begin(fresh);
        entry.stuck(RunStep::FIRST, 1000);
        entry.end(1000);
        let waiting = entry.next.clone();
        assert!(waiting.at_ms > 2000);
        for change in [FleetChange::Catalog, FleetChange::Policy, FleetChange::Catalog] {
            entry.reconsider(change, 2000);
        }
        assert_eq!(entry.begin(fresh).1, Task::Look(Some(WaitedStep { next: waiting, failing: true })));
    }

    #[test]
    fn where_a_table_stands_is_found_anew_when_the_clock_is_set() {
        let mut entry = known();
        entry.clock_set(-900, 50);
        assert_eq!((entry.next.at_ms, entry.is_due(50)), (50, true), "a look comes first");
        assert_eq!(entry.begin(fresh).1, Task::Look(None));
        // While a step runs as well: it may have taken its time from the clock that was wrong.
        let mut entry = known();
        entry.begin(fresh);
        entry.clock_set(-900, 50);
        entry.end(60);
        assert_eq!(entry.begin(fresh).1, Task::Look(None));
        for (before_ms, now_ms) in [(1_000_000, 100_000), (100_000, 1_000_000)] {
            let mut entry = known();
            entry.begin(fresh);
            entry.stuck(RunStep::FIRST, before_ms);
            entry.end(before_ms);
            let left = entry.next.at_ms - before_ms;
            entry.clock_set(now_ms - before_ms, now_ms);
            let Task::Look(Some(WaitedStep { next, failing: true })) = entry.begin(fresh).1 else { panic!("a look") };
            assert_eq!(next.at_ms - now_ms, left, "what is left of a wait after a failure");
        }
    }

    #[test]
    fn behind_another_catalog_everything_else_is_found_out_anew() {
        let mut entry = known();
        entry.reconsider(FleetChange::Catalog, 500);
        assert_eq!((entry.next.at_ms, entry.begin(fresh).1), (500, Task::Look(None)));
    }
}
