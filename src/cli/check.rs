//! `icewright check`: everything that can be validated without a network.

use std::io::{self, Write};
use std::path::Path;

use crate::config::{Config, Loaded, Problems};

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
pub(super) fn load(path: &Path, out: &mut dyn Write) -> Option<Loaded> {
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

fn print_loaded(path: &Path, loaded: &Loaded, out: &mut dyn Write) -> io::Result<()> {
    for warning in &loaded.warnings {
        write!(out, "{warning}")?;
    }
    let config = &loaded.config;
    let mut warnings = loaded.warnings.len();
    for (name, catalog) in &config.catalogs {
        for (key, secret) in catalog.secrets() {
            if let Err(error) = secret.resolve() {
                warnings += 1;
                writeln!(out, "{}: warning: catalogs.{name}.{key}: {error}", path.display())?;
                writeln!(out, "  help: the daemon will need it where it runs")?;
            }
        }
    }
    let token = config.metrics.pushgateway.as_ref().and_then(|gateway| gateway.token.as_ref());
    if let Some(Err(error)) = token.map(|token| token.resolve()) {
        warnings += 1;
        writeln!(out, "{}: warning: metrics.pushgateway.token: {error}", path.display())?;
        writeln!(out, "  help: `icewright once` will need it where it runs")?;
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

fn print_problems(problems: &Problems, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{problems}")?;
    let errors = problems.0.iter().filter(|problem| problem.severity == crate::config::Severity::Error).count();
    writeln!(out, "{}", counted(errors, "error", "errors"))
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
