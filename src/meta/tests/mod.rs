//! Reader and writers against the library's own, and against damage.

mod foreign;
mod read;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::TableCreation;
use iceberg::io::FileIO;
use iceberg::spec::*;
use uuid::Uuid;

use super::*;
use crate::error::ErrorKind;
use crate::storage::Store;
use crate::table::LoadedTable;
use crate::table::{FileEntry, PartitionValues};
use crate::testing::MemoryStore;
use crate::testing::builder::{self, content_file};

fn schema(fields: Vec<(i32, &str, PrimitiveType)>) -> Schema {
    let fields =
        fields.into_iter().map(|(id, name, ty)| Arc::new(NestedField::optional(id, name, Type::Primitive(ty))));
    Schema::builder().with_fields(fields).build().expect("valid")
}

fn table_of(
    version: FormatVersion,
    schema: Schema,
    partition: &[(&str, Transform)],
    properties: &[(&str, &str)],
) -> LoadedTable {
    let mut spec = UnboundPartitionSpec::builder();
    for (source, transform) in partition {
        let id = schema.field_by_name(source).expect("known").id;
        spec = spec.add_partition_field(id, format!("{source}_part"), *transform).expect("valid");
    }
    let creation = TableCreation::builder()
        .name("t".into())
        .location("mem://b/t".into())
        .schema(schema)
        .partition_spec(spec.build())
        .properties(properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<HashMap<_, _>>())
        .format_version(version)
        .build();
    let metadata = TableMetadataBuilder::from_table_creation(creation).and_then(|b| b.build()).expect("valid").metadata;
    let json = serde_json::to_value(&metadata).expect("metadata is plain JSON");
    LoadedTable::from_metadata_json("mem://b/t/metadata/v0.metadata.json".into(), &json).expect("valid")
}

fn table(version: FormatVersion, properties: &[(&str, &str)]) -> LoadedTable {
    let schema = schema(vec![(1, "id", PrimitiveType::Long), (2, "p", PrimitiveType::String)]);
    table_of(version, schema, &[("p", Transform::Identity)], properties)
}

fn identity(snapshot_id: i64, n: u128) -> SnapshotIdentity {
    SnapshotIdentity { snapshot_id, commit_uuid: Uuid::from_u128(n), token: "icewright-token".into() }
}

fn file(content: DataContentType, path: &str, partition: Vec<Option<Literal>>, records: u64) -> DataFile {
    let mut builder = content_file(content, path, Struct::from_iter(partition), records, records * 10);
    builder
        .column_sizes(HashMap::from([(1, 100), (2, 200)]))
        .value_counts(HashMap::from([(1, records), (2, records)]))
        .null_value_counts(HashMap::from([(1, 0)]))
        .lower_bounds(HashMap::from([(1, Datum::long(1)), (2, Datum::string("a"))]))
        .upper_bounds(HashMap::from([(1, Datum::long(9)), (2, Datum::string("z"))]))
        .split_offsets(Some(vec![4, 400]));
    if content == DataContentType::Data {
        builder.sort_order_id(1);
    }
    builder.build().expect("complete")
}

fn data(path: &str, partition: &str, records: u64) -> DataFile {
    file(DataContentType::Data, path, vec![Some(Literal::string(partition))], records)
}

/// As a manifest list of snapshot `sequence` would show it.
fn listed(mut manifest: ManifestFile, sequence: i64) -> ManifestFile {
    for number in [&mut manifest.sequence_number, &mut manifest.min_sequence_number] {
        if *number < 0 {
            *number = sequence;
        }
    }
    manifest
}

/// A manifest as the library writes it, put into the store.
async fn library_manifest(
    store: &MemoryStore,
    loaded: &LoadedTable,
    content: ManifestContentType,
    entries: Vec<ManifestEntry>,
) -> ManifestFile {
    let metadata = loaded.typed().expect("readable");
    let layout = (metadata.current_schema().clone(), metadata.default_partition_spec().as_ref().clone());
    let kind = (metadata.format_version(), content);
    // The list's numbers are given by `listed`.
    let written = builder::library_manifest("", kind, layout, (77, -1), entries).await;
    let (mut manifest, bytes) = written.expect("the library takes the entries");
    manifest.manifest_path = format!("mem://b/t/metadata/{}-m0.avro", bytes.len());
    store.put(&manifest.manifest_path, bytes);
    manifest
}

fn entry(status: ManifestStatus, sequence: Option<i64>, file: DataFile) -> ManifestEntry {
    let numbers = (status != ManifestStatus::Added).then_some(3);
    ManifestEntry::builder()
        .status(status)
        .snapshot_id_opt((status != ManifestStatus::Added).then_some(33))
        .sequence_number_opt(sequence)
        .file_sequence_number_opt(numbers)
        .data_file(file)
        .build()
}

fn paths(entries: &[FileEntry]) -> Vec<&str> {
    entries.iter().map(|e| e.file_path.as_ref()).collect()
}
