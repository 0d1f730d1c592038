//! The files of a new snapshot: manifests of added files, and the manifest list.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use iceberg::spec::{
    DataFile, FormatVersion, ManifestContentType, ManifestFile, ManifestListWriter, TableMetadata,
    UNASSIGNED_SEQUENCE_NUMBER,
};
use parking_lot::Mutex;
use serde_json::Value;
use uuid::Uuid;

use super::avro::put_long;
use super::container::{Codec, ContainerWriter, recode};
use super::entry::{ADDED, DELETED};
use super::partition::partition_type;
use super::partition_summary::{PartitionSummaries, UuidClass};
use super::schema::{belongs, data_file_schema, entry_schema, put_data_file, put_optional};
use crate::error::{Context, Error, Result};
use crate::storage::Store;
use crate::table::supports::check_table;

/// Bytes of a manifest at which the next is begun, unless the table says otherwise.
const TARGET_SIZE_DEFAULT: u64 = 8 << 20;

/// Who makes a snapshot: its id, and what its files' names hold.
#[derive(Debug, Clone)]
pub struct SnapshotIdentity {
    /// The new snapshot's id.
    pub snapshot_id: i64,
    /// Different for every attempt: names must be new.
    pub commit_uuid: Uuid,
    /// What marks the files as this writer's, such as [`crate::run_id::RunId::file_token`].
    pub token: String,
}

/// Writes the metadata files of one attempt at a snapshot and remembers their paths.
pub struct SnapshotWriter<'a> {
    store: &'a dyn Store,
    metadata: &'a TableMetadata,
    identity: SnapshotIdentity,
    directory: String,
    codec: Codec,
    target_size: usize,
    manifests: u32,
    written: Vec<String>,
}

impl<'a> SnapshotWriter<'a> {
    /// Refuses, as [`crate::error::ErrorKind::Unsupported`], tables that [`check_table`] refuses, and codecs of
    /// `write.manifest.compression-codec` other than gzip, zstd, snappy and uncompressed.
    pub fn new(store: &'a dyn Store, metadata: &'a TableMetadata, identity: SnapshotIdentity) -> Result<Self> {
        let properties = metadata.properties();
        check_table(metadata.format_version(), properties)?;
        let codec = match properties.get("write.manifest.compression-codec").map(|c| c.to_ascii_lowercase()).as_deref()
        {
            None | Some("gzip" | "deflate") => Codec::Deflate,
            Some("zstd" | "zstandard") => Codec::Zstandard,
            Some("snappy") => Codec::Snappy,
            Some("uncompressed" | "none") => Codec::Null,
            Some(other) => return Err(Error::unsupported(format!("write.manifest.compression-codec = {other:?}"))),
        };
        let directory = match properties.get("write.metadata.path") {
            Some(path) => path.trim_end_matches('/').to_owned(),
            None => format!("{}/metadata", metadata.location().trim_end_matches('/')),
        };
        let target_size = number(metadata, "commit.manifest.target-size-bytes", TARGET_SIZE_DEFAULT)?;
        let target_size = usize::try_from(target_size).unwrap_or(usize::MAX);
        Ok(Self { store, metadata, identity, directory, codec, target_size, manifests: 0, written: Vec::new() })
    }

    /// Every path written so far, or begun.
    pub fn written(&self) -> &[String] {
        &self.written
    }

