//! Which partitions take part in a run: the policy's selection, resolved against the table's partition specs.
//!
//! A column is named by partition field or by source column. The table's current spec must have it; files of older specs
//! without it are left out. Null never matches.

use std::collections::HashMap;
use std::time::Duration;

use iceberg::spec::{
    Datum, Literal, PartitionField, PartitionSpec, PrimitiveLiteral, PrimitiveType, Schema, TableMetadata, Transform,
};
use jiff::tz::TimeZone;

use super::window::{self, CivilRange, Grain};
use crate::error::{Error, ErrorKind, Result};
use crate::policy::{PartitionSelection, PartitionTest, Window};
use crate::table::PartitionTuple;

/// What the selection says about a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartitionVerdict {
    Selected,
    NotSelected,
    /// The files' spec has no such field.
    FieldMissing,
    /// The value is not a time of the given format.
    Unreadable,
}

/// A resolved selection.
#[derive(Debug)]
pub(super) enum SelectedPartitions {
    All,
    /// Tests by spec id; `None` for a spec that lacks a field.
    Tests(HashMap<i32, Option<Vec<Test>>>),
}

/// One test of one partition field.
#[derive(Debug)]
pub(super) struct Test {
    index: usize,
    accept: Accept,
}

#[derive(Debug)]
enum Accept {
    Values(Vec<PrimitiveLiteral>),
    Times { reader: Reader, range: CivilRange },
}

/// How a partition value becomes a civil time.
#[derive(Debug, Clone, PartialEq)]
enum Reader {
    Text(String),
    Count(Grain),
    Nanoseconds,
}

impl Reader {
    fn read(&self, value: &PrimitiveLiteral) -> Option<i64> {
        match (self, value) {
            (Self::Text(format), PrimitiveLiteral::String(text)) => window::parse(format, text),
            (Self::Count(grain), PrimitiveLiteral::Int(count)) => window::since_epoch(*grain, i64::from(*count)),
            (Self::Count(grain), PrimitiveLiteral::Long(count)) => window::since_epoch(*grain, *count),
            (Self::Nanoseconds, PrimitiveLiteral::Long(count)) => Some(count.div_euclid(1000)),
            _ => None,
        }
    }
}

/// What tests are resolved against.
struct WindowClock {
    zone: TimeZone,
    now_ms: i64,
    commit_interval: Duration,
}

impl SelectedPartitions {
    /// [`ErrorKind::Config`] if a column is no partition column of the current spec or its type does not suit the test.
    pub(super) fn resolve(
        selection: &PartitionSelection,
        metadata: &TableMetadata,
        time_zone: &str,
        commit_interval: Duration,
        now_ms: i64,
    ) -> Result<Self> {
        if *selection == PartitionSelection::All {
            return Ok(Self::All);
        }
        let zone = TimeZone::get(time_zone).map_err(|e| config(format!("time-zone {time_zone:?} is unknown: {e}")))?;
        let clock = WindowClock { zone, now_ms, commit_interval };
        let current = metadata.default_partition_spec();
        let schema = metadata.current_schema();
        let Some(current_tests) = tests_for(selection, current, schema, &clock)? else {
            return Err(config(missing_column(selection, current)));
        };
        let mut by_spec = HashMap::new();
        for spec in metadata.partition_specs_iter().filter(|spec| spec.spec_id() != current.spec_id()) {
            // An older spec may hold the column in a form that cannot be tested; its files are left out then.
            by_spec.insert(spec.spec_id(), tests_for(selection, spec, schema, &clock).unwrap_or(None));
        }
        by_spec.insert(current.spec_id(), Some(current_tests));
        Ok(Self::Tests(by_spec))
    }

