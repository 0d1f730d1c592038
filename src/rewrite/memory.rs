//! Memory as a budget in bytes: work is admitted by estimate before it starts, in the order it asked.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, ErrorKind, Result};

/// Granularity of the budget in bytes, so that budgets of terabytes fit a semaphore's 32-bit requests.
const UNIT: u64 = 16 * 1024;

/// A budget in bytes, shared by all file groups of the process. Requests are served in order.
#[derive(Debug)]
pub struct MemoryBudget {
    total_units: u64,
    free: Arc<Semaphore>,
}

/// Bytes taken from a budget; dropping it gives them back.
#[derive(Debug)]
pub struct Permit {
    bytes: u64,
    held: OwnedSemaphorePermit,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let total_units = (bytes / UNIT).min(u64::from(u32::MAX));
        let permits = usize::try_from(total_units).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { total_units, free: Arc::new(Semaphore::new(permits)) }
    }

    pub fn total(&self) -> u64 {
        self.total_units * UNIT
    }

    /// Bytes taken at the moment.
    pub fn used(&self) -> u64 {
        self.total().saturating_sub(self.free.available_permits() as u64 * UNIT)
    }

    /// Waits for `bytes`. More than the whole budget is [`ErrorKind::OutOfMemory`] at once.
    pub async fn acquire(&self, bytes: u64) -> Result<Permit> {
        let units = self.units(bytes)?;
        let held = Arc::clone(&self.free)
            .acquire_many_owned(units)
            .await
            .map_err(|_| Error::internal("the memory budget was closed"))?;
        Ok(Permit { bytes, held })
    }

    /// Adds to a permit without waiting: a holder that waited for more could wait for itself.
    pub fn grow(&self, permit: &mut Permit, bytes: u64) -> Result<()> {
        let units = self.units(bytes)?;
        let more = Arc::clone(&self.free).try_acquire_many_owned(units).map_err(|_| {
            Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{bytes} bytes more are needed and {} of {} are in use: raise limits.memory, or lower \
                     limits.concurrent-tables or max-concurrent-file-group-rewrites",
                    self.used(),
                    self.total()
                ),
            )
        })?;
        permit.held.merge(more);
        permit.bytes += bytes;
        Ok(())
    }

    fn units(&self, bytes: u64) -> Result<u32> {
        let units = bytes.div_ceil(UNIT);
        match u32::try_from(units) {
            Ok(small) if units <= self.total_units => Ok(small),
            _ => Err(Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{bytes} bytes are needed and the whole budget for rewriting is {} bytes: set limits.memory to at least {}",
                    self.total(),
                    size_for(bytes)
                ),
            )),
        }
    }
}

impl Permit {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What the memory need of a file group depends on; all in bytes unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Largest single read: a small file as a whole, or a row group of a large one.
    pub largest_read: u64,
    /// Reads in flight per worker at most.
    pub prefetch: u64,
    /// Encoded bytes of a row group being written.
    pub row_group: u64,
    /// Decoded rows in flight per worker.
    pub batches: u64,
    /// Keys of equality deletes and positions, shared by all workers.
    pub delete_keys: u64,
}

/// Upload buffer of one output file in bytes.
pub(crate) const UPLOAD_PART: u64 = 8 << 20;

/// Bytes that a group needs with `workers` workers: each reads ahead, decodes, holds one row group and has another being uploaded.
pub fn estimate(need: &Need, workers: u64) -> u64 {
    let per_worker = need
        .largest_read
        .saturating_mul(2)
        .saturating_add(need.prefetch)
        .saturating_add(need.batches)
        .saturating_add(need.row_group.saturating_mul(2))
        .saturating_add(2 * UPLOAD_PART);
    per_worker.saturating_mul(workers).saturating_add(need.delete_keys)
}

/// Of `limits.memory` one part in so many is for summaries of manifests.
const MANIFESTS_PART: u64 = 16;

/// How `limits.memory` is divided: bytes for rewriting, and bytes for summaries of manifests.
pub fn divide(limit: u64) -> (u64, u64) {
    let manifests = limit / MANIFESTS_PART;
    (limit - manifests, manifests)
}

/// As a value of the key `limits.memory` that leaves so many bytes for rewriting.
fn size_for(bytes: u64) -> String {
    let limit = bytes.saturating_mul(MANIFESTS_PART).div_ceil(MANIFESTS_PART - 1);
    format!("\"{}MiB\"", limit.div_ceil(1 << 20))
}

/// What helps besides more memory: what takes most of it.
fn relief(need: &Need) -> &'static str {
    if need.delete_keys > need.row_group.saturating_mul(2).max(need.largest_read.saturating_mul(2)) {
        ", or lower max-file-group-size, so that fewer deletes meet in a group"
    } else if need.row_group >= need.largest_read {
        ", or lower the table's write.parquet.row-group-size-bytes"
    } else {
        ""
    }
}

