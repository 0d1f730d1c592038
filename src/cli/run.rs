//! `icewright run`: the daemon.

use tokio_util::sync::CancellationToken;

use crate::config::Loaded;
use crate::daemon;
use crate::error::Result;

/// Runs until a signal.
pub(super) async fn run(loaded: Loaded, cancel: CancellationToken) -> Result<i32> {
    let listener = daemon::bind(loaded.config.server.listen).await?;
    daemon::run(&loaded, listener, daemon::Echo::Nothing, cancel).await?;
    Ok(0)
}
