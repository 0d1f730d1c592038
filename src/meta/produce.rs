//! Ordinary snapshots: appends and row deltas, as any writer makes them.

use std::collections::HashMap;

use iceberg::spec::{
    DataContentType, DataFile, MAIN_BRANCH, ManifestContentType, Operation, Snapshot, SnapshotReference,
    SnapshotRetention, Summary,
};
use iceberg::{TableRequirement, TableUpdate};

use super::list::read_manifest_list;
use super::summary::SummaryBuilder;
use super::write::{SnapshotIdentity, SnapshotWriter};
use crate::error::{Error, Result};
use crate::storage::Store;
use crate::table::LoadedTable;

/// Files that a writer adds; all in the table's default partition spec.
#[derive(Debug, Clone)]
pub struct Additions {
    /// `append` for data files alone, `overwrite` for data and delete files, `delete` for delete files alone.
    pub operation: Operation,
    /// Data and delete files, in any order.
    pub files: Vec<DataFile>,
    /// Further summary properties.
    pub properties: HashMap<String, String>,
}

/// A snapshot whose files are written, ready to be asked of the catalog.
#[derive(Debug)]
pub struct PreparedSnapshot {
    /// What must hold for the commit.
    pub requirements: Vec<TableRequirement>,
    /// What the commit changes.
    pub updates: Vec<TableUpdate>,
    /// Metadata files written for it: garbage if the commit is refused.
    pub written: Vec<String>,
}

/// Writes manifests and the manifest list of a snapshot on `main` that adds files to the present head. `now_ms`: milliseconds.
///
/// Errors: what [`SnapshotWriter::new`] refuses; an operation that does not fit its files.
pub async fn prepare_additions(
    store: &dyn Store,
    loaded: &LoadedTable,
    additions: &Additions,
    identity: SnapshotIdentity,
    now_ms: i64,
) -> Result<PreparedSnapshot> {
    let metadata = loaded.typed()?;
    let (data, deletes): (Vec<_>, Vec<_>) =
        additions.files.iter().cloned().partition(|f| f.content_type() == DataContentType::Data);
    let fits = match additions.operation {
        Operation::Append => !data.is_empty() && deletes.is_empty(),
        Operation::Overwrite => !deletes.is_empty(),
        Operation::Delete => data.is_empty() && !deletes.is_empty(),
        Operation::Replace => false,
    };
    if !fits {
        let (operation, data, deletes) = (additions.operation.as_str(), data.len(), deletes.len());
        return Err(Error::internal(format!("{operation} with {data} data files and {deletes} delete files")));
    }
    let spec_id = metadata.default_partition_spec_id();
    let snapshot_id = identity.snapshot_id;
    let mut writer = SnapshotWriter::new(store, metadata, identity)?;
    let mut manifests = writer.write_added(ManifestContentType::Data, spec_id, &data, None).await?;
    manifests.extend(writer.write_added(ManifestContentType::Deletes, spec_id, &deletes, None).await?);
    let parent = loaded.current_snapshot();
    let (created, mut kept) = (manifests.len(), 0);
    if let Some(parent) = parent {
        let carried = read_manifest_list(store, loaded, parent).await?;
        kept = carried.len();
        manifests.extend(carried);
    }
    let list = writer.write_list(1, parent.map(|s| s.snapshot_id()), manifests).await?;
    let mut summary = SummaryBuilder::default();
    additions.files.iter().for_each(|file| summary.add(spec_id, file));
    let mut properties = summary.build(parent.map(|s| s.summary()));
    properties.extend(additions.properties.clone());
    properties.insert("manifests-created".into(), created.to_string());
    properties.insert("manifests-kept".into(), kept.to_string());
    properties.insert("manifests-replaced".into(), "0".into());
    let summary = Summary { operation: additions.operation.clone(), additional_properties: properties };
    let snapshot = new_snapshot(loaded, snapshot_id, list, summary, now_ms);
    Ok(PreparedSnapshot {
        requirements: head_requirements(loaded),
        updates: head_updates(loaded, snapshot),
        written: writer.written().to_vec(),
    })
}

/// A snapshot on top of the present head. Its time never lies before the table's last change, whatever the clock says.
pub(crate) fn new_snapshot(loaded: &LoadedTable, id: i64, list: String, summary: Summary, now_ms: i64) -> Snapshot {
    let metadata = &loaded.metadata;
    let parent = loaded.current_snapshot();
    let after = parent.map_or(0, |p| p.timestamp_ms()).max(metadata.last_updated_ms());
    Snapshot::builder()
        .with_snapshot_id(id)
        .with_parent_snapshot_id(parent.map(|p| p.snapshot_id()))
        .with_sequence_number(metadata.next_sequence_number())
        .with_timestamp_ms(now_ms.max(after))
        .with_manifest_list(list)
        .with_summary(summary)
        .with_schema_id(metadata.current_schema_id())
        .build()
}

/// The table is still the same and its head has not moved.
pub(crate) fn head_requirements(loaded: &LoadedTable) -> Vec<TableRequirement> {
    let snapshot_id = loaded.current_snapshot().map(|s| s.snapshot_id());
    vec![
        TableRequirement::UuidMatch { uuid: loaded.metadata.uuid() },
        TableRequirement::RefSnapshotIdMatch { r#ref: MAIN_BRANCH.to_owned(), snapshot_id },
    ]
}

/// Adds the snapshot and makes it the head of `main`, whose own retention settings stay.
pub(crate) fn head_updates(loaded: &LoadedTable, snapshot: Snapshot) -> Vec<TableUpdate> {
    let retention = loaded.refs.get(MAIN_BRANCH).map(|r| r.retention.clone());
    let retention = retention.unwrap_or(SnapshotRetention::Branch {
        min_snapshots_to_keep: None,
        max_snapshot_age_ms: None,
        max_ref_age_ms: None,
    });
    let reference = SnapshotReference::new(snapshot.snapshot_id(), retention);
    vec![
        TableUpdate::AddSnapshot { snapshot },
        TableUpdate::SetSnapshotRef { ref_name: MAIN_BRANCH.to_owned(), reference },
    ]
}
