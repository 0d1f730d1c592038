//! What every run shares within one process: clock, memory, caches, and the runs under way.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::inspect::ManifestCache;
use crate::rewrite::memory::MemoryBudget;
use crate::run_id::RunId;

/// Shared by all runs of a process.
#[derive(Clone)]
pub struct Env {
    /// Time and identifiers.
    pub clock: Arc<dyn Clock>,
    /// The one memory budget of all rewrites.
    pub memory: Arc<MemoryBudget>,
    /// Summaries of manifests already read.
    pub manifests: Arc<ManifestCache>,
    /// Threads a file group may use.
    pub threads: usize,
    /// Runs under way in this process; their files are nobody's orphans.
    pub active: ActiveRuns,
    /// A run is given up after this.
    pub run_timeout: Duration,
    /// What an older run left behind is provably garbage: the longest run timeout that this process has had.
    pub run_over_after: Longest,
    /// Set when the process shall stop.
    pub cancel: CancellationToken,
}

/// The longest of the times that it was told. Clones share it, to the millisecond.
#[derive(Debug, Clone)]
pub struct Longest(Arc<AtomicU64>);

impl Longest {
    pub fn new(time: Duration) -> Self {
        let longest = Self(Arc::default());
        longest.tell(time);
        longest
    }

    pub fn tell(&self, time: Duration) {
        // Rounded up: longer only keeps more.
        let ms = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.0.fetch_max(ms, Ordering::Relaxed);
    }

    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Clone, Default)]
pub struct ActiveRuns(Arc<Mutex<HashSet<RunId>>>);

impl ActiveRuns {
    /// Enters a run until the guard is dropped.
    pub fn enter(&self, run_id: RunId) -> ActiveRun {
        self.0.lock().insert(run_id);
        ActiveRun { runs: self.clone(), run_id }
    }

    /// Whether a run is under way here.
    pub fn contains(&self, run_id: RunId) -> bool {
        self.0.lock().contains(&run_id)
    }
}

/// Keeps a run among the active ones while it lives.
#[derive(Debug)]
pub struct ActiveRun {
    runs: ActiveRuns,
    run_id: RunId,
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.runs.0.lock().remove(&self.run_id);
    }
}
