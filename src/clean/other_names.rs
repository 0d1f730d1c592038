//! One file, two names. Links, mounts, aliases of a bucket and stores that fold case or decode names give a file a second path, and
//! paths alone do not show that the two are one. What tells is the last segment, which writers make unique and which no link of a
//! directory changes, and for local files the inode.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use futures::StreamExt;
use hashbrown::HashSet;

use super::judged::JudgedGarbage;
use super::referenced::References;
use super::report::{OrphanError, OrphanReport, Refused};
use crate::catalog::TableHandle;
use crate::error::Result;
use crate::meta::read_manifests_of;
use crate::meta::snapshot::paths_of;
use crate::plan::remove_orphan_files::KeepReason;
use crate::storage::StoreRef;
use crate::table::FileIdentity;
use crate::table::file_names::{FoldedName, checksum_subject};
use crate::table::path::{CanonicalPath, is_local};
use crate::table::path_set::PathSet;
use crate::table::references::{metadata_files, statistics_files};

const SEED: u64 = 0x6963_6562_6572_6733;

/// Whether a file is one that is known by another path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likeness {
    /// Nothing speaks for it.
    None,
    /// The names are alike, and no size speaks against it; or the two share their content by a hard link.
    Perhaps,
    /// No two files are named so, or it is the same inode.
    Surely,
}

/// What files are called and what they are, wherever they lie. Eight bytes or sixteen for each.
///
/// As in [`PathSet`], likeness may be claimed wrongly with next to no probability, and is never denied wrongly.
#[derive(Debug, Default)]
pub(super) struct OtherNames(HashSet<u64, FixedState>);

impl OtherNames {
    /// Takes note of a file; `None`: its size is not known.
    pub(super) fn note(&mut self, path: &str, size: Option<u64>) {
        // Writers that know no size say 0.
        let size = size.filter(|bytes| *bytes > 0);
        let name = FoldedName::of(path);
        self.0.insert(key("name", &name.text));
        if !name.is_unique {
            self.0.insert(sized(&name.text, size));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn note_identity(&mut self, identity: FileIdentity) {
        self.0.insert(inode(identity));
    }

    /// Whether a file may be one of those noted, by its name and size.
    pub(super) fn by_name(&self, path: &str, size: Option<u64>) -> Likeness {
        let subject = checksum_subject(path);
        let name = FoldedName::of(subject.as_deref().unwrap_or(path));
        let is_known = |key| self.0.contains(&key);
        if !is_known(key("name", &name.text)) {
            return Likeness::None;
        }
        match size.filter(|_| subject.is_none()) {
            _ if name.is_unique && subject.is_none() => Likeness::Surely,
            // Two files of one name and of different sizes are two files.
            Some(size) if !is_known(sized(&name.text, Some(size))) && !is_known(sized(&name.text, None)) => {
                Likeness::None
            }
            _ => Likeness::Perhaps,
        }
    }

    /// Whether a file is one of those noted, by what it is.
    pub(super) fn by_identity(&self, identity: FileIdentity) -> Likeness {
        if !self.0.contains(&inode(identity)) {
            Likeness::None
        } else if identity.hard_links > 1 {
            Likeness::Perhaps
        } else {
            Likeness::Surely
        }
    }
}

fn key(kind: &str, text: &str) -> u64 {
    FixedState::with_seed(SEED).hash_one((kind, text))
}

fn sized(name: &str, size: Option<u64>) -> u64 {
    FixedState::with_seed(SEED).hash_one((name, size))
}

fn inode(identity: FileIdentity) -> u64 {
    FixedState::with_seed(SEED).hash_one((identity.device, identity.inode))
}

/// What each of these files is, `None` unless it is local: the others have one path each, as far as their stores tell.
pub(super) async fn identities_of(
    store: &StoreRef,
    paths: impl IntoIterator<Item = &str>,
) -> Result<Vec<Option<FileIdentity>>> {
    let mut local = Vec::new();
    let is_local = |path: &str| {
        let is_local = is_local(path);
        local.extend(is_local.then(|| path.to_owned()));
        is_local
    };
    let are_local: Vec<bool> = paths.into_iter().map(is_local).collect();
    let mut found = if local.is_empty() { Vec::new() } else { store.identities(&local).await? }.into_iter();
    Ok(are_local.into_iter().map(|is_local| if is_local { found.next().flatten() } else { None }).collect())
}

/// A judged file that metadata does not name by another path, with what it is if it is local, so that other tables can be asked.
///
/// Rule: a file of which metadata knows another name stays. If one surely has two names, links or aliases lead to this table,
/// the listing and the metadata speak of the same files by different names, and the run is refused.
#[derive(Debug)]
pub(super) struct NoOtherName {
    file: JudgedGarbage,
    identity: Option<FileIdentity>,
}

impl NoOtherName {
    pub(super) fn file(&self) -> &JudgedGarbage {
        &self.file
    }

    pub(super) fn identity(&self) -> Option<FileIdentity> {
        self.identity
    }
}

/// Those without another name. Local files are looked up on their store here, once for this and for other tables.
pub(super) async fn without_other_name(
    files: Vec<JudgedGarbage>,
    references: &References,
    report: &mut OrphanReport,
) -> Result<Vec<NoOtherName>, OrphanError> {
    let (table, named) = (&references.table, files.iter().map(|file| (file.path(), file.bytes())).collect::<Vec<_>>());
    let alike = references.reachable.likenesses(&table.store, &named).await?;
    if let Some(((path, _), _)) = named.iter().zip(&alike).find(|(_, (likeness, _))| *likeness == Likeness::Surely) {
        return Err(Refused::new("other_name", two_names(table, path).await).into());
    }
    let mut without = Vec::with_capacity(files.len());
    for (file, (likeness, identity)) in files.into_iter().zip(alike) {
        match likeness {
            Likeness::None => without.push(NoOtherName { file, identity }),
            Likeness::Perhaps | Likeness::Surely => report.keep(KeepReason::OtherName, file.bytes()),
        }
    }
    Ok(without)
}

pub(super) async fn two_names(table: &TableHandle, path: &str) -> String {
    let other = other_name(table, path).await;
    let other = other.as_deref().unwrap_or("another path");
    format!(
        "nothing refers to {path}, but metadata names the same file, or a copy of it, as {other}: if a link, a mount or an alias leads from \
         one to the other, rewrite the metadata to one of them (rewrite_table_path, or copy the table); if it is a copy, move it away"
    )
}

/// For a person: the path by which the table's metadata names the file at `path`, if it is found.
async fn other_name(table: &TableHandle, path: &str) -> Option<String> {
    let alike = Alike::new(table, path).await?;
    let loaded = &table.loaded;
    let mut named: Vec<String> = metadata_files(loaded).ok()?.into_iter().map(str::to_owned).collect();
    named.extend(statistics_files(loaded).into_iter().map(|s| s.path));
    named.extend(loaded.metadata.snapshots().map(|s| s.manifest_list().to_owned()));
    if let Some(found) = alike.find(named).await {
        return Some(found);
    }
    let (mut seen, mut manifests) = (PathSet::default(), Vec::new());
    for snapshot in loaded.metadata.snapshots() {
        for manifest in read_manifests_of(table.store.as_ref(), snapshot).await.ok()?.0 {
            if seen.insert(&manifest.manifest_path).ok()? {
                manifests.push(manifest);
            }
        }
    }
    if let Some(found) = alike.find(manifests.iter().map(|m| m.manifest_path.clone()).collect()).await {
        return Some(found);
    }
    let mut read = paths_of(&table.store, manifests);
    while let Some(entries) = read.next().await {
        let live = entries.ok()?.1.into_iter().filter(|e| e.live).map(|e| e.file_path.to_string());
        if let Some(found) = alike.find(live.collect()).await {
            return Some(found);
        }
    }
    None
}

/// A file whose other name is looked for.
struct Alike<'a> {
    store: &'a StoreRef,
    path: CanonicalPath,
    name: FoldedName,
    identity: Option<FileIdentity>,
}

impl<'a> Alike<'a> {
    async fn new(table: &'a TableHandle, path: &str) -> Option<Self> {
        let identity = identities_of(&table.store, [path]).await.ok()?.pop().flatten();
        Some(Self { store: &table.store, path: CanonicalPath::parse(path).ok()?, name: FoldedName::of(path), identity })
    }

