//! What may stand on the command line, and the help on it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::config::TracesConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::telemetry::{self, LogFormat, Telemetry, TraceCollector};
use crate::version;

const AFTER_HELP: &str = "\
Begin with:
  icewright sandbox                              see it work, in one process
  icewright check --config icewright.toml        validate a configuration
  icewright plan --config icewright.toml         see what would be done, and why
  icewright run --config icewright.toml          the daemon

Exit codes:
  0    done; a server also after SIGTERM or Ctrl-C
  1    a table, a catalog or the server failed, or another command was stopped
  2    bad arguments or configuration; nothing was started
  130  ended at once by a second signal

Environment:
  ICEWRIGHT_CONFIG              in place of --config
  ICEWRIGHT_LOG                 in place of --log-filter
  SSL_CERT_FILE, SSL_CERT_DIR   trusted certificates in place of the system's
  NO_COLOR                      if set, nothing is bold or coloured
  TERM                          if `dumb`, terminals get what pipes get: plain lines, no progress

Results go to standard output, logs and problems to standard error.";

/// Keeps Apache Iceberg tables healthy: compacts, expires snapshots, removes orphan files.
///
/// Tables and their policies stand in one TOML file. Nothing is kept outside the tables: a run tells from a table's own
/// metadata what is due.
#[derive(Debug, Parser)]
#[command(name = "icewright", version = version::LONG, about, max_term_width = 100, after_long_help = AFTER_HELP)]
#[command(
    after_help = "`icewright --help` tells exit codes and environment variables, `icewright COMMAND --help` has examples."
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
    #[command(flatten)]
    pub(super) log: LogArguments,
}

/// How log lines look, and which are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogArguments {
    /// How log lines look; for people on a terminal and JSON otherwise, unless set.
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
    /// Which log lines are written, such as `debug` or `info,icewright::commit=debug`.
    ///
    /// Levels are off, error, warn, info, debug and trace; info unless set for `run` and `catalog`, warn for the others.
    #[arg(long, global = true, value_name = "FILTER", env = "ICEWRIGHT_LOG", value_parser = filter)]
    pub(super) log_filter: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Try it: an embedded catalog, two live writers and the daemon on them, all in this process.
    ///
    /// Writes only below DIR. Stop it with Ctrl-C; the same DIR goes on where it stopped.
    #[command(after_help = "Examples:\n  icewright sandbox\n  icewright sandbox --for 2m --dir /tmp/lake")]
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
        /// Address of page, API, metrics and health.
        #[arg(long, default_value = "127.0.0.1:9091")]
        listen: SocketAddr,
    },
    /// Serve the embedded Iceberg REST catalog over a local directory, for try-outs and tests.
    #[command(after_help = "Example:\n  icewright catalog --dir /tmp/lake --listen 127.0.0.1:8181")]
    Catalog {
        /// Where tables and catalog live.
        #[arg(long)]
        dir: PathBuf,
        /// Address to listen on.
        #[arg(long, default_value = "127.0.0.1:8181")]
        listen: SocketAddr,
    },
    /// Run the daemon: maintain every table that a policy matches, serve page, API, metrics and health.
    ///
    /// SIGHUP reads the configuration again, as a change of the file does.
    ///
    /// SIGTERM and Ctrl-C let commits under way come to an end, for `server.grace` at most; a second one ends it at once.
    #[command(
        after_help = "Example:\n  icewright run --config icewright.toml --log-filter info,icewright::commit=debug"
    )]
    Run {
        #[command(flatten)]
        config: ConfigArgument,
        /// Address of page, API, metrics and health, instead of `server.listen`.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Check a configuration without touching the network. Prints every problem with its line and cure.
    #[command(
        after_help = "Example, before a rollout:\n  icewright check --config icewright.toml && kubectl apply -f ."
    )]
    Check {
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Show what each action would do now and why, and why not. Changes nothing.
    #[command(
        after_help = "Examples:\n  icewright plan --config icewright.toml\n  icewright plan --config icewright.toml \
                            lake.db.orders\n  icewright plan --config icewright.toml --json | jq .table"
    )]
    Plan {
        #[command(flatten)]
        config: ConfigArgument,
        /// `catalog.namespace.table`; all maintained tables if left out.
        table: Option<String>,
        /// Print JSON, one line per table.
        #[arg(long)]
        json: bool,
    },
    /// One maintenance pass now, in the foreground.
    ///
    /// Waits for the delay between compaction and clean-ups. Do not let it meet a daemon on the same table.
    #[command(
        after_help = "Examples:\n  icewright once --config icewright.toml lake.db.orders\n  icewright once --config \
                            icewright.toml --no-wait --json | jq .outcome"
    )]
    Once {
        #[command(flatten)]
        config: ConfigArgument,
        /// `catalog.namespace.table`; all maintained tables if left out.
        table: Option<String>,
        /// Print a JSON report, one line per table.
        #[arg(long)]
        json: bool,
        /// Do not wait for the delay: do the clean-ups that the pass before left, then compact. For a CronJob.
        #[arg(long)]
        no_wait: bool,
    },
    /// Show a table's state as the metrics see it.
    #[command(after_help = "Example:\n  icewright inspect --config icewright.toml lake.db.orders")]
    Inspect {
        #[command(flatten)]
        config: ConfigArgument,
        /// `catalog.namespace.table`.
        table: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell.
    #[command(after_help = "Examples:\n  icewright completions bash > /etc/bash_completion.d/icewright\n  icewright \
                            completions zsh > ~/.zfunc/_icewright\n  icewright completions fish > \
                            ~/.config/fish/completions/icewright.fish")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(super) struct ConfigArgument {
    /// The configuration file (TOML).
    #[arg(long = "config", value_name = "FILE", env = "ICEWRIGHT_CONFIG")]
    pub(super) path: PathBuf,
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    crate::config::units::parse_duration(text)
}

