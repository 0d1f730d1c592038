//! `icewright catalog`: only the embedded catalog, until it is told to stop.

use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::sandbox::catalog::CatalogServer;

/// Serves the catalog in `dir` at `listen` until SIGINT or SIGTERM; prints its address first.
pub async fn catalog(dir: &Path, listen: SocketAddr) -> Result<()> {
    let server = CatalogServer::open(dir)?;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|e| Error::new(ErrorKind::Config, format!("listen on {listen}: {e}")))?;
    let address = listener.local_addr().map_err(|e| Error::internal(format!("find own address: {e}")))?;
    println!("catalog: http://{address}  warehouse: {}", dir.display());
    let shutdown = CancellationToken::new();
    tokio::spawn(cancel_on_signal(shutdown.clone()));
    server.serve(listener, shutdown).await
}

async fn cancel_on_signal(shutdown: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
    shutdown.cancel();
}
