//! Whether the process works, and whether it can.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::kept::kept;
use crate::schedule::observer::{Event, Observer};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: String,
    /// What is wrong with it; `None`: nothing.
    pub problem: Option<String>,
}

/// What the probes of the process answer.
#[derive(Debug)]
pub struct Probes {
    /// When the scheduler went round last, milliseconds since the epoch. A catalog that is away must not look like a dead
    /// process, so nothing else counts for liveness.
    last_tick_ms: AtomicI64,
    tick_limit: Duration,
    // These conditions, once met, stay met.
    config_loaded: AtomicBool,
    stopping: AtomicBool,
    /// Another replica works; this one asks no catalog.
    standby: AtomicBool,
    /// By catalog: not reached yet, and why; `None`: reached.
    waiting: Mutex<BTreeMap<String, Option<String>>>,
}

impl Probes {
    /// Alive as of `now_ms` (milliseconds since the epoch), and from then on while heartbeats are less than `tick_limit` apart.
    /// Ready once the configuration is loaded and each of these catalogs is reached.
    pub fn new(now_ms: i64, tick_limit: Duration, catalogs: impl IntoIterator<Item = String>) -> Self {
        let waiting = catalogs.into_iter().map(|name| (name, Some("not reached yet".to_owned()))).collect();
        Self {
            last_tick_ms: AtomicI64::new(now_ms),
            tick_limit,
            config_loaded: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            standby: AtomicBool::new(false),
            waiting: Mutex::new(waiting),
        }
    }

    /// Whether the process works.
    pub fn liveness(&self, now_ms: i64) -> Vec<Check> {
        let age_ms = now_ms.saturating_sub(self.last_tick_ms.load(Ordering::Relaxed));
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0));
        let problem = (age > self.tick_limit)
            .then(|| format!("last tick {} s ago, more than {} s", age.as_secs(), self.tick_limit.as_secs()));
        vec![Check { name: "scheduler".into(), problem }]
    }

    /// Whether the process can work.
    pub fn readiness(&self) -> Vec<Check> {
        let config = (!self.config_loaded.load(Ordering::Relaxed)).then(|| "not loaded yet".to_owned());
        let mut checks = vec![Check { name: "config".into(), problem: config }];
        if !self.standby.load(Ordering::Relaxed) {
            for (name, problem) in self.waiting.lock().iter() {
                checks.push(Check { name: format!("catalog {name}"), problem: problem.clone() });
            }
        }
        if self.stopping.load(Ordering::Relaxed) {
            checks.push(Check { name: "process".into(), problem: Some("shutting down".into()) });
        }
        checks
    }
}

impl Observer for Probes {
    fn observe(&self, event: Event<'_>, now_ms: i64) {
        match event {
            Event::Heartbeat => self.last_tick_ms.store(now_ms, Ordering::Relaxed),
            Event::Started { .. } => self.config_loaded.store(true, Ordering::Relaxed),
            Event::Stopping(_) => self.stopping.store(true, Ordering::Relaxed),
            Event::Leads(leads) => self.standby.store(!leads, Ordering::Relaxed),
            // One that is new is not waited for, so that who was ready stays so.
            Event::ConfigReloaded { loaded, .. } => {
                self.waiting.lock().retain(|name, _| loaded.config.catalogs.contains_key(name));
            }
            Event::CatalogListed(name) | Event::CatalogUnclear(name, _) => {
                if let Some(problem) = self.waiting.lock().get_mut(name) {
                    *problem = None;
                }
            }
            // Counts only until the catalog has answered once.
            Event::CatalogNotListed(name, error) => {
                if let Some(problem) = self.waiting.lock().get_mut(name).filter(|problem| problem.is_some()) {
                    *problem = Some(format!("not reached yet: {}", kept(error.to_string())));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LoadedConfig};
    use crate::error::Error;

    fn config(catalogs: &[&str]) -> LoadedConfig {
        let section = |name: &&str| format!("[catalogs.{name}]\nuri = 'http://{name}'\nauth = {{ type = 'none' }}\n");
        Config::parse("test.toml", &catalogs.iter().map(section).collect::<String>()).expect("a configuration")
    }

    #[test]
    fn only_configured_catalogs_are_waited_for_and_new_ones_are_not() {
        let probes = Probes::new(0, Duration::from_secs(60), ["reached", "away", "removed"].map(str::to_owned));
        let reload = |catalogs: &[&str]| {
            probes.observe(Event::ConfigReloaded { loaded: &config(catalogs), rebuilt: &[] }, 0);
        };
        let waiting =
            || probes.readiness().into_iter().filter(|c| c.problem.is_some()).map(|c| c.name).collect::<Vec<_>>();
        let loaded = config(&["reached", "away", "removed"]);
        probes.observe(Event::Started { listen: "here", loaded: &loaded }, 0);
        probes.observe(Event::CatalogListed("reached"), 0);
        reload(&["reached", "away", "new"]);
        probes.observe(Event::CatalogNotListed("new", &Error::unavailable("down")), 0);
        assert_eq!(waiting(), ["catalog away"]);
        reload(&["reached"]);
        assert_eq!(waiting(), [""; 0]);
    }
}
