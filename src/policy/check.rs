//! Contradictions between the values of one policy. Single values were checked when they were read.

use std::cmp::Ordering;
use std::time::Duration;

use super::resolve::ResolvedPolicy;
use super::setting::{Origin, key};
use super::{CommitInterval, Schedule, Span, TablePolicy};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing starts with this.
    Error,
    /// Works, but hardly as meant.
    Warning,
}

/// A contradiction in a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// The key path to change first.
    pub key: &'static str,
    /// The key path it contradicts.
    pub other: Option<&'static str>,
    pub message: String,
    pub cure: String,
}

/// All contradictions of a merged policy.
pub fn check(resolved: &ResolvedPolicy) -> Vec<Finding> {
    let mut findings = Contradictions { resolved, list: Vec::new() };
    check_sizes(&mut findings, &resolved.policy);
    check_counts(&mut findings, &resolved.policy);
    check_partial_progress(&mut findings, &resolved.policy);
    check_ages(&mut findings, &resolved.policy);
    check_times(&mut findings, &resolved.policy);
    findings.list
}

struct Contradictions<'a> {
    resolved: &'a ResolvedPolicy,
    list: Vec<Finding>,
}

impl Contradictions<'_> {
    fn error(&mut self, key: &'static str, other: Option<&'static str>, message: String, cure: &str) {
        self.list.push(Finding { severity: Severity::Error, key, other, message, cure: cure.to_owned() });
    }

    fn warning(&mut self, key: &'static str, other: Option<&'static str>, message: String, cure: &str) {
        self.list.push(Finding { severity: Severity::Warning, key, other, message, cure: cure.to_owned() });
    }

    /// Said by a policy, in the same section as `other` was or where `other` is only a default.
    fn said_beside(&self, key: &str, other: &str) -> bool {
        let (key, other) = (self.resolved.origin(key), self.resolved.origin(other));
        matches!(key, Origin::Policy(..)) && (*other == Origin::BuiltIn || key.same_section(other))
    }
}

fn check_sizes(findings: &mut Contradictions<'_>, policy: &TablePolicy) {
    let rewrite = &policy.rewrite_data_files;
    let sizes = (rewrite.min_file_size_bytes, rewrite.target_file_size_bytes, rewrite.max_file_size_bytes);
    let (min, target, max) = sizes;
    if let (Some(min), Some(target)) = (min, target)
        && min >= target
    {
        findings.error(
            key::MIN_FILE_SIZE,
            Some(key::TARGET_FILE_SIZE),
            "the minimum file size is not below the target file size".into(),
            "make min-file-size smaller, or leave it out: it is then 0.75 times the target",
        );
    }
    if let (Some(max), Some(target)) = (max, target)
        && max <= target
    {
        findings.error(
            key::MAX_FILE_SIZE,
            Some(key::TARGET_FILE_SIZE),
            "the maximum file size is not above the target file size".into(),
            "make max-file-size larger, or leave it out: it is then 1.8 times the target",
        );
    }
    if let (Some(min), None, Some(max)) = sizes
        && min >= max
    {
        findings.error(
            key::MIN_FILE_SIZE,
            Some(key::MAX_FILE_SIZE),
            "the minimum file size is not below the maximum file size".into(),
            "the target file size must fit between the two",
        );
    }
    if target.is_some_and(|target| target > rewrite.max_file_group_size_bytes) {
        findings.warning(
            key::MAX_FILE_GROUP_SIZE,
            Some(key::TARGET_FILE_SIZE),
            "a file group is too small to fill one file of the target size".into(),
            "make max-file-group-size at least the target file size, better many times that",
        );
    }
}

fn check_counts(findings: &mut Contradictions<'_>, policy: &TablePolicy) {
    let rewrite = &policy.rewrite_data_files;
    if let Some(limit) = rewrite.max_file_group_input_files {
        if !rewrite.rewrite_all && limit < rewrite.min_input_files.max(2) {
            findings.error(
                key::MAX_FILE_GROUP_INPUT_FILES,
                Some(key::MIN_INPUT_FILES),
                format!(
                    "a file group holds at most {limit} files, but takes {} to be rewritten for their number",
                    rewrite.min_input_files.max(2)
                ),
                "raise max-file-group-input-files or lower min-input-files",
            );
        } else if limit < 2 {
            findings.warning(
                key::MAX_FILE_GROUP_INPUT_FILES,
                None,
                "every file is rewritten alone, so their number never falls".into(),
                "let a group hold at least 2 files",
            );
        }
    }
    if rewrite.rewrite_all && findings.said_beside(key::MIN_INPUT_FILES, key::REWRITE_ALL) {
        findings.warning(
            key::MIN_INPUT_FILES,
            Some(key::REWRITE_ALL),
            "has no effect, since rewrite-all takes every file".into(),
            "leave one of the two out",
        );
    }
}

