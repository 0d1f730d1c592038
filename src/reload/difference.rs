//! What a new configuration changes, and what it cannot. Pure.

use crate::config::{CatalogConfig, Config, LimitsConfig, MetricsConfig, ServerConfig};

/// A new configuration, compared with the one in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// The new one, with the old values of what cannot change.
    pub(super) config: Config,
    /// Catalogs that are new or have other settings.
    pub(super) rebuilt: Vec<String>,
    /// Keys whose new values wait for a restart.
    pub(super) waiting: Vec<&'static str>,
}

impl Difference {
    /// Compares. Every key is named here, so that a new one does not compile until it is decided whether it can change.
    pub(super) fn between(old: &Config, new: Config) -> Self {
        let mut kept = FixedKeys(Vec::new());
        let Config { server, limits, metrics, leader_election, traces, catalogs, policies } = new;
        let server = ServerConfig {
            listen: kept.old("server.listen", &old.server.listen, server.listen),
            grace: server.grace,
            admin_token: kept.old("server.admin-token", &old.server.admin_token, server.admin_token),
        };
        let limits = LimitsConfig {
            memory_bytes: kept.old("limits.memory", &old.limits.memory_bytes, limits.memory_bytes),
            concurrent_tables: limits.concurrent_tables,
            run_timeout: limits.run_timeout,
        };
        let metrics = MetricsConfig {
            interval: metrics.interval,
            max_tables: kept.old("metrics.max-tables", &old.metrics.max_tables, metrics.max_tables),
            // Only single passes push.
            pushgateway: metrics.pushgateway,
        };
        let leader_election = kept.old("leader-election", &old.leader_election, leader_election);
        let traces = kept.old("traces", &old.traces, traces);
        let differs = |(name, catalog): &(&String, &CatalogConfig)| old.catalogs.get(*name) != Some(*catalog);
        let rebuilt = catalogs.iter().filter(differs).map(|(name, _)| name.clone()).collect();
        let config = Config { server, limits, metrics, leader_election, traces, catalogs, policies };
        Self { config, rebuilt, waiting: kept.0 }
    }
}

/// Collects keys that keep their old value although the file has another.
struct FixedKeys(Vec<&'static str>);

impl FixedKeys {
    fn old<T: Clone + PartialEq>(&mut self, key: &'static str, old: &T, new: T) -> T {
        if *old != new {
            self.0.push(key);
        }
        old.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BASE: &str = r#"
        [catalogs.a]
        uri = "http://a"
        auth = { type = "none" }
        [catalogs.b]
        uri = "http://b"
        auth = { type = "bearer", token = { env = "B" } }
        [[policies]]
        name = "all"
        tables = ["**"]
        every = "1h"
    "#;

    fn config(text: &str) -> Config {
        Config::parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}")).config
    }

    fn between(new: &str) -> Difference {
        Difference::between(&config(BASE), config(new))
    }

    #[test]
    fn the_same_changes_nothing() {
        let same = between(BASE);
        assert_eq!(same.config, config(BASE));
        assert_eq!((same.rebuilt, same.waiting), (vec![], vec![]));
    }

    #[test]
    fn a_catalog_is_rebuilt_only_if_its_own_section_differs() {
        let other = between(&BASE.replace("env = \"B\"", "env = \"C\"").replace("\"1h\"", "\"2h\""));
        assert_eq!(other.rebuilt, ["b"]);
        let renamed = between(&BASE.replace("[catalogs.a]", "[catalogs.c]"));
        assert_eq!(renamed.rebuilt, ["c"]);
        assert_eq!(renamed.config.catalogs.keys().collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn what_cannot_change_stays_and_is_told() {
        let fixed = "[server]\nlisten = \"0.0.0.0:1\"\ngrace = \"7s\"\n[limits]\nmemory = \"1GiB\"\nconcurrent-tables = 9\n\
                     run-timeout = \"3h\"\n[traces]\nsample-ratio = 0.5\n[leader-election]\nenabled = true\n[metrics]\ninterval = \"9s\"\nmax-tables = 5\n";
        let Difference { config: in_force, waiting, .. } = between(&format!("{fixed}{BASE}"));
        assert_eq!(waiting, ["server.listen", "limits.memory", "metrics.max-tables", "leader-election", "traces"]);
        let old = config(BASE);
        assert_eq!(in_force.server.listen, old.server.listen);
        assert_eq!(in_force.limits.memory_bytes, None);
        assert_eq!(in_force.metrics.max_tables, old.metrics.max_tables);
        assert_eq!(in_force.server.grace, Duration::from_secs(7));
        assert_eq!(in_force.limits.concurrent_tables, 9);
        assert_eq!(in_force.limits.run_timeout, Duration::from_secs(3 * 3600));
        assert_eq!(in_force.metrics.interval, Duration::from_secs(9));
    }
}
