//! Tables described in a few words, for tests of planning: metadata, live files and policies, without any I/O.

use std::sync::Arc;

use iceberg::spec::{DataContentType, DataFileFormat, Datum, Literal, PrimitiveLiteral, PrimitiveType, Type};
use icewright::plan::RewritePlan;
use icewright::policy::{PartitionSelection, RewriteDataFilesPolicy, TablePolicy};
use icewright::table::LoadedTable;
use icewright::table::delete_rule::without_target;
use icewright::table::{FileEntry, PartitionTuple, TableState};
use icewright::testing::builder::{self, file_entry};
use serde_json::{Value, json};

/// Columns of every test table: name, field id, type.
const COLUMNS: [(&str, i32, &str); 9] = [
    ("id", 1, "long"),
    ("hour", 2, "string"),
    ("ts", 3, "timestamptz"),
    ("local_ts", 4, "timestamp"),
    ("day", 5, "date"),
    ("region", 6, "int"),
    ("ts_ns", 7, "long"),
    ("code", 8, "fixed[3]"),
    ("score", 9, "double"),
];

/// A table's metadata and live files.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) format_version: u8,
    /// Spec id -> fields as `transform(column)` or `column`, optionally `name=transform(column)`.
    pub(crate) specs: Vec<(i32, Vec<String>)>,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) sequence_number: i64,
    pub(crate) data: Vec<Arc<FileEntry>>,
    pub(crate) deletes: Vec<Arc<FileEntry>>,
    /// Rounds of [`World::apply`] so far.
    pub(crate) rounds: u32,
}

impl World {
    /// A version 2 table; the last spec is the current one.
    pub(crate) fn new(specs: &[&[&str]]) -> Self {
        let spec = |fields: &&[&str]| fields.iter().map(ToString::to_string).collect();
        Self {
            format_version: 2,
            specs: (0..).zip(specs.iter().map(spec)).collect(),
            properties: Vec::new(),
            sequence_number: 1,
            data: Vec::new(),
            deletes: Vec::new(),
            rounds: 0,
        }
    }

    pub(crate) fn loaded(&self) -> LoadedTable {
        let snapshot = snapshot_json(7, None, self.sequence_number, "append", &json!({}));
        LoadedTable::from_metadata_json("s3://b/t/metadata/v1.json".into(), &self.metadata_json(&[snapshot]))
            .expect("test metadata is valid")
    }

    /// A metadata document with these snapshots, the last one current.
    pub(crate) fn metadata_json(&self, snapshots: &[Value]) -> Value {
        let fields: Vec<Value> = COLUMNS
            .iter()
            .map(|(name, id, ty)| json!({"id": id, "name": name, "required": false, "type": ty}))
            .collect();
        let specs: Vec<Value> = self
            .specs
            .iter()
            .map(|(id, fields)| json!({"spec-id": id, "fields": fields.iter().enumerate().map(field_json(*id)).collect::<Vec<_>>()}))
            .collect();
        let schema = json!({"type": "struct", "schema-id": 0, "fields": fields});
        let properties: serde_json::Map<String, Value> =
            self.properties.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        let mut metadata = builder::metadata(json!({
            "format-version": self.format_version, "last-sequence-number": self.sequence_number,
            "last-updated-ms": 1_700_000_000_000_i64, "last-column-id": COLUMNS.len(), "schemas": [schema],
            "default-spec-id": self.specs.last().map_or(0, |(id, _)| *id), "partition-specs": specs,
            "last-partition-id": 2000, "properties": properties, "snapshots": snapshots,
        }));
        if let Some(last) = snapshots.last() {
            metadata["current-snapshot-id"] = last["snapshot-id"].clone();
            metadata["refs"] = builder::main_at(last["snapshot-id"].as_i64().expect("an id"));
        }
        if self.format_version == 3 {
            metadata["next-row-id"] = json!(0);
        }
        metadata
    }

