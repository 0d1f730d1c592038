//! An Iceberg REST catalog over a local directory, for try-outs and tests.
//!
//! It answers what the REST specification has for namespaces and tables (no views, no credentials, one warehouse).
//! Metadata files are written anew for each commit and never changed; a small file per table says which one is
//! current and is replaced at once, so that a kill at any moment leaves each table before or after its commit.
//! No renaming, no transactions over several tables, no purge: a dropped table's files stay.
//! Integration tests: `tests/it/embedded_catalog/`; real clients speak to it in `tests/it/interop/`.

mod change;
mod commit;
mod files;
mod names;
mod problem;
mod requests;
mod router;
mod state;
mod tree;

use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::state::CatalogState;
use crate::clock::SystemClock;
use crate::error::{Error, Result};

/// The catalog, open on its directory. No other process can open the directory until the last clone is gone.
#[derive(Clone)]
pub struct CatalogServer {
    state: Arc<CatalogState>,
}

impl CatalogServer {
    /// Opens or makes the catalog in `dir`, which must not be open elsewhere ([`crate::error::ErrorKind::Config`]).
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self { state: Arc::new(CatalogState::open(dir, SystemClock::shared())?) })
    }

    /// The routes, to be served by whoever has a server already.
    pub fn router(&self) -> axum::Router {
        router::router(Arc::clone(&self.state))
    }

    /// Answers requests until `shutdown`, then finishes those that are going on.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> Result<()> {
        axum::serve(listener, self.router())
            .with_graceful_shutdown(shutdown.cancelled_owned())
            .await
            .map_err(|e| Error::internal(format!("serve catalog: {e}")))
    }
}
