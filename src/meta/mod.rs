//! Manifests and manifest lists: a reader that decodes only what is needed, and writers for what a commit changes.
//!
//! Manifests are immutable, so whatever is read may be kept by path. It must never return part of a damaged file.

mod avro;
mod avro_schema;
mod container;
mod entry;
mod list;
mod partition;
mod partition_summary;
mod produce;
mod read;
mod schema;
pub mod snapshot;
pub(crate) mod splice;
mod summary;
pub(crate) mod write;

pub use list::{read_manifest_list, read_manifest_list_at, read_manifests_of, unlisted_manifest};
pub use partition::partition_type;
pub use produce::{Additions, PreparedSnapshot, prepare_additions};
pub(crate) use produce::{head_requirements, head_updates, new_snapshot};
pub use read::{PathEntry, read_all_manifest_paths, read_manifest};
pub use summary::SummaryBuilder;
pub use write::{SnapshotIdentity, SnapshotWriter};

#[cfg(test)]
mod tests;
