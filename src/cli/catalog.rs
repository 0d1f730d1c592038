//! `icewright catalog`: the embedded REST catalog alone.

use std::net::SocketAddr;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::print;
use crate::daemon;
use crate::error::Result;
use crate::sandbox::catalog::CatalogServer;

/// Serves until a signal.
pub(super) async fn catalog(dir: &Path, listen: SocketAddr, cancel: CancellationToken) -> Result<i32> {
    let server = CatalogServer::open(dir)?;
    let listener = daemon::bind(listen, "--listen").await?;
    let address = listener.local_addr().unwrap_or(listen);
    print::out(&format!("Iceberg REST catalog on http://{address}, tables in {}\n", dir.display()));
    server.serve(listener, cancel).await?;
    Ok(0)
}
