//! Files of one table that another table needs: made by importing files where they lie, by registering a table twice, or by a data path that
//! once pointed here. Directories do not tell; only the other tables' metadata does.
//!
//! A table may always refer to files in its own directories, and no other table removes anything there. So of each table only what it
//! needs elsewhere is kept in mind: for nearly all tables that is nothing, however large they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::OwnedSemaphorePermit;

use super::judged::JudgedGarbage;
use super::other_names::{Likeness, NoOtherName};
use super::reachable::{Reachable, key_of};
use super::report::{OrphanReport, Refused};
use crate::error::Result;
use crate::plan::remove_orphan_files::KeepReason;
use crate::storage::StoreRef;
use crate::table::FileIdentity;
use crate::table::LoadedTable;
use crate::table::file_names::checksum_subject;
use crate::table::path::CanonicalPath;
use crate::table::path_set::Fingerprint;
use crate::table::references::{metadata_files, own_directories, statistics_files};

/// The other tables within sight.
#[async_trait]
pub trait Elsewhere: Sync {
    /// Which of the suspects another table needs. Every other table is looked at after the call.
    async fn referenced(&self, suspects: Suspects) -> NeighbourAnswer;
}

/// What is known of the suspects of one table.
#[derive(Debug)]
pub struct NeighbourAnswer {
    /// For each suspect, in their order, whether another table needs it.
    pub needed: Vec<bool>,
    /// Why that is not known for sure: then nothing may go.
    pub refused: Option<Refused>,
    /// Held while files are deleted, so that many tables that were answered together do not all delete at once.
    pub turn: Option<OwnedSemaphorePermit>,
}

/// Files that may go unless another table needs them. Files are told by the key of their path: a store or a bucket may have several names.
#[derive(Debug)]
pub struct Suspects {
    /// Directories of the table that they lie in.
    directories: Vec<CanonicalPath>,
    paths: Vec<String>,
    sizes: Vec<u64>,
    /// Sorted. The checksum of a local file is needed as long as the file is, so it stands under both names.
    keys: Vec<(Fingerprint, u32)>,
    needed: Vec<bool>,
    /// What local files are, by their place in `paths`.
    identities: Vec<(usize, FileIdentity)>,
    stores: BTreeSet<(String, String)>,
}

impl Suspects {
    /// These files of a table, with their bytes and, for local ones, what they are: other tables may reach them by links.
    /// [`crate::error::ErrorKind::DataInvalid`] if a path cannot be compared.
    pub fn new(
        loaded: &LoadedTable,
        files: impl IntoIterator<Item = (String, u64, Option<FileIdentity>)>,
    ) -> Result<Self> {
        let (mut paths, mut sizes, mut identities) = (Vec::new(), Vec::new(), Vec::new());
        let (mut keys, mut stores) = (Vec::new(), BTreeSet::new());
        for (index, (path, size, identity)) in (0_u32..).zip(files) {
            let canonical = CanonicalPath::parse(&path)?;
            keys.push((Fingerprint::of_text(key_of(&canonical)), index));
            if let Some(subject) = checksum_subject(&path) {
                keys.push((Fingerprint::of_text(key_of(&CanonicalPath::parse(&subject)?)), index));
            }
            let store = store_of(&canonical);
            if !stores.contains(&store) {
                stores.insert(store);
            }
            identities.extend(identity.map(|identity| (paths.len(), identity)));
            paths.push(path);
            sizes.push(size);
        }
        keys.sort_unstable();
        let directories =
            own_directories(loaded)?.iter().map(|path| CanonicalPath::parse(path)).collect::<Result<_>>()?;
        let needed = vec![false; paths.len()];
        Ok(Self { directories, paths, sizes, keys, needed, identities, stores })
    }

    pub fn len(&self) -> usize {
        self.paths.len()
    }

    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Marks what another table needs: what lies in its directories, and what it refers to elsewhere.
    pub fn spare(&mut self, needs: &Needs) -> Result<()> {
        for (_, theirs) in &needs.0.scope().directories {
            let near = |own: &CanonicalPath| own == theirs || own.is_inside(theirs) || theirs.is_inside(own);
            if self.directories.iter().any(near) {
                self.spare_inside(theirs)?;
            }
        }
        let files = needs.0.files();
        if files.len() < self.keys.len() {
            files.iter().for_each(|key| self.spare_key(*key));
        } else {
            let both: Vec<Fingerprint> = self.keys.iter().map(|(key, _)| *key).collect();
            both.into_iter().filter(|key| files.contains_fingerprint(*key)).for_each(|key| self.spare_key(key));
        }
        self.spare_names(needs);
        Ok(())
    }

    /// Marks what the other table may refer to by another path that leads to the same file: the name tells, or for local files the inode.
    fn spare_names(&mut self, needs: &Needs) {
        let names = needs.0.names();
        if names.is_empty() {
            return;
        }
        for ((path, size), needed) in self.paths.iter().zip(&self.sizes).zip(&mut self.needed) {
            *needed = *needed || names.by_name(path, Some(*size).filter(|size| *size > 0)) != Likeness::None;
        }
        for (at, identity) in &self.identities {
            if names.by_identity(*identity) != Likeness::None {
                self.needed[*at] = true;
            }
        }
    }

