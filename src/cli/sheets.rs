//! What the commands tell people: reports, plans and numbers as sheets of labelled values.

use std::time::Duration;

use serde_json::Value;

use super::once::TableReport;
use super::screen::Sheet;
use crate::actions::ActionPlan;
use crate::actions::report::StepReport;
use crate::actions::words::{bytes, count};
use crate::error::Result;
use crate::inspect::TableStats;
use crate::policy::{SettingValue, human_duration};
use crate::schedule::plan_table::TablePlan;

/// The report of `once` on a table.
pub(super) fn report(report: &TableReport) -> Sheet {
    let mut sheet = Sheet::new(&format!("{}: {}", report.table, report.outcome.as_str()));
    for (label, value) in report.steps.iter().flat_map(StepReport::told).flat_map(|action| &action.lines) {
        sheet.line(label, value);
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
    let (mut expired, mut deleted, mut deleted_bytes) = (0, 0, 0);
    for done in report.steps.iter().flat_map(|step| &step.actions).map(|action| &action.counts) {
        if done.rewritten_data_files > 0 {
            row[2] = format!("{} -> {}", done.rewritten_data_files, done.added_data_files);
            row[3] = format!("{} -> {}", bytes(done.rewritten_bytes), bytes(done.added_bytes));
        }
        expired += done.expired_snapshots;
        deleted += done.deleted_files;
        deleted_bytes += done.deleted_bytes;
    }
    row.push(count(expired, "snapshot"));
    row.push(format!("{}, {}", count(deleted, "file"), bytes(deleted_bytes)));
    row
}

pub(super) fn plan(plan: &TablePlan) -> Sheet {
    let mut sheet = Sheet::new(&plan.table);
    let span = |seconds| human_duration(Duration::from_secs(seconds));
    sheet.line("policies", &plan.policies.join(", "));
    sheet.line("commit interval", &format!("{}, delay {}", span(plan.commit_interval_s), span(plan.delay_s)));
    sheet.line("next", &plan.next_step);
    for (action, plan) in &plan.actions {
        match plan {
            ActionPlan::Nothing(reason) => sheet.line(action.as_str(), reason),
            ActionPlan::Would(outline) => {
                outline.lines.iter().for_each(|(label, value)| sheet.line(label, value));
                sheet.drawing(&outline.drawing);
            }
        }
    }
    sheet.section("settings");
    for SettingValue { key, value, origin } in &plan.settings {
        sheet.line(&format!("  {key}"), &format!("{} ({origin})", value.as_deref().unwrap_or("not set")));
    }
    sheet
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