    pub(super) fn verdict(&self, partition: &PartitionTuple) -> PartitionVerdict {
        let Self::Tests(by_spec) = self else {
            return PartitionVerdict::Selected;
        };
        let Some(Some(tests)) = by_spec.get(&partition.spec_id) else {
            return PartitionVerdict::FieldMissing;
        };
        let verdicts: Vec<PartitionVerdict> = tests.iter().map(|test| test.verdict(partition)).collect();
        let found = |wanted| verdicts.contains(&wanted).then_some(wanted);
        found(PartitionVerdict::NotSelected)
            .or(found(PartitionVerdict::Unreadable))
            .unwrap_or(PartitionVerdict::Selected)
    }
}

impl Test {
    fn verdict(&self, partition: &PartitionTuple) -> PartitionVerdict {
        let Some(Some(Literal::Primitive(value))) = partition.values.fields().get(self.index) else {
            return PartitionVerdict::NotSelected;
        };
        let selected = match &self.accept {
            Accept::Values(values) => values.contains(value),
            Accept::Times { reader, range } => match reader.read(value) {
                Some(civil) => range.contains(civil),
                None => return PartitionVerdict::Unreadable,
            },
        };
        if selected { PartitionVerdict::Selected } else { PartitionVerdict::NotSelected }
    }
}

/// The tests for one spec; `None` if the spec lacks a column.
fn tests_for(
    selection: &PartitionSelection,
    spec: &PartitionSpec,
    schema: &Schema,
    clock: &WindowClock,
) -> Result<Option<Vec<Test>>> {
    let field_of = |column: &str| find_field(spec, schema, column);
    match selection {
        PartitionSelection::All => Ok(Some(Vec::new())),
        PartitionSelection::Window { column, window, format } => {
            let Some(found) = field_of(column)? else { return Ok(None) };
            Ok(Some(vec![window_test(&found, *window, format.as_deref(), clock)?]))
        }
        PartitionSelection::Conditions(conditions) => {
            let mut tests = Vec::with_capacity(conditions.len());
            for condition in conditions {
                let Some(found) = field_of(&condition.column)? else { return Ok(None) };
                tests.push(condition_test(&found, &condition.test, clock)?);
            }
            Ok(Some(tests))
        }
    }
}

/// A partition field with its place in the tuple and its source column's type.
struct SourceField<'a> {
    index: usize,
    field: &'a PartitionField,
    source: &'a PrimitiveType,
}

fn find_field<'a>(spec: &'a PartitionSpec, schema: &'a Schema, column: &str) -> Result<Option<SourceField<'a>>> {
    let live = |field: &PartitionField| field.transform != Transform::Void;
    let by_name = spec.fields().iter().position(|field| field.name == column && live(field));
    let index = match (by_name, schema.field_by_name(column)) {
        (Some(index), _) => index,
        (None, None) => return Ok(None),
        (None, Some(source)) => {
            let of_source = |field: &PartitionField| field.source_id == source.id && live(field);
            let matching: Vec<usize> = (0..spec.fields().len()).filter(|i| of_source(&spec.fields()[*i])).collect();
            match matching[..] {
                [] => return Ok(None),
                [index] => index,
                _ => {
                    let names: Vec<&str> = matching.iter().map(|i| spec.fields()[*i].name.as_str()).collect();
                    return Err(config(format!(
                        "column {column:?} has several partition fields; name one of {}",
                        names.join(", ")
                    )));
                }
            }
        }
    };
    let field = &spec.fields()[index];
    let source = schema.field_by_id(field.source_id).and_then(|column| column.field_type.as_primitive_type());
    Ok(source.map(|source| SourceField { index, field, source }))
}

fn window_test(found: &SourceField<'_>, window: Window, format: Option<&str>, clock: &WindowClock) -> Result<Test> {
    let (reader, grain, in_utc) = time_reader(found, format)?;
    let (name, finest) = match window {
        Window::PreviousHour => ("previous-hour", Grain::Hour),
        Window::PreviousDay => ("previous-day", Grain::Day),
    };
    if grain > finest {
        return Err(config(format!(
            "partition field {} is too coarse for window {name:?}; use a wider window or another field",
            describe(found)
        )));
    }
    let zone = if in_utc { &TimeZone::UTC } else { &clock.zone };
    let range = window::previous(window, clock.now_ms, zone)?;
    Ok(Test { index: found.index, accept: Accept::Times { reader, range } })
}

