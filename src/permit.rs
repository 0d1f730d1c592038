//! Whether this process may still change tables. Asked right before each commit and each deletion, so that a process that
//! lost its turn, or slept through it, begins neither.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};

/// Leave to commit and delete: for good, or up to a moment of the steady clock, which goes on while the machine is suspended
/// ([`Clock::steady`]). Clones are the same permit.
#[derive(Clone)]
pub struct WritePermit {
    clock: Arc<dyn Clock>,
    /// `None`: for good.
    until: Option<Arc<Mutex<Option<Instant>>>>,
}

impl std::fmt::Debug for WritePermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritePermit").field("holds", &self.holds()).finish_non_exhaustive()
    }
}

impl WritePermit {
    /// For good: this process need not share.
    pub fn always() -> Self {
        Self { clock: SystemClock::shared(), until: None }
    }

    /// Not granted yet.
    pub fn withheld() -> Self {
        Self::withheld_by(SystemClock::shared())
    }

    /// Not granted yet; `clock` tells when a grant is over.
    pub fn withheld_by(clock: Arc<dyn Clock>) -> Self {
        Self { clock, until: Some(Arc::default()) }
    }

    /// Grants it up to this moment of [`Clock::steady`]. One that holds for good stays so.
    pub fn grant(&self, until: Instant) {
        if let Some(mut current) = self.lock() {
            *current = Some(until);
        }
    }

    /// Ends it now.
    pub fn revoke(&self) {
        if let Some(mut current) = self.lock() {
            *current = None;
        }
    }

    /// Whether it holds at this moment.
    pub fn holds(&self) -> bool {
        self.lock().is_none_or(|until| until.is_some_and(|until| self.clock.steady() < until))
    }

    /// [`ErrorKind::Cancelled`] if it does not hold.
    pub fn check(&self) -> Result<()> {
        if self.holds() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Cancelled, "this process does not lead any more; nothing was sent"))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Option<Instant>>> {
        self.until.as_ref().map(|until| until.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::SetClock;

    #[tokio::test(start_paused = true)]
    async fn a_permit_is_over_after_a_suspension() {
        let clock = Arc::new(SetClock::new(0));
        let permit = WritePermit::withheld_by(clock.clone());
        permit.grant(clock.steady() + Duration::from_secs(10));
        clock.suspend(Duration::from_secs(9));
        assert!(permit.holds());
        clock.suspend(Duration::from_secs(1));
        assert_eq!(permit.check().map_err(|e| e.kind()), Err(ErrorKind::Cancelled));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_ends_by_itself() {
        let permit = WritePermit::withheld();
        assert_eq!(permit.check().map_err(|e| e.kind()), Err(ErrorKind::Cancelled));
        let same = permit.clone();
        permit.grant(Instant::now() + Duration::from_secs(10));
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert!(same.holds());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!same.holds());
        permit.grant(Instant::now() + Duration::from_secs(10));
        permit.revoke();
        assert!(!same.holds());
        let always = WritePermit::always();
        always.revoke();
        assert!(always.holds());
    }
}
