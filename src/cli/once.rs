//! `icewright once`: one pass over the tables, in the foreground: compaction, the delay, the clean-ups. A pass that does not
//! wait does the clean-ups of the pass before it, if the delay is over, and then compacts.
//!
//! With `--json` there is one object per line and table, with stable keys:
//!
//! ```text
//! {"table": "catalog.namespace.table",
//!  "run-id": "...",                            as in file names and snapshot summaries
//!  "outcome": "success" | "failed" | "cancelled",
//!  "steps": [                                  those that were begun, in order
//!    {"step": "rewrite-data-files", ...},      RewriteReport
//!    {"step": "clean-up",
//!     "expire-snapshots": {...} | null,        ExpireReport
//!     "remove-orphan-files": {...} | null,     OrphanReport
//!     "skipped": {"<action>": "<why>"},
//!     "errors": {"<action>": "<why>"}}],
//!  "not-due": "<why the clean-ups were not done>" | null,
//!  "error": "<why the pass could not go on>" | null}
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::progress::{Line, ProgressLines};
use super::screen::{self, Screen};
use super::{print, push, select, sheets, stopped, until_stopped};
use crate::action::{Outcome, RunStep};
use crate::actions::Watcher;
use crate::actions::env::Env;
use crate::actions::report::StepReport;
use crate::actions::subject::Subject;
use crate::config::Config;
use crate::daemon;
use crate::error::{ErrorKind, Result};
use crate::fleet::Fleet;
use crate::policy::human_duration;
use crate::report::push::Pushgateway;
use crate::rewrite::Progress;
use crate::schedule::due::StepEnd;
use crate::schedule::run_table::{TableRun, clean_up_due, first_step, run_step};
use crate::table::TableName;
use crate::telemetry;

/// What the pass did to one table.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct TableReport {
    /// `catalog.namespace.table`.
    pub(super) table: String,
    /// The run, as it stands in file names and snapshot summaries.
    pub(super) run_id: String,
    /// Success, failed or cancelled.
    pub(super) outcome: Outcome,
    /// Reports of the steps done, in order.
    pub(super) steps: Vec<StepReport>,
    /// Why the clean-ups were not done in this pass.
    pub(super) not_due: Option<String>,
    /// Why the pass could not go on.
    pub(super) error: Option<String>,
}

/// How a pass is made.
struct Pass {
    env: Env,
    fleet: Arc<Fleet>,
    /// Whether to leave the clean-ups if they are not due yet.
    no_wait: bool,
    /// What is under way, for whoever watches.
    board: ProgressLines,
    /// Where metrics go.
    gateway: Option<Pushgateway>,
}

/// Runs the pass. Exit code 1 if any table or catalog failed, or if the pass was stopped.
pub(super) async fn once(
    config: Config,
    table: Option<&str>,
    json: bool,
    no_wait: bool,
    cancel: CancellationToken,
) -> Result<i32> {
    let parts = daemon::assemble(&config, cancel)?;
    let stop = parts.env.cancel.clone();
    let selected = until_stopped(&stop, select::tables(&parts.fleet, table)).await?;
    if selected.tables.is_empty() && selected.complete {
        print::err("no table matches a policy");
    }
    let board = ProgressLines::new(!json);
    let gateway = config.metrics.pushgateway.as_ref().map(push::gateway).transpose()?;
    let pass = Pass { env: parts.env, fleet: parts.fleet, no_wait, board: board.clone(), gateway };
    let screen = Screen::stdout();
    let (mut all_done, mut overview) = (selected.complete, Vec::new());
    let (mut left, mut passes) = (selected.tables.into_iter(), FuturesUnordered::new());
    let mut asking = pass.fleet.waiting();
    loop {
        // A table that waits for what other tables need does no work meanwhile.
        let room = (config.limits.concurrent_tables + *asking.borrow_and_update()).saturating_sub(passes.len());
        passes.extend(left.by_ref().take(room).map(|name| pass.maintain(name)));
        let report = tokio::select! {
            Some(report) = passes.next() => report,
            Ok(()) = asking.changed(), if left.len() > 0 => continue,
            else => break,
        };
        all_done &= report.outcome == Outcome::Success;
        if json {
            // Whether or not somebody reads it, the work goes on.
            print::json(&report)?;
        } else {
            board.print(&sheets::report(&report).render(screen));
            overview.push(sheets::overview_row(&report));
        }
    }
    if overview.len() > 1
        && let Some(table) = screen::table(screen, &sheets::OVERVIEW, &overview)
    {
        board.print(&format!("\n{table}"));
    }
    Ok(i32::from(!all_done))
}