    pub(crate) fn metadata(&self) -> &'a TableMetadata {
        self.metadata
    }

    pub(crate) fn store(&self) -> &'a dyn Store {
        self.store
    }

    pub(crate) fn snapshot_id(&self) -> i64 {
        self.identity.snapshot_id
    }

    /// Writes manifests of new files, which all belong to partition spec `spec_id`. `data_sequence_number`: theirs, or `None`
    /// for that of the snapshot. Nothing is written for no files.
    pub async fn write_added(
        &mut self,
        content: ManifestContentType,
        spec_id: i32,
        files: &[DataFile],
        data_sequence_number: Option<i64>,
    ) -> Result<Vec<ManifestFile>> {
        let partition = partition_type(self.metadata, spec_id)?;
        let version = self.metadata.format_version();
        let schema = entry_schema(version, data_file_schema(version, &partition)?);
        let header = self.header(content, spec_id, &schema)?;
        let mut manifests = Vec::new();
        let mut open: BTreeMap<UuidClass, ManifestBuilder> = BTreeMap::new();
        for file in files {
            if !belongs(content, file) {
                return Err(Error::internal(format!(
                    "{} does not belong in a manifest of {content}",
                    file.file_path()
                )));
            }
            let fields = partition.fields().len();
            let class = UuidClass::of(file.partition());
            let builder =
                open.entry(class.clone()).or_insert_with(|| self.builder(content, spec_id, fields, header.clone()));
            let mut record = Vec::new();
            put_data_file(&mut record, version, &partition, file).context(|| format!("list {}", file.file_path()))?;
            let entry = NewEntry {
                status: ADDED,
                snapshot_id: self.identity.snapshot_id,
                sequence: data_sequence_number,
                file_sequence: None,
                records: file.record_count(),
                data_file: &record,
            };
            builder.append(&entry, file.partition())?;
            if builder.is_full() {
                manifests.extend(self.finish(open.remove(&class)).await?);
            }
        }
        for builder in open.into_values() {
            manifests.extend(self.finish(Some(builder)).await?);
        }
        Ok(manifests)
    }

    /// Writes the manifest list: `manifests` in this order, their open sequence numbers filled in. Returns its path.
    pub async fn write_list(
        &mut self,
        attempt: u32,
        parent: Option<i64>,
        manifests: Vec<ManifestFile>,
    ) -> Result<String> {
        let SnapshotIdentity { snapshot_id, token, commit_uuid } = &self.identity;
        let path = format!("{}/snap-{snapshot_id}-{attempt}-{commit_uuid}-{token}.avro", self.directory);
        let buffer = Buffer::default();
        let output = Box::new(buffer.clone());
        let mut list = match self.metadata.format_version() {
            FormatVersion::V1 => ManifestListWriter::v1(output, *snapshot_id, parent),
            _ => ManifestListWriter::v2(output, *snapshot_id, parent, self.metadata.next_sequence_number()),
        };
        list.add_manifests(manifests.into_iter())?;
        list.close().await?;
        let bytes = recode(&path, &buffer.take(), self.codec)?;
        self.put(&path, bytes).await?;
        Ok(path)
    }

    /// Key-value metadata of a new manifest, by the table's current schema.
    pub(crate) fn header(&self, content: ManifestContentType, spec_id: i32, schema: &Value) -> Result<Header> {
        let spec = self.metadata.partition_spec_by_id(spec_id);
        let spec = spec.ok_or_else(|| Error::internal(format!("the table lacks partition spec {spec_id}")))?;
        let current = self.metadata.current_schema();
        let entries = [
            ("schema", serde_json::to_vec(current.as_ref())?),
            ("schema-id", current.schema_id().to_string().into_bytes()),
            ("partition-spec", serde_json::to_vec(spec.fields())?),
        ];
        let mut header: Header = entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        self.stamp(&mut header, content, spec_id, schema)?;
        Ok(header)
    }

    /// Sets what every manifest of this snapshot must say.
    pub(crate) fn stamp(
        &self,
        header: &mut Header,
        content: ManifestContentType,
        spec_id: i32,
        schema: &Value,
    ) -> Result<()> {
        let version = self.metadata.format_version();
        header.insert("avro.schema".into(), serde_json::to_vec(schema)?);
        header.insert("partition-spec-id".into(), spec_id.to_string().into_bytes());
        header.insert("format-version".into(), (version as u8).to_string().into_bytes());
        if version != FormatVersion::V1 {
            header.insert("content".into(), content.to_string().into_bytes());
        }
        Ok(())
    }

    pub(crate) fn builder(
        &mut self,
        content: ManifestContentType,
        spec_id: i32,
        partition_fields: usize,
        header: Header,
    ) -> ManifestBuilder {
        let n = self.manifests;
        self.manifests += 1;
        let SnapshotIdentity { commit_uuid, token, .. } = &self.identity;
        // Like the reference's names, so that its tools know the file for what it is.
        let path = format!("{}/{commit_uuid}-{token}-m{n}.avro", self.directory);
        let mut sync = *commit_uuid.as_bytes();
        sync.iter_mut().zip(n.to_be_bytes()).for_each(|(byte, salt)| *byte ^= salt);
        ManifestBuilder {
            path,
            content,
            spec_id,
            version: self.metadata.format_version(),
            target_size: self.target_size,
            out: ContainerWriter::new(header, self.codec, sync),
            files: [0; 3],
            rows: [0; 3],
            min_sequence: None,
            partitions: PartitionSummaries::new(partition_fields),
        }
    }

    pub(crate) async fn finish(&mut self, builder: Option<ManifestBuilder>) -> Result<Option<ManifestFile>> {
        let Some(builder) = builder else { return Ok(None) };
        let (bytes, manifest) = builder.finish(self.identity.snapshot_id)?;
        self.put(&manifest.manifest_path, bytes).await?;
        Ok(Some(manifest))
    }

    async fn put(&mut self, path: &str, bytes: Vec<u8>) -> Result<()> {
        self.written.push(path.to_owned());
        self.store.write(path, bytes.into()).await
    }
}

