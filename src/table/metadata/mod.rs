//! Table metadata as maintenance needs it: snapshots, properties, logs, statistics files and paths.
//!
//! Nothing here looks at schemas, partition specs or sort orders, so that a column type, a transform or a field that this
//! version does not know never keeps snapshots from expiring, garbage from being found, or another table from being asked.
//! What tells which files are needed is read strictly: a document that is damaged there is an error and never read in part.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{FormatVersion, MetadataLog, Operation, SnapshotLog, Summary};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use uuid::Uuid;

use super::supports;
use crate::error::{Error, Result};

pub type SnapshotRef = Arc<Snapshot>;

/// What a table's metadata says about its snapshots and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    format_version: FormatVersion,
    uuid: Uuid,
    location: String,
    properties: HashMap<String, String>,
    last_sequence_number: i64,
    last_updated_ms: i64,
    current_schema_id: i32,
    default_spec_id: i32,
    current_snapshot_id: Option<i64>,
    snapshots: Vec<SnapshotRef>,
    by_id: HashMap<i64, usize>,
    snapshot_log: Vec<SnapshotLog>,
    metadata_log: Vec<MetadataLog>,
    statistics: Vec<StatisticsFile>,
    partition_statistics: Vec<StatisticsFile>,
}

/// One version of the table's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    snapshot_id: i64,
    parent_snapshot_id: Option<i64>,
    sequence_number: i64,
    timestamp_ms: i64,
    manifest_list: String,
    inline_manifests: Vec<String>,
    summary: Summary,
    operation: Option<String>,
    schema_id: Option<i32>,
    encryption_key_id: Option<String>,
}

/// A file of table or partition statistics that the metadata names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StatisticsFile {
    pub snapshot_id: i64,
    pub statistics_path: String,
    /// Bytes; 0 if the metadata does not say.
    #[serde(default)]
    pub file_size_in_bytes: i64,
}

impl Metadata {
    /// Reads a metadata document of format version 1 to 3.
    ///
    /// Errors: [`crate::error::ErrorKind::Unsupported`], naming the part, for another version and for anything that is not
    /// as the specification says and tells which files the table needs.
    pub(super) fn from_json(json: &Value) -> Result<Self> {
        let format_version = format_version(json)?;
        let current_snapshot_id = field::<Option<i64>>(json, "current-snapshot-id")?.filter(|id| *id != -1);
        let snapshots = snapshots(json, format_version)?;
        let by_id: HashMap<i64, usize> = snapshots.iter().enumerate().map(|(at, s)| (s.snapshot_id, at)).collect();
        if let Some(id) = current_snapshot_id.filter(|id| !by_id.contains_key(id)) {
            return Err(Error::unsupported(format!("current-snapshot-id is {id}, which snapshots does not have")));
        }
        let uuid = field::<Option<Uuid>>(json, "table-uuid")?;
        if uuid.is_none() && format_version != FormatVersion::V1 {
            return Err(Error::unsupported("table-uuid is missing"));
        }
        let last_sequence_number = match format_version {
            FormatVersion::V1 => 0,
            _ => field(json, "last-sequence-number")?,
        };
        Ok(Self {
            format_version,
            uuid: uuid.unwrap_or_default(),
            location: field(json, "location")?,
            properties: field::<Option<TextMap>>(json, "properties")?.unwrap_or_default().0,
            last_sequence_number,
            last_updated_ms: field(json, "last-updated-ms")?,
            current_schema_id: current_schema_id(json)?,
            default_spec_id: field::<Option<i32>>(json, "default-spec-id")?.unwrap_or(0),
            current_snapshot_id,
            snapshots,
            by_id,
            snapshot_log: field::<Option<_>>(json, "snapshot-log")?.unwrap_or_default(),
            metadata_log: field::<Option<_>>(json, "metadata-log")?.unwrap_or_default(),
            statistics: field::<Option<_>>(json, "statistics")?.unwrap_or_default(),
            partition_statistics: field::<Option<_>>(json, "partition-statistics")?.unwrap_or_default(),
        })
    }

