//! Progress that writers keep in snapshot summaries. A writer that restarts walks from the branch's head along parents to
//! the newest snapshot of its own and reads there how far it got; if that snapshot, or one on the way to it, is gone, it
//! commits the same rows again. Pure.
//!
//! A writer needs its newest snapshot until it is over: a Flink job that has committed its last checkpoint, one that
//! another job has taken over from, or any writer that has been silent for longer than the policy says.

mod flink;
mod known;

use std::collections::{BTreeMap, BTreeSet};

use iceberg::spec::Summary;
pub(super) use known::writers;

use crate::table::SnapshotRef;
use crate::table::references::FLINK_CHECKPOINT_ID;

/// How long a snapshot stays whose summary has a key that nothing is known of.
pub(super) const UNKNOWN_KEPT_MS: i64 = 3 * 24 * 60 * 60 * 1000;
/// Unknown keys of a branch that count, those used last.
const UNKNOWN_KEYS_MAX: usize = 32;
/// Values of an unknown key that count, those written last: a key may tell writers apart by its value.
const UNKNOWN_VALUES_MAX: usize = 16;
/// How far from the head the way to a snapshot with an unknown key is kept.
const UNKNOWN_WAY_MAX: usize = 1000;
/// The checkpoint id with which a Flink job commits the end of its input.
const LAST_CHECKPOINT: i64 = i64::MAX;

/// Whose progress it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProgressWriter {
    /// A sink of a Flink job, by its operator where the summary names it.
    Flink { job: String, operator: Option<String> },
    /// Another known writer.
    Known { kind: &'static str, id: String },
}

impl std::fmt::Display for ProgressWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flink { job, .. } => write!(f, "Flink job {}", shown(job)),
            Self::Known { kind, id } if id.is_empty() => f.write_str(kind),
            Self::Known { kind, id } => write!(f, "{kind} {}", shown(id)),
        }
    }
}

/// What a writer wrote, on one line of bounded length.
pub(super) fn shown(text: &str) -> String {
    const LENGTH_MAX: usize = 80;
    let line = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let cut = text.chars().nth(LENGTH_MAX).map(|_| '…');
    line.take(LENGTH_MAX).chain(cut).collect()
}

/// Where the progress of a writer is that may restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriterState {
    pub(super) writer: ProgressWriter,
    /// Index in the branch's history, 0 being the head.
    pub(super) position: usize,
    /// Everything from the head to here must stay: the way to the writer's snapshot, and what shows that the writer is not over.
    pub(super) way_to: usize,
    /// Another snapshot that the writer looks for.
    pub(super) names: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct BranchWriters {
    /// Those that may restart.
    pub(super) live: Vec<WriterState>,
    /// All whose snapshots the branch has.
    pub(super) seen: BTreeSet<ProgressWriter>,
}

/// A summary key that nothing is known of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownKey {
    pub(super) key: String,
    /// Indexes in the branch's history of its newest snapshots, one for each value.
    pub(super) positions: Vec<usize>,
    /// Everything from the head to before here stays.
    pub(super) way_to: usize,
}

#[derive(Debug, Clone, Copy)]
struct ProgressCommit {
    position: usize,
    checkpoint: Option<i64>,
}

/// The first and the last of a writer's snapshots.
#[derive(Debug, Clone, Copy)]
struct ProgressSpan {
    newest: ProgressCommit,
    oldest: ProgressCommit,
}

/// Whether a writer has said itself that it is over, or has been silent for too long.
pub(super) fn is_over(writer: &ProgressWriter, newest: &SnapshotRef, now_ms: i64, retention_ms: i64) -> bool {
    let ended = matches!(writer, ProgressWriter::Flink { .. }) && checkpoint(newest.summary()) == Some(LAST_CHECKPOINT);
    ended || now_ms.saturating_sub(newest.timestamp_ms()) > retention_ms
}

/// The writers of a branch, given its history from the head on. `retention_ms` is how long one may be silent.
pub(super) fn branch_writers(history: &[&SnapshotRef], now_ms: i64, retention_ms: i64) -> BranchWriters {
    let mut spans: BTreeMap<ProgressWriter, ProgressSpan> = BTreeMap::new();
    for (position, snapshot) in history.iter().enumerate() {
        let commit = ProgressCommit { position, checkpoint: checkpoint(snapshot.summary()) };
        for writer in writers(snapshot.summary()) {
            spans
                .entry(writer)
                .and_modify(|s| s.oldest = commit)
                .or_insert(ProgressSpan { newest: commit, oldest: commit });
        }
    }
    let seen = spans.keys().cloned().collect();
    spans.retain(|writer, span| !is_over(writer, history[span.newest.position], now_ms, retention_ms));
    flink::remove_taken_over(&mut spans);
    let state = |(writer, span): (&ProgressWriter, &ProgressSpan)| {
        let position = span.newest.position;
        let way_to = flink::shown_beside(writer, span, &spans, history).unwrap_or(position);
        let names = names(writer, history[position].summary());
        WriterState { writer: writer.clone(), position, way_to, names }
    };
    BranchWriters { live: spans.iter().map(state).collect(), seen }
}

/// The newest snapshots with keys that nothing is known of, where they are not older than `kept_ms`.
pub(super) fn unknown_keys(history: &[&SnapshotRef], now_ms: i64, kept_ms: i64) -> Vec<UnknownKey> {
    let mut keys: BTreeMap<&str, (BTreeSet<&str>, Vec<usize>)> = BTreeMap::new();
    let young = |s: &&&SnapshotRef| now_ms.saturating_sub(s.timestamp_ms()) <= kept_ms;
    for (position, snapshot) in history.iter().enumerate().filter(|(_, s)| young(s)) {
        // By name, so that the same ones count whenever there are too many.
        let summary: BTreeMap<&String, &String> = snapshot.summary().additional_properties.iter().collect();
        for (key, value) in summary.into_iter().filter(|(key, _)| known::is_unknown(key)) {
            if keys.len() >= UNKNOWN_KEYS_MAX && !keys.contains_key(key.as_str()) {
                continue;
            }
            let (values, positions) = keys.entry(key).or_default();
            if values.len() < UNKNOWN_VALUES_MAX && values.insert(value) {
                positions.push(position);
            }
        }
    }
    let found = |(key, (_, positions)): (&str, (_, Vec<usize>))| {
        let way_to = positions.iter().copied().max().unwrap_or(0).min(UNKNOWN_WAY_MAX);
        UnknownKey { key: key.to_owned(), positions, way_to }
    };
    keys.into_iter().map(found).collect()
}

fn checkpoint(summary: &Summary) -> Option<i64> {
    summary.additional_properties.get(FLINK_CHECKPOINT_ID)?.trim().parse().ok()
}

fn names(writer: &ProgressWriter, summary: &Summary) -> Option<i64> {
    let ProgressWriter::Known { .. } = writer else { return None };
    summary.additional_properties.get(known::CONVERTED_SNAPSHOT)?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
