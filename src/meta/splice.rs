//! Rewriting manifests: entries are carried over byte for byte, only status and numbers change, so nothing that this version
//! does not know of a file is lost. Several manifests of the same schemas become one, up to the table's target size.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{ManifestContentType, ManifestFile};
use serde_json::Value;

use super::avro::Type;
use super::container::Container;
use super::entry::{DELETED, Detail, EXISTING, Layout};
use super::partition_summary::UuidClass;
use super::read::{Inherit, Partitions, fetch};
use super::schema::entry_schema;
use super::write::{Header, ManifestBuilder, NewEntry, SnapshotWriter};
use crate::error::{Error, Result};
use crate::table::LoadedTable;

/// Manifests fetched ahead.
const FETCHES: usize = 4;

/// What came of rewriting manifests.
#[derive(Debug, Default)]
pub(crate) struct Spliced {
    pub(crate) manifests: Vec<ManifestFile>,
    pub(crate) deleted: usize,
}

/// Manifests that differ in one of these cannot share a file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SpliceKey {
    spec_id: i32,
    deletes: bool,
    entry_schema: String,
    schema: Vec<u8>,
    partition_spec: Vec<u8>,
}

/// Manifests that take more entries.
type OpenManifests = BTreeMap<SpliceKey, BTreeMap<UuidClass, ManifestBuilder>>;

/// Writes `sources` anew: live entries as EXISTING with explicit numbers, those whose path is in `removed` as DELETED by this
/// snapshot, former DELETED ones not at all.
pub(crate) async fn splice(
    writer: &mut SnapshotWriter<'_>,
    loaded: &LoadedTable,
    sources: &[ManifestFile],
    removed: &HashSet<Arc<str>>,
) -> Result<Spliced> {
    let mut spliced = Spliced::default();
    let mut open: OpenManifests = BTreeMap::new();
    let store = writer.store();
    let fetched = sources.iter().cloned().map(|source: ManifestFile| async move {
        let bytes = fetch(store, &source).await?;
        Ok::<_, Error>((source, bytes))
    });
    let mut fetched = futures::stream::iter(fetched).buffered(FETCHES);
    while let Some((source, bytes)) = fetched.try_next().await? {
        let full = append_source(writer, loaded, &source, &bytes, removed, &mut open, &mut spliced.deleted)?;
        for builder in full {
            spliced.manifests.extend(writer.finish(Some(builder)).await?);
        }
    }
    for builder in open.into_values().flat_map(BTreeMap::into_values) {
        spliced.manifests.extend(writer.finish(Some(builder)).await?);
    }
    Ok(spliced)
}

/// Appends one source's entries to the open manifest of its group; returns the manifests that became full.
fn append_source(
    writer: &mut SnapshotWriter<'_>,
    loaded: &LoadedTable,
    source: &ManifestFile,
    bytes: &Bytes,
    removed: &HashSet<Arc<str>>,
    open: &mut OpenManifests,
    deleted: &mut usize,
) -> Result<Vec<ManifestBuilder>> {
    let path = &source.manifest_path;
    let container = Container::open(path, bytes)?;
    let layout = Layout::of(path, &container)?;
    let mut partitions = Partitions::new(loaded, source.partition_spec_id)?;
    let mut inherit = Inherit::new(source, loaded.metadata.format_version());
    let (group, header) = describe(writer, source, &container)?;
    let builders = open.entry(group).or_default();
    let mut full = Vec::new();
    container.for_each(|decoder| {
        let raw = layout.decode(decoder, Detail::Full)?;
        let numbers = inherit.apply(decoder, &raw)?;
        if raw.status == DELETED {
            return Ok(());
        }
        if numbers.sequence.is_none() {
            return Err(decoder.error("entry has no data sequence number"));
        }
        let gone = removed.contains(raw.file_path);
        *deleted += usize::from(gone);
        let entry = NewEntry {
            status: if gone { DELETED } else { EXISTING },
            snapshot_id: if gone { writer.snapshot_id() } else { numbers.snapshot_id },
            sequence: numbers.sequence,
            file_sequence: numbers.file_sequence,
            records: u64::try_from(raw.record_count).unwrap_or(0),
            data_file: raw.data_file,
        };
        let partition = partitions.get(decoder, &layout, path, &raw)?;
        let fields = partition.values.fields().len();
        let (content, spec_id) = (source.content, source.partition_spec_id);
        let class = UuidClass::of(partition.values.as_struct());
        let target =
            builders.entry(class.clone()).or_insert_with(|| writer.builder(content, spec_id, fields, header.clone()));
        target.append(&entry, partition.values.as_struct())?;
        if target.is_full() {
            full.extend(builders.remove(&class));
        }
        Ok(())
    })?;
    Ok(full)
}

/// The group of a source, and the header of a manifest that takes its entries.
fn describe(
    writer: &SnapshotWriter<'_>,
    source: &ManifestFile,
    container: &Container<'_>,
) -> Result<(SpliceKey, Header)> {
    let (content, spec_id) = (source.content, source.partition_spec_id);
    let path = &source.manifest_path;
    let written: Value = serde_json::from_slice(container.metadata.get("avro.schema").map_or(&[], Vec::as_slice))?;
    let fields = written.get("fields").and_then(Value::as_array);
    let data_file = fields.and_then(|f| f.iter().find(|f| f.get("field-id").and_then(Value::as_i64) == Some(2)));
    let data_file = data_file.and_then(|f| f.get("type")).filter(|ty| ty.is_object() || ty.is_array());
    let data_file =
        data_file.ok_or_else(|| Error::unsupported(format!("{path}: data_file is given by the name of a type")))?;
    let mut schema = entry_schema(writer.metadata().format_version(), data_file.clone());
    // Names inside may be given in full.
    for key in ["name", "namespace"] {
        if let Some(name) = written.get(key) {
            schema[key] = name.clone();
        }
    }
    if Type::parse(&schema).is_err() {
        return Err(Error::unsupported(format!("{path}: data_file refers to types that are defined outside of it")));
    }
    let mut header = writer.header(content, spec_id, &schema)?;
    // The schema that the metrics were written by goes with them.
    for key in ["schema", "schema-id", "partition-spec"] {
        if let Some(value) = container.metadata.get(key) {
            header.insert(key.to_owned(), value.clone());
        }
    }
    let own = |key: &str| header.get(key).cloned().unwrap_or_default();
    let group = SpliceKey {
        spec_id,
        deletes: content == ManifestContentType::Deletes,
        entry_schema: schema.to_string(),
        schema: own("schema"),
        partition_spec: own("partition-spec"),
    };
    Ok((group, header))
}
