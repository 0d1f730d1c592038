//! Commits: requirements checked and metadata written under the table's lock, then the table moved at once.

use std::fs;

use iceberg::TableIdent;
use serde_json::Value;

use super::problem::{CatalogError, CatalogResult};
use super::requests::CommitTable;
use super::state::{CatalogState, StoredTable, read_document};
use super::{change, files, names};

impl CatalogState {
    /// Commits to a table, or makes it.
    pub(super) fn commit_table(&self, table: TableIdent, request: CommitTable) -> CatalogResult<StoredTable> {
        names::check_table(&table)?;
        let requirements = request.requirements.unwrap_or_default();
        if !change::is_create(&requirements) {
            return self.change_table(&table, &requirements, request.updates);
        }
        let mut tree = self.write();
        if tree.namespace(&table.namespace)?.tables.contains_key(&table.name) {
            drop(tree);
            return self.change_table(&table, &requirements, request.updates);
        }
        let location = || self.reserve_location(&table);
        let metadata = change::create_by_updates(&requirements, request.updates, location, self.clock.now_ms())?;
        let to = self.write_metadata(&metadata, 0)?;
        self.point(&table, &to)?;
        self.insert(&mut tree, &table, &to)?;
        Ok(StoredTable { metadata_location: Some(to), metadata: metadata.json })
    }

    fn change_table(
        &self,
        table: &TableIdent,
        requirements: &[Value],
        updates: Vec<Value>,
    ) -> CatalogResult<StoredTable> {
        let slot = self.read().table(table)?;
        let mut state = slot.lock();
        if state.ident.as_ref() != Some(table) {
            return Err(CatalogError::no_such_table(table));
        }
        let from = state.metadata_location.clone();
        let base = read_document(&from)?;
        let Some(metadata) = change::commit(&from, &base, requirements, updates, self.clock.now_ms())? else {
            return Ok(StoredTable { metadata_location: Some(from), metadata: base });
        };
        let to = self.write_metadata(&metadata, metadata_version(&from) + 1)?;
        self.point(table, &to)?;
        state.metadata_location.clone_from(&to);
        metadata.expired.iter().for_each(|location| delete_metadata(location));
        Ok(StoredTable { metadata_location: Some(to), metadata: metadata.json })
    }

    /// The moment of a commit. A failure may have moved the table all the same: no file is taken back.
    fn point(&self, table: &TableIdent, to: &str) -> CatalogResult<()> {
        let moved = self.files.write_table(table, to, self.clock.uuid());
        moved.map_err(|e| CatalogError::internal("move the table to its new metadata", e))
    }
}

fn delete_metadata(location: &str) {
    if let Ok(path) = files::local_path(location)
        && let Err(e) = fs::remove_file(&path)
    {
        tracing::debug!(file = %path.display(), error = %e, "metadata file was not deleted");
    }
}

/// The number in front of a metadata file's name: `00007-...` or `v7...`; 0 if it has none.
fn metadata_version(location: &str) -> u64 {
    let name = location.rsplit('/').next().unwrap_or_default();
    let digits = name.strip_prefix('v').unwrap_or(name);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    // Long runs of digits are part of an identifier, not a count.
    digits.get(..end).filter(|d| d.len() <= 9).and_then(|d| d.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_off_file_names() {
        for (location, version) in [
            ("file:///t/metadata/00007-5a5.metadata.json", 7),
            ("/t/metadata/v12.metadata.json", 12),
            ("/t/metadata/v12.gz.metadata.json", 12),
            ("/t/metadata/12345678901-a.metadata.json", 0),
            ("/t/metadata/table.json", 0),
        ] {
            assert_eq!(metadata_version(location), version, "{location}");
        }
    }
}
