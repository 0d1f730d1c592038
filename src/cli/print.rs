//! Output for people and for pipes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use super::once::TableReport;

use crate::catalog::LoadedTable;
use crate::clean::{ExpireOutcome, ExpireReport, OrphanReport, Tally};
use crate::error::Result;
use crate::inspect::TableStats;
use crate::plan::Skipped;
use crate::report::run_report::RewriteReport;
use crate::rewrite::Progress;
use crate::schedule::plan_table::{ActionPlan, TablePlan};
use crate::schedule::run_table::{CleanUpReport, StepReport};

/// Writes to standard output. `false`: nobody reads any more, for instance a pager that was closed. That is no failure:
/// what was asked for is still done, and the exit code still tells of it.
pub(crate) fn out(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// A line on standard error, whether or not somebody reads it.
pub(crate) fn err(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// One line of JSON; `false` as for [`out`].
pub(super) fn json(value: &impl Serialize) -> Result<bool> {
    Ok(out(&format!("{}\n", serde_json::to_string(value)?)))
}

/// `1536` as `1.5 KiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// To the start of the terminal's line, and wipe it.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Keeps one line on the terminal up to date until dropped.
pub(super) fn show_progress(table: String, progress: Arc<Progress>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let rows = progress.rows();
            let read = bytes(progress.bytes_read());
            let written = bytes(progress.bytes_written());
            // A terminal that is gone is no reason to stop working.
            let _ = write!(std::io::stderr(), "{CLEAR_LINE}{table}: {rows} rows, read {read}, written {written}");
        }
    }))
}

/// Says on the terminal what is waited for.
pub(super) fn show_waiting(table: &str, wait: Duration) {
    let seconds = wait.as_secs() + 1;
    let _ = write!(std::io::stderr(), "{CLEAR_LINE}{table}: waits {seconds} s before the clean-ups");
}

/// The report of `once`.
pub(super) fn table_report(report: &TableReport) {
    let clear = if std::io::stderr().is_terminal() && std::io::stdout().is_terminal() { CLEAR_LINE } else { "" };
    let mut text = format!("{clear}{}: {}\n", report.table, report.outcome.as_str());
    for step in &report.steps {
        match step {
            StepReport::RewriteDataFiles(rewrite) => rewrite_lines(&mut text, rewrite),
            StepReport::CleanUp(clean_up) => clean_up_lines(&mut text, clean_up),
        }
    }
    for (label, value) in [("clean-up not done", &report.not_due), ("error", &report.error)] {
        if let Some(value) = value {
            line(&mut text, label, value);
        }
    }
    out(&text);
}

fn line(text: &mut String, label: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {label}: {value}");
}

/// One line on what a compaction did.
pub(crate) fn rewrite_summary(report: &RewriteReport) -> String {
    if report.planned_groups == 0 {
        return report.reason.clone().unwrap_or_else(|| "nothing to do".into());
    }
    let mut text = format!(
        "{} data files ({}) -> {} ({}), {} rows in, {} deleted, {} out; {} delete files removed; {} of {} groups, {} commits, {:.1} s",
        report.rewritten_data_files,
        bytes(report.rewritten_bytes),
        report.added_data_files,
        bytes(report.added_bytes),
        report.input_rows,
        report.deleted_rows,
        report.output_rows,
        report.removed_delete_files,
        report.committed_groups,
        report.planned_groups,
        report.commits,
        report.duration_ms as f64 / 1000.0,
    );
    if let Some(reason) = &report.reason {
        let _ = write!(text, "; {reason}");
    }
    text
}

fn rewrite_lines(text: &mut String, report: &RewriteReport) {
    line(text, "rewrite-data-files", &format!("{}: {}", report.outcome.as_str(), rewrite_summary(report)));
    skipped_lines(text, &report.skipped);
    for error in &report.errors {
        line(text, "  error", error);
    }
}

fn skipped_lines(text: &mut String, skipped: &[Skipped]) {
    for skip in skipped {
        line(text, &format!("  left alone ({})", skip.reason), &format!("{} files: {}", skip.files, skip.detail));
    }
}

fn clean_up_lines(text: &mut String, report: &CleanUpReport) {
    if let Some(expired) = &report.expire_snapshots {
        line(text, "expire-snapshots", &expire_summary(expired));
    }
    if let Some(orphans) = &report.remove_orphan_files {
        line(text, "remove-orphan-files", &orphan_summary(orphans));
    }
    for (action, reason) in &report.skipped {
        line(text, action, &format!("skipped: {reason}"));
    }
    for (action, error) in &report.errors {
        line(text, action, &format!("failed: {error}"));
    }
}