/// An empty variable means that none is set.
fn filter(text: &str) -> std::result::Result<String, String> {
    if !text.trim().is_empty() {
        telemetry::check_filter(text).map_err(|e| e.to_string())?;
    }
    Ok(text.to_owned())
}

impl Command {
    /// The configuration file of commands that work with one.
    pub(super) fn config(&self) -> Option<&Path> {
        match self {
            Self::Run { config, .. }
            | Self::Check { config }
            | Self::Plan { config, .. }
            | Self::Once { config, .. }
            | Self::Inspect { config, .. } => Some(&config.path),
            Self::Sandbox { .. } | Self::Catalog { .. } | Self::Completions { .. } => None,
        }
    }

    /// Whether it runs until it is told to stop.
    pub(super) fn is_server(&self) -> bool {
        matches!(self, Self::Run { .. } | Self::Catalog { .. } | Self::Sandbox { .. })
    }

    /// The log filter where none is given: what serves tells what it does, what prints a result tells what is odd.
    pub(super) fn default_filter(&self) -> &'static str {
        match self {
            Self::Run { .. } | Self::Catalog { .. } => "info",
            Self::Sandbox { .. }
            | Self::Check { .. }
            | Self::Plan { .. }
            | Self::Once { .. }
            | Self::Inspect { .. }
            | Self::Completions { .. } => "warn",
        }
    }
}

impl LogArguments {
    pub(super) fn start(&self, default_filter: &str, traces: Option<&TracesConfig>) -> Result<Telemetry> {
        let given = self.log_filter.as_deref().filter(|text| !text.trim().is_empty());
        let format = self.log_format.unwrap_or_else(LogFormat::detect);
        let collector = traces.and_then(collector);
        telemetry::init(format, given.unwrap_or(default_filter), collector.as_ref())
    }
}

/// Where the configuration wants spans to go.
fn collector(traces: &TracesConfig) -> Option<TraceCollector> {
    let endpoint = traces.endpoint.clone()?;
    let secrets = traces.headers.clone();
    let headers = Arc::new(move || {
        let mut headers = HeaderMap::new();
        for (name, secret) in &secrets {
            let bad = |_| Error::new(ErrorKind::Config, format!("traces.headers.{name} is no HTTP header"));
            let name: HeaderName = name.parse().map_err(|_| bad(()))?;
            let mut value = HeaderValue::from_str(secret.resolve()?.expose()).map_err(|_| bad(()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    });
    Some(TraceCollector { endpoint, sample_ratio: traces.sample_ratio, headers })
}

/// The completion script of a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut <Arguments as clap::CommandFactory>::command(), "icewright", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