    pub fn spare_file(&mut self, path: &str) -> Result<()> {
        self.spare_key(Fingerprint::of_text(key_of(&CanonicalPath::parse(path)?)));
        Ok(())
    }

    fn spare_key(&mut self, key: Fingerprint) {
        let first = self.keys.partition_point(|(known, _)| *known < key);
        for (_, index) in self.keys.iter().skip(first).take_while(|(known, _)| *known == key) {
            if let Some(needed) = self.needed.get_mut(*index as usize) {
                *needed = true;
            }
        }
    }

    fn spare_inside(&mut self, directory: &CanonicalPath) -> Result<()> {
        for (path, needed) in self.paths.iter().zip(&mut self.needed) {
            *needed = *needed || CanonicalPath::parse(path)?.is_inside(directory);
        }
        Ok(())
    }

    /// Whether files of these stores could be among them.
    pub fn lie_in_any(&self, stores: &BTreeSet<(String, String)>) -> bool {
        !self.stores.is_disjoint(stores)
    }

    /// The answer, once every other table was asked.
    pub fn into_answer(self, refused: Option<Refused>) -> NeighbourAnswer {
        NeighbourAnswer { needed: self.needed, refused, turn: None }
    }
}

/// A file that may go, and that no other table needs.
///
/// Rule: every other table within sight is asked, last of all before deletion, and after the file was listed. If it is not known
/// for sure what one of them needs, nothing goes.
#[derive(Debug)]
pub(super) struct Unneeded(NoOtherName);

impl Unneeded {
    pub(super) fn file(&self) -> &JudgedGarbage {
        self.0.file()
    }
}

/// Those that no other table needs, and the turn to delete them; none, and the report is refused, if that cannot be told.
pub(super) async fn unneeded_elsewhere(
    files: Vec<NoOtherName>,
    elsewhere: &dyn Elsewhere,
    table: &LoadedTable,
    report: &mut OrphanReport,
) -> Result<(Vec<Unneeded>, Option<OwnedSemaphorePermit>)> {
    if files.is_empty() {
        return Ok((Vec::new(), None));
    }
    let suspects = files.iter().map(|f| (f.file().path().to_owned(), f.file().bytes(), f.identity()));
    let NeighbourAnswer { needed, refused, turn } = elsewhere.referenced(Suspects::new(table, suspects)?).await;
    let (mut needed, mut unneeded) = (needed.into_iter(), Vec::new());
    for file in files {
        let (needed, judged) = (needed.next().unwrap_or(true), file.file());
        if needed || refused.is_some() {
            let why = if needed { KeepReason::ReferencedElsewhere } else { KeepReason::NeighbourUnreadable };
            report.keep(why, judged.bytes());
        } else {
            report.removable.entry(judged.garbage()).or_default().add(judged.bytes());
            unneeded.push(Unneeded(file));
        }
    }
    report.refused = refused;
    Ok((unneeded, turn))
}

/// What a table needs outside of its own directories. It grows with the table: what a table has needed once is spared until the set is made
/// anew.
#[derive(Debug)]
pub struct Needs(Reachable);

impl Needs {
    pub fn new(loaded: &LoadedTable) -> Result<Self> {
        Ok(Self(Reachable::outside_only(loaded)?))
    }

    /// Adds all that the metadata and its snapshots refer to. What an earlier call has read is not read again. An error means that it is
    /// not known what the table needs.
    pub async fn with_table(self, store: &StoreRef, loaded: &Arc<LoadedTable>) -> Result<Self> {
        self.0.with_table(store, loaded).await.map(Self)
    }

    /// Whether the table's directories are those for which this was made.
    pub fn is_about(&self, directories: &[String]) -> bool {
        self.0.scope().directories.iter().map(|(directory, _)| directory).eq(directories)
    }

    pub fn entries(&self) -> usize {
        self.0.entries()
    }
}

/// Scheme and bucket (or host) of everything that a table's metadata names by itself, manifest lists among it. A table of which nothing more
/// can be read does not count for files in another store.
pub fn stores_named(loaded: &LoadedTable) -> Result<BTreeSet<(String, String)>> {
    let mut stores = BTreeSet::new();
    let directories = own_directories(loaded)?;
    let files = metadata_files(loaded)?.into_iter().map(str::to_owned);
    let statistics = statistics_files(loaded).into_iter().map(|statistics| statistics.path);
    let lists = loaded.metadata.snapshots().map(|snapshot| snapshot.manifest_list().to_owned());
    for path in directories.into_iter().chain(files).chain(statistics).chain(lists.filter(|list| !list.is_empty())) {
        stores.insert(store_of(&CanonicalPath::parse(&path)?));
    }
    Ok(stores)
}

fn store_of(path: &CanonicalPath) -> (String, String) {
    (path.scheme().to_owned(), path.authority().to_owned())
}
