//! Which unreferenced files are garbage, by everything that was searched for.

use super::referenced::Unreferenced;
use super::report::OrphanReport;
use crate::error::Result;
use crate::plan::remove_orphan_files::{Evidence, Garbage, KeepReason, OrphanContents, judge};
use crate::table::ListedFile;

/// What a search has found out about unreferenced files.
pub(super) struct Searched<'a> {
    pub(super) evidence: Evidence<'a>,
    pub(super) contents: OrphanContents,
}

/// An unreferenced file that is garbage by the rules of [`crate::plan::remove_orphan_files`].
///
/// Rule: ages count only where clocks agree, which was asked before the listing; provable garbage goes at the short age, where the
/// proof is what committed metadata says, everything else at the long one.
#[derive(Debug)]
pub(super) struct JudgedGarbage {
    file: Unreferenced,
    garbage: Garbage,
}

impl JudgedGarbage {
    pub(super) fn path(&self) -> &str {
        &self.file.file().path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.file.file().size
    }

    pub(super) fn garbage(&self) -> Garbage {
        self.garbage
    }
}

impl Searched<'_> {
    pub(super) fn judge(&self, file: &ListedFile) -> Result<Result<Garbage, KeepReason>> {
        judge(file, &self.evidence, &self.contents)
    }

    /// Those that are garbage.
    pub(super) fn garbage(&self, files: Vec<Unreferenced>, report: &mut OrphanReport) -> Result<Vec<JudgedGarbage>> {
        let mut judged = Vec::new();
        for file in files {
            match self.judge(file.file())? {
                Err(kept) => report.keep(kept, file.file().size),
                Ok(garbage) => {
                    tracing::debug!(path = %file.file().path, ?garbage, "orphan file found");
                    judged.push(JudgedGarbage { file, garbage });
                }
            }
        }
        Ok(judged)
    }
}
