//! The two actions that delete: plans and listings in, reports out.
//!
//! Job: after a confirmed expiry, delete what only expired snapshots reached; and find and delete what nothing reaches.
//! Input: a table handle, a plan or a policy. Output: reports; nothing here returns before it has said what was kept.
//! It must never delete a file while any retained metadata cannot be read, while an outcome is unknown, or without
//! having compared it with metadata loaded just before. All deletion goes through [`crate::storage::delete_files`].

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
pub use elsewhere::{Answer, Elsewhere, Needs, Suspects, stores_named};
pub use expire_snapshots::expire_snapshots;
pub use ownership::shared_location;
pub use remove_orphan_files::{CANDIDATES_PER_RUN, OrphanRequest, find_orphan_files, remove_orphan_files};
pub use report::{ExpireOutcome, ExpireReport, FileKind, OrphanReport, Refused, Tally};
