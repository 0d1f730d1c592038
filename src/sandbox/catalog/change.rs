//! From old metadata and a request to new metadata. Pure: no files, no locks.
//!
//! The library's types do the work; this module parses them piece by piece, so that an error names the piece, and
//! corrects what the library does differently from the reference implementation.

use std::collections::{BTreeMap, HashMap};

use iceberg::spec::{
    FormatVersion, MAIN_BRANCH, Schema, SnapshotReference, SnapshotRetention, SortOrder, TableMetadata,
    TableMetadataBuildResult, TableMetadataBuilder, TableProperties, UnboundPartitionSpec,
};
use iceberg::{ErrorKind, TableCreation, TableRequirement, TableUpdate};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::problem::{CatalogError, CatalogResult};
use super::requests::CreateTable;
use crate::sandbox::untyped;

const FORMAT_VERSION: &str = "format-version";

#[derive(Debug)]
pub(super) struct NewMetadata {
    pub(super) json: String,
    pub(super) location: String,
    /// Directory for metadata files: `write.metadata.path`, or `metadata` below the location.
    pub(super) directory: String,
    /// Metadata files that left the log and may be deleted, if the table wants that.
    pub(super) expired: Vec<String>,
}

impl NewMetadata {
    /// `property` tells a property of the table, empty if it is not set; `left_log` are the metadata files that left the log.
    fn new(json: String, location: String, property: impl Fn(&str) -> String, left_log: Vec<String>) -> Self {
        let is = |key: &str, value: &str| property(key).eq_ignore_ascii_case(value);
        let directory = match property("write.metadata.path") {
            path if path.is_empty() => format!("{location}/metadata"),
            path => path.trim_end_matches('/').to_owned(),
        };
        let expired = if is("write.metadata.delete-after-commit.enabled", "true") { left_log } else { Vec::new() };
        Self { json, location, directory, expired }
    }
}

/// The metadata of a new table; field ids are assigned anew, as the specification of a create demands.
pub(super) fn create(request: CreateTable, location: String, uuid: uuid::Uuid) -> CatalogResult<NewMetadata> {
    let mut properties: HashMap<String, String> = request.properties.unwrap_or_default().into_iter().collect();
    let format_version = match properties.remove(FORMAT_VERSION) {
        Some(text) => format_version(&text)?,
        None => FormatVersion::V2,
    };
    properties.retain(|key, _| !TableProperties::RESERVED_PROPERTIES.contains(&key.as_str()));
    let creation = TableCreation::builder()
        .name(request.name)
        .location(location)
        .schema(part::<Schema>("schema", request.schema)?)
        .partition_spec_opt(
            request.partition_spec.map(|v| part::<UnboundPartitionSpec>("partition-spec", v)).transpose()?,
        )
        .sort_order_opt(request.write_order.map(|v| part::<SortOrder>("write-order", v)).transpose()?)
        .properties(properties)
        .format_version(format_version)
        .build();
    let built = TableMetadataBuilder::from_table_creation(creation)
        .and_then(|builder| builder.assign_uuid(uuid).build())
        .map_err(|e| CatalogError::bad_request(format!("Cannot create table: {}", e.message())))?;
    finish(built, &Refs::new())
}

/// Whether a commit is the end of a create transaction.
pub(super) fn is_create(requirements: &[Value]) -> bool {
    requirements.iter().any(|r| r.get("type").and_then(Value::as_str) == Some("assert-create"))
}

/// The metadata of a table that a create transaction describes by its updates alone. Ids are kept as the client
/// has them: its manifests already use them.
pub(super) fn create_by_updates(
    requirements: &[Value],
    updates: Vec<Value>,
    fallback_location: impl FnOnce() -> CatalogResult<String>,
    now_ms: i64,
) -> CatalogResult<NewMetadata> {
    for requirement in parse_requirements(requirements)? {
        if requirement != TableRequirement::NotExist {
            return Err(CatalogError::bad_request("A create can have no requirement other than assert-create"));
        }
    }
    let base = base_of_create(&updates, fallback_location, now_ms)?;
    let metadata: TableMetadata = part("updates of a create", base)?;
    let mut refs = Refs::new();
    let built = apply_updates(metadata.into_builder(None), updates, None, &mut refs)?;
    finish(built, &refs)
}

