//! The one loop that brings a [`Change`] into a table.
//!
//! ```text
//! attempt:  in time? -> own files there? -> look ------> prepare ------> send ---> applied, as the answer shows
//!                                             |             |              |--> conflict ----------------------> retry
//!                                             v             v              |--> no answer -> look: applied, or > retry
//!                                         applied     nothing left: done   '--> refused, not sent -------------> give up
//! applied:  more to do? next attempt : done
//! retry:    retries left? one less, wait, next attempt : give up. Whatever is unavailable before a request comes here as well
//! give up:  sent since the last look? look: applied, or then: unknown, denied, or (only without any doubt) clean
//! ```
//! A step has one budget: [`CommitContext::retries`] retries, and one request for each part that goes in. A part that went in
//! gives nothing back, so that a step of `n` parts sends at most `retries + n` requests, whatever is answered.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use iceberg::{TableRequirement, TableUpdate};
use uuid::Uuid;

use super::{CommitContext, CommitResult, Committed, may_send};
use crate::backoff::doubled;
use crate::catalog::{CommitOutcome, TableHandle};
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, Result};
use crate::table::LoadedTable;

/// Looks at the table after a lost answer at most.
const CHECKS: u32 = 6;

/// Tries of the one look that must come after the last request, before anything is deleted.
const LAST_LOOKS: u32 = 3;

/// What is to be committed, in one part or several.
#[async_trait]
pub(super) trait Change: Send {
    /// By what a request is known again in the table.
    type Mark: Clone + Send + Sync;

    /// Whether attempts write files. Then a lost answer is settled before more are written, and a request that may still
    /// arrive keeps them. Without files a request may be sent any number of times.
    const WRITES_FILES: bool;

    /// An error if files of this process that a request would name are not there any more.
    async fn require_files(&self, table: &TableHandle) -> Result<()>;

    /// The next request against the head in `table`, loaded just now; `None` if nothing is left to do. It checks all that must
    /// still hold and writes the metadata files it needs. `attempt` counts from 1.
    async fn prepare(&mut self, table: &TableHandle, attempt: u32) -> Result<Option<Request<Self::Mark>>>;

    /// What became of a request, by the table alone.
    fn fate(&self, loaded: &LoadedTable, mark: &Self::Mark) -> Fate;

    /// A request is in `table`: files that lost against it go. Whether another part follows.
    async fn applied(&mut self, table: &TableHandle, mark: &Self::Mark) -> bool;

    /// Whether the table was seen to use files of this change, though no request is known to be in.
    fn is_in_use(&self) -> bool;

    /// No request is or can come into the table: deletes what attempts wrote.
    async fn abandon(&self, table: &TableHandle);
}

/// One request, made against one head.
pub(super) struct Request<M> {
    pub(super) requirements: Vec<TableRequirement>,
    pub(super) updates: Vec<TableUpdate>,
    pub(super) mark: M,
}

/// What the table says about a request. No answer tells it, since a request may have been delivered twice on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Applied,
    /// It was not and never will be.
    Lost,
    /// It was not yet, as far as can be seen, but might be still.
    Open,
}

/// A request that was sent and may have been applied, or may still be, whatever was answered.
struct OpenRequest<M> {
    mark: M,
    /// Whether the answer said that it was not applied, rather than nothing.
    denied: bool,
}

/// How the loop goes on.
enum NextMove {
    Done,
    /// A part is in, and another follows.
    Part,
    Retry(Error),
    GiveUp(Error),
}

pub(super) struct Engine<'a, C: Change> {
    change: &'a mut C,
    table: TableHandle,
    table_uuid: Uuid,
    ctx: &'a CommitContext,
    clock: &'a dyn Clock,
    until: Option<Deadline>,
    open: Vec<OpenRequest<C::Mark>>,
    /// Whether a request was sent since the last look at the table.
    unseen: bool,
    /// Whether the last look found no such table, or another one.
    gone: bool,
    attempts: u32,
    retries: u32,
    parts: usize,
    base_location: Option<String>,
    conflicts: u32,
    unknown_outcomes: u32,
}

