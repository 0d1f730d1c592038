//! A catalog in memory: requirements are checked and updates applied by the library, metadata files go to a store,
//! and every commit can be made to end badly.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt};
use iceberg::spec::{TableMetadata, TableMetadataBuilder};
use iceberg::{NamespaceIdent, TableCreation, TableIdent, TableRequirement, TableUpdate};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::catalog::{Catalog, CommitOutcome, MaySend, TableHandle};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::sandbox::untyped;
use crate::storage::StoreRef;
use crate::table::LoadedTable;
use crate::testing::builder;

/// What somebody else does at a chosen moment.
pub type Meanwhile = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A commit as it was asked for: table, requirements, updates.
pub type CommitRequest = (TableIdent, Vec<TableRequirement>, Vec<TableUpdate>);

/// What happens to a commit.
#[derive(Clone)]
pub enum CommitFault {
    /// Not applied, reported as a conflict.
    Conflict,
    /// Not applied, reported as refused.
    Refused,
    /// Applied, but the answer is lost. (If a requirement fails it is not applied, and the answer is lost as well.)
    UnknownApplied,
    /// As [`Self::UnknownApplied`], and then something else happens before the caller can look.
    UnknownAppliedThen(Meanwhile),
    /// Not applied, and the answer is lost.
    UnknownNotApplied,
    /// The answer is lost, and the commit arrives only at [`MemoryCatalog::deliver_late`].
    UnknownLate,
    /// As [`Self::UnknownLate`], and then something else happens before the caller can look.
    UnknownLateThen(Meanwhile),
    /// Not applied, reported as committed, with the table as it was.
    Pretended,
    /// Something else happens first (a racing writer), then the commit is treated properly.
    After(Meanwhile),
    /// What becomes of the request and what the answer says do not go together; then something else happens.
    Told(Delivery, Answer, Meanwhile),
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It is applied, unless a requirement fails.
    Applied,
    /// It never arrives.
    Lost,
    /// It arrives at [`MemoryCatalog::deliver_late`].
    Late,
}

/// What the caller hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A requirement failed.
    Conflict,
    /// No, for another reason.
    Refused,
    Unknown,
}

impl Answer {
    fn outcome(self) -> CommitOutcome {
        match self {
            Self::Conflict => CommitOutcome::Conflict(Error::new(ErrorKind::Conflict, "injected fault: conflict")),
            Self::Refused => CommitOutcome::Refused(Error::new(ErrorKind::Internal, "injected fault: refused")),
            Self::Unknown => lost(),
        }
    }
}

#[derive(Default)]
struct CatalogContent {
    /// Metadata locations and documents.
    tables: BTreeMap<TableIdent, (String, Arc<Value>)>,
    faults: VecDeque<CommitFault>,
    late: Vec<CommitRequest>,
    last: Option<CommitRequest>,
    load_failures: usize,
    time_ms: Option<i64>,
    loads: usize,
    commits: usize,
}

/// A catalog in memory. Clones share their content.
#[derive(Clone)]
pub struct MemoryCatalog {
    store: StoreRef,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<CatalogContent>>,
}

fn no_such_table(table: &TableIdent) -> Error {
    Error::new(ErrorKind::NotFound, format!("table {table} does not exist"))
}

fn lost() -> CommitOutcome {
    CommitOutcome::Unknown(Error::new(ErrorKind::CommitUnknown, "injected fault: the answer was lost"))
}

impl MemoryCatalog {
    /// A catalog without tables, which writes metadata files to `store`.
    pub fn new(store: StoreRef) -> Self {
        Self::with_clock(store, SystemClock::shared())
    }