    pub fn format_version(&self) -> FormatVersion {
        self.format_version
    }

    /// The table's UUID; nil for a version 1 table that has none.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    pub fn location(&self) -> &str {
        &self.location
    }

    pub fn properties(&self) -> &HashMap<String, String> {
        &self.properties
    }

    /// The highest sequence number given to a snapshot; 0 in version 1.
    pub fn last_sequence_number(&self) -> i64 {
        self.last_sequence_number
    }

    /// The sequence number of the next snapshot; 0 in version 1.
    pub fn next_sequence_number(&self) -> i64 {
        match self.format_version {
            FormatVersion::V1 => 0,
            _ => self.last_sequence_number.saturating_add(1),
        }
    }

    /// When the table was last changed, milliseconds since the epoch.
    pub fn last_updated_ms(&self) -> i64 {
        self.last_updated_ms
    }

    pub fn current_schema_id(&self) -> i32 {
        self.current_schema_id
    }

    pub fn default_partition_spec_id(&self) -> i32 {
        self.default_spec_id
    }

    /// All snapshots, in the document's order.
    pub fn snapshots(&self) -> impl ExactSizeIterator<Item = &SnapshotRef> {
        self.snapshots.iter()
    }

    pub fn snapshot_by_id(&self, snapshot_id: i64) -> Option<&SnapshotRef> {
        self.by_id.get(&snapshot_id).and_then(|at| self.snapshots.get(*at))
    }

    /// The id of the head of `main`.
    pub fn current_snapshot_id(&self) -> Option<i64> {
        self.current_snapshot_id
    }

    /// The head of `main`.
    pub fn current_snapshot(&self) -> Option<&SnapshotRef> {
        self.snapshot_by_id(self.current_snapshot_id?)
    }

    /// The log of what the head of `main` was.
    pub fn history(&self) -> &[SnapshotLog] {
        &self.snapshot_log
    }

    /// The log of earlier metadata files.
    pub fn metadata_log(&self) -> &[MetadataLog] {
        &self.metadata_log
    }

    pub fn statistics_iter(&self) -> impl ExactSizeIterator<Item = &StatisticsFile> {
        self.statistics.iter()
    }

    pub fn partition_statistics_iter(&self) -> impl ExactSizeIterator<Item = &StatisticsFile> {
        self.partition_statistics.iter()
    }

    pub fn statistics_for_snapshot(&self, snapshot_id: i64) -> Option<&StatisticsFile> {
        self.statistics.iter().find(|s| s.snapshot_id == snapshot_id)
    }

    pub fn partition_statistics_for_snapshot(&self, snapshot_id: i64) -> Option<&StatisticsFile> {
        self.partition_statistics.iter().find(|s| s.snapshot_id == snapshot_id)
    }
}

impl Snapshot {
    pub fn snapshot_id(&self) -> i64 {
        self.snapshot_id
    }

    pub fn parent_snapshot_id(&self) -> Option<i64> {
        self.parent_snapshot_id
    }

    /// Its sequence number; 0 in version 1.
    pub fn sequence_number(&self) -> i64 {
        self.sequence_number
    }

    /// When it was made, milliseconds since the epoch.
    pub fn timestamp_ms(&self) -> i64 {
        self.timestamp_ms
    }

    /// The path of its manifest list; empty if it names its manifests itself ([`Self::inline_manifests`]).
    pub fn manifest_list(&self) -> &str {
        &self.manifest_list
    }

    /// Paths of its manifests, where an old version 1 table names them without a manifest list.
    pub fn inline_manifests(&self) -> &[String] {
        &self.inline_manifests
    }

    /// What changed. An operation that is missing or unknown reads as `overwrite`: anything may have changed.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    pub fn operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }

