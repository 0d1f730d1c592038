//! What the commands tell people: reports, plans and numbers as sheets of labelled values.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::once::TableReport;
use super::screen::Sheet;
use crate::clean::{OrphanReport, Tally};
use crate::error::Result;
use crate::inspect::TableStats;
use crate::plan::Skipped;
use crate::policy::{SettingValue, human_duration};
use crate::report::words::{bytes, count, expire_summary, orphan_summary, rewrite_summary, total};
use crate::schedule::plan_table::{ActionPlan, ExpireOutline, RewriteOutline, TablePlan};
use crate::schedule::run_report::RewriteReport;
use crate::schedule::run_table::{CleanUpReport, StepReport};

/// The report of `once` on a table.
pub(super) fn report(report: &TableReport) -> Sheet {
    let mut sheet = Sheet::new(&format!("{}: {}", report.table, report.outcome.as_str()));
    for step in &report.steps {
        match step {
            StepReport::RewriteDataFiles(rewrite) => rewrite_lines(&mut sheet, rewrite),
            StepReport::CleanUp(clean_up) => clean_up_lines(&mut sheet, clean_up),
        }
    }
    for (label, value) in [("clean-up not done", &report.not_due), ("error", &report.error)] {
        if let Some(value) = value {
            sheet.line(label, value);
        }
    }
    sheet
}

/// Columns of the overview at the end of `once`.
pub(super) const OVERVIEW: [&str; 6] = ["table", "outcome", "data files", "bytes", "expired", "deleted"];

/// A table's row in the overview.
pub(super) fn overview_row(report: &TableReport) -> Vec<String> {
    let mut row = vec![report.table.clone(), report.outcome.as_str().to_owned(), "-".into(), "-".into()];
    let (mut expired, mut deleted) = (0, Tally::default());
    for step in &report.steps {
        match step {
            StepReport::RewriteDataFiles(r) if r.rewritten_data_files > 0 => {
                row[2] = format!("{} -> {}", r.rewritten_data_files, r.added_data_files);
                row[3] = format!("{} -> {}", bytes(r.rewritten_bytes), bytes(r.added_bytes));
            }
            StepReport::RewriteDataFiles(_) => {}
            StepReport::CleanUp(clean_up) => {
                let by_expiry = clean_up.expire_snapshots.as_ref();
                expired += by_expiry.map_or(0, |r| r.expired_snapshots);
                let by_expiry = by_expiry.map(|r| total(&r.deleted));
                let orphans = clean_up.remove_orphan_files.as_ref().map(|r| total(&r.deleted));
                for tally in by_expiry.into_iter().chain(orphans) {
                    deleted.files += tally.files;
                    deleted.bytes += tally.bytes;
                }
            }
        }
    }
    row.push(count(expired, "snapshot"));
    row.push(format!("{}, {}", count(deleted.files, "file"), bytes(deleted.bytes)));
    row
}

fn rewrite_lines(sheet: &mut Sheet, report: &RewriteReport) {
    sheet.line("rewrite-data-files", &format!("{}: {}", report.outcome.as_str(), rewrite_summary(report)));
    skipped_lines(sheet, &report.skipped);
    for error in &report.errors {
        sheet.line("  error", error);
    }
}

fn skipped_lines(sheet: &mut Sheet, skipped: &[Skipped]) {
    for skip in skipped {
        sheet.line(
            &format!("  left alone ({})", skip.reason),
            &format!("{}: {}", count(skip.files, "file"), skip.detail),
        );
    }
}

fn clean_up_lines(sheet: &mut Sheet, report: &CleanUpReport) {
    if let Some(expired) = &report.expire_snapshots {
        sheet.line("expire-snapshots", &expire_summary(expired));
        kept_lines(sheet, &expired.kept);
        failure_lines(sheet, &expired.failures);
    }
    if let Some(orphans) = &report.remove_orphan_files {
        orphan_lines(sheet, orphans);
    }
    for (action, reason) in &report.skipped {
        sheet.line(action, &format!("skipped: {reason}"));
    }
    for (action, error) in &report.errors {
        sheet.line(action, &format!("failed: {error}"));
    }
}

fn orphan_lines(sheet: &mut Sheet, report: &OrphanReport) {
    sheet.line("remove-orphan-files", &orphan_summary(report));
    kept_lines(sheet, &report.kept);
    failure_lines(sheet, &report.failures);
}

