//! What may change while the process runs: the part of the configuration that a reload replaces.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::fleet::Fleet;

/// The current settings. A step that has begun keeps those it began with.
#[derive(Clone)]
pub struct LiveSettings {
    pub fleet: Arc<Fleet>,
    pub concurrent_tables: usize,
    /// Runs that begin now are given up after this.
    pub run_timeout: Duration,
    /// Time between two looks of the collector at a table.
    pub collect_every: Duration,
    /// After SIGTERM, how long running work may take to come to an end.
    pub grace: Duration,
}

impl LiveSettings {
    /// What the configuration says, with the fleet that was made of it.
    pub fn of(config: &Config, fleet: Arc<Fleet>) -> Self {
        Self {
            fleet,
            concurrent_tables: config.limits.concurrent_tables,
            run_timeout: config.limits.run_timeout,
            collect_every: config.metrics.interval,
            grace: config.server.grace,
        }
    }
}
