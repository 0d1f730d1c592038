//! A store and a catalog in memory, for this crate's own tests.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use iceberg::spec::{TableMetadata, TableMetadataBuilder};
use iceberg::{NamespaceIdent, TableCreation, TableIdent, TableRequirement, TableUpdate};

use crate::catalog::{Catalog, CommitOutcome, LoadedTable};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{ListedFile, Store, StoreWriter};

#[derive(Default, Clone)]
pub(crate) struct MemoryStore(Arc<Mutex<Files>>);

#[derive(Default)]
struct Files {
    files: BTreeMap<String, Bytes>,
    deleted: Vec<String>,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, path: &str, content: impl Into<Bytes>) {
        self.lock().files.insert(path.to_owned(), content.into());
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.lock().files.keys().cloned().collect()
    }

    pub(crate) fn deleted(&self) -> Vec<String> {
        self.lock().deleted.clone()
    }
}

struct Writer(MemoryStore, String, Vec<u8>);

#[async_trait]
impl StoreWriter for Writer {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        self.2.extend_from_slice(&content);
        Ok(())
    }

    async fn close(&mut self) -> Result<u64> {
        self.0.put(&self.1, std::mem::take(&mut self.2));
        Ok(0)
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, path: &str) -> Result<Bytes> {
        let file = self.lock().files.get(path).cloned();
        file.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no file {path}")))
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.read(path).await?;
        Ok(bytes.slice(usize::try_from(range.start).unwrap_or(0)..usize::try_from(range.end).unwrap_or(0)))
    }

    async fn stat(&self, _path: &str) -> Result<Option<ListedFile>> {
        Ok(None)
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        if self.lock().files.contains_key(path) {
            return Err(Error::internal(format!("{path} exists")));
        }
        Ok(Box::new(Writer(self.clone(), path.to_owned(), Vec::new())))
    }

    fn list(&self, _prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        futures::stream::empty().boxed()
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let mut files = self.lock();
        for path in paths {
            files.files.remove(path);
            files.deleted.push(path.clone());
        }
        paths.iter().map(|_| Ok(())).collect()
    }
}

/// What happens to a commit.
#[derive(Clone)]
pub(crate) enum CommitFault {
    /// Not applied, reported as a conflict.
    Conflict,
    /// Not applied, reported as refused.
    Refused,
    /// Applied, but the answer is lost.
    UnknownApplied,
    /// Not applied, and the answer is lost.
    UnknownNotApplied,
    /// The answer is lost, and the commit arrives only at [`MemoryCatalog::deliver_late`].
    UnknownLate,
    /// Something else happens first, then the commit is treated properly.
    After(Meanwhile),
    /// The commit is applied and the answer lost; then something else happens before the caller looks.
    UnknownAppliedThen(Meanwhile),
    /// Not applied, reported as committed, with the table as it was.
    Pretended,
    /// As [`Self::UnknownLate`], and then something else happens before the caller looks.
    UnknownLateThen(Meanwhile),
}

/// What somebody else does.
pub(crate) type Meanwhile = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

type Late = (TableIdent, Vec<TableRequirement>, Vec<TableUpdate>);

#[derive(Default)]
struct State {
    tables: BTreeMap<TableIdent, (u32, TableMetadata)>,
    faults: VecDeque<CommitFault>,
    late: Vec<Late>,
    commits: usize,
    load_failures: usize,
    last: Option<Late>,
}

#[derive(Clone, Default)]
pub(crate) struct MemoryCatalog(Arc<Mutex<State>>);

fn loaded(version: u32, metadata: &TableMetadata) -> Result<LoadedTable> {
    let location = format!("{}/metadata/{version:05}.metadata.json", metadata.location());
    LoadedTable::from_metadata_json(location, &serde_json::to_value(metadata)?)
}

