//! Whether a directory belongs to the table alone. Two tables in one place look like each other's garbage.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use futures::{StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::listing::Choice;
use super::referenced::Unreferenced;
use super::report::{OrphanError, Refused};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::meta::snapshot::READS;
use crate::storage::{Store, StoreRef};
use crate::table::ListedFile;
use crate::table::LoadedTable;
use crate::table::file_names::{file_name, is_unnumbered_metadata};
use crate::table::path::{CanonicalPath, join, overlap};
use crate::table::references::metadata_files;
use crate::table::scope::Scope;

/// First bytes of a metadata file, in which the table's UUID usually stands.
const HEAD_BYTES: u64 = 1024;
/// A metadata file is not read beyond this.
const METADATA_BYTES_MAX: u64 = 512 << 20;
/// Metadata files read to tell their age by one run at most.
const DATED_MAX: usize = 1000;

pub(super) fn shared(detail: String) -> Refused {
    Refused::new("shared_location", detail)
}

/// Compares the table's directories with those of other tables. If the location is shared, nothing may be deleted;
/// external directories that are shared are left out, by index into the scope.
pub(super) fn compare_with_neighbours(
    scope: &Scope,
    own_name: &str,
    neighbours: &[(String, String)],
) -> Result<HashSet<usize>, Refused> {
    let mut left_out = HashSet::new();
    for (name, location) in neighbours.iter().filter(|(name, _)| name != own_name) {
        for (index, (directory, _)) in scope.directories.iter().enumerate() {
            let doubt = |e: Error| shared(format!("cannot compare with location {location:?} of table {name}: {e}"));
            if overlap(directory, location).map_err(doubt)?.is_none() {
                continue;
            }
            if index == 0 {
                return Err(shared(format!(
                    "table {name} lies at {location}, this one at {directory}: move one of them to a place of its own"
                )));
            }
            left_out.insert(index);
        }
    }
    Ok(left_out)
}

/// Why files of the table's location cannot be told from those of another table, if one of these directories lies in or around it.
pub fn shared_location(
    loaded: &LoadedTable,
    own_name: &str,
    neighbours: &[(String, String)],
) -> Result<Option<Refused>> {
    Ok(compare_with_neighbours(&Scope::of(loaded)?, own_name, neighbours).err())
}

/// Checks unreferenced metadata files of the listing: each must be this table's and lie where its metadata lies.
pub(super) async fn check_metadata_files(
    store: &StoreRef,
    loaded: &LoadedTable,
    files: &[ListedFile],
) -> Result<(), OrphanError> {
    let homes = metadata_directories(loaded)?;
    for file in files {
        if !homes.contains(&parent(&CanonicalPath::parse(&file.path)?)) {
            let detail = format!(
                "{} is metadata of another table, or a copy of this one: move it out of this table's location",
                file.path
            );
            return Err(shared(detail).into());
        }
    }
    let own = loaded.metadata.uuid();
    let mut read = stream::iter(files.to_vec())
        .map(|f| {
            let store = store.clone();
            async move { (f.path.clone(), table_uuid(store.as_ref(), &f).await) }
        })
        .buffer_unordered(READS);
    while let Some((path, found)) = read.next().await {
        let detail = match found {
            Ok(uuid) if uuid == own => continue,
            Ok(uuid) => format!(
                "{path} belongs to another table, with UUID {uuid}: move one of the two; if that one was dropped and this one \
                 made anew in its place, move its metadata files away, and its other files go as orphans"
            ),
            // Removed by the catalog meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if error.kind() == ErrorKind::DataInvalid => {
                format!("whose metadata {path} is cannot be told ({error}): move or delete it")
            }
            Err(error) => return Err(error.into()),
        };
        return Err(shared(detail).into());
    }
    Ok(())
}

fn metadata_directories(loaded: &LoadedTable) -> Result<HashSet<String>> {
    let mut homes = HashSet::new();
    for file in metadata_files(loaded)? {
        homes.insert(parent(&CanonicalPath::parse(file)?));
    }
    let default = join(loaded.metadata.location(), "metadata");
    let configured = loaded.metadata.properties().get("write.metadata.path");
    for directory in configured.into_iter().chain([&default]) {
        homes.insert(CanonicalPath::parse(directory)?.as_str().to_owned());
    }
    Ok(homes)
}

