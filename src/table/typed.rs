//! Schemas, partition specs and sort orders in the library's types, and why it cannot read them where it cannot.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{PartitionSpec, Schema, SortOrder, TableMetadata};
use serde_json::{Map, Value, json};

use crate::error::Result;

/// What [`super::Metadata`] reads. The library is given a document without it, so that nothing there, such as a kind of
/// statistics that is new, keeps the columns from being known; and what is large is not held twice.
const NOT_TYPED: [&str; 8] = [
    "snapshots",
    "current-snapshot-id",
    "refs",
    "snapshot-log",
    "metadata-log",
    "statistics",
    "partition-statistics",
    "encryption-keys",
];

/// Types as the library reads them; others have parameters or are nested.
const TYPES: [&str; 14] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
    "string",
    "uuid",
    "binary",
];

/// The library's view of the document. [`crate::error::ErrorKind::Unsupported`] with the reason if it has none.
pub(super) fn read(location: &str, json: &Value, properties: &HashMap<String, String>) -> Result<Arc<TableMetadata>> {
    let kept = json.as_object().into_iter().flatten().filter(|(key, _)| !NOT_TYPED.contains(&key.as_str()));
    let mut document: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    document.insert("properties".into(), json!(properties));
    serde_json::from_value(Value::Object(document))
        .map(Arc::new)
        .map_err(|e| super::supports::untyped(&reason(json).unwrap_or_else(|| e.to_string()), location))
}

/// What the library stumbles over, as far as it can be found: its own message names no place.
fn reason(json: &Value) -> Option<String> {
    let list = |key: &str| json.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for schema in list("schemas").iter().chain(json.get("schema")) {
        let id = schema.get("schema-id").and_then(Value::as_i64).unwrap_or(0);
        if let Some((column, ty)) = unknown_type(schema, "") {
            return Some(format!("column {column} of schema {id} has the type {ty}"));
        }
        if let Err(e) = serde_json::from_value::<Schema>(schema.clone()) {
            return Some(format!("schema {id} cannot be read: {e}"));
        }
    }
    for spec in list("partition-specs") {
        let id = spec.get("spec-id").and_then(Value::as_i64).unwrap_or(0);
        if let Err(e) = serde_json::from_value::<PartitionSpec>(spec.clone()) {
            return Some(format!("partition spec {id} cannot be read: {e}"));
        }
    }
    for order in list("sort-orders") {
        let id = order.get("order-id").and_then(Value::as_i64).unwrap_or(0);
        if let Err(e) = serde_json::from_value::<SortOrder>(order.clone()) {
            return Some(format!("sort order {id} cannot be read: {e}"));
        }
    }
    let missing = [("current-schema-id", "schemas", "schema-id"), ("default-spec-id", "partition-specs", "spec-id")];
    let missing = missing.iter().find(|(id, list, key)| json.get(id).is_some() && named(json, id, list, key).is_none());
    match missing {
        Some((id, list, _)) => Some(format!("{id} names none of {list}")),
        None => field_without_column(json),
    }
}

/// The item of a list that the document names by its id.
fn named<'a>(json: &'a Value, id: &str, list: &str, key: &str) -> Option<&'a Value> {
    let wanted = json.get(id)?.as_i64()?;
    json.get(list)?.as_array()?.iter().find(|item| item.get(key).and_then(Value::as_i64) == Some(wanted))
}

/// The first column, with its path, whose type the library does not know.
fn unknown_type(ty: &Value, path: &str) -> Option<(String, String)> {
    let name = match ty {
        Value::String(name) => name.as_str(),
        Value::Object(nested) => match nested.get("type").and_then(Value::as_str) {
            Some("struct") => {
                let fields = nested.get("fields").and_then(Value::as_array)?;
                return fields.iter().find_map(|field| {
                    let name = field.get("name").and_then(Value::as_str).unwrap_or("?");
                    let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                    unknown_type(field.get("type")?, &path)
                });
            }
            Some("list") => return unknown_type(nested.get("element")?, &format!("{path}.element")),
            Some("map") => {
                let part = |key: &str| unknown_type(nested.get(key)?, &format!("{path}.{key}"));
                return part("key").or_else(|| part("value"));
            }
            _ => return Some((path.to_owned(), ty.to_string())),
        },
        _ => return Some((path.to_owned(), ty.to_string())),
    };
    let known = TYPES.contains(&name) || name.starts_with("decimal(") || name.starts_with("fixed[");
    (!known).then(|| (path.to_owned(), name.to_owned()))
}

/// A field of the default partition spec whose column the current schema no longer has. Version 1 keeps such fields as
/// `void`; the library wants the type of each.
fn field_without_column(json: &Value) -> Option<String> {
    let spec = named(json, "default-spec-id", "partition-specs", "spec-id")?;
    let schema = named(json, "current-schema-id", "schemas", "schema-id")?;
    let schema: Schema = serde_json::from_value(schema.clone()).ok()?;
    let field = spec.get("fields")?.as_array()?.iter().find(|field| {
        let source = field.get("source-id").and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok());
        source.is_some_and(|id| schema.field_by_id(id).is_none())
    })?;
    let text = |key: &str| field.get(key).and_then(Value::as_str).unwrap_or("?");
    Some(format!(
        "partition field {} ({}) is made from column {}, which was dropped; to have the table rewritten, upgrade it to format \
         version 2 and drop the partition field",
        text("name"),
        text("transform"),
        field.get("source-id")?
    ))
}