/// The metadata after a commit; `None` if the commit changes nothing.
pub(super) fn commit(
    base_location: &str,
    base_json: &str,
    requirements: &[Value],
    updates: Vec<Value>,
    now_ms: i64,
) -> CatalogResult<Option<NewMetadata>> {
    let Ok(base) = serde_json::from_str::<TableMetadata>(base_json) else {
        return commit_untyped(base_location, base_json, requirements, updates, now_ms).map(Some);
    };
    let base_refs = parse_refs(base_json, &base)?;
    for requirement in parse_requirements(requirements)? {
        check(&requirement, &base, &base_refs)?;
    }
    let mut refs = base_refs.clone();
    let builder = base.clone().into_builder(Some(base_location.to_string()));
    let built = apply_updates(builder, updates, Some(&base), &mut refs)?;
    if built.changes.is_empty() && refs == base_refs {
        return Ok(None);
    }
    finish(built, &refs).map(Some)
}

/// The same for metadata with something that the library does not know, as long as the commit does not touch that.
fn commit_untyped(
    base_location: &str,
    base_json: &str,
    requirements: &[Value],
    updates: Vec<Value>,
    now_ms: i64,
) -> CatalogResult<NewMetadata> {
    let base: Value = serde_json::from_str(base_json).map_err(|e| CatalogError::internal("parse metadata", e))?;
    let requirements = parse_requirements(requirements)?;
    let updates = updates.into_iter().map(|value| part(&format!("update {}", tag(&value, "action")), value));
    let updates = updates.collect::<CatalogResult<Vec<TableUpdate>>>()?;
    let changed = untyped::commit(base_location, &base, &requirements, &updates, now_ms).map_err(|e| {
        let text = format!("Metadata {base_location}: {e}");
        match e.kind() {
            crate::error::ErrorKind::Conflict => CatalogError::commit_failed(text),
            _ => CatalogError::bad_request(text),
        }
    })?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let location = text(changed.document.get("location"));
    let property = |key: &str| text(changed.document.get("properties").and_then(|p| p.get(key)));
    Ok(NewMetadata::new(changed.document.to_string(), location, property, changed.left_log))
}

/// Branches and tags. They are kept beside the library's metadata because that reads and writes none in version 1.
type Refs = BTreeMap<String, SnapshotReference>;

fn parse_refs(json: &str, metadata: &TableMetadata) -> CatalogResult<Refs> {
    #[derive(Deserialize)]
    struct OnlyRefs {
        refs: Option<Refs>,
    }
    let parsed: OnlyRefs = serde_json::from_str(json).map_err(|e| CatalogError::internal("parse refs", e))?;
    let mut refs = parsed.refs.unwrap_or_default();
    // Old metadata names its current snapshot only.
    if let (None, Some(id)) = (refs.get(MAIN_BRANCH), metadata.current_snapshot_id()) {
        let branch = SnapshotRetention::branch(None, None, None);
        refs.insert(MAIN_BRANCH.to_string(), SnapshotReference::new(id, branch));
    }
    Ok(refs)
}

fn check(requirement: &TableRequirement, base: &TableMetadata, refs: &Refs) -> CatalogResult<()> {
    if let TableRequirement::RefSnapshotIdMatch { r#ref: name, snapshot_id: wanted } = requirement {
        let found = refs.get(name).map(|r| r.snapshot_id);
        let text = |id: Option<i64>| id.map_or_else(|| "nothing".to_string(), |id| id.to_string());
        return match found == *wanted {
            true => Ok(()),
            false => Err(CatalogError::commit_failed(format!(
                "Requirement failed: ref {name} should be at {} but is at {}",
                text(*wanted),
                text(found)
            ))),
        };
    }
    requirement.check(Some(base)).map_err(|e| match e.kind() {
        ErrorKind::CatalogCommitConflicts => CatalogError::commit_failed(e.message()),
        _ => CatalogError::bad_request(e.message()),
    })
}

