//! The commands. Each parses its arguments here and hands over; none holds logic of its own.
//!
//! Exit codes: 0 done, 1 something failed (a table, a catalog, a server), 2 bad arguments or configuration,
//! 130 ended at once by a second signal.

mod arguments;
mod catalog;
pub mod check;
mod inspect;
mod once;
mod plan;
pub(crate) mod print;
mod progress;
mod push;
mod run;
mod sandbox;
mod screen;
mod select;
mod sheets;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use arguments::{Arguments, Command, LogArguments};
use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::LoadedConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::telemetry::FilterHandle;

/// Exit code of bad arguments or configuration.
const EXIT_CONFIG: u8 = 2;

/// Runs the command line and gives its exit code.
pub fn main() -> ExitCode {
    let Arguments { command, log } = Arguments::parse();
    if let Command::Check { config } = &command {
        return code(check::check(&config.path, &mut std::io::stdout()));
    }
    if let Command::Completions { shell } = command {
        print::out(&arguments::completions(shell));
        return ExitCode::SUCCESS;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::err(&format!("icewright: start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(dispatch(command, &log));
    // Blocking work that ignores its token must not keep the process: outputs of unfinished groups are in no snapshot.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match result {
        Ok(exit) => code(exit),
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> ExitCode {
    print::err(&format!("icewright: {error}"));
    ExitCode::from(if error.kind() == ErrorKind::Config { EXIT_CONFIG } else { 1 })
}

fn code(exit: i32) -> ExitCode {
    ExitCode::from(u8::try_from(exit).unwrap_or(1))
}

async fn dispatch(command: Command, log: &LogArguments) -> Result<i32> {
    let cancel = cancel_on_signal(command.is_server())?;
    if matches!(command, Command::Run { .. }) {
        // From now on a hang-up ends the process no more: whoever sends one right after the start wants the file read, which
        // is about to happen.
        let _handled = listen(SignalKind::hangup())?;
    }
    // It says where spans go.
    let loaded = command.config().map(load).transpose()?;
    let telemetry = log.start(command.default_filter(), loaded.as_ref().map(|loaded| &loaded.config.traces))?;
    let result = execute(command, loaded, telemetry.filter.clone(), cancel).await;
    telemetry.finish().await;
    result
}

async fn execute(
    command: Command,
    loaded: Option<LoadedConfig>,
    log_filter: FilterHandle,
    cancel: CancellationToken,
) -> Result<i32> {
    let loaded = loaded.ok_or_else(|| Error::internal("this command has no configuration"));
    match command {
        Command::Sandbox { dir, run_for, catalog_listen, listen } => {
            sandbox::sandbox(&dir, run_for, catalog_listen, listen, log_filter, cancel).await
        }
        Command::Catalog { dir, listen } => catalog::catalog(&dir, listen, cancel).await,
        Command::Run { listen, .. } => run::run(loaded?, listen, log_filter, cancel).await,
        Command::Check { .. } | Command::Completions { .. } => Err(Error::internal("this command needs no runtime")),
        Command::Plan { table, json, .. } => {
            let planning = plan::plan(loaded?.config, table.as_deref(), json, cancel.clone());
            until_stopped(&cancel, planning).await
        }
        Command::Once { table, json, no_wait, .. } => {
            once::once(loaded?.config, table.as_deref(), json, no_wait, cancel).await
        }
        Command::Inspect { table, json, .. } => {
            let inspecting = inspect::inspect(loaded?.config, &table, json, cancel.clone());
            until_stopped(&cancel, inspecting).await
        }
    }
}

/// For work that changes nothing, and may be left at any point.
async fn until_stopped<T>(cancel: &CancellationToken, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(stopped()),
        result = work => result,
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Cancelled, "stopped")
}

fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|e| Error::internal(format!("listen for signals: {e}")))
}

/// Loads a configuration; problems are printed as `check` prints them.
fn load(path: &Path) -> Result<LoadedConfig> {
    check::load(path, &mut std::io::stderr())
        .ok_or_else(|| Error::new(ErrorKind::Config, format!("{} is not usable; nothing was started", path.display())))
}

/// A token that SIGINT and SIGTERM cancel. A second signal ends the process at once; a server's log says so, and other
/// commands say it to whoever waits.
fn cancel_on_signal(is_server: bool) -> Result<CancellationToken> {
    let token = CancellationToken::new();
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
            if is_server {
                tracing::info!("stopping; a second signal ends the process at once");
            } else {
                print::err("stopping; a second signal ends the process at once");
            }
            cancel.cancel();
        }
    });
    Ok(token)
}