    pub(crate) fn state(&self) -> TableState {
        let loaded = Arc::new(self.loaded());
        let snapshot = loaded.current_snapshot().cloned();
        let (data_files, delete_files) = (self.data.clone(), self.deletes.clone());
        TableState { loaded, snapshot, manifests: Vec::new(), data_files, delete_files }
    }

    /// A partition of a spec from the text of its values, such as `2025-04-01 15, null`.
    pub(crate) fn partition(&self, spec_id: i32, text: &str) -> Arc<PartitionTuple> {
        let loaded = self.loaded();
        let metadata = loaded.typed().expect("readable");
        let spec = metadata.partition_spec_by_id(spec_id).expect("spec of a test table");
        let types = spec.partition_type(metadata.current_schema()).expect("valid spec");
        let texts: Vec<&str> = text.split(',').map(str::trim).filter(|value| !value.is_empty()).collect();
        let fields = types.fields();
        let padded = texts.into_iter().chain(std::iter::repeat("null"));
        let values: Vec<Option<Literal>> =
            fields.iter().zip(padded).map(|(f, text)| literal(&f.field_type, text)).collect();
        Arc::new(PartitionTuple { spec_id, values: values.into_iter().collect() })
    }

    /// What the table looks like after `plan`: each group in files of its split size, holding what file-scoped deletes leave;
    /// delete files without target are gone. Equality deletes are taken to match nothing.
    #[must_use]
    pub(crate) fn apply(&self, plan: &RewritePlan) -> Self {
        let mut next = self.clone();
        next.rounds += 1;
        next.sequence_number += 1;
        let (before, mut outputs) = (self.sequence_number, Vec::new());
        let current_spec = self.specs.last().map_or(0, |(id, _)| *id);
        for group in &plan.groups {
            let inputs: Vec<&Arc<FileEntry>> = group.tasks.iter().map(|task| &task.data_file).collect();
            next.data.retain(|file| !inputs.iter().any(|input| input.file_path == file.file_path));
            let partition = group.partition.clone().unwrap_or_else(|| self.partition(current_spec, ""));
            let mut left: u64 = group.tasks.iter().map(live_bytes).sum();
            let mut number = 0;
            while left > 0 {
                let bytes = left.min(group.input_split_size_bytes);
                left -= bytes;
                let name = format!("{}-{}-{number:03}", run_token(self.rounds), group.index);
                let mut file = file(&name, before, bytes, partition.clone());
                file.file_sequence_number = Some(next.sequence_number);
                outputs.push(Arc::new(file));
                number += 1;
            }
        }
        let places = outputs.iter().map(|file| (&file.partition.values, before));
        let gone = without_target(self.loaded().typed().expect("readable"), &next.data, places, &next.deletes);
        next.deletes.retain(|delete| !gone.iter().any(|other| other.file_path == delete.file_path));
        next.data.extend(outputs);
        next
    }
}

fn live_bytes(task: &icewright::plan::RewriteTask) -> u64 {
    let rows = task.data_file.record_count;
    let deleted = task.delete_files.file_scoped().map(|delete| delete.record_count).sum::<u64>().min(rows);
    (task.data_file.file_size_bytes * (rows - deleted)).checked_div(rows).unwrap_or(0)
}

/// The token of a made-up run, as in file names.
pub(crate) fn run_token(number: u32) -> String {
    format!("icewright-0199e4c0-0000-7000-8000-{number:012}")
}

pub(crate) fn snapshot_json(id: i64, parent: Option<i64>, sequence: i64, operation: &str, summary: &Value) -> Value {
    let mut all = json!({"operation": operation});
    for (key, value) in summary.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    builder::snapshot(
        id,
        parent,
        json!({"sequence-number": sequence, "summary": all, "first-row-id": 0, "added-rows": 0}),
    )
}

