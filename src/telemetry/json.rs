//! A log line as one flat JSON object: `timestamp`, `level`, `target`, `message`, the line's fields, and the fields of the spans
//! around it, inner before outer. Names are in kebab-case. A field named `report` holds JSON and stays an object.

use std::fmt::{self, Write};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats an event.
pub(super) struct Lines;

/// Keeps a span's fields as a JSON object.
pub(super) struct JsonFields;

impl<S> FormatEvent<S, JsonFields> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let metadata = event.metadata();
        let mut now = String::new();
        // RFC 3339 in UTC, with microseconds.
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        line.insert("timestamp".into(), now.into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("target".into(), metadata.target().into());
        event.record(&mut Collect(&mut line));
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            let Ok(Value::Object(fields)) = serde_json::from_str(&fields.fields) else { continue };
            for (name, value) in fields {
                line.entry(name).or_insert(value);
            }
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

impl<'writer> FormatFields<'writer> for JsonFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut object = Map::new();
        fields.record(&mut Collect(&mut object));
        write!(writer, "{}", Value::Object(object))
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let mut object: Map<String, Value> = serde_json::from_str(&current.fields).unwrap_or_default();
        fields.record(&mut Collect(&mut object));
        current.fields.clear();
        write!(current.fields, "{}", Value::Object(object))
    }
}

/// Puts fields into an object.
struct Collect<'a>(&'a mut Map<String, Value>);

impl Collect<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().replace('_', "-"), value);
    }

    fn put_text(&mut self, field: &Field, text: String) {
        let report = (field.name() == "report").then(|| serde_json::from_str(&text).ok()).flatten();
        self.put(field, report.unwrap_or(Value::String(text)));
    }
}

impl Visit for Collect<'_> {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, format!("{value:?}"));
    }
}