    /// The same on another clock, which commits without a snapshot are dated by.
    pub fn with_clock(store: StoreRef, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, state: Arc::default() }
    }

    /// Creates a table; `creation.location` must be set.
    pub fn create_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable> {
        self.create_with(table, TableMetadataBuilder::from_table_creation(creation)?.build()?.metadata)
    }

    /// Creates a table made now, of the metadata document that `changes` make of [`builder::metadata`].
    pub fn create(&self, table: &TableIdent, changes: Value) -> Result<LoadedTable> {
        let new = json!({"table-uuid": self.clock.uuid(), "last-updated-ms": self.clock.now_ms()});
        let document = builder::metadata(builder::changed(new, changes));
        self.create_with(table, serde_json::from_value(document)?)
    }

    fn create_with(&self, table: &TableIdent, metadata: TableMetadata) -> Result<LoadedTable> {
        let document = serde_json::to_value(metadata)?;
        let written = self.write_metadata(0, &document).now_or_never();
        self.register_json(table, written.ok_or_else(|| Error::internal("the store waits"))??, document)
    }

    /// A table of catalog `lake` as it is now, with its files in `store`.
    pub async fn handle(&self, table: &TableIdent, store: StoreRef) -> Result<TableHandle> {
        Ok(TableHandle {
            catalog_name: "lake".into(),
            ident: table.clone(),
            catalog: Arc::new(self.clone()),
            store,
            loaded: Arc::new(self.load_table(table).await?),
        })
    }

    /// Takes a table over as it is, replacing one of that name; its document may hold what the library's types do not know.
    pub fn register_json(&self, table: &TableIdent, location: String, document: Value) -> Result<LoadedTable> {
        let loaded = LoadedTable::from_metadata_json(location.clone(), &document)?;
        self.state.lock().tables.insert(table.clone(), (location, Arc::new(document)));
        Ok(loaded)
    }

    /// A table's metadata as a document.
    pub fn document(&self, table: &TableIdent) -> Option<Value> {
        self.state.lock().tables.get(table).map(|(_, document)| document.as_ref().clone())
    }

    pub fn drop_table(&self, table: &TableIdent) {
        self.state.lock().tables.remove(table);
    }

    /// Sets what happens to the next commits, one each; later ones are treated properly.
    pub fn script(&self, faults: impl IntoIterator<Item = CommitFault>) {
        self.state.lock().faults.extend(faults);
    }

    /// Lets the next loads fail as if the catalog were down.
    pub fn fail_loads(&self, count: usize) {
        self.state.lock().load_failures = count;
    }

    /// Lets the catalog tell this time, milliseconds since the epoch; it tells none unless set.
    pub fn tell_time_ms(&self, time_ms: Option<i64>) {
        self.state.lock().time_ms = time_ms;
    }

    /// Loads asked for so far.
    pub fn loads(&self) -> usize {
        self.state.lock().loads
    }

    /// Commits asked for so far.
    pub fn commits(&self) -> usize {
        self.state.lock().commits
    }

    /// The last commit asked for.
    pub fn last(&self) -> Option<CommitRequest> {
        self.state.lock().last.clone()
    }

    /// Changes a table's metadata behind everybody's back, as if another client had committed.
    ///
    /// # Panics
    /// If there is no such table.
    pub fn tamper(&self, table: &TableIdent, change: impl FnOnce(TableMetadata) -> TableMetadata) {
        self.tamper_json(table, |document| {
            let metadata = serde_json::from_value(document).expect("tests change tables that the library reads");
            serde_json::to_value(change(metadata)).expect("metadata is a document")
        });
    }

    /// The same on the document, which may then hold what the library's types do not know.
    ///
    /// # Panics
    /// If there is no such table.
    pub fn tamper_json(&self, table: &TableIdent, change: impl FnOnce(Value) -> Value) {
        let mut state = self.state.lock();
        let (location, document) = state.tables.get_mut(table).expect("tests name tables that exist");
        let changed = change(document.as_ref().clone());
        *location = self.new_location(log_length(&changed), &changed);
        *document = Arc::new(changed);
    }

    /// A commit of somebody else, which neither the script nor the counts hear of.
    pub async fn commit_unscripted(
        &self,
        table: &TableIdent,
        requirements: &[TableRequirement],
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        self.apply(table, requirements, updates).await.unwrap_or_else(CommitOutcome::Unknown)
    }

    /// Treats the commits that [`CommitFault::UnknownLate`] held back; says how many were applied.
    pub async fn deliver_late(&self) -> Result<usize> {
        let late = std::mem::take(&mut self.state.lock().late);
        let mut applied = 0;
        for (table, requirements, updates) in late {
            let outcome = self.apply(&table, &requirements, updates).await?;
            applied += usize::from(matches!(outcome, CommitOutcome::Committed(_)));
        }
        Ok(applied)
    }

    fn new_location(&self, version: usize, document: &Value) -> String {
        let name = format!("metadata/{version:05}-{}.metadata.json", self.clock.uuid());
        let location = document.get("location").and_then(Value::as_str).unwrap_or_default();
        crate::table::path::join(location, &name)
    }

    async fn write_metadata(&self, version: usize, document: &Value) -> Result<String> {
        let location = self.new_location(version, document);
        self.store.write(&location, serde_json::to_vec(document)?.into()).await?;
        Ok(location)
    }

    /// The document after a commit: what the library makes of it, or what becomes of one that it does not read. The library
    /// dates what adds no snapshot by the machine's clock; here it is dated by this catalog's.
    fn changed(
        &self,
        location: &str,
        current: &Value,
        requirements: &[TableRequirement],
        updates: Vec<TableUpdate>,
    ) -> Result<Value> {
        let Ok(metadata) = serde_json::from_value::<TableMetadata>(current.clone()) else {
            let now_ms = self.clock.now_ms();
            return untyped::commit(location, current, requirements, &updates, now_ms).map(|changed| changed.document);
        };
        let failed = |e: iceberg::Error| Error::new(ErrorKind::Conflict, e.to_string());
        requirements.iter().try_for_each(|r| r.check(Some(&metadata))).map_err(failed)?;
        let before_ms = metadata.last_updated_ms();
        let adds = updates.iter().any(|update| matches!(update, TableUpdate::AddSnapshot { .. }));
        let builder = metadata.into_builder(Some(location.to_owned()));
        let built = updates.into_iter().try_fold(builder, |b, u| u.apply(b)).and_then(|b| b.build());
        let mut document = serde_json::to_value(built.map_err(|e| Error::invalid(e.to_string()))?.metadata)?;
        if !adds {
            document["last-updated-ms"] = self.clock.now_ms().max(before_ms).into();
        }
        Ok(document)
    }

    /// Checks and applies, as a real catalog does; an error means that the metadata file could not be written.
    async fn apply(
        &self,
        table: &TableIdent,
        requirements: &[TableRequirement],
        updates: Vec<TableUpdate>,
    ) -> Result<CommitOutcome> {
        loop {
            let Some((location, current)) = self.state.lock().tables.get(table).cloned() else {
                return Ok(CommitOutcome::Refused(no_such_table(table)));
            };
            let document = match self.changed(&location, &current, requirements, updates.clone()) {
                Ok(document) => document,
                Err(e) if e.kind() == ErrorKind::Conflict => return Ok(CommitOutcome::Conflict(e)),
                Err(e) => return Ok(CommitOutcome::Refused(e)),
            };
            let new_location = self.write_metadata(log_length(&document), &document).await?;
            let answer = LoadedTable::from_metadata_json(new_location.clone(), &document)?;
            let mut state = self.state.lock();
            match state.tables.get_mut(table) {
                Some(entry) if entry.0 == location => {
                    *entry = (new_location, Arc::new(document));
                    return Ok(CommitOutcome::Committed(Box::new(answer)));
                }
                // Somebody was faster while the file was being written.
                _ => {}
            }
        }
    }
}