    /// The schema that was current when it was made.
    pub fn schema_id(&self) -> Option<i32> {
        self.schema_id
    }

    /// The key that its manifest list is encrypted with.
    pub fn encryption_key_id(&self) -> Option<&str> {
        self.encryption_key_id.as_deref()
    }
}

/// A map of text to text. As in the reference implementation a value that is no text reads as its JSON.
#[derive(Debug, Default)]
struct TextMap(HashMap<String, String>);

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = |value: Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        let map = HashMap::<String, Value>::deserialize(deserializer)?;
        Ok(Self(map.into_iter().filter_map(|(key, value)| Some((key, text(value)?))).collect()))
    }
}

/// A snapshot as any version writes it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SnapshotJson {
    snapshot_id: i64,
    parent_snapshot_id: Option<i64>,
    #[serde(default)]
    sequence_number: i64,
    timestamp_ms: i64,
    manifest_list: Option<String>,
    manifests: Option<Vec<String>>,
    summary: Option<TextMap>,
    schema_id: Option<i32>,
    key_id: Option<String>,
}

fn format_version(json: &Value) -> Result<FormatVersion> {
    match json.get("format-version").and_then(Value::as_u64) {
        Some(number) => supports::format_version(number),
        None => Err(Error::unsupported("format-version is missing")),
    }
}

/// One field of the document; `Option` takes one that is missing or null.
fn field<T: DeserializeOwned>(json: &Value, key: &str) -> Result<T> {
    T::deserialize(json.get(key).unwrap_or(&Value::Null)).map_err(|e| Error::unsupported(format!("{key}: {e}")))
}

/// Old version 1 tables have one schema, which may tell its id.
fn current_schema_id(json: &Value) -> Result<i32> {
    match field::<Option<i32>>(json, "current-schema-id")? {
        Some(id) => Ok(id),
        None => Ok(field::<Option<i32>>(json.get("schema").unwrap_or(&Value::Null), "schema-id")?.unwrap_or(0)),
    }
}

fn snapshots(json: &Value, version: FormatVersion) -> Result<Vec<SnapshotRef>> {
    let listed = match json.get("snapshots") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(_) => return Err(Error::unsupported("snapshots is no list")),
    };
    let read = |(at, json): (usize, &Value)| {
        let wrong = |why: &dyn std::fmt::Display| Error::unsupported(format!("snapshots[{at}]: {why}"));
        let parsed = SnapshotJson::deserialize(json).map_err(|e| wrong(&e))?;
        snapshot(parsed, version).map(Arc::new).ok_or_else(|| wrong(&"neither manifest-list nor manifests"))
    };
    listed.iter().enumerate().map(read).collect()
}

fn snapshot(json: SnapshotJson, version: FormatVersion) -> Option<Snapshot> {
    let (manifest_list, inline_manifests) = match (json.manifest_list.filter(|l| !l.is_empty()), json.manifests) {
        (Some(list), _) => (list, Vec::new()),
        (None, Some(manifests)) => (String::new(), manifests),
        (None, None) => return None,
    };
    let mut properties = json.summary.unwrap_or_default().0;
    let operation = properties.remove("operation");
    let known = match operation.as_deref() {
        Some("append") => Operation::Append,
        Some("replace") => Operation::Replace,
        Some("delete") => Operation::Delete,
        _ => Operation::Overwrite,
    };
    Some(Snapshot {
        snapshot_id: json.snapshot_id,
        parent_snapshot_id: json.parent_snapshot_id,
        sequence_number: if version == FormatVersion::V1 { 0 } else { json.sequence_number },
        timestamp_ms: json.timestamp_ms,
        manifest_list,
        inline_manifests,
        summary: Summary { operation: known, additional_properties: properties },
        operation,
        schema_id: json.schema_id,
        encryption_key_id: json.key_id,
    })
}

#[cfg(test)]
mod tests;
