//! Metadata, content files, manifests and manifest lists for tests, the last two as the library writes them.

use bytes::Bytes;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, FormatVersion, ManifestContentType, ManifestEntry,
    ManifestFile, ManifestListWriter, ManifestStatus, ManifestWriterBuilder, PartitionSpec, SchemaRef, Struct,
};

use serde_json::{Value, json};

use crate::clock::{Clock, snapshot_id};
use crate::error::Result;
use crate::meta::{Additions, PreparedSnapshot, SnapshotIdentity, prepare_additions};
use crate::storage::Store;
use crate::table::{FileEntry, LoadedTable, PartitionTuple, PartitionValues};

/// A metadata document: an unpartitioned table of version 2 at `s3://b/t` with one column and no snapshots, where `changes` says
/// nothing else.
pub fn metadata(changes: Value) -> Value {
    let metadata = json!({
        "format-version": 2, "table-uuid": "0199e4c0-0000-7000-8000-000000000000", "location": "s3://b/t",
        "last-sequence-number": 0, "last-updated-ms": 1, "last-column-id": 1, "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": false, "type": "long"}]}],
        "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999,
        "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}], "properties": {}, "snapshots": [],
    });
    changed(metadata, changes)
}

/// The table of such a document.
pub fn loaded(changes: Value) -> LoadedTable {
    LoadedTable::from_metadata_json("s3://b/t/metadata/v1.json".into(), &metadata(changes)).expect("valid metadata")
}

/// A snapshot of a metadata document: an append to the table at `s3://b/t`, its id is its sequence number, where `changes` says
/// nothing else.
pub fn snapshot(id: i64, parent: Option<i64>, changes: Value) -> Value {
    let mut snapshot = json!({
        "snapshot-id": id, "sequence-number": id, "timestamp-ms": 1_700_000_000_000_i64, "schema-id": 0,
        "manifest-list": format!("s3://b/t/metadata/snap-{id}.avro"), "summary": {"operation": "append"},
    });
    if let Some(parent) = parent {
        snapshot["parent-snapshot-id"] = json!(parent);
    }
    changed(snapshot, changes)
}

/// References of a metadata document whose branch `main` is at this snapshot.
pub fn main_at(snapshot_id: i64) -> Value {
    json!({"main": {"snapshot-id": snapshot_id, "type": "branch"}})
}

/// # Panics
/// If one of the two is no object.
pub(super) fn changed(mut document: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("no object: {changes}") };
    document.as_object_mut().expect("an object").extend(changes);
    document
}

/// A live Parquet data file without partition, of snapshot and sequence number 1; sizes in rows and bytes.
pub fn file_entry(path: &str, record_count: u64, file_size_bytes: u64) -> FileEntry {
    let partition = PartitionTuple { spec_id: 0, values: PartitionValues::empty() };
    FileEntry {
        data_sequence_number: 1,
        file_sequence_number: Some(1),
        snapshot_id: 1,
        manifest_path: "m.avro".into(),
        ..FileEntry::unlisted(path, partition, record_count, file_size_bytes)
    }
}

/// What a writer other than icewright asks the catalog to commit, its manifests in the store; and the id of its snapshot.
///
/// # Errors
/// What [`prepare_additions`] refuses.
pub async fn prepare_write(
    store: &dyn Store,
    clock: &dyn Clock,
    loaded: &LoadedTable,
    additions: &Additions,
) -> Result<(i64, PreparedSnapshot)> {
    let snapshot_id = snapshot_id(clock.uuid());
    let identity = SnapshotIdentity { snapshot_id, commit_uuid: clock.uuid(), token: "writer".into() };
    Ok((snapshot_id, prepare_additions(store, loaded, additions, identity, clock.now_ms()).await?))
}

/// A Parquet file of spec 0, without metrics; equality deletes go by field 1.
pub fn content_file(
    content: DataContentType,
    path: &str,
    partition: Struct,
    record_count: u64,
    file_size_bytes: u64,
) -> DataFileBuilder {
    let mut builder = DataFileBuilder::default();
    builder.content(content).file_path(path.to_owned()).file_format(DataFileFormat::Parquet).partition(partition);
    builder.partition_spec_id(0).record_count(record_count).file_size_in_bytes(file_size_bytes);
    if content == DataContentType::EqualityDeletes {
        builder.equality_ids(Some(vec![1]));
    }
    builder
}

