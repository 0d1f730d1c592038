//! Files of one table that another table needs: made by importing files where they lie, by registering a table twice, or by a data path that
//! once pointed here. Directories do not tell; only the other tables' metadata does.

use std::sync::Arc;

use async_trait::async_trait;

use super::reachable::Reachable;
use crate::catalog::LoadedTable;
use crate::error::Result;
use crate::storage::StoreRef;

/// The other tables within sight.
#[async_trait]
pub trait Elsewhere: Sync {
    /// For each path, whether another table reaches it from any retained snapshot. An error means that it is not known.
    async fn referenced(&self, paths: &[String]) -> Result<Vec<bool>>;
}

/// Notes which of `paths` a table reaches, be it by another path that leads to the same file.
pub async fn note_referenced(
    store: &StoreRef,
    loaded: &Arc<LoadedTable>,
    paths: &[String],
    referenced: &mut [bool],
) -> Result<()> {
    let reachable = Reachable::new(loaded, false)?.with_table(store, loaded).await?;
    for (path, known) in paths.iter().zip(referenced) {
        *known = *known || reachable.may_contain(path, None)?;
    }
    Ok(())
}
