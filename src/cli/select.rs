//! Which tables a command works on.

use crate::error::Result;
use crate::policy::TableName;
use crate::schedule::fleet::Fleet;

/// The named table, or all maintained tables of all catalogs. Catalogs that cannot be asked are an error.
pub(super) async fn tables(fleet: &Fleet, table: Option<&str>) -> Result<Vec<TableName>> {
    if let Some(text) = table {
        let name: TableName = text.parse()?;
        fleet.policy(&name)?;
        return Ok(vec![name]);
    }
    let mut tables = Vec::new();
    for catalog in fleet.catalog_names() {
        let found = fleet.discover(&catalog).await;
        tables.extend(found.map_err(|e| e.context(format!("list the tables of catalog `{catalog}`")))?);
    }
    Ok(tables)
}
