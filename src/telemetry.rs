//! Log output: lines for people on a terminal, JSON otherwise.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging to standard error. The filter comes from `ICEWRIGHT_LOG`, else from `default_filter`
/// (such as `info` or `icewright=debug`).
pub fn init(default_filter: &str) {
    let filter = EnvFilter::try_from_env("ICEWRIGHT_LOG").unwrap_or_else(|_| EnvFilter::new(default_filter));
    // A closed standard error must not end the process: it would be reported there, and that panics.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // A second call (tests in one process) keeps the first subscriber.
    let _ = if std::io::stderr().is_terminal() {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
}