fn condition_test(found: &SourceField<'_>, test: &PartitionTest, clock: &WindowClock) -> Result<Test> {
    let (than, format, older) = match test {
        PartitionTest::Equal(texts) => {
            let values = texts.iter().map(|text| parse_value(found, text)).collect::<Result<Vec<_>>>()?;
            return Ok(Test { index: found.index, accept: Accept::Values(values) });
        }
        PartitionTest::Older { than, format } => (than, format, true),
        PartitionTest::Newer { than, format } => (than, format, false),
    };
    let (reader, _, in_utc) = time_reader(found, format.as_deref())?;
    let age_ms = i64::try_from(than.resolve(clock.commit_interval).as_millis()).unwrap_or(i64::MAX);
    let zone = if in_utc { &TimeZone::UTC } else { &clock.zone };
    let cutoff = window::civil_at(clock.now_ms.saturating_sub(age_ms), zone)?;
    let range =
        if older { CivilRange { from: i64::MIN, to: cutoff } } else { CivilRange { from: cutoff, to: i64::MAX } };
    Ok(Test { index: found.index, accept: Accept::Times { reader, range } })
}

/// How to read a field's values as times, how finely they tell time, and whether they count in UTC.
fn time_reader(found: &SourceField<'_>, format: Option<&str>) -> Result<(Reader, Grain, bool)> {
    use PrimitiveType as P;
    let in_utc = matches!(found.source, P::Timestamptz | P::TimestamptzNs);
    if format.is_some() && *found.source != P::String {
        return Err(config(format!(
            "partition field {} is no text, so a format cannot apply; leave format out",
            describe(found)
        )));
    }
    let grain = match (found.field.transform, found.source) {
        (Transform::Identity | Transform::Truncate(_), P::String) => {
            let Some(format) = format else {
                return Err(config(format!(
                    "partition field {} holds text; say how it writes times, such as format = \"%Y-%m-%d %H\"",
                    describe(found)
                )));
            };
            return Ok((Reader::Text(format.to_string()), window::grain(format)?, false));
        }
        (Transform::Identity, P::TimestampNs | P::TimestamptzNs) => {
            return Ok((Reader::Nanoseconds, Grain::Exact, in_utc));
        }
        (Transform::Identity, P::Timestamp | P::Timestamptz) => Grain::Exact,
        (Transform::Hour, _) => Grain::Hour,
        (Transform::Day, _) | (Transform::Identity, P::Date) => Grain::Day,
        (Transform::Month, _) => Grain::Month,
        (Transform::Year, _) => Grain::Year,
        _ => {
            return Err(config(format!(
                "partition field {} holds no time; use a condition equal, or a field of a time or formatted text",
                describe(found)
            )));
        }
    };
    Ok((Reader::Count(grain), grain, in_utc))
}

