//! `icewright check`: everything that can be validated without a network.

use std::io::{self, Write};
use std::path::Path;

use crate::config::{Config, LoadedConfig, Problems, Secret};

/// Validates a configuration file and prints all of its problems, and what is odd in this environment.
/// Returns the exit code: 0 if the daemon would start with it, 2 if not.
pub fn check(path: &Path, out: &mut dyn Write) -> i32 {
    // Nobody reads any more, for instance a pager that was closed: the answer is still the exit code.
    match Config::load(path) {
        Ok(loaded) => {
            let _ = print_loaded(path, &loaded, out);
            0
        }
        Err(problems) => {
            let _ = print_problems(&problems, out);
            2
        }
    }
}

/// Loads a configuration for a command that goes on to use it; problems and warnings go to `out`.
pub(super) fn load(path: &Path, out: &mut dyn Write) -> Option<LoadedConfig> {
    match Config::load(path) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                let _ = write!(out, "{warning}");
            }
            Some(loaded)
        }
        Err(problems) => {
            let _ = print_problems(&problems, out);
            None
        }
    }
}

fn print_loaded(path: &Path, loaded: &LoadedConfig, out: &mut dyn Write) -> io::Result<()> {
    for warning in &loaded.warnings {
        write!(out, "{warning}")?;
    }
    let config = &loaded.config;
    let mut warnings = loaded.warnings.len();
    for (key, secret, whose) in secrets(config) {
        if let Err(error) = secret.resolve() {
            warnings += 1;
            writeln!(out, "{}: warning: {key}: {error}", path.display())?;
            writeln!(out, "  help: {whose} will need it where it runs")?;
        }
    }
    writeln!(
        out,
        "{}: ok: {}, {}, {}",
        path.display(),
        counted(config.catalogs.len(), "catalog", "catalogs"),
        counted(config.policies.policies.len(), "policy", "policies"),
        counted(warnings, "warning", "warnings")
    )
}

/// Every secret of a configuration, with its key and who needs it.
fn secrets(config: &Config) -> Vec<(String, &Secret, &'static str)> {
    let daemon = "the daemon";
    let catalogs = config.catalogs.iter().flat_map(|(name, catalog)| {
        catalog.secrets().map(move |(key, secret)| (format!("catalogs.{name}.{key}"), secret, daemon))
    });
    let gateway = config.metrics.pushgateway.as_ref().and_then(|gateway| gateway.token.as_ref());
    let headers = config.traces.headers.iter();
    catalogs
        .chain(gateway.map(|token| ("metrics.pushgateway.token".to_owned(), token, "`icewright once`")))
        .chain(config.server.admin_token.as_ref().map(|token| ("server.admin-token".to_owned(), token, daemon)))
        .chain(headers.map(|(name, secret)| (format!("traces.headers.{name}"), secret, daemon)))
        .collect()
}

fn print_problems(problems: &Problems, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{problems}")?;
    let errors = problems.0.iter().filter(|problem| problem.severity == crate::policy::Severity::Error).count();
    writeln!(out, "{}", counted(errors, "error", "errors"))
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
