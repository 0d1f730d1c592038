//! The append table: log rows, partitioned by a text column that names their hour (in UTC). Some rows come late, so
//! that the hour before still gets files.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataContentType, Literal, Schema, Struct};

use super::file::{FileSpec, NewFile, encode};
use super::random::{below, pick};
use super::{CommitBatch, Expected};
use crate::error::{Error, Result};

const ROWS: u64 = 4_000;
/// One row in this many is late, by up to an hour.
const LATE_EVERY: u64 = 10;
const HOUR_MS: u64 = 3_600_000;

/// What the table holds after so many commits.
pub fn expected_server_logs(checkpoint: u64) -> Expected {
    let rows = i64::try_from(checkpoint * ROWS).unwrap_or(i64::MAX);
    Expected { rows, id_sum: rows * (rows - 1) / 2, version_sum: 0 }
}

#[derive(Debug)]
struct LogRow {
    id: u64,
    at_ms: i64,
}

fn rows(checkpoint: u64, now_ms: i64) -> impl Iterator<Item = LogRow> {
    (0..ROWS).map(move |item| {
        let late = below(LATE_EVERY, checkpoint, item, 0) == 0;
        let age_ms = below(if late { HOUR_MS } else { 2_000 }, checkpoint, item, 1);
        LogRow { id: (checkpoint - 1) * ROWS + item, at_ms: now_ms - i64::try_from(age_ms).unwrap_or(0) }
    })
}

fn hour_of(at_ms: i64) -> Result<String> {
    let time = jiff::Timestamp::from_millisecond(at_ms).map_err(|e| Error::internal(format!("time {at_ms}: {e}")))?;
    Ok(time.strftime("%Y-%m-%d %H").to_string())
}

/// The files of a commit: one per hour.
pub(super) fn make_files(batch: &mut CommitBatch<'_>) -> Result<Vec<NewFile>> {
    let mut hours: BTreeMap<String, Vec<LogRow>> = BTreeMap::new();
    for row in rows(batch.checkpoint, batch.now_ms) {
        hours.entry(hour_of(row.at_ms)?).or_default().push(row);
    }
    let location = batch.metadata.location();
    let mut files = Vec::new();
    for (hour, rows) in hours {
        let spec = FileSpec {
            // A blank is a plus sign in paths, as the reference implementation writes it.
            path: batch.names.next(location, &format!("hour={}", hour.replace(' ', "+"))),
            content: DataContentType::Data,
            partition: Struct::from_iter([Some(Literal::string(&hour))]),
            equality_ids: None,
            referenced_data_file: None,
        };
        files.push(encode(spec, &log_rows(batch.metadata.current_schema(), &hour, &rows)?)?);
    }
    Ok(files)
}

fn log_rows(schema: &Schema, hour: &str, rows: &[LogRow]) -> Result<RecordBatch> {
    let levels = ["INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"];
    let paths = ["/", "/cart", "/orders", "/orders/items", "/login", "/search"];
    let statuses = [200, 200, 200, 204, 301, 404, 500];
    let texts = |value: &dyn Fn(u64) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(|row| value(row.id)).collect::<StringArray>())
    };
    let status = |id: u64| statuses[usize::try_from(below(statuses.len() as u64, 0, id, 2)).unwrap_or(0)];
    let micros = rows.iter().map(|row| row.at_ms * 1_000);
    let latency = rows.iter().map(|row| below(500_000, 0, row.id, 3) as f64 / 1_000.0);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id.cast_signed()))),
        texts(&|_| Some(hour.to_string())),
        Arc::new(TimestampMicrosecondArray::from_iter_values(micros).with_timezone("+00:00")),
        texts(&|id| Some(format!("web-{:03}.example.net", below(200, 0, id, 4)))),
        texts(&|id| Some(pick(&levels, 0, id, 5).to_string())),
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| status(row.id)))),
        Arc::new(Float64Array::from_iter_values(latency)),
        texts(&|id| {
            let path = pick(&paths, 0, id, 6);
            (below(20, 0, id, 7) != 0).then(|| {
                format!("GET {path}?session={:016x} took {} rows", below(u64::MAX, 0, id, 8), below(900, 0, id, 9))
            })
        }),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema_to_arrow_schema(schema)?), columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_on_from_commit_to_commit_and_some_rows_are_late() {
        let now_ms = 1_800_000_000_000;
        let all: Vec<LogRow> = (1..=2).flat_map(|n| rows(n, now_ms)).collect();
        let expected = expected_server_logs(2);
        assert_eq!(all.len() as u64, expected.rows.unsigned_abs());
        assert_eq!(all.iter().map(|r| r.id.cast_signed()).sum::<i64>(), expected.id_sum);
        assert!(all.iter().any(|r| now_ms - r.at_ms > 600_000));
    }

    #[test]
    fn hours_are_in_utc() {
        assert_eq!(hour_of(1_743_490_800_000).expect("a time"), "2025-04-01 07");
        assert_eq!(hour_of(1_743_490_799_999).expect("a time"), "2025-04-01 06");
    }
}
