//! `icewright run`: the daemon.

use tokio_util::sync::CancellationToken;

use crate::config::Loaded;
use crate::daemon;
use crate::error::Result;
use crate::telemetry::FilterHandle;

/// Runs until a signal.
pub(super) async fn run(loaded: Loaded, log_filter: FilterHandle, cancel: CancellationToken) -> Result<i32> {
    let listener = daemon::bind(loaded.config.server.listen).await?;
    daemon::run(&loaded, listener, daemon::Echo::Nothing, log_filter, cancel).await?;
    Ok(0)
}
