//! The only place that reads the wall clock or makes random identifiers.

use std::sync::Arc;

/// Where time and identifiers come from, so that tests and simulations can decide both.
pub trait Clock: Send + Sync {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;
    /// A fresh version 7 UUID: its first 48 bits are the time it was made.
    fn uuid(&self) -> uuid::Uuid;
}

/// The machine's own clock and randomness.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl SystemClock {
    /// A shared system clock.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the place that reads the clock")]
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }
}

/// A positive snapshot id made of a UUID's random bits, as the reference implementation makes it.
pub fn snapshot_id(uuid: uuid::Uuid) -> i64 {
    let (high, low) = uuid.as_u64_pair();
    i64::try_from((high ^ low) & (i64::MAX as u64)).unwrap_or(i64::MAX)
}
