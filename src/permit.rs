//! Whether this process may still change tables. Asked right before each commit and each deletion, so that a process that
//! lost its turn, or slept through it, begins neither.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};

/// Leave to commit and delete: for good, or up to an instant of the monotonic clock. Clones are the same permit.
#[derive(Debug, Clone, Default)]
pub struct WritePermit {
    /// `None`: for good.
    until: Option<Arc<Mutex<Option<Instant>>>>,
}

impl WritePermit {
    /// For good: this process need not share.
    pub fn always() -> Self {
        Self::default()
    }

    /// Not granted yet.
    pub fn withheld() -> Self {
        Self { until: Some(Arc::default()) }
    }

    /// Grants it up to this instant. One that holds for good stays so.
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
        self.lock().is_none_or(|until| until.is_some_and(|until| Instant::now() < until))
    }

    /// [`ErrorKind::Cancelled`] if it does not hold.
    pub fn check(&self) -> Result<()> {
        if self.holds() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Cancelled, "this process does not lead any more; nothing was sent"))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Option<Instant>>> {
        // A single value is whole after any panic.
        self.until.as_ref().map(|until| until.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