/// As many workers as the budget can hold, at most `wanted`, with their estimate. Not even one is [`ErrorKind::OutOfMemory`].
pub fn workers_within(need: &Need, wanted: u64, total: u64) -> Result<(u64, u64)> {
    (1..=wanted.max(1)).rev().map(|n| (n, estimate(need, n))).find(|(_, bytes)| *bytes <= total).ok_or_else(|| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!(
                "a file group needs {} bytes with one worker (largest read {}, row group {}, delete keys {}) and the whole \
                 budget for rewriting is {total} bytes: set limits.memory to at least {}{}",
                estimate(need, 1),
                need.largest_read,
                need.row_group,
                need.delete_keys,
                size_for(estimate(need, 1)),
                relief(need),
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::group::BATCHES_ALIVE;
    use crate::rewrite::properties::ROW_GROUP_BYTES;
    use crate::rewrite::reader::{BATCH_BYTES, WHOLE_FILE_LIMIT};
    use crate::rewrite::work::PREFETCH_BYTES;

    const MIB: u64 = 1 << 20;

    fn need() -> Need {
        Need {
            largest_read: 10 * MIB,
            prefetch: 20 * MIB,
            row_group: 100 * MIB,
            batches: 5 * MIB,
            delete_keys: 50 * MIB,
        }
    }

    #[test]
    fn the_usual_group_is_the_one_that_the_configuration_warns_of() {
        // Many small files with one worker, where a row group reaches its default size.
        let need = Need {
            largest_read: WHOLE_FILE_LIMIT,
            prefetch: PREFETCH_BYTES,
            row_group: ROW_GROUP_BYTES as u64,
            batches: BATCH_BYTES * BATCHES_ALIVE,
            delete_keys: 0,
        };
        assert_eq!(size_for(estimate(&need, 1)), "\"461MiB\"");
        assert_eq!(crate::config::USUAL_MEMORY_BYTES, 461 * MIB);
    }

    #[test]
    fn the_estimate_counts_everything_that_is_alive_at_once() {
        assert_eq!(estimate(&need(), 1), (20 + 20 + 5 + 200 + 16 + 50) * MIB);
        assert_eq!(estimate(&need(), 2) - estimate(&need(), 1), 261 * MIB);
    }

    #[test]
    fn fewer_workers_are_chosen_before_giving_up() {
        assert_eq!(workers_within(&need(), 4, 600 * MIB).expect("two fit").0, 2);
        let error = workers_within(&need(), 4, 300 * MIB).expect_err("not even one fits");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        let cure = "set limits.memory to at least \"332MiB\", or lower the table's write.parquet.row-group-size-bytes";
        assert!(error.to_string().contains("326107136") && error.to_string().ends_with(cure), "{error}");
        assert!(workers_within(&need(), 1, divide(332 * MIB).0).is_ok(), "the cure helps");
        assert!(workers_within(&need(), 1, divide(331 * MIB).0).is_err(), "and nothing less");
        let keys = Need { delete_keys: 900 * MIB, ..need() };
        assert!(relief(&keys).contains("max-file-group-size"));
        assert_eq!(relief(&Need { largest_read: 500 * MIB, ..need() }), "", "only memory helps");
    }

    #[tokio::test]
    async fn a_budget_is_taken_and_given_back() {
        let budget = MemoryBudget::new(10 * MIB);
        let mut permit = budget.acquire(6 * MIB).await.expect("fits");
        assert_eq!(budget.used(), 6 * MIB);
        assert_eq!(budget.grow(&mut permit, 5 * MIB).expect_err("too much").kind(), ErrorKind::OutOfMemory);
        budget.grow(&mut permit, 4 * MIB).expect("fits");
        assert_eq!((permit.bytes(), budget.used()), (10 * MIB, 10 * MIB));
        drop(permit);
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.acquire(11 * MIB).await.expect_err("never fits").kind(), ErrorKind::OutOfMemory);
    }

    #[tokio::test]
    async fn a_large_request_is_not_overtaken() {
        let budget = Arc::new(MemoryBudget::new(10 * MIB));
        let first = budget.acquire(8 * MIB).await.expect("fits");
        let shared = Arc::clone(&budget);
        let large = tokio::spawn(async move { shared.acquire(10 * MIB).await.map(|p| p.bytes()) });
        tokio::task::yield_now().await;
        let shared = Arc::clone(&budget);
        let small = tokio::spawn(async move { shared.acquire(MIB).await.map(|p| p.bytes()) });
        tokio::task::yield_now().await;
        assert!(!small.is_finished(), "the small request must queue behind the large one");
        drop(first);
        assert_eq!(large.await.expect("joins").expect("granted"), 10 * MIB);
        assert_eq!(small.await.expect("joins").expect("granted"), MIB);
    }
}