/// A value of the field's result type from text, written as Iceberg writes it in partition paths.
fn parse_value(found: &SourceField<'_>, text: &str) -> Result<PrimitiveLiteral> {
    use PrimitiveType as P;
    let bad = || config(format!("{text:?} is no value of partition field {}", describe(found)));
    let datum = |parsed: iceberg::Result<Datum>| parsed.map(|d| d.literal().clone()).map_err(|_| bad());
    match (found.field.transform, found.source) {
        (Transform::Bucket(_), _) => text.parse().map(PrimitiveLiteral::Int).map_err(|_| bad()),
        (Transform::Hour, _) => {
            let civil = window::parse("%Y-%m-%d-%H", text).ok_or_else(bad)?;
            i32::try_from(civil.div_euclid(3_600_000_000)).map(PrimitiveLiteral::Int).map_err(|_| bad())
        }
        (Transform::Month, _) => window::months_since_epoch(text).map(PrimitiveLiteral::Int).ok_or_else(bad),
        (Transform::Year, _) => match text.parse::<i16>() {
            Ok(year) => Ok(PrimitiveLiteral::Int(i32::from(year) - 1970)),
            Err(_) => Err(bad()),
        },
        (Transform::Day, _) | (Transform::Identity, P::Date) => datum(Datum::date_from_str(text)),
        (Transform::Identity | Transform::Truncate(_), source) => match source {
            P::String => Ok(PrimitiveLiteral::String(text.to_string())),
            P::Int => text.parse().map(PrimitiveLiteral::Int).map_err(|_| bad()),
            P::Long => text.parse().map(PrimitiveLiteral::Long).map_err(|_| bad()),
            P::Boolean => datum(Datum::bool_from_str(text)),
            P::Uuid => datum(Datum::uuid_from_str(text)),
            P::Timestamp => datum(Datum::timestamp_from_str(text)),
            P::Timestamptz => datum(Datum::timestamptz_from_str(text)),
            _ => Err(config(format!("a condition equal cannot be used on partition field {}", describe(found)))),
        },
        _ => Err(config(format!("a condition equal cannot be used on partition field {}", describe(found)))),
    }
}

fn describe(found: &SourceField<'_>) -> String {
    format!("{:?} ({} of {})", found.field.name, found.field.transform, found.source)
}

fn missing_column(selection: &PartitionSelection, spec: &PartitionSpec) -> String {
    let columns: Vec<&str> = match selection {
        PartitionSelection::All => Vec::new(),
        PartitionSelection::Window { column, .. } => vec![column],
        PartitionSelection::Conditions(conditions) => conditions.iter().map(|c| c.column.as_str()).collect(),
    };
    let live = spec.fields().iter().filter(|field| field.transform != Transform::Void);
    let fields: Vec<&str> = live.map(|field| field.name.as_str()).collect();
    let cure = if fields.is_empty() {
        "the table is not partitioned: use partitions = \"all\"".to_string()
    } else {
        format!("its partition fields are {}", fields.join(", "))
    };
    format!("partitions name {} but the table's current partition spec lacks it; {cure}", columns.join(", "))
}

