//! Whether the process works, and whether it can.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: String,
    /// What is wrong with it; `None`: nothing.
    pub problem: Option<String>,
}

/// The scheduler's heartbeat. A catalog that is away must not look like a dead process, so nothing else counts.
#[derive(Debug)]
pub struct Liveness {
    last_tick_ms: AtomicI64,
    limit: Duration,
}

impl Liveness {
    /// Alive as of `now_ms` (milliseconds since the epoch), and from then on while ticks are less than `limit` apart.
    pub fn new(now_ms: i64, limit: Duration) -> Self {
        Self { last_tick_ms: AtomicI64::new(now_ms), limit }
    }

    /// The scheduler went round once more.
    pub fn tick(&self, now_ms: i64) {
        self.last_tick_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn checks(&self, now_ms: i64) -> Vec<Check> {
        let age_ms = now_ms.saturating_sub(self.last_tick_ms.load(Ordering::Relaxed));
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0));
        let problem = (age > self.limit)
            .then(|| format!("last tick {} s ago, more than {} s", age.as_secs(), self.limit.as_secs()));
        vec![Check { name: "scheduler".into(), problem }]
    }
}

/// Conditions that, once met, stay met, until the process is told to stop.
#[derive(Debug, Default)]
pub struct Readiness {
    config_loaded: AtomicBool,
    stopping: AtomicBool,
    /// Another replica works; this one asks no catalog.
    standby: AtomicBool,
    /// By catalog: not reached yet, and why; `None`: reached.
    waiting: Mutex<BTreeMap<String, Option<String>>>,
}

impl Readiness {
    /// Waits for the configuration and for each of these catalogs.
    pub fn new(catalogs: impl IntoIterator<Item = String>) -> Self {
        let waiting = catalogs.into_iter().map(|name| (name, Some("not reached yet".to_owned()))).collect();
        Self { waiting: Mutex::new(waiting), ..Self::default() }
    }

    /// The configuration is loaded.
    pub fn config_loaded(&self) {
        self.config_loaded.store(true, Ordering::Relaxed);
    }

    /// The catalog answered.
    pub fn catalog_reached(&self, name: &str) {
        if let Some(problem) = self.waiting().get_mut(name) {
            *problem = None;
        }
    }

    /// The catalog did not answer; counts only until it has answered once. `why` is shown to whoever asks.
    pub fn catalog_failed(&self, name: &str, why: &str) {
        if let Some(problem) = self.waiting().get_mut(name).filter(|problem| problem.is_some()) {
            *problem = Some(format!("not reached yet: {why}"));
        }
    }

    /// Whether another replica works; catalogs then do not count.
    pub fn standing_by(&self, standby: bool) {
        self.standby.store(standby, Ordering::Relaxed);
    }

    /// Only these catalogs are configured now: others are not waited for any more. One that is new is not waited for either,
    /// so that who was ready stays so.
    pub fn only_catalogs(&self, is_configured: impl Fn(&str) -> bool) {
        self.waiting().retain(|name, _| is_configured(name));
    }

    /// The process is about to end.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        let config = (!self.config_loaded.load(Ordering::Relaxed)).then(|| "not loaded yet".to_owned());
        let mut checks = vec![Check { name: "config".into(), problem: config }];
        if !self.standby.load(Ordering::Relaxed) {
            for (name, problem) in self.waiting().iter() {
                checks.push(Check { name: format!("catalog {name}"), problem: problem.clone() });
            }
        }
        if self.stopping.load(Ordering::Relaxed) {
            checks.push(Check { name: "process".into(), problem: Some("shutting down".into()) });
        }
        checks
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        // Each write is a single assignment: nothing is half done.
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_catalogs_are_waited_for_and_new_ones_are_not() {
        let readiness = Readiness::new(["reached", "away", "removed"].map(str::to_owned));
        readiness.config_loaded();
        readiness.catalog_reached("reached");
        readiness.only_catalogs(|name| name != "removed");
        readiness.catalog_failed("new", "down");
        let waiting =
            || readiness.checks().into_iter().filter(|c| c.problem.is_some()).map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(waiting(), ["catalog away"]);
        readiness.only_catalogs(|name| name == "reached");
        assert_eq!(waiting(), [""; 0]);
    }
}
