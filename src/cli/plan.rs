//! `icewright plan`: what each action would do now, and why, and why not. Changes nothing.
//!
//! With `--json` there is one object per line and table: `table`, `policies`, `commit-interval-s`, `delay-s`, `settings`
//! (a list of `{"key", "value", "origin"}`, where the value is written as in TOML), `next-step`, and for each of
//! `rewrite-data-files`, `expire-snapshots` and `remove-orphan-files` either `{"would": {...}}` or `{"nothing": "<why>"}`;
//! for a table that could not be looked at `table` and `error`.

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::screen::Screen;
use super::{print, select, sheets};
use crate::config::Config;
use crate::daemon;
use crate::error::Result;
use crate::schedule::plan_table::plan_table;

/// A table that could not be looked at.
#[derive(Debug, Serialize)]
struct NotPlanned {
    table: String,
    error: String,
}

/// Prints the plans. Exit code 1 if a table could not be planned, or a catalog not be asked.
pub(super) async fn plan(config: Config, table: Option<&str>, json: bool, cancel: CancellationToken) -> Result<i32> {
    let parts = daemon::assemble(&config, cancel)?;
    let selected = select::tables(&parts.fleet, table).await?;
    let mut failed = !selected.complete;
    for name in selected.tables {
        let planned = plan_table(&parts.env, &parts.fleet, &name).await;
        failed |= planned.is_err();
        let read = match planned {
            Ok(plan) if json => print::json(&plan)?,
            Ok(plan) => print::out(&sheets::plan(&plan).render(Screen::stdout())),
            Err(error) if json => print::json(&NotPlanned { table: name.to_string(), error: error.to_string() })?,
            Err(error) => {
                print::err(&format!("{name}: {error}"));
                true
            }
        };
        if !read {
            break;
        }
    }
    Ok(i32::from(failed))
}
