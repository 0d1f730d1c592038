//! Manifest lists.

use std::collections::BTreeMap;

use iceberg::spec::{ByteBuf, FieldSummary, ManifestContentType, ManifestFile};

use super::avro::{Decoder, Field, Type};
use super::container::Container;
use crate::error::{Error, Result};
use crate::storage::Store;
use crate::table::{LoadedTable, Snapshot, supports};

/// The manifests of a snapshot, in list order, for reading rows or making the next snapshot. Version 1 lists may leave the
/// counts out; their sequence numbers read as 0.
///
/// Errors: [`crate::error::ErrorKind::Unsupported`] if the list or a manifest is encrypted, a manifest is of an unknown kind,
/// there is no list, or the table's partition specs cannot be read; [`crate::error::ErrorKind::DataInvalid`] if the list is
/// damaged or names a partition spec that the table lacks.
pub async fn read_manifest_list(
    store: &dyn Store,
    loaded: &LoadedTable,
    snapshot: &Snapshot,
) -> Result<Vec<ManifestFile>> {
    if snapshot.manifest_list().is_empty() {
        let id = snapshot.snapshot_id();
        return Err(Error::unsupported(format!(
            "snapshot {id} names its manifests without a manifest list, as old writers of format version 1 did; the next \
             commit of any engine writes a list, and then the table can be rewritten"
        )));
    }
    let metadata = loaded.typed()?;
    let (manifests, _) = read_manifests_of(store, snapshot).await?;
    for manifest in &manifests {
        let spec_id = manifest.partition_spec_id;
        if metadata.partition_spec_by_id(spec_id).is_none() {
            let path = &manifest.manifest_path;
            return Err(Error::invalid(format!(
                "manifest {path} uses partition spec {spec_id}, which the table lacks"
            )));
        }
    }
    Ok(manifests)
}

/// The manifests of a snapshot, also of one that names them itself, and the size of its manifest list in bytes. Needs no
/// table metadata. Of manifests without a list neither length nor counts are known; their partition spec is 0, as the
/// reference implementation has it.
///
/// Errors: as [`read_manifest_list`], but for what needs partition specs.
pub async fn read_manifests_of(store: &dyn Store, snapshot: &Snapshot) -> Result<(Vec<ManifestFile>, u64)> {
    let path = snapshot.manifest_list();
    if snapshot.encryption_key_id().is_some() {
        return Err(supports::encrypted(&format!("manifest list {path}")));
    }
    if !path.is_empty() {
        return read_manifest_list_at(store, path).await;
    }
    let unlisted = |path: &String| unlisted_manifest(path.clone(), 0, snapshot.snapshot_id());
    Ok((snapshot.inline_manifests().iter().map(unlisted).collect(), 0))
}

/// A manifest of which no list tells, so that only its path is known, and the bytes that it has at least.
pub fn unlisted_manifest(path: String, length: i64, added_snapshot_id: i64) -> ManifestFile {
    ManifestFile {
        manifest_path: path,
        manifest_length: length,
        partition_spec_id: 0,
        content: ManifestContentType::Data,
        sequence_number: 0,
        min_sequence_number: 0,
        added_snapshot_id,
        added_files_count: None,
        existing_files_count: None,
        deleted_files_count: None,
        added_rows_count: None,
        existing_rows_count: None,
        deleted_rows_count: None,
        partitions: None,
        key_metadata: None,
        first_row_id: None,
    }
}

/// The manifests that the manifest list at `path` names, and the list's own size in bytes. Needs no table metadata.
pub async fn read_manifest_list_at(store: &dyn Store, path: &str) -> Result<(Vec<ManifestFile>, u64)> {
    let bytes = store.read(path).await?;
    let container = Container::open(path, &bytes)?;
    let mut manifests = Vec::new();
    container.for_each(|decoder| {
        manifests.push(manifest_file(decoder, &container.schema)?);
        Ok(())
    })?;
    Ok((manifests, bytes.len() as u64))
}