impl Pass {
    async fn maintain(&self, name: TableName) -> TableReport {
        let run = TableRun::start(&self.env);
        let mut report = TableReport {
            table: name.to_string(),
            run_id: run.run_id.to_string(),
            outcome: Outcome::Success,
            steps: Vec::new(),
            not_due: None,
            error: None,
        };
        let span = run.span(&name);
        let ended = self.steps(&name, run, &mut report).instrument(span.clone()).await;
        let failed = report.steps.iter().any(|step| step.outcome().is_failure());
        report.outcome = match &ended {
            Err(error) if error.kind() != ErrorKind::Cancelled => Outcome::Failed,
            Ok(()) | Err(_) if failed => Outcome::Failed,
            Err(_) => Outcome::Cancelled,
            Ok(()) => Outcome::Success,
        };
        telemetry::ended(&span, report.outcome.as_str(), report.outcome.is_failure(), &[]);
        report.error = ended.err().map(|error| error.to_string());
        if let Some(gateway) = self.gateway.as_ref().filter(|_| !self.env.cancel.is_cancelled()) {
            push::push(gateway, &self.env, &self.fleet, &name, &report).await;
        }
        report
    }

    async fn steps(&self, name: &TableName, run: TableRun, report: &mut TableReport) -> Result<()> {
        self.go_on(report)?;
        let subject = self.load(name).await?;
        let first = first_step(&subject, self.env.clock.now_ms())?.next;
        // A pass that does not wait owes the clean-ups to the last one. To compact before they are due would put them off
        // again, with passes in short succession for ever.
        let owed = self.no_wait && first.step == RunStep::LAST;
        let (mut loaded, mut nothing_new) = (Some(subject), false);
        for step in [RunStep::LAST, RunStep::FIRST, RunStep::LAST].into_iter().skip(usize::from(!owed)) {
            self.go_on(report)?;
            if nothing_new {
                break;
            }
            let Some(subject) = self.ready(name, step, loaded.take(), report).await? else { break };
            let shown = Shown { board: &self.board, table: &report.table, line: Mutex::new(None) };
            let done = run_step(&self.env, &self.fleet, &subject, run, step, &shown).await?;
            drop(shown);
            let stuck = done.ended() == StepEnd::Stuck;
            nothing_new = owed && step == RunStep::FIRST && done.report.last_commit_ms().is_none();
            report.steps.push(done.report);
            if stuck {
                report.not_due = Some("a commit's outcome is not known yet; nothing is deleted meanwhile".into());
                break;
            }
        }
        Ok(())
    }

    /// The table, unless the pass is told to stop before its catalog answers.
    async fn load(&self, name: &TableName) -> Result<Subject> {
        until_stopped(&self.env.cancel, Subject::load(&self.fleet, name)).await
    }

    /// An error if the pass was told to stop.
    fn go_on(&self, report: &mut TableReport) -> Result<()> {
        if !self.env.cancel.is_cancelled() {
            return Ok(());
        }
        report.not_due = Some("the pass was stopped before".into());
        Err(stopped())
    }

    /// Until the clean-ups are due.
    async fn wait(&self, wait: Duration, report: &mut TableReport) -> Result<()> {
        let _shown = self.board.waiting(&report.table, wait);
        tokio::select! {
            () = self.env.cancel.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
        self.go_on(report)
    }

    /// The table once the step is due; `None` if the pass does not wait for that. The delay begins anew when somebody else
    /// compacts meanwhile; that is waited for once.
    async fn ready(
        &self,
        name: &TableName,
        step: RunStep,
        loaded: Option<Subject>,
        report: &mut TableReport,
    ) -> Result<Option<Subject>> {
        let mut waits = if self.no_wait { 0 } else { 2 };
        let mut loaded = loaded;
        loop {
            let subject = match loaded.take() {
                Some(subject) => subject,
                None => self.load(name).await?,
            };
            let now = self.env.clock.now_ms();
            let due = clean_up_due(&subject, now);
            if step != RunStep::LAST || due.at_ms <= now {
                return Ok(Some(subject));
            }
            if waits == 0 {
                report.not_due = Some(format!("{}: {}", due.why, left(due.at_ms - now)));
                return Ok(None);
            }
            waits -= 1;
            self.wait(Duration::from_millis(due.at_ms.abs_diff(now)), report).await?;
        }
    }
}

/// Shows a compaction while it runs.
struct Shown<'a> {
    board: &'a ProgressLines,
    table: &'a str,
    line: Mutex<Option<Line>>,
}

impl Watcher for Shown<'_> {
    fn rewriting(&self, progress: &Arc<Progress>) {
        let line = self.board.rewriting(self.table, progress.clone());
        *self.line.lock() = Some(line);
    }
}

fn left(wait_ms: i64) -> String {
    let seconds = wait_ms.unsigned_abs() / 1000 + 1;
    format!("{} left", human_duration(Duration::from_secs(seconds)))
}