fn track(refs: &mut Refs, update: &TableUpdate) {
    match update {
        TableUpdate::SetSnapshotRef { ref_name, reference } => {
            refs.insert(ref_name.clone(), reference.clone());
        }
        TableUpdate::RemoveSnapshotRef { ref_name } => {
            refs.remove(ref_name);
        }
        TableUpdate::RemoveSnapshots { snapshot_ids } => refs.retain(|_, r| !snapshot_ids.contains(&r.snapshot_id)),
        _ => {}
    }
}

fn part<T: DeserializeOwned>(what: &str, value: Value) -> CatalogResult<T> {
    serde_json::from_value(value).map_err(|e| CatalogError::bad_request(format!("Cannot read {what}: {e}")))
}

fn format_version(text: &str) -> CatalogResult<FormatVersion> {
    match text {
        "1" => Ok(FormatVersion::V1),
        "2" => Ok(FormatVersion::V2),
        "3" => Ok(FormatVersion::V3),
        _ => Err(CatalogError::bad_request(format!("Unsupported format version: {text}"))),
    }
}

fn parse_requirements(requirements: &[Value]) -> CatalogResult<Vec<TableRequirement>> {
    requirements.iter().map(|r| part(&format!("requirement {}", tag(r, "type")), r.clone())).collect()
}

fn tag<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("without a name")
}

/// Applies updates in order. `base` is the metadata they were made for, none for a create.
fn apply_updates(
    mut builder: TableMetadataBuilder,
    updates: Vec<Value>,
    base: Option<&TableMetadata>,
    refs: &mut Refs,
) -> CatalogResult<TableMetadataBuildResult> {
    for value in updates {
        let action = tag(&value, "action").to_string();
        let refuse = |e: iceberg::Error| CatalogError::bad_request(format!("Cannot apply {action}: {}", e.message()));
        for update in normalize(part(&format!("update {action}"), value)?)? {
            if let (TableUpdate::AddSnapshot { snapshot }, Some(base)) = (&update, base) {
                check_not_overtaken(snapshot, base)?;
            }
            track(refs, &update);
            builder = update.apply(builder).map_err(refuse)?;
        }
    }
    builder.build().map_err(|e| CatalogError::bad_request(format!("Updates give invalid metadata: {}", e.message())))
}

/// Rewrites an update to what the reference implementation makes of it.
fn normalize(update: TableUpdate) -> CatalogResult<Vec<TableUpdate>> {
    match update {
        // The version is no property, but clients set it like one.
        TableUpdate::SetProperties { mut updates } => {
            let version = updates.remove(FORMAT_VERSION);
            let mut out = vec![TableUpdate::SetProperties { updates }];
            if let Some(text) = version {
                out.push(TableUpdate::UpgradeFormatVersion { format_version: format_version(&text)? });
            }
            Ok(out)
        }
        // Statistics leave together with their snapshots.
        TableUpdate::RemoveSnapshots { snapshot_ids } => {
            let statistics = snapshot_ids.iter().flat_map(|&snapshot_id| {
                [TableUpdate::RemoveStatistics { snapshot_id }, TableUpdate::RemovePartitionStatistics { snapshot_id }]
            });
            let mut out: Vec<TableUpdate> = statistics.collect();
            out.push(TableUpdate::RemoveSnapshots { snapshot_ids });
            Ok(out)
        }
        other => Ok(vec![other]),
    }
}

