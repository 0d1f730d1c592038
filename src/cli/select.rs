//! Which tables a command works on.

use crate::error::{Error, ErrorKind, Result};
use crate::policy::TableName;
use crate::schedule::fleet::Fleet;

/// The named table, or all maintained tables of all catalogs. Catalogs that cannot be asked are an error.
pub(super) async fn tables(fleet: &Fleet, table: Option<&str>) -> Result<Vec<TableName>> {
    if let Some(text) = table {
        let name: TableName = text.parse()?;
        if fleet.policy(&name)?.is_none() {
            let message = format!("no policy matches {name}: add it to the `tables` of a [[policies]] entry");
            return Err(Error::new(ErrorKind::Config, message));
        }
        return Ok(vec![name]);
    }
    let mut tables = Vec::new();
    for catalog in fleet.catalog_names() {
        let found = fleet.discover(&catalog).await;
        tables.extend(found.map_err(|e| e.context(format!("list the tables of catalog `{catalog}`")))?);
    }
    Ok(tables)
}
