//! Log output: lines for people, or one JSON object per line, on standard error; with a filter that may change at any time.

mod json;

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::error::{Error, ErrorKind, Result};

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
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another filter in its place, for lines from now on. [`ErrorKind::Config`] if it is none; the old one then stays.
    pub fn set(&self, text: &str) -> Result<()> {
        let filter = parse_filter(text)?;
        // Held over both, so that two callers leave the text of the filter that won.
        let mut current = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &self.filter {
            handle.reload(filter).map_err(|e| Error::internal(format!("change the log filter: {e}")))?;
        }
        text.trim().clone_into(&mut current);
        Ok(())
    }
}

/// Starts logging to standard error. A second call in one process keeps the first subscriber and gives a detached handle.
pub fn init(format: LogFormat, filter: &str) -> Result<FilterHandle> {
    let (filter_layer, handle) = reload::Layer::new(parse_filter(filter)?);
    // A closed standard error must not end the process: it would be reported there, and that panics.
    let lines = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let lines = match format {
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed(),
        LogFormat::Json => lines.fmt_fields(json::Fields).event_format(json::Lines).boxed(),
    };
    let started = tracing_subscriber::registry().with(lines.with_filter(filter_layer)).try_init();
    Ok(FilterHandle { filter: started.ok().map(|()| handle), ..FilterHandle::detached(filter) })
}

const FILTER_FORM: &str = "write a level (off, error, warn, info, debug, trace), or targets with levels, such as \
                           \"info,icewright::commit=debug\"";

/// Says what is wrong with a filter, if anything.
pub fn check_filter(text: &str) -> Result<()> {
    parse_filter(text).map(|_| ())
}

fn parse_filter(text: &str) -> Result<EnvFilter> {
    let bad = |why: String| Error::new(ErrorKind::Config, format!("\"{text}\" is no log filter: {why}; {FILTER_FORM}"));
    for directive in text.split(',').map(str::trim) {
        // The library would take a misspelt level for a target that is to be logged in full.
        if !directive.contains('=') && directive.parse::<tracing::level_filters::LevelFilter>().is_err() {
            return Err(bad(format!("\"{directive}\" is no level")));
        }
    }
    let filter = EnvFilter::builder().parse(text).map_err(|e| bad(e.to_string()))?;
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
            [("inof", "\"inof\" is no level"), ("", "\"\" is no level"), ("a=loud", "invalid"), ("info,", "\"\"")]
        {
            let error = check_filter(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(why) && error.to_string().contains("write a level"), "{error}");
        }
    }

    #[test]
    fn the_filter_changes_and_a_bad_one_does_not_count() {
        let (layer, filter) = reload::Layer::new(parse_filter("warn").expect("a filter"));
        let handle = FilterHandle { filter: Some(filter), ..FilterHandle::detached("warn") };
        let subscriber =
            tracing_subscriber::registry().with(fmt::layer().with_writer(std::io::sink).with_filter(layer));
        tracing::subscriber::with_default(subscriber, || {
            assert!(!tracing::enabled!(tracing::Level::INFO));
            handle.set(" info ").expect("a good filter");
            assert!(tracing::enabled!(tracing::Level::INFO));
            assert_eq!(handle.current(), "info");
            assert!(handle.clone().set("inof").is_err());
            assert_eq!(handle.current(), "info");
            assert!(tracing::enabled!(tracing::Level::INFO));
        });
    }
}