/// Files that nothing needs and that stay all the same.
fn kept_lines(sheet: &mut Sheet, kept: &BTreeMap<impl Serialize, Tally>) {
    for (reason, tally) in kept {
        // The name that it has in JSON.
        let reason = serde_json::to_value(reason).unwrap_or_default();
        let label = format!("  kept ({})", reason.as_str().unwrap_or_default());
        sheet.line(&label, &format!("{}, {}", count(tally.files, "file"), bytes(tally.bytes)));
    }
}

fn failure_lines(sheet: &mut Sheet, failures: &[String]) {
    for failure in failures {
        sheet.line("  not deleted", failure);
    }
}

/// The plan of one table.
pub(super) fn plan(plan: &TablePlan) -> Sheet {
    let mut sheet = Sheet::new(&plan.table);
    let span = |seconds| human_duration(Duration::from_secs(seconds));
    sheet.line("policies", &plan.policies.join(", "));
    sheet.line("commit interval", &format!("{}, delay {}", span(plan.commit_interval_s), span(plan.delay_s)));
    sheet.line("next", &plan.next_step);
    match &plan.rewrite_data_files {
        ActionPlan::Nothing(reason) => sheet.line("rewrite-data-files", reason),
        ActionPlan::Would(outline) => rewrite_outline(&mut sheet, outline),
    }
    match &plan.expire_snapshots {
        ActionPlan::Nothing(reason) => sheet.line("expire-snapshots", reason),
        ActionPlan::Would(outline) => expire_outline(&mut sheet, outline),
    }
    match &plan.remove_orphan_files {
        ActionPlan::Nothing(reason) => sheet.line("remove-orphan-files", reason),
        ActionPlan::Would(report) => orphan_lines(&mut sheet, report),
    }
    sheet.section("settings");
    for SettingValue { key, value, origin } in &plan.settings {
        sheet.line(&format!("  {key}"), &format!("{} ({origin})", value.as_deref().unwrap_or("not set")));
    }
    sheet
}

fn rewrite_outline(sheet: &mut Sheet, outline: &RewriteOutline) {
    let summary = format!(
        "{} of {} ({}) in {} -> about {}",
        outline.input_files,
        count(outline.considered_data_files, "data file"),
        bytes(outline.input_bytes),
        count(outline.file_groups, "group"),
        count(outline.expected_output_files, "file")
    );
    sheet.line("rewrite-data-files", &summary);
    sheet.drawing(&outline.drawing);
}

fn expire_outline(sheet: &mut Sheet, outline: &ExpireOutline) {
    let refs = if outline.refs.is_empty() { String::new() } else { format!(", refs {}", outline.refs.join(", ")) };
    sheet.line("expire-snapshots", &format!("{}{refs}", count(outline.snapshots, "snapshot")));
    for kept in &outline.kept {
        sheet.line(&format!("  kept ({})", kept.reason), &kept.detail);
    }
    if let Some(why) = &outline.files_stay {
        sheet.line("  files stay", why);
    }
}

/// The numbers of one table.
pub(super) fn stats(name: &str, metadata_location: &str, stats: &TableStats) -> Result<Sheet> {
    let mut sheet = Sheet::new(name);
    sheet.line("metadata", metadata_location);
    if let Value::Object(numbers) = serde_json::to_value(stats)? {
        for (key, value) in numbers {
            match value {
                Value::Array(buckets) => bucket_lines(&mut sheet, &key, &buckets),
                value => sheet.line(&key, &number(&key, &value)),
            }
        }
    }
    Ok(sheet)
}

fn number(key: &str, value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (Some(count), _) if key.ends_with("bytes") => format!("{count} ({})", bytes(count)),
        (None, Some(measured)) if key.contains("bytes") && !key.contains("ratio") => format!("{measured:.1}"),
        (None, Some(measured)) => format!("{measured:.4}"),
        _ => value.to_string(),
    }
}

/// A histogram, without its empty buckets.
fn bucket_lines(sheet: &mut Sheet, key: &str, buckets: &[Value]) {
    sheet.line(key, &format!("{} buckets", buckets.len()));
    for bucket in buckets {
        let of = |part: &str| bucket.get(part).and_then(Value::as_u64);
        let bound = of("le-bytes").map_or_else(|| "larger".to_owned(), |bound| format!("up to {}", bytes(bound)));
        if let (Some(files @ 1..), Some(size)) = (of("files"), of("bytes")) {
            sheet.line(&format!("  {bound}"), &format!("{files} files, {}", bytes(size)));
        }
    }
}
