//! A catalog, and what is remembered of its tables: which there are, where they lie, and what they need outside of their own directories.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use iceberg::{NamespaceIdent, TableIdent};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::Member;
use super::listing::{Listed, Unclear, list, table_is_gone};
use crate::clean::{Needs, stores_named};
use crate::concurrent::concurrent;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::table::LoadedTable;
use crate::table::TableName;
use crate::table::references::{directories, own_directories};

/// Tables of a catalog that are asked for at the same time.
const LOOK_UP_CONCURRENCY: usize = 16;
/// How long a table's directories are remembered. They hardly ever change, and each load of the table renews them.
const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);
/// Longest wait for all listings of a catalog.
const LIST_WITHIN: Duration = Duration::from_secs(120);
/// Longest wait for a catalog to tell of a table: one that hangs must not hold up the clean-ups of all.
const LOAD_WITHIN: Duration = Duration::from_secs(120);
/// A catalog that could not be listed is not asked again by clean-ups before this, unless it was listed meanwhile: one that hangs
/// must not hold up the tables of others. The search for tables asks again and again.
///
/// The same holds for a table: clean-ups of all others want to know about it, and each would wait for it, or be refused it, anew.
const FAILED_FOR: Duration = Duration::from_secs(3 * 60);
/// After so many tables in a row of which a catalog has told nothing, clean-ups ask it for no other before [`FAILED_FOR`] is over.
const UNANSWERED_MAX: usize = 8;
/// What a table has needed once is forgotten after this, if it needs it no more.
const NEEDS_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// Entries of needs that are remembered of a catalog's tables together; each takes some 32 bytes. What goes beyond is read again each time.
const NEEDS_ENTRIES_MAX: usize = (16 << 20) / 32;
/// Looks at a table that changes while it is read.
const LOOKS_MAX: usize = 3;

/// A catalog, and what is remembered of its tables.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) member: Member,
    memory: Mutex<KnownTables>,
    /// What the last listing told, and when it began. Held while the catalog is listed, so that all who want that wait for one listing.
    listing: tokio::sync::Mutex<Option<(Instant, Arc<Listed>)>>,
}

#[derive(Default)]
struct KnownTables {
    /// Where tables lie, and when that was seen.
    places: HashMap<TableName, (Instant, TablePlace)>,
    needs: HashMap<TableName, Remembered>,
    /// Entries of all `needs` together.
    entries: usize,
    /// The tables that there were when the catalog was last listed.
    tables: BTreeSet<TableName>,
    /// When a listing has failed, and why, if none has succeeded since.
    listing_failed: Option<(Instant, Error)>,
    /// Tables that the catalog did not tell of when it was last asked: when that was, and why.
    failed: HashMap<TableName, (Instant, Error)>,
    /// Tables in a row that it gave no answer about, when the last of them was asked for, and why.
    unanswered: usize,
    gave_up: Option<(Instant, Error)>,
}

/// Where a table lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TablePlace {
    pub(super) directories: Vec<String>,
    /// `None`: its metadata tells none.
    pub(super) uuid: Option<Uuid>,
}

/// What a table needs, as its metadata told.
pub(super) struct Remembered {
    pub(super) needs: Needs,
    pub(super) uuid: Option<Uuid>,
    metadata_location: String,
    /// When the set was begun.
    made: Instant,
    /// When the look began that found the table so.
    looked: Instant,
}

/// What a look at a table found.
pub(super) enum Looked {
    /// It left its catalog.
    Gone,
    /// This is what it needs.
    Seen(Box<Remembered>),
    /// It is not known what it needs; `stores` are those that its metadata names, if that could be read.
    Unreadable { error: Error, stores: Option<BTreeSet<(String, String)>> },
}

impl Known {
    pub(super) fn new(name: String, member: Member) -> Self {
        Self { name, member, memory: Mutex::default(), listing: tokio::sync::Mutex::default() }
    }

    /// As [`Self::listed`], for a clean-up: a catalog that has just failed is not waited for.
    pub(super) async fn listed_for_clean_up(&self, oldest: Instant) -> Result<Arc<Listed>> {
        let failed = self.memory.lock().listing_failed.clone();
        match failed.filter(|(ended, _)| ended.elapsed() < FAILED_FOR) {
            Some((_, error)) => Err(error),
            None => self.listed(oldest).await,
        }
    }

