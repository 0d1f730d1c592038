//! Who listens to what the scheduler and those around it say: the log, the metrics, the board, the probes, and health.

mod board;
mod health;
mod log;
mod metrics;

use std::sync::Arc;

use health::HealthJudge;
use log::Log;

use crate::report::board::Board;
use crate::report::metrics::Metrics;
use crate::report::probes::Probes;
use crate::schedule::observer::{Event, Observer};

/// All who listen.
pub struct Reporter {
    log: Log,
    health: HealthJudge,
    metrics: Arc<Metrics>,
    board: Arc<Board>,
    probes: Arc<Probes>,
}

impl Reporter {
    /// Tells metrics, board, probes and the log, and, if `echo` is set, people who watch: a line on standard output for each step.
    pub fn new(metrics: Arc<Metrics>, board: Arc<Board>, probes: Arc<Probes>, echo: bool) -> Self {
        let health = HealthJudge::new(metrics.clone(), board.clone());
        Self { log: Log { echo }, health, metrics, board, probes }
    }
}

impl Observer for Reporter {
    fn observe(&self, event: Event<'_>, now_ms: i64) {
        // Health first: what it does not know any more must not come back among the metrics.
        let all: [&dyn Observer; 5] = [&self.log, &self.health, &*self.metrics, &*self.board, &*self.probes];
        all.into_iter().for_each(|observer| observer.observe(event, now_ms));
    }
}

#[cfg(test)]
mod tests;