fn field_json(spec_id: i32) -> impl Fn((usize, &String)) -> Value {
    move |(index, text)| {
        let (name, rest) = text.split_once('=').map_or((None, text.as_str()), |(name, rest)| (Some(name), rest));
        let (transform, column) = match rest.trim_end_matches(')').split_once('(') {
            Some((transform, column)) => (transform, column),
            None => ("identity", rest),
        };
        let source = COLUMNS.iter().find(|(name, ..)| *name == column).map(|(_, id, _)| *id).expect("known column");
        let plain = transform.split('[').next().unwrap_or(transform);
        let default_name = if plain == "identity" { column.to_string() } else { format!("{column}_{plain}") };
        let field_id = 1000 + spec_id * 10 + i32::try_from(index).expect("few fields");
        json!({"source-id": source, "field-id": field_id, "name": name.unwrap_or(&default_name), "transform": transform})
    }
}

fn literal(ty: &Type, text: &str) -> Option<Literal> {
    if text == "null" {
        return None;
    }
    let primitive = match ty.as_primitive_type().expect("partition values are primitive") {
        PrimitiveType::String => PrimitiveLiteral::String(text.to_string()),
        PrimitiveType::Int => PrimitiveLiteral::Int(text.parse().expect("int")),
        PrimitiveType::Long => PrimitiveLiteral::Long(text.parse().expect("long")),
        PrimitiveType::Double => PrimitiveLiteral::Double(text.parse::<f64>().expect("double").into()),
        PrimitiveType::Date => Datum::date_from_str(text).expect("date").literal().clone(),
        PrimitiveType::Timestamp => Datum::timestamp_from_str(text).expect("timestamp").literal().clone(),
        PrimitiveType::Timestamptz => Datum::timestamptz_from_str(text).expect("timestamptz").literal().clone(),
        other => panic!("no test value of type {other}"),
    };
    Some(Literal::Primitive(primitive))
}

/// A Parquet data file of 100 rows.
pub(crate) fn file(name: &str, sequence: i64, bytes: u64, partition: Arc<PartitionTuple>) -> FileEntry {
    FileEntry {
        partition,
        data_sequence_number: sequence,
        file_sequence_number: Some(sequence),
        snapshot_id: 7,
        ..file_entry(&format!("s3://b/t/data/{name}.parquet"), 100, bytes)
    }
}

/// An equality delete file of one row.
pub(crate) fn equality_delete(name: &str, sequence: i64, partition: Arc<PartitionTuple>) -> FileEntry {
    FileEntry {
        content: DataContentType::EqualityDeletes,
        equality_ids: vec![1],
        record_count: 1,
        ..file(name, sequence, 1000, partition)
    }
}

/// A position delete file, for one data file by name or for its partition.
pub(crate) fn position_delete(
    name: &str,
    sequence: i64,
    partition: Arc<PartitionTuple>,
    of: Option<&str>,
) -> FileEntry {
    FileEntry {
        content: DataContentType::PositionDeletes,
        referenced_data_file: of.map(|of| format!("s3://b/t/data/{of}.parquet").into()),
        record_count: 1,
        ..file(name, sequence, 1000, partition)
    }
}

/// A deletion vector.
pub(crate) fn deletion_vector(name: &str, sequence: i64, partition: Arc<PartitionTuple>, of: &str) -> FileEntry {
    FileEntry {
        file_format: Some(DataFileFormat::Puffin),
        content_offset: Some(4),
        content_size_bytes: Some(40),
        ..position_delete(name, sequence, partition, Some(of))
    }
}

/// A policy with these compaction options, in Seoul.
pub(crate) fn policy(rewrite_data_files: RewriteDataFilesPolicy) -> TablePolicy {
    TablePolicy { time_zone: "Asia/Seoul".to_string(), rewrite_data_files, ..TablePolicy::default() }
}

/// Small sizes: target 100, range 75 to 180.
pub(crate) fn small_options() -> RewriteDataFilesPolicy {
    RewriteDataFilesPolicy {
        target_file_size_bytes: Some(100),
        partitions: PartitionSelection::All,
        ..RewriteDataFilesPolicy::default()
    }
}
