//! The commands. Each parses its arguments here and hands over; none holds logic of its own.
//!
//! Exit codes: 0 done, 1 something failed (a table, a catalog, a server), 2 bad arguments or configuration.

mod catalog;
pub mod check;
mod inspect;
mod once;
mod plan;
pub(crate) mod print;
mod run;
mod sandbox;
mod select;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio_util::sync::CancellationToken;

use crate::config::Loaded;
use crate::error::{Error, ErrorKind, Result};
use crate::telemetry;

/// Exit code of bad arguments or configuration.
const EXIT_CONFIG: u8 = 2;

/// Keeps Apache Iceberg tables healthy: compacts, expires snapshots, removes orphan files.
#[derive(Debug, Parser)]
#[command(name = "icewright", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try it: an embedded catalog, two live writers and the daemon on them, all in this process.
    ///
    /// Writes only below DIR. Stop it with Ctrl-C; the same DIR goes on where it stopped.
    Sandbox {
        /// Where tables and catalog live.
        #[arg(long, default_value = "icewright-sandbox")]
        dir: PathBuf,
        /// Stop after this long, such as `2m`.
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        run_for: Option<Duration>,
        /// Address of the catalog.
        #[arg(long, default_value = "127.0.0.1:8181")]
        catalog_listen: SocketAddr,
        /// Address of metrics and health.
        #[arg(long, default_value = "127.0.0.1:9091")]
        listen: SocketAddr,
    },
    /// Serve the embedded Iceberg REST catalog over a local directory, for try-outs and tests.
    Catalog {
        /// Where tables and catalog live.
        #[arg(long)]
        dir: PathBuf,
        /// Address to listen on.
        #[arg(long, default_value = "127.0.0.1:8181")]
        listen: SocketAddr,
    },
    /// Run the daemon: maintain every table that a policy matches, serve metrics and health.
    Run {
        #[command(flatten)]
        config: ConfigArgument,
        /// Address of metrics and health, instead of `server.listen`.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Check a configuration without touching the network. Prints every problem with its line and cure.
    Check {
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Show what each action would do now and why, and why not. Changes nothing.
    Plan {
        #[command(flatten)]
        config: ConfigArgument,
        /// `catalog.namespace.table`; all maintained tables if left out.
        table: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// One maintenance pass now, in the foreground.
    Once {
        #[command(flatten)]
        config: ConfigArgument,
        /// `catalog.namespace.table`; all maintained tables if left out.
        table: Option<String>,
        /// Print a JSON report, one line per table.
        #[arg(long)]
        json: bool,
        /// Do only what is due now, instead of waiting for the delay between compaction and clean-up.
        #[arg(long)]
        no_wait: bool,
    },
    /// Show a table's state as the metrics see it.
    Inspect {
        #[command(flatten)]
        config: ConfigArgument,
        /// `catalog.namespace.table`.
        table: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ConfigArgument {
    /// The configuration file (TOML).
    #[arg(long = "config", value_name = "FILE", env = "ICEWRIGHT_CONFIG")]
    path: PathBuf,
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    crate::config::units::parse_duration(text)
}

/// Runs the command line and gives its exit code.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Command::Check { config } = &arguments.command {
        return code(check::check(&config.path, &mut std::io::stdout()));
    }
    telemetry::init(match arguments.command {
        Command::Run { .. } | Command::Catalog { .. } => "info",
        _ => "warn",
    });
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::err(&format!("icewright: start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(dispatch(arguments.command));
    // Blocking work that ignores its token must not keep the process: outputs of unfinished groups are in no snapshot.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match result {
        Ok(exit) => code(exit),
        Err(error) => {
            print::err(&format!("icewright: {error}"));
            ExitCode::from(if error.kind() == ErrorKind::Config { EXIT_CONFIG } else { 1 })
        }
    }
}

fn code(exit: i32) -> ExitCode {
    ExitCode::from(u8::try_from(exit).unwrap_or(1))
}

async fn dispatch(command: Command) -> Result<i32> {
    let cancel = cancel_on_signal()?;
    match command {
        Command::Sandbox { dir, run_for, catalog_listen, listen } => {
            sandbox::sandbox(&dir, run_for, catalog_listen, listen, cancel).await
        }
        Command::Catalog { dir, listen } => catalog::catalog(&dir, listen, cancel).await,
        Command::Run { config, listen } => run::run(load(&config.path)?, listen, cancel).await,
        Command::Check { .. } => Err(Error::internal("check needs no runtime")),
        Command::Plan { config, table, json } => {
            plan::plan(load(&config.path)?.config, table.as_deref(), json, cancel).await
        }
        Command::Once { config, table, json, no_wait } => {
            once::once(load(&config.path)?.config, table.as_deref(), json, no_wait, cancel).await
        }
        Command::Inspect { config, table, json } => {
            inspect::inspect(load(&config.path)?.config, &table, json, cancel).await
        }
    }
}

/// Loads a configuration; problems are printed as `check` prints them.
fn load(path: &Path) -> Result<Loaded> {
    check::load(path, &mut std::io::stderr())
        .ok_or_else(|| Error::new(ErrorKind::Config, format!("{} is not usable; nothing was started", path.display())))
}

/// A token that SIGINT and SIGTERM cancel. A second signal ends the process at once.
fn cancel_on_signal() -> Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let listen = |kind| signal(kind).map_err(|e| Error::internal(format!("listen for signals: {e}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let cancel = token.clone();
    tokio::spawn(async move {
        for stop in [false, true] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stop {
                std::process::exit(130);
            }
            tracing::info!("stopping; a second signal ends the process at once");
            cancel.cancel();
        }
    });
    Ok(token)
}