impl MemoryCatalog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn create_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable> {
        self.register(table, TableMetadataBuilder::from_table_creation(creation)?.build()?.metadata)
    }

    pub(crate) fn register(&self, table: &TableIdent, metadata: TableMetadata) -> Result<LoadedTable> {
        let answer = loaded(0, &metadata);
        self.lock().tables.insert(table.clone(), (0, metadata));
        answer
    }

    /// Changes the metadata behind everybody's back.
    pub(crate) fn tamper(&self, table: &TableIdent, change: impl FnOnce(TableMetadata) -> TableMetadata) {
        let mut state = self.lock();
        if let Some((version, metadata)) = state.tables.remove(table) {
            state.tables.insert(table.clone(), (version + 1, change(metadata)));
        }
    }

    pub(crate) fn script(&self, faults: impl IntoIterator<Item = CommitFault>) {
        self.lock().faults.extend(faults);
    }

    pub(crate) fn fail_loads(&self, count: usize) {
        self.lock().load_failures = count;
    }

    pub(crate) fn commits(&self) -> usize {
        self.lock().commits
    }

    /// The last commit asked for.
    pub(crate) fn last(&self) -> Option<Late> {
        self.lock().last.clone()
    }

    pub(crate) fn deliver_late(&self) -> usize {
        let late = std::mem::take(&mut self.lock().late);
        let applied = late.into_iter().map(|(t, r, u)| self.apply(&t, &r, u));
        applied.filter(|o| matches!(o, CommitOutcome::Committed(_))).count()
    }

    /// A commit of somebody else, past the script.
    pub(crate) fn commit_unscripted(
        &self,
        table: &TableIdent,
        requirements: &[TableRequirement],
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        self.apply(table, requirements, updates)
    }

    fn apply(&self, table: &TableIdent, requirements: &[TableRequirement], updates: Vec<TableUpdate>) -> CommitOutcome {
        let mut state = self.lock();
        let Some((version, metadata)) = state.tables.get_mut(table) else {
            return CommitOutcome::Refused(Error::new(ErrorKind::NotFound, "no such table"));
        };
        if let Err(e) = requirements.iter().try_for_each(|r| r.check(Some(metadata))) {
            return CommitOutcome::Conflict(Error::new(ErrorKind::Conflict, e.to_string()));
        }
        let builder = metadata.clone().into_builder(Some(format!("v{version}.json")));
        match updates.into_iter().try_fold(builder, |b, u| u.apply(b)).and_then(|b| b.build()) {
            Ok(built) => {
                *version += 1;
                *metadata = built.metadata;
                match loaded(*version, metadata) {
                    Ok(loaded) => CommitOutcome::Committed(Box::new(loaded)),
                    Err(e) => CommitOutcome::Refused(e),
                }
            }
            Err(e) => CommitOutcome::Refused(Error::invalid(e.to_string())),
        }
    }
}

fn lost() -> CommitOutcome {
    CommitOutcome::Unknown(Error::new(ErrorKind::CommitUnknown, "the answer was lost"))
}

#[async_trait]
impl Catalog for MemoryCatalog {
    async fn list_namespaces(&self, _parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        Ok(Vec::new())
    }

    async fn list_tables(&self, _namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        Ok(Vec::new())
    }

    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable> {
        let mut state = self.lock();
        if state.load_failures > 0 {
            state.load_failures -= 1;
            return Err(Error::unavailable("the catalog is down"));
        }
        let entry = state.tables.get(table);
        let (version, metadata) = entry.ok_or_else(|| Error::new(ErrorKind::NotFound, "no such table"))?;
        loaded(*version, metadata)
    }

    async fn commit_table(
        &self,
        table: &TableIdent,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        let fault = {
            let mut state = self.lock();
            state.commits += 1;
            state.last = Some((table.clone(), requirements.clone(), updates.clone()));
            state.faults.pop_front()
        };
        match fault {
            None => self.apply(table, &requirements, updates),
            Some(CommitFault::Conflict) => CommitOutcome::Conflict(Error::new(ErrorKind::Conflict, "scripted")),
            Some(CommitFault::Refused) => CommitOutcome::Refused(Error::invalid("scripted")),
            Some(CommitFault::UnknownNotApplied) => lost(),
            Some(CommitFault::Pretended) => self.apply(table, &[], Vec::new()),
            Some(CommitFault::UnknownApplied) => {
                self.apply(table, &requirements, updates);
                lost()
            }
            Some(CommitFault::UnknownLate) => {
                self.lock().late.push((table.clone(), requirements, updates));
                lost()
            }
            Some(CommitFault::UnknownLateThen(then)) => {
                self.lock().late.push((table.clone(), requirements, updates));
                then().await;
                lost()
            }
            Some(CommitFault::After(first)) => {
                first().await;
                self.apply(table, &requirements, updates)
            }
            Some(CommitFault::UnknownAppliedThen(then)) => {
                self.apply(table, &requirements, updates);
                then().await;
                lost()
            }
        }
    }
}
