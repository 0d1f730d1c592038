//! Commits to several tables at once: written down before the first table moves, redone at start if they were cut off.

use std::fs;
use std::io;
use std::path::PathBuf;

use iceberg::TableIdent;
use serde::{Deserialize, Serialize};

use super::files;
use super::tree::{Tree, TreeFiles};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// One table's part of a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Move {
    /// The table.
    pub(super) table: TableIdent,
    /// Its metadata before; `None` if the commit makes it.
    pub(super) from: Option<String>,
    /// Its metadata after.
    pub(super) to: String,
}

/// The place where a commit to several tables is written down; one at a time.
#[derive(Debug)]
pub(super) struct Intents {
    path: PathBuf,
    busy: std::sync::Mutex<()>,
}

impl Intents {
    /// Intents are kept in this file.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, busy: std::sync::Mutex::new(()) }
    }

    /// Moves all the tables, or none. With one table its own file is enough.
    pub(super) fn apply(&self, moves: &[Move], files: &TreeFiles, clock: &dyn Clock) -> io::Result<()> {
        if let [only] = moves {
            return files.write_table(&only.table, &only.to, clock.uuid());
        }
        let _busy = self.busy.lock();
        files::replace(&self.path, &serde_json::to_vec(moves)?, clock.uuid())?;
        for step in moves {
            files.write_table(&step.table, &step.to, clock.uuid())?;
        }
        files::remove(&self.path)
    }

    /// Finishes on disk what a crash has cut off. A table that is no longer where the commit found it is left alone.
    pub(super) fn redo(&self, tree: &Tree, files: &TreeFiles, clock: &dyn Clock) -> Result<()> {
        let failed = |e: &dyn std::fmt::Display| Error::internal(format!("redo {}: {e}", self.path.display()));
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(failed(&e)),
        };
        let moves: Vec<Move> = serde_json::from_slice(&bytes).map_err(|e| failed(&e))?;
        for step in moves {
            let slot = tree.table(&step.table).ok();
            let at = slot.as_ref().map(|slot| slot.lock().metadata_location.clone());
            if at == step.from && tree.namespace(&step.table.namespace).is_ok() {
                files.write_table(&step.table, &step.to, clock.uuid()).map_err(|e| failed(&e))?;
            }
        }
        files::remove(&self.path).map_err(|e| failed(&e))
    }
}
