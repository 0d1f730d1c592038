//! A line in the log for what happens, and on the terminal for each step.

use std::io::Write as _;

use crate::action::Outcome;
use crate::config::LoadedConfig;
use crate::schedule::observer::{Event, Observer, TableEvent};
use crate::table::TableName;
use crate::telemetry::visible;

/// Writes the lines. What is told only when it is news stands with health, which knows what it was before.
pub(super) struct Log {
    /// Whether people watch standard output.
    pub(super) echo: bool,
}

/// A line about a step, with the fields that lines inside the run have from its span.
macro_rules! log_step {
    ($level:ident, $name:expr, $run:expr, $step:expr, $($rest:tt)+) => {
        tracing::$level!(
            catalog = $name.catalog,
            namespace = $name.namespace_text(),
            table = %$name,
            run_id = %$run.run_id,
            step = $step,
            $($rest)+
        )
    };
}

impl Observer for Log {
    fn observe(&self, event: Event<'_>, _: i64) {
        match event {
            Event::Started { listen, loaded } => {
                let (catalogs, policies) = sizes(loaded);
                tracing::info!(listen, catalogs, policies, version = env!("CARGO_PKG_VERSION"), "started");
            }
            Event::Stopping(grace) => {
                tracing::info!(grace_seconds = grace.as_secs(), "stopping: no new steps, running ones come to an end");
            }
            Event::ConfigReloaded { loaded, rebuilt } => {
                for warning in &loaded.warnings {
                    tracing::warn!(problem = %warning, "odd in the configuration");
                }
                let ((catalogs, policies), warnings) = (sizes(loaded), loaded.warnings.len());
                tracing::info!(catalogs, policies, rebuilt = rebuilt.join(","), warnings, "configuration reloaded");
            }
            Event::ConfigRefused(problems) => {
                for problem in &problems.0 {
                    tracing::error!(%problem, "the configuration is not reloaded; the one before stays in force");
                }
            }
            Event::CatalogGone(catalog) => tracing::info!(catalog, "no longer configured"),
            Event::Paused(pause) => {
                tracing::info!(reason = pause.reason, "paused: no step of any table begins until it is resumed");
            }
            Event::Resumed => tracing::info!("resumed"),
            Event::Table(name, event) => self.of_table(name, event),
            _ => {}
        }
    }
}

impl Log {
    fn of_table(&self, name: &TableName, event: TableEvent<'_>) {
        match event {
            TableEvent::Found => tracing::info!(table = %name, "maintained from now on"),
            TableEvent::Gone => tracing::info!(table = %name, "no longer maintained"),
            TableEvent::Waits { next, .. } => {
                tracing::debug!(table = %name, step = next.step.as_str(), at_ms = next.at_ms, why = next.why, "waits");
            }
            TableEvent::Paused(pause) => {
                tracing::info!(table = %name, reason = pause.reason, "paused: no step begins until it is resumed");
            }
            TableEvent::Resumed => tracing::info!(table = %name, "resumed"),
            TableEvent::AskedFor => tracing::info!(table = %name, "compaction asked for"),
            TableEvent::StepStarted(run, step) => log_step!(info, name, run, step.as_str(), "step started"),
            TableEvent::StepDone(run, done) => {
                let (step, outcome) = (done.report.step.as_str(), done.report.outcome());
                let (failed, outcome) = (outcome.is_failure(), outcome.as_str());
                let report = serde_json::to_string(&done.report).unwrap_or_default();
                if failed {
                    log_step!(warn, name, run, step, outcome, %report, "step ended");
                } else {
                    log_step!(info, name, run, step, outcome, %report, "step ended");
                }
                self.echo(name, &done.report.summary());
            }
            TableEvent::StepFailed(run, step, error) => {
                let (kind, outcome, step) = (error.kind().as_str(), Outcome::of(error.kind()), step.as_str());
                if outcome.is_failure() {
                    log_step!(warn, name, run, step, kind, %error, "step failed; it is tried again later");
                } else {
                    log_step!(info, name, run, step, kind, %error, "step not possible; it is tried again later");
                }
                self.echo(name, &format!("{step} {}: {error}", outcome.as_str()));
            }
            _ => {}
        }
    }

    fn echo(&self, name: &TableName, line: &str) {
        if self.echo {
            // Nobody may read any more.
            let _ = writeln!(std::io::stdout().lock(), "{}", visible(&format!("{name}: {line}")));
        }
    }
}

/// How many catalogs and policies there are.
fn sizes(loaded: &LoadedConfig) -> (usize, usize) {
    (loaded.config.catalogs.len(), loaded.config.policies.policies.len())
}
