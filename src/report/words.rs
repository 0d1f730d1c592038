//! What a step did, in a line for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::clean::{ExpireOutcome, ExpireReport, OrphanReport, Tally};
use crate::schedule::run_report::RewriteReport;
use crate::schedule::run_table::StepReport;

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

/// `1 commit`, `2 commits`.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// One line on what a compaction did.
pub(crate) fn rewrite_summary(report: &RewriteReport) -> String {
    if report.planned_groups == 0 {
        return report.reason.clone().unwrap_or_else(|| "nothing to do".into());
    }
    let mut text = format!(
        "{} ({}) -> {} ({}), {} in, {} deleted, {} out; {} removed; {} of {}, {}, {:.1} s",
        count(report.rewritten_data_files, "data file"),
        bytes(report.rewritten_bytes),
        report.added_data_files,
        bytes(report.added_bytes),
        count(report.input_rows, "row"),
        report.deleted_rows,
        report.output_rows,
        count(report.removed_delete_files, "delete file"),
        report.committed_groups,
        count(report.planned_groups, "group"),
        count(report.commits, "commit"),
        report.duration_ms as f64 / 1000.0,
    );
    if let Some(reason) = &report.reason {
        let _ = write!(text, "; {reason}");
    }
    text
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

pub(crate) fn expire_summary(report: &ExpireReport) -> String {
    if let Some(error) = &report.error {
        return format!("failed: {error}");
    }
    if report.outcome == ExpireOutcome::Nothing {
        return format!("nothing to expire: {}", report.reason.as_deref().unwrap_or_default());
    }
    let (deleted, failed) = (total(&report.deleted), total(&report.failed));
    let mut text = format!(
        "{} expired, {} ({}) deleted",
        count(report.expired_snapshots, "snapshot"),
        count(deleted.files, "file"),
        bytes(deleted.bytes)
    );
    if failed.files > 0 {
        let _ = write!(text, ", {} could not be deleted", failed.files);
    }
    text
}

pub(crate) fn orphan_summary(report: &OrphanReport) -> String {
    if let Some(error) = &report.error {
        return format!("failed: {error}");
    }
    if let Some(refused) = &report.refused {
        return format!("refused ({}): {}", refused.reason, refused.detail);
    }
    let (removable, deleted, failed) = (total(&report.removable), total(&report.deleted), total(&report.failed));
    let mut text = format!(
        "{} listed, {} unreferenced ({}): {} may go, {} kept for now; {} deleted ({})",
        count(report.listed.files, "file"),
        report.orphans.files,
        bytes(report.orphans.bytes),
        removable.files,
        report.orphans.files.saturating_sub(removable.files),
        deleted.files,
        bytes(deleted.bytes),
    );
    if failed.files > 0 {
        let _ = write!(text, ", {} could not be deleted", failed.files);
    }
    // These are no orphans, although nothing refers to them.
    let protected: u64 = report.kept.iter().filter(|(why, _)| why.is_protection()).map(|(_, tally)| tally.files).sum();
    if protected > 0 {
        let _ = write!(text, "; {protected} more protected");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::FileKind;
    use crate::plan::remove_orphan_files::{Garbage, KeepReason};

    #[test]
    fn what_is_protected_is_told_apart_from_what_waits() {
        let tally = |files| Tally { files, bytes: files * 1024 };
        let mut report = OrphanReport { listed: tally(40), orphans: tally(23), ..OrphanReport::default() };
        report.removable.insert(Garbage::RunOver, tally(21));
        report.kept.insert(KeepReason::TooYoung, tally(2));
        let counted = "40 files listed, 23 unreferenced (23.0 KiB): 21 may go, 2 kept for now";
        assert_eq!(orphan_summary(&report), format!("{counted}; 0 deleted (0 B)"));
        report.deleted.insert(FileKind::Other, tally(20));
        report.failed.insert(FileKind::Other, tally(1));
        report.kept.insert(KeepReason::VersionHint, tally(1));
        let done = "20 deleted (20.0 KiB), 1 could not be deleted; 1 more protected";
        assert_eq!(orphan_summary(&report), format!("{counted}; {done}"));
    }

    #[test]
    fn one_is_not_many() {
        let report =
            ExpireReport { outcome: ExpireOutcome::Committed, expired_snapshots: 1, ..ExpireReport::default() };
        assert_eq!(expire_summary(&report), "1 snapshot expired, 0 files (0 B) deleted");
        assert_eq!([count(1_usize, "commit"), count(2_u64, "commit")], ["1 commit", "2 commits"]);
    }
}