/// A number among the table's properties.
pub(crate) fn number(metadata: &TableMetadata, key: &str, default: u64) -> Result<u64> {
    match metadata.properties().get(key) {
        None => Ok(default),
        Some(text) => {
            let value = text.trim().parse().ok().filter(|n| *n > 0);
            value.ok_or_else(|| Error::invalid(format!("table property {key} = {text:?} is no positive number")))
        }
    }
}

/// Key-value metadata of an Avro file.
pub(crate) type Header = BTreeMap<String, Vec<u8>>;

/// An entry to append, everything explicit.
#[derive(Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) status: i32,
    pub(crate) snapshot_id: i64,
    pub(crate) sequence: Option<i64>,
    pub(crate) file_sequence: Option<i64>,
    pub(crate) records: u64,
    pub(crate) data_file: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct ManifestBuilder {
    path: String,
    content: ManifestContentType,
    spec_id: i32,
    version: FormatVersion,
    target_size: usize,
    out: ContainerWriter,
    files: [u32; 3],
    rows: [u64; 3],
    min_sequence: Option<i64>,
    partitions: PartitionSummaries,
}

impl ManifestBuilder {
    pub(crate) fn append(&mut self, entry: &NewEntry<'_>, partition: &iceberg::spec::Struct) -> Result<()> {
        let status = usize::try_from(entry.status).ok().filter(|s| *s < self.files.len());
        let status = status.ok_or_else(|| Error::internal(format!("entry status {}", entry.status)))?;
        self.files[status] += 1;
        self.rows[status] = self.rows[status].saturating_add(entry.records);
        // A deleted file's partition still counts: the reader may be looking for deletions.
        self.partitions.add(partition)?;
        if let Some(sequence) = entry.sequence.filter(|_| entry.status != DELETED) {
            self.min_sequence = Some(self.min_sequence.map_or(sequence, |m| m.min(sequence)));
        }
        let version = self.version;
        self.out.append(|out| {
            put_long(out, i64::from(entry.status));
            if version == FormatVersion::V1 {
                put_long(out, entry.snapshot_id);
            } else {
                for number in [Some(entry.snapshot_id), entry.sequence, entry.file_sequence] {
                    put_optional(out, number, put_long);
                }
            }
            out.extend_from_slice(entry.data_file);
        })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.out.body_len() >= self.target_size
    }

    fn finish(self, snapshot_id: i64) -> Result<(Vec<u8>, ManifestFile)> {
        let bytes = self.out.finish()?;
        let [existing, added, deleted] = self.files;
        let [existing_rows, added_rows, deleted_rows] = self.rows;
        let manifest = ManifestFile {
            manifest_path: self.path,
            manifest_length: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            partition_spec_id: self.spec_id,
            content: self.content,
            sequence_number: UNASSIGNED_SEQUENCE_NUMBER,
            min_sequence_number: self.min_sequence.unwrap_or(UNASSIGNED_SEQUENCE_NUMBER),
            added_snapshot_id: snapshot_id,
            added_files_count: Some(added),
            existing_files_count: Some(existing),
            deleted_files_count: Some(deleted),
            added_rows_count: Some(added_rows),
            existing_rows_count: Some(existing_rows),
            deleted_rows_count: Some(deleted_rows),
            partitions: Some(self.partitions.finish()?),
            key_metadata: None,
            first_row_id: None,
        };
        Ok((bytes, manifest))
    }
}

/// What the library's list writer writes to.
#[derive(Debug, Default, Clone)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock())
    }
}

#[async_trait]
impl iceberg::io::FileWrite for Buffer {
    async fn write(&mut self, bytes: Bytes) -> iceberg::Result<()> {
        self.0.lock().extend_from_slice(&bytes);
        Ok(())
    }

    async fn close(&mut self) -> iceberg::Result<()> {
        Ok(())
    }
}
