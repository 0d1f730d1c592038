//! A table's directories, for telling its own files from others.

use super::LoadedTable;
use super::path::CanonicalPath;
use super::references::own_directories;
use crate::error::Result;

/// The directories: the location first, then external data and metadata directories.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Each as the table spells it, and for comparison.
    pub directories: Vec<(String, CanonicalPath)>,
}

impl Scope {
    pub fn of(loaded: &LoadedTable) -> Result<Self> {
        let parse = |dir: String| CanonicalPath::parse(&dir).map(|canonical| (dir, canonical));
        Ok(Self { directories: own_directories(loaded)?.into_iter().map(parse).collect::<Result<_>>()? })
    }

    /// Which of the directories a path lies in; the first is the table's location, which no other table shares.
    pub fn directory(&self, path: &CanonicalPath) -> Option<usize> {
        self.directories.iter().position(|(_, dir)| path.is_inside(dir))
    }

    /// Whether a name on the way from the table's directory begins with `_` or `.`, as those of files do that engines keep for
    /// themselves (checkpoints, staging, markers). Directories of partitions (`_field=value`) may be named so too.
    pub fn hides(&self, path: &CanonicalPath) -> bool {
        let Some((_, directory)) = self.directory(path).and_then(|index| self.directories.get(index)) else {
            return false;
        };
        let below = path.as_str().strip_prefix(directory.as_str()).unwrap_or_default();
        below.split('/').any(|name| name.starts_with(['_', '.']) && !name.contains('='))
    }
}