/// Entries of the metadata log.
fn log_length(document: &Value) -> usize {
    document.get("metadata-log").and_then(Value::as_array).map_or(0, Vec::len)
}

#[async_trait]
impl Catalog for MemoryCatalog {
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        let start: &[String] = parent.map_or(&[], |p| p.as_ref());
        let state = self.state.lock();
        let children: BTreeSet<Vec<String>> = state
            .tables
            .keys()
            .map(|table| table.namespace().as_ref())
            .filter(|levels| levels.len() > start.len() && levels.starts_with(start))
            .map(|levels| levels[..=start.len()].to_vec())
            .collect();
        children.into_iter().map(|levels| Ok(NamespaceIdent::from_vec(levels)?)).collect()
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        Ok(self.state.lock().tables.keys().filter(|t| t.namespace() == namespace).cloned().collect())
    }

    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable> {
        let mut state = self.state.lock();
        state.loads += 1;
        if state.load_failures > 0 {
            state.load_failures -= 1;
            return Err(Error::unavailable("injected fault: the catalog is down"));
        }
        let (location, document) = state.tables.get(table).ok_or_else(|| no_such_table(table))?;
        LoadedTable::from_metadata_json(location.clone(), document)
    }

    fn time_ms(&self) -> Option<i64> {
        self.state.lock().time_ms
    }

    async fn commit_table(
        &self,
        table: &TableIdent,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        may_send: MaySend<'_>,
    ) -> CommitOutcome {
        if let Err(error) = may_send() {
            return CommitOutcome::NotSent(error);
        }
        let fault = {
            let mut state = self.state.lock();
            state.commits += 1;
            state.last = Some((table.clone(), requirements.clone(), updates.clone()));
            state.faults.pop_front()
        };
        match fault {
            Some(CommitFault::Conflict) => return Answer::Conflict.outcome(),
            Some(CommitFault::Refused) => return Answer::Refused.outcome(),
            Some(CommitFault::Told(delivery, answer, then)) => {
                match delivery {
                    Delivery::Applied => drop(self.apply(table, &requirements, updates).await),
                    Delivery::Late => self.state.lock().late.push((table.clone(), requirements, updates)),
                    Delivery::Lost => {}
                }
                then().await;
                return answer.outcome();
            }
            Some(CommitFault::UnknownNotApplied) => return lost(),
            Some(CommitFault::UnknownLate) => {
                self.state.lock().late.push((table.clone(), requirements, updates));
                return lost();
            }
            Some(CommitFault::UnknownLateThen(then)) => {
                self.state.lock().late.push((table.clone(), requirements, updates));
                then().await;
                return lost();
            }
            Some(CommitFault::UnknownApplied) => {
                // Whatever came of it, nobody hears of it.
                let _ = self.apply(table, &requirements, updates).await;
                return lost();
            }
            Some(CommitFault::UnknownAppliedThen(then)) => {
                let _ = self.apply(table, &requirements, updates).await;
                then().await;
                return lost();
            }
            Some(CommitFault::Pretended) => {
                return self
                    .load_table(table)
                    .await
                    .map_or_else(CommitOutcome::Unknown, |t| CommitOutcome::Committed(Box::new(t)));
            }
            Some(CommitFault::After(first)) => first().await,
            None => {}
        }
        self.commit_unscripted(table, &requirements, updates).await
    }
}
