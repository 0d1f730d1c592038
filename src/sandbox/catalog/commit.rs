//! Commits: requirements checked and metadata written under the tables' locks, then every table moved at once.

use std::fs;
use std::sync::Arc;

use iceberg::TableIdent;
use parking_lot::MutexGuard;

use super::change::{self, NewMetadata};
use super::files;
use super::intent::Move;
use super::names;
use super::problem::{Outcome, Problem};
use super::requests::CommitTable;
use super::state::{Loaded, State, read_document};
use super::tree::{Slot, SlotState, Tree};

/// A change to one table, with its identifier settled.
#[derive(Debug)]
pub(super) struct TableChange {
    pub(super) table: TableIdent,
    pub(super) request: CommitTable,
}

/// A table's new metadata on its way.
struct Prepared {
    table: TableIdent,
    from: Option<String>,
    metadata: NewMetadata,
    to: String,
}

impl State {
    /// Commits to one table, or makes it.
    pub(super) fn commit_table(&self, change: TableChange) -> Outcome<Loaded> {
        let table = change.table.clone();
        match self.commit(vec![change])?.pop() {
            Some(prepared) => Ok(Loaded { metadata_location: Some(prepared.to), metadata: prepared.metadata.json }),
            // Nothing changed: the table is as it was.
            None => self.load_table(&table),
        }
    }

    /// Commits to several tables, to all or to none.
    pub(super) fn commit_all(&self, changes: Vec<TableChange>) -> Outcome<()> {
        self.commit(changes).map(|_| ())
    }

    fn commit(&self, mut changes: Vec<TableChange>) -> Outcome<Vec<Prepared>> {
        // Everybody locks in the same order, so that nobody waits in a circle.
        changes.sort_by(|a, b| a.table.cmp(&b.table));
        if let Some(pair) = changes.windows(2).find(|pair| pair[0].table == pair[1].table) {
            return Err(Problem::bad_request(format!("Table {} is changed twice", pair[0].table)));
        }
        let creates = changes.iter().any(|c| change::is_create(c.request.requirements.as_deref().unwrap_or_default()));
        if creates {
            let mut tree = self.write();
            let slots = find_slots(&tree, &changes)?;
            let prepared = self.commit_locked(changes, &slots)?;
            for new in prepared.iter().filter(|p| p.from.is_none()) {
                self.insert(&mut tree, &new.table, &new.to)?;
            }
            return Ok(prepared);
        }
        let slots = find_slots(&self.read(), &changes)?;
        self.commit_locked(changes, &slots)
    }

    fn commit_locked(&self, changes: Vec<TableChange>, slots: &[Option<Arc<Slot>>]) -> Outcome<Vec<Prepared>> {
        let mut states: Vec<Option<MutexGuard<'_, SlotState>>> =
            slots.iter().map(|slot| slot.as_ref().map(|slot| slot.lock())).collect();
        let mut prepared = Vec::with_capacity(changes.len());
        for (change, state) in changes.into_iter().zip(&states) {
            match self.prepare(change, state.as_deref()) {
                Ok(new) => prepared.extend(new),
                Err(e) => {
                    forget(&prepared);
                    return Err(e);
                }
            }
        }
        let moves: Vec<Move> =
            prepared.iter().map(|p| Move { table: p.table.clone(), from: p.from.clone(), to: p.to.clone() }).collect();
        if moves.is_empty() {
            return Ok(prepared);
        }
        // From here on a failure may have moved a table: no file is taken back.
        self.intents
            .apply(&moves, &self.files, self.clock.as_ref())
            .map_err(|e| Problem::internal("move tables to their new metadata", e))?;
        for state in states.iter_mut().flatten() {
            if let Some(new) = prepared.iter().find(|p| Some(&p.table) == state.ident.as_ref()) {
                state.metadata_location.clone_from(&new.to);
            }
        }
        for expired in prepared.iter().flat_map(|p| &p.metadata.expired) {
            delete_metadata(expired);
        }
        Ok(prepared)
    }

    fn prepare(&self, change: TableChange, state: Option<&SlotState>) -> Outcome<Option<Prepared>> {
        let TableChange { table, request } = change;
        let requirements = request.requirements.unwrap_or_default();
        let (from, metadata) = match state {
            Some(state) => {
                if state.ident.as_ref() != Some(&table) {
                    return Err(Problem::no_such_table(&table));
                }
                let from = state.metadata_location.clone();
                let base = read_document(&from)?;
                match change::commit(&from, &base, &requirements, request.updates, self.clock.now_ms())? {
                    Some(metadata) => (Some(from), metadata),
                    None => return Ok(None),
                }
            }
            None => {
                let location = || self.reserve_location(&table);
                let now_ms = self.clock.now_ms();
                (None, change::create_by_updates(&requirements, request.updates, location, now_ms)?)
            }
        };
        let version = from.as_deref().map_or(0, |from| metadata_version(from) + 1);
        let to = self.write_metadata(&metadata, version)?;
        Ok(Some(Prepared { table, from, metadata, to }))
    }
}

/// The tables to change; none where a change makes its table.
fn find_slots(tree: &Tree, changes: &[TableChange]) -> Outcome<Vec<Option<Arc<Slot>>>> {
    changes
        .iter()
        .map(|c| {
            names::check_table(&c.table)?;
            match change::is_create(c.request.requirements.as_deref().unwrap_or_default()) {
                true => tree.namespace(&c.table.namespace).map(|n| n.tables.get(&c.table.name).cloned()),
                false => tree.table(&c.table).map(Some),
            }
        })
        .collect()
}

/// Deletes metadata of a commit that will not happen.
fn forget(prepared: &[Prepared]) {
    for p in prepared {
        delete_metadata(&p.to);
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
