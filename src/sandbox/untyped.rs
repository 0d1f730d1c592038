//! Commits to tables whose schemas or partition specs the library cannot read: what changes neither is applied to the document
//! itself. Pure. The reference implementation's rules, for the updates that maintenance asks for.

use iceberg::spec::MAIN_BRANCH;
use iceberg::{TableRequirement, TableUpdate};
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::table::LoadedTable;

/// Metadata files kept in the log unless the table says otherwise.
const PREVIOUS_VERSIONS: usize = 100;

/// A document after a commit, and the metadata files that left its log.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) document: Value,
    pub(crate) left_log: Vec<String>,
}

/// Checks `requirements` and applies `updates` to the document at `location`.
///
/// Errors: [`ErrorKind::Conflict`] if a requirement does not hold; [`ErrorKind::Unsupported`] for what needs schemas or specs.
pub(crate) fn commit(
    location: &str,
    document: &Value,
    requirements: &[TableRequirement],
    updates: &[TableUpdate],
    now_ms: i64,
) -> Result<Changed> {
    let loaded = LoadedTable::from_metadata_json(location.to_owned(), document)?;
    requirements.iter().try_for_each(|requirement| check(requirement, &loaded))?;
    let mut document = document.clone();
    if document.get("refs").is_none_or(Value::is_null) {
        document["refs"] = serde_json::to_value(&loaded.refs)?;
    }
    updates.iter().try_for_each(|update| apply(&mut document, update))?;
    trim_snapshot_log(&mut document);
    let left_log = log_previous(&mut document, location, &loaded);
    document["last-updated-ms"] = json!(now_ms.max(loaded.metadata.last_updated_ms()));
    Ok(Changed { document, left_log })
}

fn check(requirement: &TableRequirement, loaded: &LoadedTable) -> Result<()> {
    let metadata = &loaded.metadata;
    let holds = match requirement {
        TableRequirement::UuidMatch { uuid } => *uuid == metadata.uuid(),
        TableRequirement::RefSnapshotIdMatch { r#ref, snapshot_id } => {
            loaded.refs.get(r#ref).map(|r| r.snapshot_id) == *snapshot_id
        }
        TableRequirement::CurrentSchemaIdMatch { current_schema_id } => {
            *current_schema_id == metadata.current_schema_id()
        }
        TableRequirement::DefaultSpecIdMatch { default_spec_id } => {
            *default_spec_id == metadata.default_partition_spec_id()
        }
        other => return Err(Error::unsupported(format!("requirement {other:?} on a table that cannot be read whole"))),
    };
    match holds {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Conflict, format!("requirement failed: {requirement:?}"))),
    }
}

fn apply(document: &mut Value, update: &TableUpdate) -> Result<()> {
    match update {
        TableUpdate::RemoveSnapshots { snapshot_ids } => {
            for key in ["snapshots", "statistics", "partition-statistics"] {
                retain(document, key, |item| !id_of(item).is_some_and(|id| snapshot_ids.contains(&id)));
            }
            if let Some(refs) = document.get_mut("refs").and_then(Value::as_object_mut) {
                refs.retain(|_, reference| !id_of(reference).is_some_and(|id| snapshot_ids.contains(&id)));
            }
        }
        TableUpdate::RemoveSnapshotRef { ref_name } => {
            if let Some(refs) = document.get_mut("refs").and_then(Value::as_object_mut) {
                refs.remove(ref_name);
            }
            if ref_name == MAIN_BRANCH {
                document["current-snapshot-id"] = json!(-1);
            }
        }
        TableUpdate::RemoveStatistics { snapshot_id } => {
            retain(document, "statistics", |item| id_of(item) != Some(*snapshot_id));
        }
        TableUpdate::RemovePartitionStatistics { snapshot_id } => {
            retain(document, "partition-statistics", |item| id_of(item) != Some(*snapshot_id));
        }
        TableUpdate::SetProperties { updates } => {
            for (key, value) in updates {
                document["properties"][key] = json!(value);
            }
        }
        TableUpdate::RemoveProperties { removals } => {
            if let Some(properties) = document.get_mut("properties").and_then(Value::as_object_mut) {
                properties.retain(|key, _| !removals.contains(key));
            }
        }
        other => {
            let update = serde_json::to_value(other)?;
            let action = update.get("action").and_then(Value::as_str).unwrap_or("?").to_owned();
            return Err(Error::unsupported(format!("{action} on a table that this catalog cannot read whole")));
        }
    }
    Ok(())
}

fn id_of(item: &Value) -> Option<i64> {
    item.get("snapshot-id").and_then(Value::as_i64)
}

fn retain(document: &mut Value, key: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(items) = document.get_mut(key).and_then(Value::as_array_mut) {
        items.retain(keep);
    }
}

/// The log ends where a snapshot is gone: what came before cannot be travelled to.
fn trim_snapshot_log(document: &mut Value) {
    let listed = document.get("snapshots").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let known: Vec<i64> = listed.iter().filter_map(id_of).collect();
    if let Some(log) = document.get_mut("snapshot-log").and_then(Value::as_array_mut) {
        let gone = log.iter().rposition(|entry| !id_of(entry).is_some_and(|id| known.contains(&id)));
        log.drain(..gone.map_or(0, |at| at + 1));
    }
}

fn log_previous(document: &mut Value, location: &str, before: &LoadedTable) -> Vec<String> {
    let limit = before.metadata.properties().get("write.metadata.previous-versions-max");
    let limit = limit.and_then(|text| text.parse().ok()).unwrap_or(PREVIOUS_VERSIONS).max(1);
    let entry = json!({"metadata-file": location, "timestamp-ms": before.metadata.last_updated_ms()});
    let mut log = document.get("metadata-log").and_then(Value::as_array).cloned().unwrap_or_default();
    log.push(entry);
    let too_many = log.len().saturating_sub(limit);
    let left = log.drain(..too_many).filter_map(|entry| Some(entry.get("metadata-file")?.as_str()?.to_owned()));
    let left = left.collect();
    document["metadata-log"] = Value::Array(log);
    left
}
