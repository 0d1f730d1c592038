//! What became of a request, as the table tells: no answer tells it, since a request may have been delivered twice on its way.

use std::time::Duration;

use iceberg::spec::FormatVersion;
use uuid::Uuid;

use super::CommitContext;
use crate::backoff::doubled;
use crate::catalog::TableHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::table::Metadata;

/// Looks at the table after a lost answer at most.
pub(super) const CHECKS: u32 = 6;

/// Tries of the one look that must come after the last request, before anything is deleted.
pub(super) const LAST_LOOKS: u32 = 3;

/// A request that was sent: it added a snapshot with `sequence_number` and required `main` to be at `parent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenRequest {
    pub(super) parent: Option<i64>,
    pub(super) sequence_number: i64,
    /// Whether the answer said that it was not applied, rather than nothing.
    pub(super) denied: bool,
}

/// What the table says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was applied.
    Applied,
    /// It was not and never will be.
    Lost,
    /// It was not yet, as far as can be seen, but might be still.
    Open,
}

/// The table as it is now. [`ErrorKind::Conflict`] if another table has taken its name: what that says settles nothing.
pub(super) async fn look(table: &TableHandle, table_uuid: Uuid) -> Result<TableHandle> {
    let fresh = table.refresh().await?;
    let is = fresh.loaded.metadata.uuid();
    if is != table_uuid {
        let message = format!("another table has taken the name: uuid {table_uuid} became {is}");
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    Ok(fresh)
}

/// Whether the table has the snapshot, also if it has been expired since.
pub(super) fn has_snapshot(metadata: &Metadata, snapshot_id: i64) -> bool {
    metadata.snapshot_by_id(snapshot_id).is_some()
        || metadata.history().iter().any(|log| log.snapshot_id == snapshot_id)
}

/// The fate of a request to add a snapshot.
///
/// A head that merely moved is no proof: it may be rolled back to the parent, and then the requirement holds again. Another
/// snapshot with the request's sequence number is: numbers only grow and none is given twice, so the request neither was nor
/// will be applied. If the number is used up but no snapshot has it, the one that had it has expired, and that may have been
/// this one. Version 1 has no numbers.
pub(super) fn judge(metadata: &Metadata, snapshot_id: i64, request: OpenRequest) -> Fate {
    if has_snapshot(metadata, snapshot_id) {
        return Fate::Applied;
    }
    let moved = metadata.current_snapshot_id() != request.parent;
    let numbered = metadata.format_version() != FormatVersion::V1;
    let taken = numbered && metadata.snapshots().any(|s| s.sequence_number() == request.sequence_number);
    if moved && taken { Fate::Lost } else { Fate::Open }
}

/// The wait before the `n`th attempt after the first (from 1): doubling, limited, with up to a tenth of jitter.
pub(super) fn backoff(ctx: &CommitContext, n: u32, uuid: Uuid) -> Duration {
    let wait = doubled(ctx.min_wait, ctx.max_wait, n.saturating_sub(1));
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
