//! `icewright once`: one pass over the tables, in the foreground.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{print, select};
use crate::config::Config;
use crate::daemon;
use crate::error::Result;
use crate::policy::TableName;
use crate::rewrite::Progress;
use crate::schedule::env::Env;
use crate::schedule::fleet::Fleet;
use crate::schedule::run_table::{Run, StepReport, Subject, clean_up_step, rewrite_step};

/// What the pass did to one table.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct TableReport {
    /// `catalog.namespace.table`.
    pub(super) table: String,
    /// The run, as it stands in file names and snapshot summaries.
    pub(super) run_id: String,
    /// `success`, `failed` ...
    pub(super) outcome: &'static str,
    /// Reports of the steps done, in order.
    pub(super) steps: Vec<StepReport>,
    /// Why the clean-ups were not done in this pass.
    pub(super) not_due: Option<String>,
    /// Why the pass could not go on.
    pub(super) error: Option<String>,
}

impl TableReport {
    fn conclude(mut self) -> Self {
        let failed = self.error.is_some() || self.steps.iter().any(|step| step.outcome().is_failure());
        self.outcome = if failed { "failed" } else { "success" };
        self
    }
}

/// Runs the pass. Exit code 1 if any table failed.
pub(super) async fn once(
    config: Config,
    table: Option<&str>,
    json: bool,
    no_wait: bool,
    cancel: CancellationToken,
) -> Result<i32> {
    let parts = daemon::assemble(&config, cancel)?;
    let names = select::tables(&parts.fleet, table).await?;
    if names.is_empty() {
        eprintln!("no table matches a policy");
        return Ok(0);
    }
    let show_progress = !json && std::io::stderr().is_terminal();
    let mut failed = false;
    let mut passes = stream::iter(names)
        .map(|name| pass(&parts.env, &parts.fleet, name, no_wait, show_progress))
        .buffer_unordered(config.limits.concurrent_tables);
    while let Some(report) = passes.next().await {
        failed |= report.outcome == "failed";
        if json { print::json(&report)? } else { print::table_report(&report) }
    }
    Ok(i32::from(failed))
}

async fn pass(env: &Env, fleet: &Fleet, name: TableName, no_wait: bool, show_progress: bool) -> TableReport {
    let run = Run::start(env);
    let mut report = TableReport {
        table: name.to_string(),
        run_id: run.run_id.to_string(),
        outcome: "success",
        steps: Vec::new(),
        not_due: None,
        error: None,
    };
    if let Err(error) = steps(env, fleet, &name, run, no_wait, show_progress, &mut report).await {
        report.error = Some(error.to_string());
    }
    report.conclude()
}

async fn steps(
    env: &Env,
    fleet: &Fleet,
    name: &TableName,
    run: Run,
    no_wait: bool,
    show_progress: bool,
    report: &mut TableReport,
) -> Result<()> {
    let subject = Subject::load(fleet, name).await?;
    let progress = Arc::new(Progress::default());
    let shown = show_progress.then(|| print::show_progress(name.to_string(), progress.clone()));
    let rewritten = rewrite_step(env, &subject, run, progress).await;
    if let Some(shown) = shown {
        shown.abort();
    }
    let unsettled = matches!(&rewritten.report, StepReport::RewriteDataFiles(r) if r.unsettled_commits > 0);
    report.steps.push(rewritten.report);
    if unsettled {
        report.not_due = Some("a commit's outcome is not known yet; nothing is deleted meanwhile".into());
        return Ok(());
    }
    let wait = rewritten.next.at_ms - env.clock.now_ms();
    if wait > 0 {
        let wait = Duration::from_millis(wait.unsigned_abs());
        if no_wait {
            report.not_due = Some(format!("{}: {} s left", rewritten.next.why, wait.as_secs() + 1));
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = env.cancel.cancelled() => {
                report.not_due = Some("stopped during the delay".into());
                return Ok(());
            }
        }
    }
    let subject = Subject::load(fleet, name).await?;
    report.steps.push(clean_up_step(env, fleet, name, subject, run, &|_| {}).await?.report);
    Ok(())
}
