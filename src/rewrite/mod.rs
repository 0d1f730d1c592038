//! One [`crate::plan::FileGroup`] in, one [`RewriteResult`] out: new files that hold exactly the live rows of the inputs.
//! It never commits, never deletes a file that it did not write, and never chooses what to rewrite.

use std::sync::Arc;

use iceberg::spec::DataFile;

use crate::table::FileEntry;

/// New files in place of old ones, proven to hold the same rows less the deleted ones.
#[derive(Debug, Clone)]
pub struct RewriteResult {
    /// Index of the file group.
    pub group: usize,
    /// Output files, ready for a manifest (their partition spec is the group's output spec).
    pub added: Vec<DataFile>,
    /// Input data files.
    pub rewritten: Vec<Arc<FileEntry>>,
    /// Rows in the inputs.
    pub input_rows: u64,
    /// Rows taken out by deletes.
    pub deleted_rows: u64,
    /// Rows in the outputs.
    pub output_rows: u64,
    /// Bytes in the inputs.
    pub input_bytes: u64,
    /// Bytes in the outputs.
    pub output_bytes: u64,
}
