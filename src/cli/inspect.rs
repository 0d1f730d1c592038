//! `icewright inspect`: a table's state as the metrics see it.

use tokio_util::sync::CancellationToken;

use super::print;
use crate::config::Config;
use crate::daemon;
use crate::error::Result;
use crate::inspect::collect_stats;
use crate::plan::sizes::Sizes;
use crate::schedule::rewrite_data_files::INSPECT_CONCURRENCY;
use crate::schedule::run_table::Subject;

/// Prints the numbers.
pub(super) async fn inspect(config: Config, table: &str, json: bool, cancel: CancellationToken) -> Result<i32> {
    let parts = daemon::assemble(&config, cancel)?;
    let name = table.parse()?;
    let subject = Subject::load(&parts.fleet, &name).await?;
    let loaded = &subject.table.loaded;
    let sizes = Sizes::resolve(&subject.resolved.policy.rewrite_data_files, loaded.metadata.properties())?;
    let stats = collect_stats(&subject.table, &parts.env.manifests, sizes.min_bytes, INSPECT_CONCURRENCY).await?;
    if json {
        print::json(&stats)?;
    } else {
        print::stats(&name.to_string(), loaded, &stats)?;
    }
    Ok(0)
}
