//! What is known of each table between two events, as far as its health depends on it.

use std::sync::Arc;
use std::time::Duration;

use super::health::{Health, Reason, reasons};
use crate::inspect::TableStats;

/// What a table's health is judged by. The default is a table of which nothing is known yet.
#[derive(Debug, Clone, Default)]
pub struct Vital {
    /// Failed runs since the last one that did not fail.
    pub consecutive_failures: u32,
    pub last_failure: Option<String>,
    /// Not compacted until its metadata changes.
    pub quarantined: bool,
    /// Why the last clean-up was refused.
    pub refused: Option<String>,
    /// Since when the step that the table waits for has been due, milliseconds since the epoch; failed attempts do not count.
    pub due_since_ms: Option<i64>,
    pub running: bool,
    pub paused: bool,
    pub period: Option<Duration>,
    pub stats: Option<Arc<TableStats>>,
    /// Why the last collection of numbers failed.
    pub unreadable: Option<String>,
    /// When it was last seen healthy, milliseconds since the epoch.
    pub last_healthy_ms: Option<i64>,
}

impl Vital {
    /// The table waits for a step that is due then; `failures` runs in a row have failed before.
    pub fn waits(&mut self, at_ms: i64, failures: u32, quarantined: bool) {
        // What is put off by a failure has been due before.
        let since_ms = self.due_since_ms.filter(|_| failures > 0);
        self.due_since_ms = Some(since_ms.map_or(at_ms, |since_ms| since_ms.min(at_ms)));
        self.running = false;
        self.consecutive_failures = failures;
        self.quarantined = quarantined;
        if failures == 0 {
            self.last_failure = None;
        }
    }

    /// Judges, and remembers when the table was healthy. `all_paused`: no step of any table begins.
    pub fn judge(&mut self, now_ms: i64, all_paused: bool) -> Vec<Reason> {
        if self.paused || all_paused {
            // What waits for an operator begins to wait for a worker afterwards.
            self.due_since_ms = self.due_since_ms.map(|since_ms| since_ms.max(now_ms));
        }
        let reasons = reasons(self, now_ms);
        if Health::of(self, &reasons) == Health::Healthy {
            self.last_healthy_ms = Some(now_ms);
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::health::ReasonKind;

    const HOUR_MS: i64 = 3_600_000;

    fn kinds(vital: &mut Vital, now_ms: i64) -> Vec<ReasonKind> {
        vital.judge(now_ms, false).into_iter().map(|reason| reason.kind).collect()
    }

    fn hourly() -> Vital {
        Vital { period: Some(Duration::from_secs(3600)), stats: Some(Arc::default()), ..Vital::default() }
    }

    #[test]
    fn attempts_that_fail_do_not_make_a_step_less_overdue() {
        let mut vital = hourly();
        vital.waits(0, 0, false);
        assert_eq!(kinds(&mut vital, HOUR_MS), []);
        vital.waits(HOUR_MS + 60_000, 1, false);
        assert_eq!(kinds(&mut vital, HOUR_MS), [ReasonKind::Failing]);
        assert_eq!(kinds(&mut vital, HOUR_MS + 1), [ReasonKind::Failing, ReasonKind::Overdue]);
        vital.waits(2 * HOUR_MS, 0, false);
        assert_eq!(kinds(&mut vital, 2 * HOUR_MS), [], "done, and due anew");
        assert_eq!(vital.last_healthy_ms, Some(2 * HOUR_MS));
    }

    #[test]
    fn what_runs_or_is_paused_is_not_overdue() {
        let mut vital = hourly();
        vital.waits(0, 0, false);
        let late = 2 * HOUR_MS;
        assert_eq!(kinds(&mut vital, late), [ReasonKind::Overdue]);
        vital.running = true;
        assert_eq!(kinds(&mut vital, late), []);
        (vital.running, vital.paused) = (false, true);
        assert_eq!(kinds(&mut vital, late), []);
        vital.paused = false;
        assert_eq!(kinds(&mut vital, late + HOUR_MS), [], "the pause does not count");
        assert_eq!(kinds(&mut vital, late + HOUR_MS + 1), [ReasonKind::Overdue]);
        assert_eq!(vital.judge(late + 9 * HOUR_MS, true), []);
    }

    #[test]
    fn the_last_healthy_moment_outlives_trouble() {
        let mut vital = hourly();
        assert_eq!(kinds(&mut vital, 7), []);
        vital.unreadable = Some("no answer".into());
        assert_eq!(kinds(&mut vital, 9), [ReasonKind::Unreadable]);
        assert_eq!(vital.last_healthy_ms, Some(7));
        let mut unknown = Vital::default();
        assert_eq!((kinds(&mut unknown, 5), unknown.last_healthy_ms), (vec![], None));
    }
}
