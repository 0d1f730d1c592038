//! Rewriting file groups: what the reader, the deletes and the writer must get right.

mod bounds;
mod deletes;
mod evolution;
mod failures;
mod fixed_point;
mod model;
mod outputs;
mod partitions;
pub(crate) mod table;
mod types;