fn manifest_file(decoder: &mut Decoder<'_>, entry: &Type) -> Result<ManifestFile> {
    let fields = decoder.record(entry)?.ok_or_else(|| decoder.error("an entry is null"))?;
    let mut longs = BTreeMap::new();
    let mut path = None;
    let mut partitions = None;
    let mut key_metadata = None;
    for Field { id, ty } in fields {
        match id {
            500 => path = decoder.opt_text(ty)?,
            501..=506 | 512..=517 | 520 => {
                if let Some(value) = decoder.opt_long(ty)? {
                    longs.insert(*id, value);
                }
            }
            507 => partitions = summaries(decoder, ty)?,
            519 => key_metadata = decoder.opt_bytes(ty)?.filter(|k| !k.is_empty()),
            _ => decoder.skip(ty)?,
        }
    }
    let path = path.filter(|p| !p.is_empty()).ok_or_else(|| decoder.error("entry without a manifest path"))?;
    if key_metadata.is_some() {
        return Err(supports::encrypted(&format!("manifest {path}")));
    }
    let required = |id: i32, what: &str| {
        longs.get(&id).copied().ok_or_else(|| decoder.error(format!("manifest {path} has no {what}")))
    };
    // Counts are no proof of anything, so one that cannot be is as good as none: a commit counts anew what has none.
    let files = |id: i32| longs.get(&id).and_then(|v| u32::try_from(*v).ok());
    let rows = |id: i32| longs.get(&id).and_then(|v| u64::try_from(*v).ok());
    let first_row_id = longs.get(&520).map(|v| u64::try_from(*v)).transpose();
    let first_row_id = first_row_id.map_err(|_| decoder.error(format!("manifest {path}: first row id is negative")))?;
    let content = match longs.get(&517).copied().unwrap_or(0) {
        0 => ManifestContentType::Data,
        1 => ManifestContentType::Deletes,
        n => {
            return Err(Error::unsupported(format!(
                "manifest {path} has content {n}; 0 (data) and 1 (deletes) are known"
            )));
        }
    };
    let spec_id = required(502, "partition spec id")?;
    Ok(ManifestFile {
        manifest_path: path.to_owned(),
        manifest_length: required(501, "length")?,
        partition_spec_id: i32::try_from(spec_id).map_err(|_| decoder.error("partition spec id is out of range"))?,
        content,
        sequence_number: longs.get(&515).copied().unwrap_or(0),
        min_sequence_number: longs.get(&516).copied().unwrap_or(0),
        added_snapshot_id: required(503, "snapshot id")?,
        added_files_count: files(504),
        existing_files_count: files(505),
        deleted_files_count: files(506),
        added_rows_count: rows(512),
        existing_rows_count: rows(513),
        deleted_rows_count: rows(514),
        partitions,
        key_metadata: None,
        first_row_id,
    })
}

/// `None` also if one of them is null: a summary without bounds would say that there are no values.
fn summaries(decoder: &mut Decoder<'_>, ty: &Type) -> Result<Option<Vec<FieldSummary>>> {
    let mut summaries = Vec::new();
    let mut complete = true;
    let present = decoder.opt_array(ty, |d, item| {
        let mut summary = FieldSummary::default();
        let Some(fields) = d.record(item)? else {
            complete = false;
            return Ok(());
        };
        for Field { id, ty } in fields {
            match id {
                509 => summary.contains_null = d.opt_bool(ty)?.unwrap_or(true),
                518 => summary.contains_nan = d.opt_bool(ty)?,
                510 => summary.lower_bound = d.opt_bytes(ty)?.map(ByteBuf::from),
                511 => summary.upper_bound = d.opt_bytes(ty)?.map(ByteBuf::from),
                _ => d.skip(ty)?,
            }
        }
        summaries.push(summary);
        Ok(())
    })?;
    Ok((present && complete).then_some(summaries))
}
