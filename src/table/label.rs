//! Partition values as text for people: in reports, drawings and statistics. Never parsed, never used as a key.

use iceberg::spec::{Literal, PrimitiveLiteral, PrimitiveType, TableMetadata, Transform};
use jiff::civil::date;
use jiff::{Span, Timestamp, tz::TimeZone};

use crate::table::PartitionTuple;

/// `hour=2025-04-01 15/bucket=3`, with times as Iceberg writes them in paths but nothing escaped; `unpartitioned` for a spec
/// without fields. Values whose field is unknown, or all of them without `metadata`, are shown raw.
pub fn partition_label(metadata: Option<&TableMetadata>, partition: &PartitionTuple) -> String {
    let spec = metadata.and_then(|metadata| metadata.partition_spec_by_id(partition.spec_id));
    let fields = spec.map(|spec| spec.fields()).unwrap_or_default();
    let parts: Vec<String> = partition
        .values
        .iter()
        .enumerate()
        .map(|(i, value)| match fields.get(i) {
            None => literal_text(value),
            Some(field) => {
                let source = metadata.and_then(|m| m.current_schema().field_by_id(field.source_id));
                let source_type = source.and_then(|column| column.field_type.as_primitive_type());
                let text = time_text(field.transform, source_type, value).unwrap_or_else(|| literal_text(value));
                format!("{}={text}", field.name)
            }
        })
        .collect();
    if parts.is_empty() { "unpartitioned".to_string() } else { parts.join("/") }
}

/// One value without knowledge of its type: times are numbers.
pub fn literal_text(value: Option<&Literal>) -> String {
    let Some(Literal::Primitive(primitive)) = value else {
        return "null".to_string();
    };
    match primitive {
        PrimitiveLiteral::Boolean(v) => v.to_string(),
        PrimitiveLiteral::Int(v) => v.to_string(),
        PrimitiveLiteral::Long(v) => v.to_string(),
        PrimitiveLiteral::Float(v) => v.to_string(),
        PrimitiveLiteral::Double(v) => v.to_string(),
        PrimitiveLiteral::String(v) => v.clone(),
        PrimitiveLiteral::Binary(v) => v.iter().map(|byte| format!("{byte:02x}")).collect(),
        PrimitiveLiteral::Int128(v) => v.to_string(),
        PrimitiveLiteral::UInt128(v) => format!("{v:032x}"),
        PrimitiveLiteral::AboveMax | PrimitiveLiteral::BelowMin => "out of range".to_string(),
    }
}

/// Text of a value that is a time by its transform or type; `None` if it is not, or lies outside the calendar.
fn time_text(transform: Transform, source: Option<&PrimitiveType>, value: Option<&Literal>) -> Option<String> {
    let Some(Literal::Primitive(primitive)) = value else {
        return None;
    };
    let number = match primitive {
        PrimitiveLiteral::Int(v) => i64::from(*v),
        PrimitiveLiteral::Long(v) => *v,
        _ => return None,
    };
    let epoch = date(1970, 1, 1).at(0, 0, 0, 0);
    let after = |span: Result<Span, jiff::Error>| epoch.checked_add(span.ok()?).ok();
    let utc = |timestamp: Result<Timestamp, jiff::Error>| Some(timestamp.ok()?.to_zoned(TimeZone::UTC).datetime());
    match (transform, source?) {
        (Transform::Year, _) => Some(after(Span::new().try_years(number))?.strftime("%Y").to_string()),
        (Transform::Month, _) => Some(after(Span::new().try_months(number))?.strftime("%Y-%m").to_string()),
        (Transform::Hour, _) => Some(after(Span::new().try_hours(number))?.strftime("%Y-%m-%d-%H").to_string()),
        (Transform::Day, _) | (Transform::Identity, PrimitiveType::Date) => {
            Some(after(Span::new().try_days(number))?.date().to_string())
        }
        (Transform::Identity, PrimitiveType::Timestamp | PrimitiveType::Timestamptz) => {
            Some(utc(Timestamp::from_microsecond(number))?.to_string())
        }
        (Transform::Identity, PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs) => {
            Some(utc(Timestamp::from_nanosecond(i128::from(number)))?.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_in_partition_paths() {
        use PrimitiveType as P;
        let text = |transform, source, value: Literal| time_text(transform, Some(&source), Some(&value));
        let micros = 1_743_462_000_500_000_i64;
        for (transform, source, value, expected) in [
            (Transform::Year, P::Date, Literal::int(55), Some("2025")),
            (Transform::Month, P::Timestamp, Literal::int(-1), Some("1969-12")),
            (Transform::Day, P::Timestamptz, Literal::int(20_178), Some("2025-03-31")),
            (Transform::Hour, P::Timestamptz, Literal::long(484_806), Some("2025-04-22-06")),
            (Transform::Identity, P::Date, Literal::int(0), Some("1970-01-01")),
            (Transform::Identity, P::Timestamptz, Literal::long(micros), Some("2025-03-31T23:00:00.5")),
            (Transform::Identity, P::TimestampNs, Literal::long(1), Some("1970-01-01T00:00:00.000000001")),
            (Transform::Identity, P::Int, Literal::int(7), None),
            (Transform::Bucket(4), P::Timestamp, Literal::int(3), None),
            (Transform::Day, P::Date, Literal::int(i32::MAX), None),
        ] {
            assert_eq!(text(transform, source, value).as_deref(), expected, "{transform}");
        }
        assert_eq!(literal_text(None), "null");
        assert_eq!(literal_text(Some(&Literal::binary([1_u8, 255]))), "01ff");
    }
}