/// A snapshot for another branch can be overtaken without any requirement failing: its writer has to try again.
fn check_not_overtaken(snapshot: &iceberg::spec::Snapshot, base: &TableMetadata) -> CatalogResult<()> {
    if base.format_version() != FormatVersion::V1
        && snapshot.parent_snapshot_id().is_some()
        && snapshot.sequence_number() <= base.last_sequence_number()
    {
        return Err(CatalogError::commit_failed(format!(
            "Snapshot has sequence number {} but the table is at {}",
            snapshot.sequence_number(),
            base.last_sequence_number()
        )));
    }
    if let Some((first_row_id, _)) = snapshot.row_range()
        && base.format_version() >= FormatVersion::V3
        && first_row_id < base.next_row_id()
    {
        return Err(CatalogError::commit_failed(format!(
            "Snapshot has first row id {first_row_id} but the table is at {}",
            base.next_row_id()
        )));
    }
    Ok(())
}

/// The smallest metadata that holds a create's first schema, spec and order under the client's own ids.
fn base_of_create(
    updates: &[Value],
    fallback_location: impl FnOnce() -> CatalogResult<String>,
    now_ms: i64,
) -> CatalogResult<Value> {
    let first = |action: &str, key: &str| {
        updates.iter().find(|u| tag(u, "action") == action).and_then(|u| u.get(key)).filter(|v| !v.is_null()).cloned()
    };
    let missing = |action: &str| CatalogError::bad_request(format!("A create needs the update {action}"));
    let schema = first("add-schema", "schema").ok_or_else(|| missing("add-schema"))?;
    let schema: Schema = part("update add-schema", schema)?;
    let uuid = first("assign-uuid", "uuid").ok_or_else(|| missing("assign-uuid"))?;
    let spec = first("add-spec", "spec").unwrap_or_else(|| json!({"spec-id": 0, "fields": []}));
    let order = first("add-sort-order", "sort-order").unwrap_or_else(|| json!({"order-id": 0, "fields": []}));
    let location = match first("set-location", "location") {
        Some(location) => location,
        None => Value::String(fallback_location()?),
    };
    let id_of = |value: &Value, key: &str| value.get(key).and_then(Value::as_i64).unwrap_or(0);
    let last_partition_id = spec
        .get("fields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|field| id_of(field, "field-id"))
        .fold(999, i64::max);
    let mut spec = spec;
    if spec.get("spec-id").is_none() {
        spec["spec-id"] = json!(0);
    }
    Ok(json!({
        "format-version": first("upgrade-format-version", "format-version").unwrap_or_else(|| json!(2)),
        "table-uuid": uuid,
        "location": location,
        "last-sequence-number": 0,
        "next-row-id": 0,
        "last-updated-ms": now_ms,
        "last-column-id": schema.highest_field_id(),
        "current-schema-id": schema.schema_id(),
        "schemas": [schema],
        "default-spec-id": id_of(&spec, "spec-id"),
        "partition-specs": [spec],
        "last-partition-id": last_partition_id,
        "default-sort-order-id": id_of(&order, "order-id"),
        "sort-orders": [order],
    }))
}

fn finish(built: TableMetadataBuildResult, refs: &Refs) -> CatalogResult<NewMetadata> {
    let metadata = built.metadata;
    let mut value = serde_json::to_value(&metadata).map_err(|e| CatalogError::internal("serialize metadata", e))?;
    value["refs"] = serde_json::to_value(refs).map_err(|e| CatalogError::internal("serialize refs", e))?;
    // The library keeps these in hash maps; readers show them in the order of the file.
    for (list, key) in [
        ("snapshots", "timestamp-ms"),
        ("snapshots", "sequence-number"),
        ("schemas", "schema-id"),
        ("partition-specs", "spec-id"),
        ("sort-orders", "order-id"),
    ] {
        if let Some(Value::Array(items)) = value.get_mut(list) {
            items.sort_by_key(|item| item.get(key).and_then(Value::as_i64));
        }
    }
    let property = |key: &str| metadata.properties().get(key).cloned().unwrap_or_default();
    let left_log = built.expired_metadata_logs.into_iter().map(|log| log.metadata_file).collect();
    Ok(NewMetadata::new(value.to_string(), metadata.location().to_string(), property, left_log))
}
