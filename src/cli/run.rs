//! `icewright run`: the daemon.

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use crate::config::LoadedConfig;
use crate::daemon;
use crate::error::Result;
use crate::telemetry::FilterHandle;

/// Runs until a signal. `listen` wins over the configuration, so that one file serves on a laptop and in a container.
pub(super) async fn run(
    loaded: LoadedConfig,
    listen: Option<SocketAddr>,
    log_filter: FilterHandle,
    cancel: CancellationToken,
) -> Result<i32> {
    let (address, option) = match listen {
        Some(address) => (address, "--listen"),
        None => (loaded.config.server.listen, "server.listen"),
    };
    let listener = daemon::bind(address, option).await?;
    daemon::run(&loaded, listener, daemon::Echo::Nothing, log_filter, cancel).await?;
    Ok(0)
}