    /// The first of these paths that names the file in another way.
    async fn find(&self, named: Vec<String>) -> Option<String> {
        let is_another = |path: &String| CanonicalPath::parse(path).is_ok_and(|p| p != self.path);
        if let Some(found) = named.iter().find(|path| FoldedName::of(path) == self.name && is_another(path)) {
            return Some(found.clone());
        }
        let own = self.identity?;
        let identities = identities_of(self.store, named.iter().map(String::as_str)).await.ok()?;
        let same = |found: &FileIdentity| (found.device, found.inode) == (own.device, own.inode);
        let mut found = named.into_iter().zip(identities);
        found.find(|(path, identity)| identity.as_ref().is_some_and(same) && is_another(path)).map(|(path, _)| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0b9a9e3c-5d0f-4e5c-9d5e-123456789012";

    #[test]
    fn a_unique_name_is_enough_and_a_repeated_one_needs_the_size() {
        let (unique, repeated) = (format!("/old/00000-0-{UUID}-00001.parquet"), "/old/p=1/000000_0");
        let mut names = OtherNames::default();
        names.note(&unique, Some(10));
        names.note(repeated, Some(10));
        names.note("/old/v1.metadata.json", None);
        names.note("/old/unsized.parquet", Some(0));
        let known = |path: &str, size| names.by_name(path, size);
        for size in [None, Some(10), Some(11)] {
            assert_eq!(known(&unique.replace("old", "new"), size), Likeness::Surely, "{size:?}");
            assert_eq!(known(&format!("/new/.00000-0-{UUID}-00001.parquet.crc"), size), Likeness::Perhaps);
            assert_eq!(known(&unique.replace("-00001", "-00002"), size), Likeness::None);
            assert_eq!(known("/new/v1.metadata.json", size), Likeness::Perhaps);
            assert_eq!(known("/new/unsized.parquet", size), Likeness::Perhaps);
        }
        assert_eq!(known("/new/p=2/000000_0", Some(10)), Likeness::Perhaps);
        assert_eq!(known("/new/p=2/000000_0", None), Likeness::Perhaps);
        assert_eq!(known("/new/p=2/000000_0", Some(11)), Likeness::None);
    }

    #[test]
    fn a_hard_link_is_no_reason_to_refuse_everything() {
        let identity = |inode, hard_links| FileIdentity { device: 1, inode, hard_links };
        let mut names = OtherNames::default();
        names.note_identity(identity(7, 1));
        assert_eq!(names.by_identity(identity(7, 1)), Likeness::Surely);
        assert_eq!(names.by_identity(identity(7, 2)), Likeness::Perhaps);
        assert_eq!(names.by_identity(identity(8, 1)), Likeness::None);
        assert_eq!(names.by_identity(FileIdentity { device: 2, ..identity(7, 1) }), Likeness::None);
    }
}
