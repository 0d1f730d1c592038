//! Two live writers for the sandbox: an upsert table and an append table, a commit every few seconds.
//!
//! They write as streaming jobs do: rows to new files, then one commit that is tried again when somebody else was faster.
//! What commit *n* holds depends on *n* alone, and the table says how far it is, so the writers go on after any restart
//! and anybody can compute what rows should be there: [`expected_orders`], [`expected_server_logs`].

mod file;
mod orders;
mod random;
mod server_logs;
mod tables;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::{Operation, TableMetadata};
use iceberg::{NamespaceIdent, TableIdent, TableUpdate};
use tokio_util::sync::CancellationToken;

use self::file::{NewFile, WriterFileNames};
pub use self::orders::expected_orders;
pub use self::server_logs::expected_server_logs;
pub use self::tables::create_tables;
use crate::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use crate::catalog::{Catalog, CommitOutcome};
use crate::clock::{Clock, SystemClock, snapshot_id};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::meta::{Additions, SnapshotIdentity, prepare_additions};
use crate::storage::{self, StoreRef};
use crate::table::{LoadedTable, Metadata};

/// The namespace of both tables.
pub const NAMESPACE: &str = "shop";
/// The upsert table.
pub const ORDERS: &str = "orders";
/// The append table.
pub const SERVER_LOGS: &str = "server_logs";

/// Number of the last commit of a table's writer, set with each commit. The summary of its snapshot says it too, as
/// Flink does, but a snapshot may expire.
const CHECKPOINT: &str = "sandbox.checkpoint";

/// Attempts at one commit before the writer waits for its next turn.
const ATTEMPTS_MAX: u32 = 20;
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Sums over a table's rows, to compare with what a reader finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    pub rows: i64,
    /// Sum of column `id`.
    pub id_sum: i64,
    /// Sum of column `version`; zero where the table has none.
    pub version_sum: i64,
}

/// What a table's writer is made of.
struct Workload {
    table: &'static str,
    operation: Operation,
    make_files: fn(&mut CommitBatch<'_>) -> Result<Vec<NewFile>>,
}

/// What the files of one commit are made for.
struct CommitBatch<'a> {
    metadata: &'a TableMetadata,
    checkpoint: u64,
    names: &'a mut WriterFileNames,
    now_ms: i64,
}

const WORKLOADS: [Workload; 2] = [
    Workload { table: ORDERS, operation: Operation::Overwrite, make_files: orders::make_files },
    Workload { table: SERVER_LOGS, operation: Operation::Append, make_files: server_logs::make_files },
];

/// How many commits a table's writer has made.
pub fn committed(metadata: &Metadata) -> Result<u64> {
    match metadata.properties().get(CHECKPOINT) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| Error::invalid(format!("property {CHECKPOINT} is {text:?}"))),
    }
}

/// Makes the tables in the catalog at `base_uri` if they are not there, with a commit to each, so that whoever looks at them
/// finds something.
pub async fn begin(base_uri: String) -> Result<Writers> {
    create_tables(&base_uri).await?;
    let config = RestCatalogConfig {
        name: "sandbox".into(),
        uri: base_uri,
        warehouse: None,
        properties: HashMap::new(),
        auth: Auth::None,
    };
    let catalog: Arc<dyn Catalog> = Arc::new(RestCatalog::connect(config).await?);
    let store = storage::open(&HashMap::new());
    write_once(Arc::clone(&catalog), Arc::clone(&store)).await?;
    Ok(Writers { catalog, store })
}

/// The writers of both tables, which are there.
pub struct Writers {
    catalog: Arc<dyn Catalog>,
    store: StoreRef,
}

impl Writers {
    /// Writes to both tables every `interval` until `shutdown`. A commit that is going on is finished first.
    /// Fails if a table refuses what is written to it, or is gone.
    pub async fn run(self, interval: Duration, shutdown: CancellationToken) -> Result<()> {
        let mut running = tokio::task::JoinSet::new();
        let shutdown = shutdown.child_token();
        for workload in &WORKLOADS {
            let (catalog, store) = (Arc::clone(&self.catalog), Arc::clone(&self.store));
            let writer = TableWriter::new(workload, catalog, store, SystemClock::shared())?;
            running.spawn(writer.run(interval, shutdown.clone()));
        }
        let mut result = Ok(());
        while let Some(ended) = running.join_next().await {
            let ended = ended.unwrap_or_else(|e| Err(Error::internal(format!("a writer panicked: {e}"))));
            // One writer's failure ends the other too, in order.
            if ended.is_err() {
                shutdown.cancel();
            }
            result = result.and(ended);
        }
        result
    }
}

