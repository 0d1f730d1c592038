//! A clock that stands where a test sets it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Clock;

/// Stands until it is moved; identifiers count up and have the form of version 7.
#[derive(Debug, Default)]
pub struct SetClock {
    now_ms: AtomicI64,
    suspended_ms: AtomicU64,
    uuids: AtomicU64,
}

impl SetClock {
    /// Stands at this time, milliseconds since the epoch.
    pub fn new(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), suspended_ms: AtomicU64::new(0), uuids: AtomicU64::new(1) }
    }

    pub fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Moves on by so many milliseconds.
    pub fn advance(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Suspends the machine for so long; the wall clock is moved by the other calls only.
    pub fn suspend(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.suspended_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn suspended(&self) -> Duration {
        Duration::from_millis(self.suspended_ms.load(Ordering::SeqCst))
    }

    fn uuid(&self) -> Uuid {
        let n = self.uuids.fetch_add(1, Ordering::SeqCst);
        Uuid::from_u64_pair(0x0190_0000_0000_7000, 0x8000_0000_0000_0000 | n)
    }
}