fn check_partial_progress(findings: &mut Contradictions<'_>, policy: &TablePolicy) {
    let partial = policy.rewrite_data_files.partial_progress;
    for key in [key::PARTIAL_PROGRESS_MAX_COMMITS, key::PARTIAL_PROGRESS_MAX_FAILED_COMMITS] {
        if !partial.enabled && findings.said_beside(key, key::PARTIAL_PROGRESS_ENABLED) {
            findings.warning(
                key,
                None,
                "has no effect, since partial progress is not enabled".into(),
                "add enabled = true to partial-progress",
            );
        }
    }
    if partial.max_failed_commits.is_some_and(|failed| failed > partial.max_commits) {
        findings.warning(
            key::PARTIAL_PROGRESS_MAX_FAILED_COMMITS,
            Some(key::PARTIAL_PROGRESS_MAX_COMMITS),
            "more commits may fail than are made, so a run never counts as failed for them".into(),
            "make max-failed-commits at most max-commits",
        );
    }
}

fn check_ages(findings: &mut Contradictions<'_>, policy: &TablePolicy) {
    let (expire, orphans) = (&policy.expire_snapshots, &policy.remove_orphan_files);
    let interval = policy.commit_interval;
    let one = Span::Intervals(1.0);
    for (key, age) in [(key::ORPHAN_OLDER_THAN, orphans.older_than), (key::UNPROVEN_MIN_AGE, orphans.unproven_min_age)]
    {
        if compare(age, one, interval) == Some(Ordering::Less) {
            findings.error(
                key,
                Some(key::COMMIT_INTERVAL),
                "is shorter than one commit interval: files that their writer is about to commit would look like orphans"
                    .into(),
                "use at least \"2x\"",
            );
        }
    }
    if compare(orphans.unproven_min_age, orphans.older_than, interval) == Some(Ordering::Less) {
        findings.error(
            key::UNPROVEN_MIN_AGE,
            Some(key::ORPHAN_OLDER_THAN),
            "is shorter than older-than: files would go sooner without proof than with it".into(),
            "make unproven-min-age at least older-than",
        );
    }
    if compare(expire.older_than, one, interval) == Some(Ordering::Less) {
        findings.warning(
            key::EXPIRE_OLDER_THAN,
            Some(key::COMMIT_INTERVAL),
            "is shorter than one commit interval: queries lose the files of the snapshot that they are reading".into(),
            "use at least \"2x\"",
        );
    }
    if compare(expire.writer_retention, Span::Fixed(Duration::from_secs(24 * 60 * 60)), interval)
        == Some(Ordering::Less)
    {
        findings.warning(
            key::WRITER_RETENTION,
            None,
            "is shorter than a day: a writer that is stopped for longer commits the same rows again when it restarts"
                .into(),
            "use more than the longest time for which a writer may be stopped, such as \"14d\"",
        );
    }
}

fn check_times(findings: &mut Contradictions<'_>, policy: &TablePolicy) {
    let Schedule::Every(every) = policy.schedule else { return };
    if compare(policy.delay, Span::Fixed(every), policy.commit_interval) == Some(Ordering::Greater) {
        findings.warning(
            key::DELAY,
            Some(key::SCHEDULE),
            "is longer than the time between runs: the next run starts only after the delay and the clean-ups".into(),
            "shorten delay or lengthen every",
        );
    }
}

/// How two spans compare, if that can be said before the commit interval is known.
fn compare(a: Span, b: Span, interval: CommitInterval) -> Option<Ordering> {
    let interval = match (a, b, interval) {
        (_, _, CommitInterval::Fixed(interval)) => interval,
        (Span::Fixed(_), Span::Fixed(_), CommitInterval::Auto) => Duration::ZERO,
        (Span::Intervals(a), Span::Intervals(b), CommitInterval::Auto) => return a.partial_cmp(&b),
        // No interval makes nothing at all longer than something.
        (Span::Fixed(Duration::ZERO), Span::Intervals(b), CommitInterval::Auto) if b > 0.0 => {
            return Some(Ordering::Less);
        }
        (Span::Fixed(_), Span::Intervals(_), CommitInterval::Auto)
        | (Span::Intervals(_), Span::Fixed(_), CommitInterval::Auto) => return None,
    };
    Some(a.resolve(interval).cmp(&b.resolve(interval)))
}
