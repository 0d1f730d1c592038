//! Manifests and manifest lists: a reader that decodes only what is needed, and writers for what a commit changes.
//!
//! Manifests are immutable, so whatever is read may be kept by path. It must never return part of a damaged file.

mod avro;
mod container;
mod entry;
mod list;
mod partition;
mod read;

pub use container::Codec;
pub use list::{read_manifest_list, read_manifest_list_at};
pub use partition::partition_type;
pub use read::{PathEntry, read_all_manifest_paths, read_manifest, read_manifest_paths};
