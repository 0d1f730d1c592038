//! Which Flink jobs have been taken over by a later one. A job that is restored from another's state gets an id of its own
//! and keeps the operator's; but the id of an operator follows from the job's graph, so jobs that are alike share it too
//! when they run side by side. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{ProgressSpan, ProgressWriter, writers};
use crate::table::SnapshotRef;

/// A job commits at least once in so many checkpoints, also when it has nothing to commit. Flink's default is 10.
const CHECKPOINTS_BETWEEN_COMMITS: i64 = 100;

/// Removes the jobs that another has gone on from: the only one that was open on its operator when the other committed
/// first, with a checkpoint id a little higher, since the ids go on counting from the restored state. A job that began anew
/// counts from 1, and where several were open it cannot be told which one was restored: then all stay.
pub(super) fn remove_taken_over(spans: &mut BTreeMap<ProgressWriter, ProgressSpan>) {
    // By operator and position, the oldest first: where a job's first and last snapshots are.
    let mut events: BTreeMap<String, Vec<SpanEnd>> = BTreeMap::new();
    for (writer, span) in &*spans {
        let ProgressWriter::Flink { operator: Some(operator), .. } = writer else { continue };
        let of_operator = events.entry(operator.clone()).or_default();
        of_operator.push(SpanEnd { position: span.oldest.position, ends: false, writer: writer.clone() });
        of_operator.push(SpanEnd { position: span.newest.position, ends: true, writer: writer.clone() });
    }
    for mut events in events.into_values() {
        events.sort_unstable_by_key(|event| (std::cmp::Reverse(event.position), event.ends));
        let mut open: BTreeSet<ProgressWriter> = BTreeSet::new();
        for event in events {
            if event.ends {
                open.insert(event.writer);
            } else if let (Some(before), 1) = (open.first().cloned(), open.len())
                && goes_on(spans[&before], spans[&event.writer])
            {
                open.remove(&before);
                spans.remove(&before);
            }
        }
    }
}

struct SpanEnd {
    position: usize,
    ends: bool,
    writer: ProgressWriter,
}

fn goes_on(before: ProgressSpan, after: ProgressSpan) -> bool {
    let (Some(last), Some(first)) = (before.newest.checkpoint, after.oldest.checkpoint) else { return false };
    first > last && first.saturating_sub(last) <= CHECKPOINTS_BETWEEN_COMMITS
}

/// Jobs that run side by side commit by turns. Without the earlier snapshots of the others it would look as if one of
/// them had gone on from this one's state, so the newest of these stay too; this is the position of the last.
pub(super) fn shown_beside(
    writer: &ProgressWriter,
    span: &ProgressSpan,
    spans: &BTreeMap<ProgressWriter, ProgressSpan>,
    history: &[&SnapshotRef],
) -> Option<usize> {
    let ProgressWriter::Flink { operator: Some(operator), .. } = writer else { return None };
    let at = span.newest.position;
    let same =
        |other: &ProgressWriter| matches!(other, ProgressWriter::Flink { operator: Some(of), .. } if of == operator);
    let beside =
        spans.iter().filter(|(other, span)| span.newest.position < at && at < span.oldest.position && same(other));
    let mut beside: BTreeSet<&ProgressWriter> = beside.map(|(other, _)| other).collect();
    let mut last = None;
    for (position, snapshot) in history.iter().enumerate().skip(at + 1) {
        if beside.is_empty() {
            break;
        }
        if writers(snapshot.summary()).iter().any(|other| beside.remove(other)) {
            last = Some(position);
        }
    }
    last
}
