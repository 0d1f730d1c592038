//! A table as its catalog served it: metadata, branches and tags, what was vended for reaching its files.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use iceberg::spec::{MAIN_BRANCH, SnapshotReference, TableMetadata};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::metadata::{Metadata, SnapshotRef};
use super::typed;
use crate::error::{Error, Result};

/// Settings, among them secrets, for files whose path starts with a prefix (`storage-credentials` of the REST specification).
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct StorageCredential {
    /// Start of the paths it is for; the longest that fits counts.
    pub prefix: String,
    /// Settings by Iceberg's names, such as `s3.session-token`.
    pub config: HashMap<String, String>,
}

impl std::fmt::Debug for StorageCredential {
    /// Without the settings: they hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageCredential").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Table metadata as a catalog served it.
#[derive(Clone)]
pub struct LoadedTable {
    /// Where the metadata file lies.
    pub metadata_location: String,
    /// Snapshots, properties, logs, statistics: what can be told of any table, whatever its columns are.
    pub metadata: Arc<Metadata>,
    /// Every branch and tag, also those whose snapshot is gone from the metadata.
    pub refs: BTreeMap<String, SnapshotReference>,
    pub vended: TableCredentials,
    /// See [`Self::typed`].
    typed: Result<Arc<TableMetadata>>,
}

impl std::fmt::Debug for LoadedTable {
    /// Without settings and credentials: they hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("LoadedTable");
        shown.field("metadata_location", &self.metadata_location).field("metadata", &self.metadata);
        shown.field("refs", &self.refs).finish_non_exhaustive()
    }
}

impl LoadedTable {
    /// Reads a metadata document. Types, transforms and fields that this version does not know are no obstacle.
    ///
    /// Errors: [`crate::error::ErrorKind::Unsupported`], naming the part that cannot be read. So is a table whose `main`
    /// names a snapshot that the metadata does not have: it must not pass for one without data. Other branches and tags
    /// may name such a snapshot; else no expiry could ever remove them.
    pub fn from_metadata_json(metadata_location: String, json: &Value) -> Result<Self> {
        let unreadable = |e: Error| e.context(format!("table metadata {metadata_location} cannot be read"));
        let metadata = Metadata::from_json(json).map_err(unreadable)?;
        let refs = read_refs(json, metadata.current_snapshot_id()).map_err(unreadable)?;
        let typed = typed::read(&metadata_location, json, metadata.properties());
        Ok(Self { metadata_location, metadata: Arc::new(metadata), refs, vended: TableCredentials::default(), typed })
    }

    /// Schemas, partition specs and sort orders in the library's types. **It knows no snapshots, refs, logs or statistics**:
    /// for these see [`Self::metadata`].
    ///
    /// [`crate::error::ErrorKind::Unsupported`], with the reason and the cure, if this version cannot read them. Only what
    /// reads or writes rows or partition values may ask for this; expiry and the search for garbage need none of it.
    pub fn typed(&self) -> Result<&Arc<TableMetadata>> {
        self.typed.as_ref().map_err(Clone::clone)
    }

    /// The head of `main`.
    pub fn current_snapshot(&self) -> Option<&SnapshotRef> {
        self.metadata.current_snapshot()
    }
}

/// Branches and tags. Version 1 metadata may name its current snapshot without a `main` branch.
fn read_refs(json: &Value, current: Option<i64>) -> Result<BTreeMap<String, SnapshotReference>> {
    let mut refs = match json.get("refs") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(refs) => BTreeMap::<String, SnapshotReference>::deserialize(refs)
            .map_err(|e| Error::unsupported(format!("refs: {e}")))?,
    };
    match (refs.get(MAIN_BRANCH).map(|main| main.snapshot_id), current) {
        (Some(main), Some(current)) if main == current => {}
        (Some(main), _) => {
            let current = current.map_or_else(|| "missing".to_owned(), |id| id.to_string());
            return Err(Error::unsupported(format!("branch main is at {main}, but current-snapshot-id is {current}")));
        }
        (None, Some(current)) => {
            let retention = iceberg::spec::SnapshotRetention::branch(None, None, None);
            refs.insert(MAIN_BRANCH.into(), SnapshotReference::new(current, retention));
        }
        (None, None) => {}
    }
    Ok(refs)
}