impl<'a, C: Change> Engine<'a, C> {
    /// `table_uuid`: the table that the change was made for, whoever has its name now.
    pub(super) fn new(
        table: &TableHandle,
        table_uuid: Uuid,
        change: &'a mut C,
        ctx: &'a CommitContext,
        clock: &'a dyn Clock,
    ) -> Self {
        Self {
            change,
            table: table.clone(),
            table_uuid,
            ctx,
            clock,
            until: ctx.until(clock),
            open: Vec::new(),
            unseen: false,
            gone: false,
            attempts: 0,
            retries: 0,
            parts: 0,
            base_location: None,
            conflicts: 0,
            unknown_outcomes: 0,
        }
    }

    pub(super) async fn run(mut self) -> CommitResult {
        loop {
            let mut next = match self.attempt().await {
                Ok(next) => next,
                Err(error) if error.kind() == ErrorKind::Unavailable => NextMove::Retry(error),
                Err(error) => NextMove::GiveUp(error),
            };
            if let NextMove::Retry(_) = next
                && self.retries < self.ctx.retries
            {
                self.retries += 1;
                self.wait(self.retries).await;
                continue;
            }
            if let NextMove::Retry(_) | NextMove::GiveUp(_) = next
                && self.unseen
                && let Some(found) = self.look_last().await
            {
                next = found;
            }
            match next {
                NextMove::Part => {}
                NextMove::Done => return self.committed(None),
                NextMove::Retry(error) | NextMove::GiveUp(error) => return self.give_up(error).await,
            }
        }
    }

    /// One request at most. Errors come from before it.
    async fn attempt(&mut self) -> Result<NextMove> {
        self.attempts += 1;
        if let Err(error) = may_send(self.until, self.clock) {
            return Ok(NextMove::GiveUp(error));
        }
        // Before the look at the table, so that the head is fresh when the request is sent.
        self.change.require_files(&self.table).await?;
        if let Some(applied) = self.look().await? {
            return Ok(applied);
        }
        let Some(request) = self.change.prepare(&self.table, self.attempts).await? else { return Ok(NextMove::Done) };
        self.base_location.get_or_insert_with(|| self.table.loaded.metadata_location.clone());
        let Request { requirements, updates, mark } = request;
        let outcome = self.ctx.send(&self.table, self.until, self.clock, requirements, updates).await;
        if let CommitOutcome::NotSent(error) = outcome {
            return Ok(NextMove::GiveUp(error));
        }
        let denied = matches!(outcome, CommitOutcome::Conflict(_) | CommitOutcome::Refused(_));
        self.open.push(OpenRequest { mark: mark.clone(), denied });
        self.unseen = true;
        Ok(match outcome {
            CommitOutcome::Committed(loaded) if self.is_in(&loaded, &mark) => {
                self.table.loaded = Arc::new(*loaded);
                self.applied(&mark).await
            }
            CommitOutcome::Conflict(error) => {
                self.conflicts += 1;
                NextMove::Retry(error)
            }
            CommitOutcome::Refused(error) | CommitOutcome::NotSent(error) => NextMove::GiveUp(error),
            CommitOutcome::Unknown(error) => self.settle(error).await,
            CommitOutcome::Committed(_) => {
                let message = "the catalog's answer does not show what was committed";
                self.settle(Error::new(ErrorKind::CommitUnknown, message)).await
            }
        })
    }

    fn is_in(&self, loaded: &LoadedTable, mark: &C::Mark) -> bool {
        loaded.metadata.uuid() == self.table_uuid && self.change.fate(loaded, mark) == Fate::Applied
    }

    async fn applied(&mut self, mark: &C::Mark) -> NextMove {
        self.open.clear();
        self.unseen = false;
        self.parts += 1;
        if self.change.applied(&self.table, mark).await { NextMove::Part } else { NextMove::Done }
    }