    /// The catalog's tables, by a listing that began at `oldest` or later. Tables that an earlier listing named and this one does not are
    /// asked for by name.
    pub(super) async fn listed(&self, oldest: Instant) -> Result<Arc<Listed>> {
        let mut last = self.listing.lock().await;
        if let Some((began, listed)) = last.as_ref()
            && *began >= oldest
        {
            return Ok(listed.clone());
        }
        // Whoever waited while another one failed shares its error.
        let failed = self.memory.lock().listing_failed.clone();
        if let Some((_, error)) = failed.filter(|(ended, _)| *ended >= oldest) {
            return Err(error);
        }
        let began = Instant::now();
        let listing = async { Ok(self.reconciled(list(&self.name, self.member.catalog.as_ref()).await?).await) };
        let listed = tokio::time::timeout(LIST_WITHIN, listing).await.unwrap_or_else(|_| {
            let seconds = LIST_WITHIN.as_secs();
            Err(Error::unavailable(format!("catalog {} has not listed its tables within {seconds} s", self.name)))
        });
        match listed {
            Ok(listed) => {
                let listed = Arc::new(listed);
                self.memory.lock().keep_only(&listed.tables);
                *last = Some((began, listed.clone()));
                Ok(listed)
            }
            Err(error) => {
                self.memory.lock().listing_failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Adds tables that the catalog named before and does not name now, although nothing says that they are gone.
    async fn reconciled(&self, mut listed: Listed) -> Listed {
        let missing: Vec<TableName> = self.memory.lock().tables.difference(&listed.tables).cloned().collect();
        let (hidden, missing): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|name| listed.unclear.iter().any(|unclear| unclear.may_hold(name)));
        listed.tables.extend(hidden);
        let mut looks = concurrent(LOOK_UP_CONCURRENCY, missing, |name| self.still_there(name));
        while let Some((name, there)) = looks.next().await {
            match there {
                Ok(false) => continue,
                Ok(true) => {
                    let error = Error::unavailable(format!("the catalog does not list {name}, and loads it"));
                    let namespace = NamespaceIdent::from_vec(name.namespace.clone()).ok();
                    listed.unclear.push(Unclear { catalog: self.name.clone(), namespace, error });
                }
                // Whoever needs the table finds out about it.
                Err(_) => {}
            }
            listed.tables.insert(name);
        }
        listed
    }

    async fn still_there(&self, name: TableName) -> (TableName, Result<bool>) {
        let told = match ident(&name) {
            Ok(ident) => within(self.member.catalog.declared_paths(&ident)).await.map(|_| true),
            Err(error) => Err(error),
        };
        let there = match told {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            told => told,
        };
        (name, there)
    }

    /// The error of a load, which says that a table does not exist only if that is so by its namespace's listing as well.
    pub(super) async fn load_error(&self, ident: &TableIdent, error: Error) -> Error {
        if error.kind() != ErrorKind::NotFound {
            return error;
        }
        match table_is_gone(self.member.catalog.as_ref(), ident).await {
            Ok(true) => error,
            Ok(false) => {
                Error::invalid(format!("the catalog lists the table and says that it does not exist: {error}"))
            }
            Err(listing) => Error::unavailable(format!("{error}, and its namespace cannot be listed: {listing}")),
        }
    }

    /// Where a table lies; `None` if it is gone.
    pub(super) async fn place_of(&self, name: &TableName) -> Result<Option<TablePlace>> {
        if let Some(place) = self.remembered_place(name) {
            return Ok(Some(place));
        }
        let ident = ident(name)?;
        match self.told(name, &ident, self.member.catalog.declared_paths(&ident)).await? {
            Some(declared) => {
                let place = TablePlace { directories: directories(&declared)?, uuid: declared.uuid };
                self.remember(name, place.clone()).await?;
                Ok(Some(place))
            }
            None => Ok(None),
        }
    }

    /// What a clean-up is told of another table; `None` if that is gone. One that the catalog has just not told of is not asked for again.
    async fn told<T>(
        &self,
        name: &TableName,
        ident: &TableIdent,
        asked: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        if let Some(error) = self.memory.lock().failed_lately(name) {
            return Err(error);
        }
        let told = match within(asked).await {
            Ok(told) => Ok(Some(told)),
            Err(error) => match self.load_error(ident, error).await {
                error if error.kind() == ErrorKind::NotFound => Ok(None),
                error => Err(error),
            },
        };
        let mut memory = self.memory.lock();
        match &told {
            Ok(_) => memory.answered(name),
            Err(error) => memory.not_told(name, error),
        }
        drop(memory);
        told
    }

    /// What a table needs, by a look that began at `oldest` or later.
    pub(super) async fn look(&self, name: &TableName, oldest: Instant) -> Looked {
        let known = self.memory.lock().take_needs(name);
        if let Some(known) = known {
            if known.looked >= oldest {
                return Looked::Seen(Box::new(known));
            }
            self.memory.lock().put_needs(name, known);
        }
        let mut failed: Option<(String, Looked)> = None;
        for _ in 0..LOOKS_MAX {
            let began = Instant::now();
            let unreadable = |error, stores| Looked::Unreadable { error, stores };
            let ident = match ident(name) {
                Ok(ident) => ident,
                Err(error) => return unreadable(error, None),
            };
            let loaded = match self.told(name, &ident, self.member.catalog.load_table(&ident)).await {
                Ok(Some(loaded)) => Arc::new(loaded),
                Ok(None) => return Looked::Gone,
                Err(error) => return unreadable(error, None),
            };
            // What it named may have been removed since, by expiry: then its metadata is another one by now.
            if let Some((_, look)) = failed.take_if(|(location, _)| *location == loaded.metadata_location) {
                return look;
            }
            match self.read(name, &ident, &loaded, began).await {
                Ok(known) => return Looked::Seen(Box::new(known)),
                Err(error) => {
                    failed = Some((loaded.metadata_location.clone(), unreadable(error, stores_named(&loaded).ok())));
                }
            }
        }
        let changing = || Looked::Unreadable { error: Error::unavailable("it changes while it is read"), stores: None };
        failed.map_or_else(changing, |(_, look)| look)
    }

    async fn read(
        &self,
        name: &TableName,
        ident: &TableIdent,
        loaded: &Arc<LoadedTable>,
        looked: Instant,
    ) -> Result<Remembered> {
        let place = TablePlace::of(loaded)?;
        let known = self.memory.lock().take_needs(name);
        let known = known.filter(|known| {
            known.uuid == place.uuid
                && known.needs.is_about(&place.directories)
                && known.made.elapsed() < NEEDS_KEPT_FOR
        });
        let uuid = place.uuid;
        self.remember(name, place).await?;
        let metadata_location = loaded.metadata_location.clone();
        let (needs, made) = match known {
            Some(known) if known.metadata_location == metadata_location && !metadata_location.is_empty() => {
                return Ok(Remembered { looked, ..known });
            }
            Some(known) => (known.needs, known.made),
            None => (Needs::new(loaded)?, looked),
        };
        let store = self.member.stores.open(&self.member.catalog, ident, loaded).await?;
        let needs = needs.with_table(&store, loaded).await?;
        Ok(Remembered { needs, uuid, metadata_location, made, looked })
    }

    /// Keeps what a look found for the next one.
    pub(super) fn remember_needs(&self, name: &TableName, known: Remembered) {
        self.memory.lock().put_needs(name, known);
    }

    /// Loads a table. [`ErrorKind::NotFound`] only if it is gone for sure.
    pub(super) async fn load(&self, name: &TableName, ident: &TableIdent) -> Result<LoadedTable> {
        let loaded = match self.member.catalog.load_table(ident).await {
            Ok(loaded) => loaded,
            Err(error) => return Err(self.load_error(ident, error).await).context(|| format!("load table {name}")),
        };
        self.memory.lock().answered(name);
        self.remember(name, TablePlace::of(&loaded)?).await.context(|| format!("load table {name}"))?;
        Ok(loaded)
    }

    /// An error if the catalog tells another table's place. A table that was made anew has a UUID that no other one has. One that was
    /// given the name of another has its UUID, and that one has it no more.
    async fn remember(&self, name: &TableName, place: TablePlace) -> Result<()> {
        let other = self.memory.lock().known_as(name, &place);
        if let Some(other) = other
            && !self.has_left(&other, place.uuid).await
        {
            return Err(Error::invalid(format!("the catalog answers with the metadata of {other}")));
        }
        self.memory.lock().places.insert(name.clone(), (Instant::now(), place));
        Ok(())
    }

    /// Whether there is another table by this name now than the one of this UUID, or none.
    async fn has_left(&self, name: &TableName, uuid: Option<Uuid>) -> bool {
        let Ok(ident) = ident(name) else { return false };
        match within(self.member.catalog.declared_paths(&ident)).await {
            Ok(declared) => declared.uuid.is_some() && declared.uuid != uuid,
            Err(error) => self.load_error(&ident, error).await.kind() == ErrorKind::NotFound,
        }
    }

    fn remembered_place(&self, name: &TableName) -> Option<TablePlace> {
        let memory = self.memory.lock();
        let (seen, place) = memory.places.get(name)?;
        (seen.elapsed() < REMEMBERED_FOR).then(|| place.clone())
    }
}

impl KnownTables {
    fn keep_only(&mut self, tables: &BTreeSet<TableName>) {
        self.places.retain(|name, _| tables.contains(name));
        self.needs.retain(|name, _| tables.contains(name));
        self.entries = self.needs.values().map(|known| known.needs.entries()).sum();
        self.failed.retain(|name, _| tables.contains(name));
        self.tables.clone_from(tables);
        self.listing_failed = None;
    }

    /// Another table that had this table's UUID when it was last seen, while this one had another.
    fn known_as(&self, name: &TableName, place: &TablePlace) -> Option<TableName> {
        let before = self.places.get(name).filter(|(seen, _)| seen.elapsed() < REMEMBERED_FOR);
        before.filter(|(_, before)| before.uuid.is_some() && before.uuid != place.uuid)?;
        let same =
            |(other, (_, known)): &(&TableName, &(Instant, TablePlace))| *other != name && known.uuid == place.uuid;
        self.places.iter().find(same).filter(|_| place.uuid.is_some()).map(|(other, _)| other.clone())
    }

    /// Why a table need not be asked for: the catalog has just not told of it, or of many. Once that is long ago, whoever comes first asks
    /// again, and the others hear the old error until it is known better.
    fn failed_lately(&mut self, name: &TableName) -> Option<Error> {
        let now = Instant::now();
        for (at, error) in self.gave_up.iter_mut().chain(self.failed.get_mut(name)) {
            if now.duration_since(*at) < FAILED_FOR {
                return Some(error.clone());
            }
            *at = now;
        }
        None
    }

    fn answered(&mut self, name: &TableName) {
        self.failed.remove(name);
        (self.unanswered, self.gave_up) = (0, None);
    }

    fn not_told(&mut self, name: &TableName, error: &Error) {
        let now = Instant::now();
        self.failed.insert(name.clone(), (now, error.clone()));
        if error.kind() != ErrorKind::Unavailable {
            // It has answered.
            (self.unanswered, self.gave_up) = (0, None);
            return;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered >= UNANSWERED_MAX {
            let many = format!("the catalog has told nothing of {} tables in a row, last of {name}", self.unanswered);
            self.gave_up = Some((now, Error::unavailable(format!("{many}: {error}"))));
        }
    }

    fn take_needs(&mut self, name: &TableName) -> Option<Remembered> {
        let known = self.needs.remove(name)?;
        self.entries = self.entries.saturating_sub(known.needs.entries());
        Some(known)
    }

    fn put_needs(&mut self, name: &TableName, known: Remembered) {
        self.take_needs(name);
        // A set without entries takes room, too.
        let entries = known.needs.entries();
        if self.entries + entries <= NEEDS_ENTRIES_MAX {
            self.entries += entries;
            self.needs.insert(name.clone(), known);
        }
    }
}

impl TablePlace {
    fn of(loaded: &LoadedTable) -> Result<Self> {
        let uuid = Some(loaded.metadata.uuid()).filter(|uuid| !uuid.is_nil());
        Ok(Self { directories: own_directories(loaded)?, uuid })
    }
}

/// What a catalog tells of a table, unless it takes too long.
async fn within<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LOAD_WITHIN, asked).await.unwrap_or_else(|_| {
        Err(Error::unavailable(format!("the catalog has not told of it within {} s", LOAD_WITHIN.as_secs())))
    })
}

/// The catalog's identifier of a table.
pub(super) fn ident(name: &TableName) -> Result<TableIdent> {
    let namespace = NamespaceIdent::from_vec(name.namespace.clone())?;
    Ok(TableIdent::new(namespace, name.table.clone()))
}
