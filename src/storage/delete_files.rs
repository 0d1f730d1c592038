//! The only place that deletes objects. A caller says by which proof they are garbage.

use crate::error::Error;
use crate::run_id::RunId;
use crate::storage::Store;

/// Files of one delete request at most: S3 takes 1000, Iceberg sends 250.
const BATCH: usize = 250;

/// Why files may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Written by this run, and its commit was never sent or has provably lost.
    OwnUncommittedOutput(RunId),
    /// Reachable before a confirmed expiry and not after.
    Expired,
    /// Not reachable from any retained metadata, and old enough by the policy's rules.
    Orphan,
}

/// What became of the files.
#[derive(Debug, Default)]
pub struct DeleteReport {
    /// Files that are gone now.
    pub deleted: Vec<String>,
    /// Files that may still be there, and why.
    pub failed: Vec<(String, Error)>,
}

/// Deletes files in batches. Failures are reported per file and never stop the rest.
pub async fn delete_files(store: &dyn Store, paths: &[String], proof: Proof) -> DeleteReport {
    let mut report = DeleteReport::default();
    for batch in paths.chunks(BATCH) {
        let results = store.delete_batch(batch).await;
        for (path, result) in batch.iter().zip(results) {
            match result {
                Ok(()) => {
                    tracing::debug!(%path, ?proof, "file deleted");
                    report.deleted.push(path.clone());
                }
                Err(error) => report.failed.push((path.clone(), error)),
            }
        }
    }
    report
}
