//! `icewright sandbox`: everything in one process, for a first look.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::print;
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::daemon;
use crate::error::{Error, Result};
use crate::policy::human_duration;
use crate::sandbox::catalog::CatalogServer;
use crate::sandbox::writers;
use crate::telemetry::FilterHandle;

/// Time between commits of each writer.
const COMMIT_INTERVAL: Duration = Duration::from_secs(2);
/// Time between runs.
const RUN_EVERY: Duration = Duration::from_secs(30);

/// Where the admin token of this start lies, beside the configuration.
const ADMIN_TOKEN_FILE: &str = "admin-token";

/// From a compaction's commit to the clean-ups: the policy's default of three commit intervals.
const DELAY: Duration = COMMIT_INTERVAL.saturating_mul(3);

/// The daemon's configuration in the sandbox: the operators' proportions, in seconds instead of minutes.
fn configuration(catalog: SocketAddr, listen: SocketAddr) -> String {
    format!(
        r#"[server]
listen = "{listen}"
grace = "10s"
admin-token = {{ file = "{ADMIN_TOKEN_FILE}" }}
[limits]
memory = "1GiB"
[metrics]
interval = "2s"
[catalogs.sandbox]
uri = "http://{catalog}"
auth = {{ type = "none" }}
[defaults]
commit-interval = "{interval}s"
every = "{every}s"
[[policies]]
name = "orders"
tables = ["sandbox.shop.orders"]
[policies.rewrite-data-files]
rewrite-all = true
target-file-size = "64MiB"
partial-progress = {{ enabled = true }}
[[policies]]
name = "server-logs"
tables = ["sandbox.shop.server_logs"]
[policies.rewrite-data-files]
rewrite-all = true
target-file-size = "64MiB"
max-concurrent-file-group-rewrites = 1
"#,
        interval = COMMIT_INTERVAL.as_secs(),
        every = RUN_EVERY.as_secs()
    )
}

/// Runs until the token is cancelled or the time is over.
pub(super) async fn sandbox(
    dir: &Path,
    run_for: Option<Duration>,
    catalog_listen: SocketAddr,
    listen: SocketAddr,
    log_filter: FilterHandle,
    cancel: CancellationToken,
) -> Result<i32> {
    let catalog = CatalogServer::open(dir)?;
    let catalog_listener = daemon::bind(catalog_listen, "--catalog-listen").await?;
    let listener = daemon::bind(listen, "--listen").await?;
    let address = |l: &tokio::net::TcpListener| l.local_addr().map_err(|e| Error::internal(e.to_string()));
    let (catalog_address, address) = (address(&catalog_listener)?, address(&listener)?);

    let text = configuration(catalog_address, address);
    let config_path = dir.join("icewright.toml");
    std::fs::write(&config_path, &text)
        .map_err(|e| Error::unavailable(format!("write {}: {e}", config_path.display())))?;
    let token = write_admin_token(&dir.join(ADMIN_TOKEN_FILE))?;
    let loaded = Config::parse(&config_path.display().to_string(), &text);
    let loaded = loaded.map_err(|problems| Error::internal(problems.to_string()))?;
    print::out(&banner(dir, catalog_address, address, &config_path, &token));

    // The catalog goes last: the daemon may be in the middle of a commit.
    let catalog_stop = CancellationToken::new();
    let serving = tokio::spawn(catalog.serve(catalog_listener, catalog_stop.clone()));
    // The daemon looks as soon as it starts, so there must be something to see.
    let writers = writers::begin(format!("http://{catalog_address}")).await?;
    let writers = tokio::spawn(writers.run(COMMIT_INTERVAL, cancel.clone()));
    let daemon = daemon::run(&loaded, listener, daemon::Echo::Lines, log_filter, cancel.clone());
    tokio::pin!(daemon, writers);
    let timed = async {
        match run_for {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let mut written = None;
    let result = tokio::select! {
        result = &mut daemon => result,
        ended = &mut writers => {
            written = Some(ended);
            cancel.cancel();
            daemon.await
        }
        () = timed => {
            cancel.cancel();
            daemon.await
        }
    };
    cancel.cancel();
    let written = match written {
        Some(written) => written,
        None => writers.await,
    };
    catalog_stop.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(5), serving).await;
    let written = written.map_err(|e| Error::internal(format!("the writers ended: {e}")))?;
    result.and(written).map(|()| 0)
}

/// Makes a new admin token, which only this user may read.
fn write_admin_token(path: &Path) -> Result<String> {
    // Each holds 74 random bits.
    let token = format!("{}{}", SystemClock.uuid().simple(), SystemClock.uuid().simple());
    let failed = |e: std::io::Error| Error::unavailable(format!("write {}: {e}", path.display()));
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(token.as_bytes()).map_err(failed)?;
    Ok(token)
}

fn banner(dir: &Path, catalog: SocketAddr, listen: SocketAddr, config: &Path, token: &str) -> String {
    // As it was called, so that the lines can be copied whether or not it is installed.
    let program = std::env::args().next().unwrap_or_else(|| "icewright".to_owned());
    let (interval, every, delay) = (human_duration(COMMIT_INTERVAL), human_duration(RUN_EVERY), human_duration(DELAY));
    let (dir, config) = (dir.display(), config.display());
    format!(
        "An Iceberg catalog with two tables, a writer for each, and the daemon that maintains them, in this process.\n\
         \n  page           http://{listen}/  (admin token: {token})\
         \n  metrics        http://{listen}/metrics\
         \n  health         http://{listen}/healthz\
         \n  API            http://{listen}/api/v1/status\
         \n  catalog        http://{catalog}  (Iceberg REST: tables shop.orders and shop.server_logs)\
         \n  files          {dir}\n\
         \n  look           {program} inspect --config {config} sandbox.shop.orders\
         \n  what is due    {program} plan --config {config}\
         \n  stop           Ctrl-C; the same --dir goes on where it stopped\n\
         \nEach writer commits every {interval}. Each table is compacted (rewrite-data-files) at once and then every {every}; \
         {delay} after its commit the clean-ups follow (expire-snapshots, remove-orphan-files). A line for each step:\n\n"
    )
}