/// An entry of a manifest. An added file without a sequence number inherits its manifest's; others get both numbers.
pub fn manifest_entry(
    status: ManifestStatus,
    snapshot_id: i64,
    sequence: Option<i64>,
    file: DataFile,
) -> ManifestEntry {
    let added = status == ManifestStatus::Added;
    ManifestEntry::builder()
        .status(status)
        .snapshot_id_opt((!added).then_some(snapshot_id))
        .sequence_number_opt(sequence)
        .file_sequence_number_opt(sequence.filter(|_| !added))
        .data_file(file)
        .build()
}

/// A manifest of a new snapshot as the library writes it: as a manifest list of this snapshot shows it, and its bytes.
///
/// # Errors
/// What the library refuses to write.
pub async fn library_manifest(
    path: &str,
    (version, content): (FormatVersion, ManifestContentType),
    (schema, spec): (SchemaRef, PartitionSpec),
    (snapshot_id, sequence): (i64, i64),
    entries: impl IntoIterator<Item = ManifestEntry>,
) -> Result<(ManifestFile, Bytes)> {
    let io = FileIO::new_with_memory();
    let builder = ManifestWriterBuilder::new(io.new_output(SCRATCH)?, Some(snapshot_id), schema, spec);
    let mut writer = match (version, content) {
        (FormatVersion::V1, _) => builder.build_v1(),
        (FormatVersion::V2, ManifestContentType::Data) => builder.build_v2_data(),
        (FormatVersion::V2, ManifestContentType::Deletes) => builder.build_v2_deletes(),
        (FormatVersion::V3, ManifestContentType::Data) => builder.build_v3_data(),
        (FormatVersion::V3, ManifestContentType::Deletes) => builder.build_v3_deletes(),
    };
    for entry in entries {
        let number = entry.sequence_number;
        match entry.status {
            ManifestStatus::Added => writer.add_file(entry.data_file, number.unwrap_or(-1)),
            ManifestStatus::Existing => writer.add_existing_file(
                entry.data_file,
                entry.snapshot_id.unwrap_or(0),
                number.unwrap_or(0),
                entry.file_sequence_number,
            ),
            ManifestStatus::Deleted => {
                writer.add_delete_file(entry.data_file, number.unwrap_or(0), entry.file_sequence_number)
            }
        }?;
    }
    let mut manifest = writer.write_manifest_file().await?;
    path.clone_into(&mut manifest.manifest_path);
    for number in [&mut manifest.sequence_number, &mut manifest.min_sequence_number] {
        if *number < 0 {
            *number = sequence;
        }
    }
    Ok((manifest, io.new_input(SCRATCH)?.read().await?))
}

/// A version 2 manifest list as the library writes it.
///
/// # Errors
/// What the library refuses to write.
pub async fn library_manifest_list(
    snapshot_id: i64,
    parent: Option<i64>,
    sequence: i64,
    manifests: impl IntoIterator<Item = ManifestFile>,
) -> Result<Bytes> {
    let output = FileIO::new_with_memory().new_output(SCRATCH)?;
    let mut writer = ManifestListWriter::v2(output.writer().await?, snapshot_id, parent, sequence);
    writer.add_manifests(manifests.into_iter())?;
    writer.close().await?;
    Ok(output.to_input_file().read().await?)
}

/// Where the library writes to within its own memory.
const SCRATCH: &str = "memory:/scratch.avro";

/// An empty table: spec 0 has no fields, 1 a void one, 2 and 3 one field each.
pub fn table_of_four_specs() -> LoadedTable {
    let spec = |id: i32, transform: &str| {
        let field = json!({"source-id": 1, "field-id": 1000 + id, "name": format!("p{id}"), "transform": transform});
        json!({"spec-id": id, "fields": if id == 0 { json!([]) } else { json!([field]) }})
    };
    let specs = ["", "void", "identity", "bucket[4]"];
    loaded(json!({
        "last-sequence-number": 9, "last-partition-id": 1003, "default-spec-id": 3,
        "schemas": [{"type": "struct", "schema-id": 0,
            "fields": [{"id": 1, "name": "region", "required": false, "type": "int"}]}],
        "partition-specs": (0..).zip(specs).map(|(id, transform)| spec(id, transform)).collect::<Vec<_>>(),
    }))
}