    /// Waits for the table to tell what became of a request whose answer was lost.
    ///
    /// If that stays open, another attempt is still safe: whichever of the two comes first, the other fails or does nothing.
    async fn settle(&mut self, error: Error) -> NextMove {
        self.unknown_outcomes += 1;
        for check in 1..=(if C::WRITES_FILES { CHECKS } else { 0 }) {
            self.wait(check).await;
            match self.look().await {
                Ok(Some(applied)) => return applied,
                Ok(None) if self.open.is_empty() => break,
                Ok(None) | Err(_) => {}
            }
        }
        NextMove::Retry(error)
    }

    /// Looks at the table as it is now, and settles open requests by what it says; how it goes on if one has been applied.
    /// Another table of the name settles nothing.
    async fn look(&mut self) -> Result<Option<NextMove>> {
        match refresh(&self.table, self.table_uuid).await {
            Ok(table) => self.table = table,
            Err(error) => {
                self.gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict);
                return Err(error);
            }
        }
        self.unseen = false;
        let fates = self.open.iter().map(|request| self.change.fate(&self.table.loaded, &request.mark));
        let fates: Vec<_> = fates.collect();
        if let Some(applied) = fates.iter().position(|fate| *fate == Fate::Applied) {
            let mark = self.open[applied].mark.clone();
            return Ok(Some(self.applied(&mark).await));
        }
        let mut fates = fates.into_iter();
        self.open.retain(|_| fates.next() == Some(Fate::Open));
        Ok(None)
    }

    /// The look that must follow the last request. A catalog that is down for a moment is asked again.
    async fn look_last(&mut self) -> Option<NextMove> {
        for attempt in 1..=LAST_LOOKS {
            match self.look().await {
                Ok(applied) => return applied,
                Err(error) if error.kind() == ErrorKind::Unavailable && attempt < LAST_LOOKS => {
                    self.wait(attempt).await;
                }
                Err(error) => {
                    tracing::warn!(table = %self.table.name(), %error, "no look at the table after a commit request");
                    break;
                }
            }
        }
        None
    }

    async fn wait(&self, n: u32) {
        tokio::time::sleep(backoff(self.ctx, n, self.clock.uuid())).await;
    }

    /// The end without a request that is known to be in. Files go only if each that was sent has provably lost.
    async fn give_up(self, error: Error) -> CommitResult {
        // Nothing can leave a table that is gone, but files that were written for it may be in use by what has its name now.
        let unseen = self.unseen && (C::WRITES_FILES || !self.gone);
        if unseen || self.open.iter().any(|request| !request.denied) || self.change.is_in_use() {
            let error = Error::new(ErrorKind::CommitUnknown, error.to_string());
            return if self.parts > 0 { self.committed(Some(error)) } else { CommitResult::Unknown(error) };
        }
        if self.parts > 0 {
            return self.committed(Some(error));
        }
        if C::WRITES_FILES && !self.open.is_empty() {
            return CommitResult::Denied(error);
        }
        self.change.abandon(&self.table).await;
        // A lost answer is no riddle any more: another commit has taken the place of this one.
        let lost = error.kind() == ErrorKind::CommitUnknown;
        CommitResult::NotCommitted(if lost { Error::new(ErrorKind::Conflict, error.to_string()) } else { error })
    }

    pub(super) fn committed(self, incomplete: Option<Error>) -> CommitResult {
        CommitResult::Committed(Box::new(Committed {
            table: self.table,
            base_location: self.base_location,
            snapshot_id: None,
            removed_delete_files: 0,
            expired_snapshots: 0,
            removed_refs: Vec::new(),
            conflicts: self.conflicts,
            unknown_outcomes: self.unknown_outcomes,
            incomplete,
        }))
    }
}

/// The table as it is now. [`ErrorKind::Conflict`] if another table has taken its name.
async fn refresh(table: &TableHandle, table_uuid: Uuid) -> Result<TableHandle> {
    let fresh = table.refresh().await?;
    let is = fresh.loaded.metadata.uuid();
    if is != table_uuid {
        let message = format!("another table has taken the name: uuid {table_uuid} became {is}");
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    Ok(fresh)
}

/// The wait before the `n`th attempt after the first (from 1): doubling, limited, with up to a tenth of jitter.
fn backoff(ctx: &CommitContext, n: u32, uuid: Uuid) -> Duration {
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
