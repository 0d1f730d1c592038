//! The two actions that delete: plans and listings in, reports out.
//!
//! Job: after a confirmed expiry, delete what only expired snapshots reached; and find and delete what nothing reaches.
//! Input: a table handle, a plan or a policy. Output: reports; nothing here returns before it has said what was kept.
//! It must never delete a file while any retained metadata cannot be read, while an outcome is unknown, or without
//! having compared it with metadata loaded just before. All deletion goes through [`crate::storage::delete_files`].
//!
//! How an orphan goes; each type is made only from the one before, and says the rule that it stands for:
//! 1. Settings, clocks and directories are compared; `Reachable` reads everything that the table's metadata reaches.
//! 2. `Comparison::list` lists the directories. What nothing refers to and is old enough is `listing::ListedCandidate`, a bounded number.
//! 3. Metadata files found there must be this table's, or the run is refused.
//! 4. `References::read_after` reads checkpoints of writers, then loads the metadata anew and grows the reachable set by it.
//! 5. What still nothing refers to is `referenced::Unreferenced`.
//! 6. `OnceReferenced` and dated metadata files give proofs; files that had no room are listed again if proofs speak for them.
//! 7. What the rules of `plan::remove_orphan_files` call garbage is `judged::JudgedGarbage`.
//! 8. What metadata does not name by another path, nor reaches as the same inode, is `other_names::NoOtherName`.
//! 9. All other tables are asked, last of all: what none of them needs is `elsewhere::Unneeded`.
//! 10. That is `deletion::Doomed`, as is an `expire_snapshots::OnlyExpired` file after a confirmed expiry.
//! 11. `Deleter` takes nothing else, and compares each batch with metadata loaded just before.
//! 12. What lists other files goes after them, and stays as the proof about those that could not be deleted.

mod clocks;
mod deletion;
mod elsewhere;
mod expire_snapshots;
mod judged;
mod listing;
mod once_referenced;
mod other_names;
mod ownership;
mod reachable;
mod referenced;
mod remove_orphan_files;
mod report;

pub use clocks::{clock_apart, clock_apart_from_one};
pub use elsewhere::{Elsewhere, Needs, NeighbourAnswer, Suspects, stores_named};
pub use expire_snapshots::expire_snapshots;
pub use ownership::shared_location;
pub use remove_orphan_files::{CANDIDATES_PER_RUN, OrphanRequest, find_orphan_files, remove_orphan_files};
pub use report::{ExpireOutcome, ExpireReport, FileKind, OrphanReport, Refused, Tally};
