//! Log output: lines for people, or one JSON object per line, on standard error; with a filter that may change at any time.

mod human;
mod json;
mod traces;

use std::io::IsTerminal;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::error::{Error, ErrorKind, Result};
pub(crate) use human::visible;
pub(crate) use traces::phase_span;
pub use traces::{Headers, TraceCollector, Traces, action_span, ended, run_span};

/// The target of spans whose fields belong on every line written inside them, whatever the filter says about lines.
pub const RUN_TARGET: &str = "icewright::run";

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// For people on a terminal, JSON otherwise.
    pub fn detect() -> Self {
        if std::io::stderr().is_terminal() { Self::Human } else { Self::Json }
    }
}

/// Which log lines are written; may be changed while the process runs. Clones are the same filter.
#[derive(Debug, Clone)]
pub struct FilterHandle {
    text: Arc<Mutex<String>>,
    /// `None`: nobody listens.
    filter: Option<reload::Handle<EnvFilter, Registry>>,
}

impl FilterHandle {
    /// A filter of no output: where another subscriber is at work, as in tests.
    pub fn detached(text: &str) -> Self {
        Self { text: Arc::new(Mutex::new(text.trim().to_owned())), filter: None }
    }

    /// The filter as it was given, such as `info,icewright::commit=debug`.
    pub fn current(&self) -> String {
        self.text.lock().clone()
    }

    /// Puts another filter in its place, for lines from now on. [`ErrorKind::Config`] if it is none; the old one then stays.
    pub fn set(&self, text: &str) -> Result<()> {
        let filter = parse_filter(text)?;
        // Held over both, so that two callers leave the text of the filter that won.
        let mut current = self.text.lock();
        if let Some(handle) = &self.filter {
            handle.reload(filter).map_err(|e| Error::internal(format!("change the log filter: {e}")))?;
        }
        text.trim().clone_into(&mut current);
        Ok(())
    }
}

/// What was started.
pub struct Telemetry {
    /// Which log lines are written.
    pub filter: FilterHandle,
    traces: Option<Traces>,
}

impl Telemetry {
    /// Sends the last spans, for two seconds at most.
    pub async fn finish(self) {
        if let Some(traces) = self.traces {
            traces.finish().await;
        }
    }
}

/// Starts logging to standard error, and sending spans if a collector is given; within a tokio runtime. A second call in
/// one process keeps the first subscriber and gives a detached handle.
pub fn init(format: LogFormat, filter: &str, collector: Option<&TraceCollector>) -> Result<Telemetry> {
    let (lines, handle) = layer(format, filter, std::io::stderr)?;
    let (spans, traces) = collector.map(traces::layer).transpose()?.unzip();
    let mut layers = vec![lines.boxed()];
    layers.extend(spans.map(Layer::boxed));
    let started = tracing_subscriber::registry().with(layers).try_init();
    let filter = if started.is_ok() { handle } else { FilterHandle::detached(filter) };
    Ok(Telemetry { filter, traces })
}

/// Writes lines, and the handle on which ones.
fn layer<W>(format: LogFormat, filter: &str, writer: W) -> Result<(impl Layer<Registry> + Send + Sync, FilterHandle)>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter_layer, handle) = reload::Layer::new(parse_filter(filter)?);
    // A closed standard error must not end the process: it would be reported there, and that panics.
    let lines = fmt::layer().with_writer(writer).log_internal_errors(false);
    let lines = match format {
        LogFormat::Human => lines.fmt_fields(human::TextFields).with_ansi(use_colour()).with_target(false).boxed(),
        LogFormat::Json => lines.fmt_fields(json::JsonFields).event_format(json::Lines).boxed(),
    };
    Ok((lines.with_filter(filter_layer), FilterHandle { filter: Some(handle), ..FilterHandle::detached(filter) }))
}

fn use_colour() -> bool {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    std::io::stderr().is_terminal() && variable("NO_COLOR").is_empty() && variable("TERM") != "dumb"
}

const FILTER_FORM: &str = "write a level (off, error, warn, info, debug, trace), or targets with levels, such as \
                           \"info,icewright::commit=debug\"";

/// Says what is wrong with a filter, if anything.
pub fn check_filter(text: &str) -> Result<()> {
    parse_filter(text).map(|_| ())
}