fn parent(path: &CanonicalPath) -> String {
    path.as_str().rsplit_once('/').map_or_else(String::new, |(parent, _)| parent.to_owned())
}

/// When metadata files without a version in their names say that the table was last updated, milliseconds since the epoch, by
/// path, of some of these files. Their table is known to be this one. What cannot be read tells nothing.
pub(super) async fn date_metadata_files(store: &StoreRef, files: &[Unreferenced], now_ms: i64) -> HashMap<String, i64> {
    let mut undated = Choice::new(DATED_MAX, now_ms);
    for file in files.iter().map(Unreferenced::file).filter(|f| is_unnumbered_metadata(file_name(&f.path))) {
        undated.push(file.clone(), None);
    }
    let read = stream::iter(undated.into_files()).map(|ListedFile { path, .. }| {
        let store = store.clone();
        async move {
            let age: MetadataAge = read_metadata(store.as_ref(), &path).await.ok()?;
            Some((path, age.last_updated_ms))
        }
    });
    read.buffer_unordered(READS).filter_map(std::future::ready).collect().await
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MetadataAge {
    last_updated_ms: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MetadataOwner {
    table_uuid: Option<Uuid>,
}

/// The UUID of the table whose metadata a file is.
async fn table_uuid(store: &dyn Store, file: &ListedFile) -> Result<Uuid> {
    let path = &file.path;
    if file.size > METADATA_BYTES_MAX {
        return Err(Error::invalid(format!("metadata file {path} has {} bytes", file.size)));
    }
    let head = store.read_range(path, 0..file.size.min(HEAD_BYTES)).await?;
    if let Some(uuid) = uuid_in_head(&head) {
        return Ok(uuid);
    }
    let owner: MetadataOwner = read_metadata(store, path).await?;
    owner.table_uuid.ok_or_else(|| Error::invalid(format!("metadata file {path} names no table UUID")))
}

/// The UUID, if the document begins with nothing but the format version before it.
fn uuid_in_head(head: &[u8]) -> Option<Uuid> {
    let text = String::from_utf8_lossy(head);
    let mut rest = text.trim_start().strip_prefix('{')?.trim_start();
    if let Some(version) = rest.strip_prefix("\"format-version\"") {
        let version = version.trim_start().strip_prefix(':')?.trim_start();
        let version = version.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        rest = version.strip_prefix(',')?.trim_start();
    }
    let value = rest.strip_prefix("\"table-uuid\"")?.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    Uuid::try_parse(value.split_once('"')?.0).ok()
}

/// What a metadata file says, inflated if it is compressed.
pub(super) async fn read_metadata<T: DeserializeOwned>(store: &dyn Store, path: &str) -> Result<T> {
    let bytes = store.read(path).await?;
    let mut inflated = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut limited = flate2::read::MultiGzDecoder::new(bytes.as_ref()).take(METADATA_BYTES_MAX);
        limited.read_to_end(&mut inflated).map_err(|e| Error::invalid(format!("inflate {path}: {e}")))?;
    }
    let text = if inflated.is_empty() { bytes.as_ref() } else { &inflated };
    serde_json::from_slice(text).context(|| format!("parse {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0b9a9e3c-5d0f-4e5c-9d5e-123456789012";

    #[test]
    fn the_head_tells_the_table_only_if_the_uuid_comes_first() {
        let own = Uuid::try_parse(UUID).ok();
        for (head, expected) in [
            (format!("{{\"format-version\":2,\"table-uuid\":\"{UUID}\",\"loc"), own),
            (format!("\n{{ \"table-uuid\" : \"{UUID}\" , "), own),
            (format!("{{\"location\":\"x\",\"table-uuid\":\"{UUID}\""), None),
            (format!("{{\"format-version\":\"2\",\"table-uuid\":\"{UUID}\""), None),
            (format!("{{\"table-uuid\":\"{}", &UUID[..20]), None),
            ("garbage".into(), None),
        ] {
            assert_eq!(uuid_in_head(head.as_bytes()), expected, "{head}");
        }
    }
}