/// What a catalog vends for reaching a table's files.
#[derive(Clone, Default)]
pub struct TableCredentials {
    /// The catalog's settings for the table; they may hold credentials, too.
    pub config: HashMap<String, String>,
    /// Vended credentials by location prefix.
    pub storage_credentials: Vec<StorageCredential>,
}

/// Where a table says its files lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredPaths {
    pub location: String,
    /// `write.data.path` and `write.metadata.path`, where set.
    pub further: Vec<String>,
    /// The table's UUID, if the metadata tells one.
    pub uuid: Option<Uuid>,
}

impl DeclaredPaths {
    const FURTHER: [&str; 2] = ["write.data.path", "write.metadata.path"];

    pub fn of(metadata: &Metadata) -> Self {
        let further = Self::FURTHER.iter().filter_map(|key| metadata.properties().get(*key).cloned());
        Self {
            location: metadata.location().to_owned(),
            further: further.collect(),
            uuid: Some(metadata.uuid()).filter(|uuid| !uuid.is_nil()),
        }
    }

    /// From a metadata document of which nothing else need be readable: of any format version, with any types.
    /// [`crate::error::ErrorKind::DataInvalid`] if it does not tell.
    pub fn in_json(metadata: &serde_json::Value) -> Result<Self> {
        let location = metadata.get("location").and_then(serde_json::Value::as_str);
        let location = location.ok_or_else(|| Error::invalid("the table's metadata tells no location"))?.to_owned();
        let property = |key: &&str| metadata.get("properties")?.get(*key)?.as_str().map(str::to_owned);
        let uuid = metadata.get("table-uuid").and_then(serde_json::Value::as_str);
        let uuid = uuid.and_then(|uuid| Uuid::try_parse(uuid).ok());
        Ok(Self { location, further: Self::FURTHER.iter().filter_map(property).collect(), uuid })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::ErrorKind;
    use crate::testing::builder::{metadata, snapshot};

    fn document(refs: &Value, current: i64) -> Value {
        let snapshot = |id: i64| snapshot(id, None, json!({"timestamp-ms": 1000 + id}));
        metadata(json!({
            "last-sequence-number": 2, "last-updated-ms": 2000, "refs": refs, "current-snapshot-id": current,
            "snapshots": [snapshot(1), snapshot(2)],
        }))
    }

    fn loaded(refs: &Value, current: i64) -> Result<LoadedTable> {
        LoadedTable::from_metadata_json("s3://b/t/metadata/v2.metadata.json".into(), &document(refs, current))
    }

    #[test]
    fn refs_to_snapshots_that_are_gone_stay_visible_and_do_not_hide_the_table() {
        let (main, live) = (json!({"snapshot-id": 2, "type": "branch"}), json!({"snapshot-id": 1, "type": "tag"}));
        let (tag, branch) = (json!({"snapshot-id": 7, "type": "tag"}), json!({"snapshot-id": 8, "type": "branch"}));
        let table = loaded(&json!({"main": main, "live": live, "tag": tag, "dev": branch}), 2).expect("readable");
        let refs: Vec<(&str, i64)> = table.refs.iter().map(|(name, r)| (name.as_str(), r.snapshot_id)).collect();
        assert_eq!(refs, [("dev", 8), ("live", 1), ("main", 2), ("tag", 7)]);
        assert!(table.metadata.snapshot_by_id(7).is_none());
        assert_eq!(table.current_snapshot().map(|s| s.snapshot_id()), Some(2));
    }

    #[test]
    fn a_main_branch_without_its_snapshot_is_no_empty_table() {
        for current in [-1, 9] {
            let error = loaded(&json!({"main": {"snapshot-id": 9, "type": "branch"}}), current).expect_err("damaged");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    }

    #[test]
    fn version_1_names_its_head_without_a_ref() {
        let mut json = document(&Value::Null, 2);
        json["format-version"] = json!(1);
        json["schema"] = json["schemas"][0].clone();
        let table =
            LoadedTable::from_metadata_json("s3://b/t/metadata/v2.metadata.json".into(), &json).expect("readable");
        assert_eq!(table.refs.get("main").map(|r| r.snapshot_id), Some(2));
    }
}
