//! Exactly-once state that writers keep in snapshot summaries. A restarting Flink or Kafka Connect sink walks from the
//! branch head along parents to the newest snapshot of its own and reads there how far it got; if that snapshot, or one
//! on the way to it, is gone, it commits the same rows again. Pure.

use std::collections::BTreeMap;

use iceberg::spec::{Operation, Summary};

use crate::catalog::SnapshotRef;
use crate::table::references::{FLINK_JOB_ID, FLINK_OPERATOR_ID, KAFKA_CONNECT_OFFSETS};

/// How long the way to a writer's newest snapshot is kept while other writers go on committing.
/// A writer that stays away longer is taken to be gone; its newest snapshot is kept even so.
pub(super) const WAY_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Whose state it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writer {
    /// A Flink job, and its sink operator where the summary names it.
    Flink { job: String, operator: Option<String> },
    /// A Kafka Connect sink, by its offset key.
    KafkaConnect { key: String },
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flink { job, .. } => write!(f, "Flink job {job}"),
            Self::KafkaConnect { key } => write!(f, "Kafka Connect offsets {key}"),
        }
    }
}

/// The newest state of one writer on a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriterState {
    pub(super) writer: Writer,
    /// Index in the branch's history, 0 being the head.
    pub(super) position: usize,
    /// Whether everything from the head to here must stay, for the writer to find its way.
    pub(super) keep_way: bool,
}

/// The writers whose state a snapshot holds.
pub(super) fn writers(summary: &Summary) -> Vec<Writer> {
    let properties = &summary.additional_properties;
    let flink = properties.get(FLINK_JOB_ID).filter(|job| !job.is_empty());
    let flink =
        flink.map(|job| Writer::Flink { job: job.clone(), operator: properties.get(FLINK_OPERATOR_ID).cloned() });
    let kafka = properties.keys().filter(|k| k.starts_with(KAFKA_CONNECT_OFFSETS));
    flink.into_iter().chain(kafka.map(|key| Writer::KafkaConnect { key: key.clone() })).collect()
}

/// Whether a later job has taken over: the same operator committed under another job id since.
fn superseded(writer: &Writer, position: usize, newest: &BTreeMap<Writer, usize>) -> bool {
    let Writer::Flink { job, operator: Some(operator) } = writer else { return false };
    newest.iter().any(|(other, at)| {
        matches!(other, Writer::Flink { job: j, operator: Some(o) } if j != job && o == operator) && *at < position
    })
}

/// The newest state of each writer on a branch, given its history from the head on.
pub(super) fn newest_states(history: &[&SnapshotRef], now_ms: i64) -> Vec<WriterState> {
    let mut newest: BTreeMap<Writer, usize> = BTreeMap::new();
    for (position, snapshot) in history.iter().enumerate() {
        for writer in writers(snapshot.summary()) {
            newest.entry(writer).or_insert(position);
        }
    }
    let only_maintained_since = history.iter().take_while(|s| s.summary().operation == Operation::Replace).count();
    let state = |(writer, &position): (&Writer, &usize)| {
        let recent = now_ms.saturating_sub(history[position].timestamp_ms()) <= WAY_KEPT_MS;
        let keep_way = (recent && !superseded(writer, position, &newest)) || position <= only_maintained_since;
        WriterState { writer: writer.clone(), position, keep_way }
    };
    newest.iter().map(state).collect()
}
