//! A lost answer: find out what became of the commit.

use std::time::Duration;

use iceberg::spec::FormatVersion;
use uuid::Uuid;

use super::CommitContext;
use crate::catalog::Metadata;

/// Looks at the table after a lost answer at most.
pub(super) const CHECKS: u32 = 6;

/// A request whose answer was lost: it added `snapshot_id` with `sequence_number` and required `main` to be at `parent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenRequest {
    pub(super) parent: Option<i64>,
    pub(super) sequence_number: i64,
}

/// What the table says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was applied.
    Applied,
    /// It was not and never will be.
    Lost,
    /// It was not yet, but might be still.
    Open,
}

/// Whether the table has the snapshot, also if it has been expired since.
pub(super) fn has_snapshot(metadata: &Metadata, snapshot_id: i64) -> bool {
    metadata.snapshot_by_id(snapshot_id).is_some()
        || metadata.history().iter().any(|log| log.snapshot_id == snapshot_id)
}

/// The fate of a request to add a snapshot. A head that merely moved is no proof: it may be rolled back to the parent, and then
/// the requirement holds again. A sequence number that has been used up is, since numbers only grow; version 1 has none.
pub(super) fn judge(metadata: &Metadata, snapshot_id: i64, request: OpenRequest) -> Fate {
    if has_snapshot(metadata, snapshot_id) {
        return Fate::Applied;
    }
    let moved = metadata.current_snapshot_id() != request.parent;
    let numbered = metadata.format_version() != FormatVersion::V1;
    let used_up = numbered && metadata.last_sequence_number() >= request.sequence_number;
    if moved && used_up { Fate::Lost } else { Fate::Open }
}

/// The wait before the `n`th attempt after the first (from 1): doubling, limited, with up to a tenth of jitter.
pub(super) fn backoff(ctx: &CommitContext, n: u32, uuid: Uuid) -> Duration {
    let wait = ctx.min_wait.saturating_mul(1u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX)).min(ctx.max_wait);
    let jitter = f64::from(uuid.as_u128() as u16) / f64::from(u16::MAX) / 10.0;
    wait.saturating_add(wait.mul_f64(jitter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_id::RunId;

    #[test]
    fn waits_double_up_to_the_limit_and_jitter_upwards_by_a_tenth() {
        let mut ctx = CommitContext::new(RunId(Uuid::nil()));
        let none = Uuid::nil();
        let all = Uuid::from_u128(u128::MAX);
        assert_eq!(backoff(&ctx, 1, none), Duration::from_millis(100));
        assert_eq!(backoff(&ctx, 3, none), Duration::from_millis(400));
        assert_eq!(backoff(&ctx, 3, all), Duration::from_millis(440));
        assert_eq!(backoff(&ctx, 500, none), Duration::from_secs(60));
        ctx.max_wait = Duration::MAX;
        assert!(backoff(&ctx, 500, none) > Duration::from_secs(60));
    }
}
