//! Which tables a command works on.

use super::print;
use crate::error::{ErrorKind, Result};
use crate::fleet::Fleet;
use crate::table::TableName;

/// What a command works on.
pub(super) struct Selected {
    pub(super) tables: Vec<TableName>,
    /// Whether each catalog could be asked; if not, the command has failed, whatever becomes of the tables.
    pub(super) complete: bool,
}

/// The named table, or all maintained tables of the catalogs that can be asked; standard error tells of the others.
pub(super) async fn tables(fleet: &Fleet, table: Option<&str>) -> Result<Selected> {
    if let Some(text) = table {
        let name: TableName = text.parse()?;
        fleet.policy(&name)?;
        return Ok(Selected { tables: vec![name], complete: true });
    }
    let mut selected = Selected { tables: Vec::new(), complete: true };
    for catalog in fleet.catalog_names() {
        match fleet.discover(&catalog).await {
            Ok(found) => {
                selected.tables.extend(found.names);
                if let Some(error) = found.unclear {
                    print::err(&format!("list the tables of catalog `{catalog}`: {error}"));
                    selected.complete = false;
                }
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => {
                print::err(&format!("list the tables of catalog `{catalog}`: {error}"));
                selected.complete = false;
            }
        }
    }
    Ok(selected)
}