/// Makes one commit to each table, which is there.
pub async fn write_once(catalog: Arc<dyn Catalog>, store: StoreRef) -> Result<()> {
    for workload in &WORKLOADS {
        TableWriter::new(workload, Arc::clone(&catalog), Arc::clone(&store), SystemClock::shared())?
            .write_next()
            .await?;
    }
    Ok(())
}

struct TableWriter {
    workload: &'static Workload,
    table: TableIdent,
    catalog: Arc<dyn Catalog>,
    store: StoreRef,
    clock: Arc<dyn Clock>,
    names: WriterFileNames,
}

impl TableWriter {
    fn new(
        workload: &'static Workload,
        catalog: Arc<dyn Catalog>,
        store: StoreRef,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let table = TableIdent::new(NamespaceIdent::from_strs([NAMESPACE])?, workload.table.to_string());
        let names = WriterFileNames::new(clock.uuid());
        Ok(Self { workload, table, catalog, store, clock, names })
    }

    async fn run(mut self, interval: Duration, shutdown: CancellationToken) -> Result<()> {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                _ = ticks.tick() => {}
            }
            match self.write_next().await {
                Ok(()) => {}
                // Whatever passes by itself is waited for; the table knows where to go on.
                Err(e)
                    if matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::CommitUnknown) =>
                {
                    tracing::warn!(table = %self.table, error = %e, "sandbox writer skips a turn");
                }
                Err(e) => return Err(e.context(format!("write to {}", self.table))),
            }
        }
    }

    /// Writes the files of the next commit, and commits them.
    async fn write_next(&mut self) -> Result<()> {
        let mut loaded = self.catalog.load_table(&self.table).await?;
        let checkpoint = committed(&loaded.metadata)? + 1;
        let now_ms = self.clock.now_ms();
        let files = (self.workload.make_files)(&mut CommitBatch {
            metadata: loaded.typed()?,
            checkpoint,
            names: &mut self.names,
            now_ms,
        })?;
        for file in &files {
            self.store.write(file.data_file.file_path(), file.content.clone()).await?;
        }
        let additions = Additions {
            operation: self.workload.operation.clone(),
            files: files.into_iter().map(|f| f.data_file).collect(),
            properties: summary(&loaded.metadata, checkpoint),
        };
        let mut wait = WAIT_FIRST;
        for _ in 0..ATTEMPTS_MAX {
            let failure = match self.attempt(&loaded, &additions, checkpoint).await {
                Ok(CommitOutcome::Committed(_)) => return Ok(()),
                Ok(CommitOutcome::Refused(e) | CommitOutcome::NotSent(e)) => return Err(e),
                // After an unknown outcome too the table tells whether the commit happened. If it did not, it never
                // will: the head it requires is then taken by the next attempt.
                Ok(CommitOutcome::Conflict(e) | CommitOutcome::Unknown(e)) => e,
                // The head was expired, and its manifest list deleted, since the table was loaded.
                Err(e) if e.kind() == ErrorKind::NotFound => e,
                Err(e) => return Err(e),
            };
            tracing::debug!(table = %self.table, error = %failure, "sandbox writer tries again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
            loaded = self.catalog.load_table(&self.table).await?;
            if committed(&loaded.metadata)? >= checkpoint {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Conflict, format!("commit {checkpoint} did not get through")))
    }

    async fn attempt(&self, loaded: &LoadedTable, additions: &Additions, checkpoint: u64) -> Result<CommitOutcome> {
        let identity = SnapshotIdentity {
            snapshot_id: snapshot_id(self.clock.uuid()),
            commit_uuid: self.clock.uuid(),
            token: "sandbox".into(),
        };
        let prepared = prepare_additions(self.store.as_ref(), loaded, additions, identity, self.clock.now_ms())
            .await
            .context(|| format!("prepare commit {checkpoint}"))?;
        let mut updates = prepared.updates;
        let checkpoint = HashMap::from([(CHECKPOINT.to_string(), checkpoint.to_string())]);
        updates.push(TableUpdate::SetProperties { updates: checkpoint });
        Ok(self.catalog.commit_table(&self.table, prepared.requirements, updates, &|| Ok(())).await)
    }
}

/// What Flink notes in a snapshot. The job keeps its identity over restarts, as one that goes on from its state does.
fn summary(metadata: &Metadata, checkpoint: u64) -> HashMap<String, String> {
    let job = metadata.uuid().simple().to_string();
    HashMap::from([
        ("flink.job-id".to_string(), job.clone()),
        ("flink.operator-id".to_string(), job.chars().rev().collect()),
        ("flink.max-committed-checkpoint-id".to_string(), checkpoint.to_string()),
        ("engine-name".to_string(), "icewright-sandbox".to_string()),
    ])
}
