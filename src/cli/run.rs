//! `icewright run`: the daemon.

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::daemon;
use crate::error::Result;

/// Runs until a signal.
pub(super) async fn run(config: Config, cancel: CancellationToken) -> Result<i32> {
    let listener = daemon::bind(config.server.listen).await?;
    daemon::run(&config, listener, daemon::Echo::Nothing, cancel).await?;
    Ok(0)
}
