//! What a table and its files may have, so that this version reads and rewrites them: each limit is said here, with its reason
//! and, if there is one, its cure. Pure.
//!
//! Expiry and the search for orphans need nothing but a readable format version and plain manifests.

use std::collections::HashMap;

use iceberg::spec::{DataFileFormat, FormatVersion, PrimitiveType, TableMetadata, Transform, Type};

use super::FileEntry;
use crate::error::{Error, Result};

/// The format version of this number, if its metadata can be read.
pub(super) fn format_version(number: u64) -> Result<FormatVersion> {
    match number {
        1 => Ok(FormatVersion::V1),
        2 => Ok(FormatVersion::V2),
        3 => Ok(FormatVersion::V3),
        other => Err(Error::unsupported(format!("format-version is {other}; 1, 2 and 3 are known"))),
    }
}

/// Refuses tables that would lose something by a new snapshot of ours.
pub fn check_table(version: FormatVersion, properties: &HashMap<String, String>) -> Result<()> {
    let why = if version > FormatVersion::V2 {
        format!(
            "format version {} cannot be compacted by this version: row lineage and deletion vectors would be lost",
            version as u8
        )
    } else if properties.contains_key("encryption.key-id") {
        "encrypted tables (encryption.key-id) cannot be compacted by this version".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::unsupported(format!("{why}; disable rewrite-data-files for this table")))
}

/// `why` a table's columns, partition specs or sort orders cannot be read.
pub(super) fn untyped(why: &str, metadata_location: &str) -> Error {
    Error::unsupported(format!(
        "{why} ({metadata_location}): this version does not rewrite such a table; its snapshots expire and its orphan files go \
         as those of any other (to be rid of this message set rewrite-data-files.enabled = false)"
    ))
}

/// For a manifest list or a manifest; `what` names it.
pub fn encrypted(what: &str) -> Error {
    Error::unsupported(format!("{what} is encrypted; encrypted tables are left alone"))
}

/// Why the rows of a data or delete file cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileLimit {
    /// Its manifest entry carries key metadata.
    Encrypted,
    /// Not Parquet. So are deletion vectors, which come with format version 3.
    Format,
}

/// `None` if the file's rows can be read.
pub fn file_limit(file: &FileEntry) -> Option<FileLimit> {
    match file.file_format {
        _ if file.encrypted => Some(FileLimit::Encrypted),
        Some(DataFileFormat::Parquet) => None,
        _ => Some(FileLimit::Format),
    }
}

/// Refuses a file that has a [`FileLimit`].
pub fn check_file(file: &FileEntry) -> Result<()> {
    let why = match (file_limit(file), file.file_format) {
        (None, _) => return Ok(()),
        (Some(FileLimit::Encrypted), _) => "encrypted".to_owned(),
        (_, Some(DataFileFormat::Puffin)) => {
            "a deletion vector: format version 3 is not handled by this version".to_owned()
        }
        (_, Some(format)) => format!("{format}: only Parquet files are rewritten"),
        (_, None) => "of an unknown format: only Parquet files are rewritten".to_owned(),
    };
    Err(Error::unsupported(format!("{} is {why}", file.file_path)))
}

/// Refuses tables whose new data files must be of a format that is not written, or lie where only other code knows.
pub fn check_output(properties: &HashMap<String, String>) -> Result<()> {
    let set = |key: &str| properties.get(key);
    let moved = ["write.object-storage.path", "write.folder-storage.path"].into_iter().find(|key| set(key).is_some());
    let why = if let Some(format) = set("write.format.default").filter(|f| !f.eq_ignore_ascii_case("parquet")) {
        format!("write.format.default is {format}: only Parquet files are written")
    } else if let Some(class) = set("write.location-provider.impl") {
        format!(
            "write.location-provider.impl = {class}: paths are decided by code that runs elsewhere; unset it to let this \
             table be compacted"
        )
    } else if let Some(key) = moved {
        format!("table property {key} is no longer honoured: use write.data.path")
    } else {
        return Ok(());
    };
    Err(Error::unsupported(why))
}

/// Why files of partition spec `spec_id` cannot be written such that every engine reads them; `None` if they can.
///
/// The identity of a `fixed` column is a partition that the Java library (1.9.2) reads and writes in a form of its own, with
/// a length before each value: a manifest with proper values makes the whole table unreadable for it.
pub fn unwritable_spec(metadata: &TableMetadata, spec_id: i32) -> Option<String> {
    let Some(spec) = metadata.partition_spec_by_id(spec_id) else {
        return Some(format!("the table has no partition spec {spec_id}"));
    };
    let schema = metadata.current_schema();
    spec.fields().iter().find_map(|field| {
        let (name, transform) = (&field.name, field.transform);
        let source = schema.field_by_id(field.source_id);
        match (transform, source.map(|column| column.field_type.as_ref())) {
            (Transform::Void, _) => None,
            (Transform::Unknown, _) => {
                Some(format!("partition field {name} has a transform that this version does not know"))
            }
            (_, None) => Some(format!("the source column of partition field {name} has left the schema")),
            (Transform::Identity, Some(Type::Primitive(ty @ PrimitiveType::Fixed(_)))) => {
                Some(format!("partition field {name} is the identity of a {ty} column, whose values Java engines keep in a form of their own"))
            }
            (_, Some(ty)) => {
                transform.result_type(ty).err().map(|_| format!("partition field {name} is the {transform} of a {ty}"))
            }
        }
    })
}