fn config(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use iceberg::spec::{NestedField, Type};

    use super::*;

    fn parsed(source: PrimitiveType, transform: Transform, text: &str) -> Result<PrimitiveLiteral> {
        let field = PartitionField { source_id: 1, field_id: 1000, name: "f".into(), transform };
        parse_value(&SourceField { index: 0, field: &field, source: &source }, text)
    }

    #[test]
    fn values_are_written_as_in_partition_paths() {
        use PrimitiveLiteral as L;
        use PrimitiveType as P;
        let cases = [
            (P::String, Transform::Identity, "2025-04-01 15", L::String("2025-04-01 15".into())),
            (P::Int, Transform::Identity, "-7", L::Int(-7)),
            (P::Long, Transform::Truncate(10), "70", L::Long(70)),
            (P::String, Transform::Bucket(4), "3", L::Int(3)),
            (P::Boolean, Transform::Identity, "true", L::Boolean(true)),
            (P::Date, Transform::Identity, "1970-01-03", L::Int(2)),
            (P::Timestamptz, Transform::Day, "1969-12-31", L::Int(-1)),
            (P::Timestamptz, Transform::Hour, "1970-01-02-01", L::Int(25)),
            (P::Timestamp, Transform::Month, "1971-02", L::Int(13)),
            (P::Date, Transform::Year, "1969", L::Int(-1)),
            (P::Timestamp, Transform::Identity, "1970-01-01T00:00:01", L::Long(1_000_000)),
        ];
        for (source, transform, text, expected) in cases {
            assert_eq!(parsed(source, transform, text).expect(text), expected, "{transform} {text}");
        }
        for (source, transform, text) in [
            (P::Int, Transform::Identity, "seven"),
            (P::Timestamptz, Transform::Hour, "1970-01-02"),
            (P::Timestamptz, Transform::Month, "1970-13"),
            (P::Date, Transform::Identity, "1970-02-30"),
            (P::Double, Transform::Identity, "1.5"),
        ] {
            assert_eq!(parsed(source, transform, text).expect_err(text).kind(), ErrorKind::Config);
        }
    }

    fn schema() -> Schema {
        let column = |id, name, ty| NestedField::optional(id, name, Type::Primitive(ty)).into();
        let columns = [column(1, "ts", PrimitiveType::Timestamptz), column(2, "day", PrimitiveType::String)];
        Schema::builder().with_fields(columns).build().expect("valid")
    }

    #[test]
    fn columns_go_by_field_name_then_by_source() {
        let schema = schema();
        let builder = PartitionSpec::builder(schema.clone());
        let builder = builder.add_partition_field("ts", "ts_day", Transform::Day).expect("valid");
        let builder = builder.add_partition_field("ts", "ts_bucket", Transform::Bucket(4)).expect("valid");
        let builder = builder.add_partition_field("day", "dropped", Transform::Void).expect("valid");
        let spec = builder.build().expect("valid");
        let index = |column| find_field(&spec, &schema, column).map(|found| found.map(|f| f.index));
        assert_eq!(index("ts_bucket").expect("named"), Some(1));
        assert_eq!(index("day").expect("void only"), None);
        assert_eq!(index("dropped").expect("void"), None);
        assert_eq!(index("nothing").expect("unknown"), None);
        let error = index("ts").expect_err("ambiguous");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("ts_day, ts_bucket"), "{error}");
    }

    #[test]
    fn times_without_zone_follow_the_policy_and_others_utc() {
        use PrimitiveType as P;
        // 2025-04-01 00:10 in Seoul.
        let zone = TimeZone::get("Asia/Seoul").expect("zone");
        let now_ms = "2025-03-31T15:10:00Z".parse::<jiff::Timestamp>().expect("time").as_millisecond();
        let clock = WindowClock { zone, now_ms, commit_interval: Duration::from_secs(60) };
        let selected = |source: P, transform, value: PrimitiveLiteral| {
            let field = PartitionField { source_id: 1, field_id: 1000, name: "f".into(), transform };
            let found = SourceField { index: 0, field: &field, source: &source };
            let test = window_test(&found, Window::PreviousDay, None, &clock).expect("valid");
            let values = std::iter::once(Some(Literal::Primitive(value))).collect();
            test.verdict(&PartitionTuple { spec_id: 0, values }) == PartitionVerdict::Selected
        };
        let day = |date: &str| Datum::date_from_str(date).expect("date").literal().clone();
        assert!(selected(P::Date, Transform::Identity, day("2025-03-31")));
        assert!(!selected(P::Date, Transform::Identity, day("2025-03-30")));
        assert!(selected(P::Timestamp, Transform::Day, day("2025-03-31")));
        assert!(selected(P::Timestamptz, Transform::Day, day("2025-03-30")), "the last UTC day that is over");
        assert!(!selected(P::Timestamptz, Transform::Day, day("2025-03-31")));
        let hours = |text: &str| match day(text) {
            PrimitiveLiteral::Int(days) => days * 24,
            _ => unreachable!("dates are ints"),
        };
        assert!(selected(P::Timestamp, Transform::Hour, PrimitiveLiteral::Int(hours("2025-03-31") + 23)));
        assert!(!selected(P::Timestamp, Transform::Hour, PrimitiveLiteral::Int(hours("2025-04-01"))));
        let nanos = i64::from(hours("2025-03-31")) * 3_600_000_000_000;
        assert!(selected(P::TimestampNs, Transform::Identity, PrimitiveLiteral::Long(nanos)));
        assert!(!selected(P::TimestampNs, Transform::Identity, PrimitiveLiteral::Long(nanos - 1)));
    }
}
