//! What is refused before any byte is read, and the arithmetic that must hold afterwards. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use iceberg::spec::{DataContentType, TableMetadata};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::FileGroup;
use crate::table::PartitionTuple;
use crate::table::supports::{check_file, check_output, check_table, unwritable_spec};

/// Refuses groups that this version cannot rewrite without loss, and plans that contradict themselves.
pub(crate) fn check_group(metadata: &TableMetadata, group: &FileGroup) -> Result<()> {
    check_table(metadata.format_version(), metadata.properties())?;
    check_output(metadata.properties())?;
    if metadata.partition_spec_by_id(group.output_spec_id).is_none() {
        return Err(Error::invalid(format!("the table has no partition spec {}", group.output_spec_id)));
    }
    if let Some(why) = unwritable_spec(metadata, group.output_spec_id) {
        return Err(Error::unsupported(why));
    }
    let mut paths = HashSet::new();
    for task in &group.tasks {
        let file = &task.data_file;
        if file.content != DataContentType::Data {
            return Err(Error::internal(format!("{} is planned as an input and is no data file", file.file_path)));
        }
        if !paths.insert(&file.file_path) {
            return Err(Error::invalid(format!("{} is planned twice: its rows would be doubled", file.file_path)));
        }
        check_file(file)?;
        for delete in task.delete_files.iter() {
            check_file(delete)?;
            if delete.content == DataContentType::Data {
                return Err(Error::internal(format!("{} is planned as a delete file and is none", delete.file_path)));
            }
            if delete.content == DataContentType::EqualityDeletes && delete.equality_ids.is_empty() {
                return Err(Error::invalid(format!("equality delete file {} names no columns", delete.file_path)));
            }
        }
        let elsewhere = |p: &Arc<PartitionTuple>| p.spec_id != group.output_spec_id || file.partition != *p;
        if group.partition.as_ref().is_some_and(elsewhere) {
            return Err(Error::internal(format!("{} is of another partition than its group", file.file_path)));
        }
    }
    Ok(())
}

/// Rows of a group by three independent counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowCounts {
    /// By the manifests' entries.
    pub listed: u64,
    /// Decoded from the inputs.
    pub read: u64,
    /// Taken out by deletes.
    pub deleted: u64,
    /// In the outputs' footers.
    pub written: u64,
}

/// Refuses a result in which rows are missing or too many.
pub(crate) fn reconcile(counts: RowCounts) -> Result<()> {
    if counts.listed != counts.read {
        let kind = ErrorKind::DataInvalid;
        let message = format!("the manifests list {} rows and {} were read", counts.listed, counts.read);
        return Err(Error::new(kind, message));
    }
    if counts.read.checked_sub(counts.deleted) != Some(counts.written) {
        return Err(Error::internal(format!(
            "{} rows were read, {} of them deleted, and {} written",
            counts.read, counts.deleted, counts.written
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_more_or_less_is_refused() {
        let right = RowCounts { listed: 10, read: 10, deleted: 3, written: 7 };
        reconcile(right).expect("the counts agree");
        let lost = reconcile(RowCounts { written: 6, ..right }).expect_err("a row was lost");
        assert_eq!(
            (lost.kind(), lost.to_string().as_str()),
            (ErrorKind::Internal, "10 rows were read, 3 of them deleted, and 6 written")
        );
        assert_eq!(reconcile(RowCounts { written: 8, ..right }).expect_err("doubled").kind(), ErrorKind::Internal);
        assert_eq!(reconcile(RowCounts { read: 9, ..right }).expect_err("unread").kind(), ErrorKind::DataInvalid);
        assert_eq!(reconcile(RowCounts { deleted: 11, ..right }).expect_err("absurd").kind(), ErrorKind::Internal);
    }
}
