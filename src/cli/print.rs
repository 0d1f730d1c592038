//! Output for people and for pipes.

use std::io::Write as _;

use serde::Serialize;

use crate::error::Result;
use crate::telemetry::visible;

/// Writes to standard output. `false`: nobody reads any more, for instance a pager that was closed. That is no failure:
/// what was asked for is still done, and the exit code still tells of it.
pub(crate) fn out(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// Lines on standard error, whether or not somebody reads them.
pub(crate) fn err(text: &str) {
    let lines: String = text.lines().map(|line| format!("{}\n", visible(line))).collect();
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

/// One line of JSON; `false` as for [`out`].
pub(super) fn json(value: &impl Serialize) -> Result<bool> {
    Ok(out(&format!("{}\n", serde_json::to_string(value)?)))
}
