//! What the scheduler, its workers, the collector, reloads and the daemon say. Who listens stands above them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use super::collector::Collected;
use super::control::Pause;
use super::due::NextStep;
use super::plan_table::TablePlan;
use super::run_table::{StepDone, TableRun};
use crate::action::{Action, RunStep};
use crate::actions::subject::Subject;
use crate::actions::{ActionPlan, Outline};
use crate::config::{LoadedConfig, Problems};
use crate::error::Error;
use crate::inspect::PartitionStats;
use crate::rewrite::Progress;
use crate::table::TableName;

/// Who is told what happens.
pub trait Observer: Send + Sync {
    /// It happened at `now_ms`, milliseconds since the epoch. Whoever tells it waits, and may be any thread.
    fn observe(&self, event: Event<'_>, now_ms: i64);
}

/// Something happened.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// The daemon is up, and listens there.
    Started {
        listen: &'a str,
        loaded: &'a LoadedConfig,
    },
    /// The daemon was told to stop; what runs has so long to come to an end.
    Stopping(Duration),
    /// Whether this replica works, or stands by.
    Leads(bool),
    /// The scheduler went round, or a replica that stands by looked whether it is its turn.
    Heartbeat,
    /// The configuration file was read again and is in force; the clients of the catalogs `rebuilt` are new.
    ConfigReloaded {
        loaded: &'a LoadedConfig,
        rebuilt: &'a [String],
    },
    /// The configuration file was read again and cannot be used; what is in force stays so.
    ConfigRefused(&'a Problems),
    /// A catalog listed its tables.
    CatalogListed(&'a str),
    /// A catalog answered, but it is not known which tables a part of it holds.
    CatalogUnclear(&'a str, &'a Error),
    /// A catalog could not be asked for its tables.
    CatalogNotListed(&'a str, &'a Error),
    /// These catalogs, and no others, tell of none of their tables.
    CatalogsSilent(&'a BTreeSet<String>),
    /// A catalog is not configured any more.
    CatalogGone(&'a str),
    /// An operator stopped everything; what runs comes to its end.
    Paused(&'a Pause),
    Resumed,
    /// How many tables run and wait has changed.
    Queue(QueueStatus),
    Table(&'a TableName, TableEvent<'a>),
}

/// Something happened to a table.
#[derive(Clone, Copy)]
pub enum TableEvent<'a> {
    /// It is maintained from now on.
    Found,
    /// It left the catalog or the policies.
    Gone,
    /// It waits for its next step; `failures` steps in a row have failed before. The next compaction is due at `next_run_ms`,
    /// if that is known.
    Waits {
        next: &'a NextStep,
        next_run_ms: Option<i64>,
        failures: u32,
        quarantined: bool,
    },
    /// An operator stopped it; what runs comes to its end.
    Paused(&'a Pause),
    Resumed,
    /// An operator wants it compacted now.
    AskedFor,
    /// It tells of a success of the action before this process began, at this time.
    KnownSuccess(Action, i64),
    StepStarted(TableRun, RunStep),
    ActionStarted(Action),
    /// A compaction has begun, whose progress can be looked at.
    Rewriting(&'a Arc<Progress>),
    /// It is known what a run of the action is going to do.
    ActionPlanned(Action, &'a ActionPlan<Outline>),
    /// A step ended; its report says how.
    StepDone(TableRun, &'a StepDone),
    /// A step could not be done at all.
    StepFailed(TableRun, RunStep, &'a Error),
    /// Everything was planned for it, since somebody asked.
    Planned(&'a TablePlan),
    /// The collector has looked at it.
    Looked {
        subject: &'a Subject,
        collected: &'a Collected,
        partitions: &'a [PartitionStats],
    },
    /// Its numbers could not be collected.
    CollectionFailed(&'a Error),
}

/// Tables at work and waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct QueueStatus {
    /// Tables at work.
    pub running: usize,
    /// Tables that are due and wait for a worker.
    pub queued: usize,
    /// Tables that may be at work at the same time.
    pub limit: usize,
    /// How long the step that has waited longest has been due; zero if none waits.
    #[serde(skip)]
    pub oldest: Duration,
}
