//! `icewright inspect`: a table's state as the metrics see it. With `--json` one object: `table`, `metadata-location` and the
//! fields of [`TableStats`].

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::screen::Screen;
use super::{print, sheets};
use crate::actions::subject::Subject;
use crate::config::Config;
use crate::daemon;
use crate::error::Result;
use crate::inspect::{TableStats, collect_stats};
use crate::plan::sizes::Sizes;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct TableNumbers<'a> {
    table: String,
    metadata_location: &'a str,
    #[serde(flatten)]
    stats: &'a TableStats,
}

/// Prints the numbers.
pub(super) async fn inspect(config: Config, table: &str, json: bool, cancel: CancellationToken) -> Result<i32> {
    let parts = daemon::assemble(&config, cancel)?;
    let name = table.parse()?;
    let subject = Subject::load(&parts.fleet, &name).await?;
    let loaded = &subject.table.loaded;
    let sizes = Sizes::resolve(&subject.resolved.policy.rewrite_data_files, loaded.metadata.properties())?;
    let stats = collect_stats(&subject.table, &parts.env.manifests, sizes.min_bytes).await?;
    if json {
        let (table, metadata_location) = (name.to_string(), loaded.metadata_location.as_str());
        print::json(&TableNumbers { table, metadata_location, stats: &stats })?;
    } else {
        print::out(&sheets::stats(&name.to_string(), &loaded.metadata_location, &stats)?.render(Screen::stdout()));
    }
    Ok(0)
}