/// One line on what a step did.
pub(crate) fn step_summary(report: &StepReport) -> String {
    match report {
        StepReport::RewriteDataFiles(report) => format!("rewrite-data-files: {}", rewrite_summary(report)),
        StepReport::CleanUp(report) => {
            let mut parts = Vec::new();
            if let Some(expired) = &report.expire_snapshots {
                parts.push(format!("expire-snapshots: {}", expire_summary(expired)));
            }
            if let Some(orphans) = &report.remove_orphan_files {
                parts.push(format!("remove-orphan-files: {}", orphan_summary(orphans)));
            }
            parts.extend(report.skipped.iter().map(|(action, reason)| format!("{action}: skipped, {reason}")));
            parts.extend(report.errors.iter().map(|(action, error)| format!("{action}: failed, {error}")));
            parts.join("; ")
        }
    }
}

/// The sum over all kinds.
pub(crate) fn total<K>(tallies: &BTreeMap<K, Tally>) -> Tally {
    let mut sum = Tally::default();
    for tally in tallies.values() {
        sum.files += tally.files;
        sum.bytes += tally.bytes;
    }
    sum
}

fn expire_summary(report: &ExpireReport) -> String {
    if let Some(error) = &report.error {
        return format!("failed: {error}");
    }
    if report.outcome == ExpireOutcome::Nothing {
        return "nothing to expire".into();
    }
    let (deleted, failed) = (total(&report.deleted), total(&report.failed));
    let mut text = format!(
        "{} snapshots expired, {} files ({}) deleted",
        report.expired_snapshots,
        deleted.files,
        bytes(deleted.bytes)
    );
    if failed.files > 0 {
        let _ = write!(text, ", {} could not be deleted", failed.files);
    }
    text
}

fn orphan_summary(report: &OrphanReport) -> String {
    if let Some(error) = &report.error {
        return format!("failed: {error}");
    }
    if let Some(refused) = &report.refused {
        return format!("refused ({}): {}", refused.reason, refused.detail);
    }
    let (removable, deleted, kept) = (total(&report.removable), total(&report.deleted), total(&report.kept));
    format!(
        "{} files listed, {} unreferenced ({}), {} may go, {} deleted ({}), {} kept for now",
        report.listed.files,
        report.orphans.files,
        bytes(report.orphans.bytes),
        removable.files,
        deleted.files,
        bytes(deleted.bytes),
        kept.files
    )
}

/// The plan of one table; `false` as for [`out`].
pub(super) fn table_plan(plan: &TablePlan) -> bool {
    let mut text = format!("{}\n", plan.table);
    line(&mut text, "policies", &plan.policies.join(", "));
    line(&mut text, "commit interval", &format!("{} s, delay {} s", plan.commit_interval_s, plan.delay_s));
    line(&mut text, "next", &plan.next_step);
    match &plan.rewrite_data_files {
        ActionPlan::Nothing(reason) => line(&mut text, "rewrite-data-files", reason),
        ActionPlan::Would(outline) => {
            let summary = format!(
                "{} of {} data files ({}) in {} groups -> about {} files",
                outline.input_files,
                outline.considered_data_files,
                bytes(outline.input_bytes),
                outline.file_groups,
                outline.expected_output_files
            );
            line(&mut text, "rewrite-data-files", &summary);
            for drawn in outline.drawing.lines() {
                let _ = writeln!(text, "    {drawn}");
            }
        }
    }
    match &plan.expire_snapshots {
        ActionPlan::Nothing(reason) => line(&mut text, "expire-snapshots", reason),
        ActionPlan::Would(outline) => {
            let refs =
                if outline.refs.is_empty() { String::new() } else { format!(", refs {}", outline.refs.join(", ")) };
            line(&mut text, "expire-snapshots", &format!("{} snapshots{refs}", outline.snapshots));
            for kept in &outline.kept {
                line(&mut text, &format!("  kept ({})", kept.reason), &kept.detail);
            }
        }
    }
    match &plan.remove_orphan_files {
        ActionPlan::Nothing(reason) => line(&mut text, "remove-orphan-files", reason),
        ActionPlan::Would(report) => line(&mut text, "remove-orphan-files", &orphan_summary(report)),
    }
    let _ = writeln!(text, "  settings:");
    for setting in &plan.settings {
        let value = setting.value.as_deref().unwrap_or("not set");
        let _ = writeln!(text, "    {} = {value}  ({})", setting.key, setting.origin);
    }
    out(&text)
}

/// The numbers of one table.
pub(super) fn stats(name: &str, loaded: &LoadedTable, stats: &TableStats) -> Result<()> {
    let mut text = format!("{name}\n");
    line(&mut text, "metadata", &loaded.metadata_location);
    if let serde_json::Value::Object(numbers) = serde_json::to_value(stats)? {
        for (key, value) in numbers {
            let shown = match (key.ends_with("bytes"), value.as_u64()) {
                (true, Some(count)) => format!("{count} ({})", bytes(count)),
                _ => value.to_string(),
            };
            line(&mut text, &key, &shown);
        }
    }
    out(&text);
    Ok(())
}