fn parse_filter(text: &str) -> Result<EnvFilter> {
    let bad = |why: String| Error::new(ErrorKind::Config, format!("\"{text}\" is no log filter: {why}; {FILTER_FORM}"));
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    // The library would take a misspelt level for a target that is to be logged in full.
    let is_level = |directive: &str| !directive.is_empty() && directive.parse::<LevelFilter>().is_ok();
    if let Some(wrong) = directives.iter().find(|d| !d.contains('=') && !is_level(d)) {
        return Err(bad(format!("\"{wrong}\" is no level")));
    }
    let filter = EnvFilter::builder().parse(directives.join(",")).map_err(|e| bad(e.to_string()))?;
    let spans = format!("{RUN_TARGET}=error").parse().map_err(|e| bad(format!("{e}")))?;
    Ok(filter.add_directive(spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_targets_with_levels() {
        for good in
            ["info", "WARN", "off", "info,icewright::commit=debug", "icewright=trace , hyper=off", "a[run]=info"]
        {
            assert!(check_filter(good).is_ok(), "{good}");
        }
        for (bad, why) in
            [("inof", "\"inof\" is no level"), ("", "\"\" is no level"), ("a=loud", "level filter"), ("info,", "\"\"")]
        {
            let error = check_filter(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(why) && error.to_string().contains("write a level"), "{error}");
        }
    }

    /// What was written, for a subscriber of a test's own.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock())).expect("text")
        }
    }

    #[test]
    fn the_filter_changes_and_a_bad_one_does_not_count() {
        let written = Written::default();
        let (layer, handle) = layer(LogFormat::Human, "warn", {
            let w = written.clone();
            move || w.clone()
        })
        .expect("a filter");
        let speak = || {
            tracing::info!("quiet");
            tracing::warn!("loud");
            written.take().lines().count()
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            assert_eq!(speak(), 1);
            handle.set(" info ").expect("a good filter");
            assert_eq!((speak(), handle.current()), (2, "info".to_owned()));
            assert!(handle.clone().set("inof").is_err());
            assert_eq!((speak(), handle.current()), (2, "info".to_owned()));
            handle.set("off").expect("a good filter");
            assert_eq!(speak(), 0);
        });
    }

    #[test]
    fn no_name_makes_a_line_of_its_own() {
        let written = Written::default();
        let (layer, _handle) = layer(LogFormat::Human, "info", {
            let w = written.clone();
            move || w.clone()
        })
        .expect("a filter");
        let name = "lake.db.t\n2026-01-01T00:00:00Z  INFO forged\x1b[2J";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let _run = tracing::error_span!(target: RUN_TARGET, "run", table = %name).entered();
            tracing::warn!(table = %name, "about {name}");
        });
        let text = written.take();
        assert_eq!((text.lines().count(), text.matches("\\n2026").count()), (1, 3), "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text}");
    }

    #[test]
    fn a_json_line_is_flat_and_has_the_fields_of_the_run_whatever_the_filter_says() {
        let written = Written::default();
        let (layer, _handle) = layer(LogFormat::Json, "off,icewright::telemetry=warn", {
            let w = written.clone();
            move || w.clone()
        })
        .expect("a filter");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let run = tracing::error_span!(target: RUN_TARGET, "run", table = "lake.db.t", run_id = 7, action = "a");
            let _in_run = run.enter();
            let _deeper = tracing::error_span!(target: RUN_TARGET, "step", action = "b", later = tracing::field::Empty);
            let deeper = _deeper.enter();
            _deeper.record("later", "now");
            tracing::warn!(run_id = 8, report = %r#"{"files": 3}"#, text = "a \"b\"", n = -1, x = 0.5, yes = true, "it {}", "is");
            tracing::info!("not told");
            drop(deeper);
        });
        let lines = written.take();
        let mut line: serde_json::Value = serde_json::from_str(&lines).expect(&lines);
        let time = line["timestamp"].take();
        assert!(
            time.as_str().is_some_and(|t| t.len() == 27 && t.ends_with('Z') && t.parse::<jiff::Timestamp>().is_ok())
        );
        let expected = serde_json::json!({
            "timestamp": null, "level": "WARN", "target": "icewright::telemetry::tests", "message": "it is",
            "table": "lake.db.t", "run-id": 8, "action": "b", "later": "now", "report": {"files": 3},
            "text": "a \"b\"", "n": -1, "x": 0.5, "yes": true,
        });
        assert_eq!(line, expected);
    }
}
