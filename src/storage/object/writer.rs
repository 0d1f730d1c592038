//! Writes an object in parts of bounded size.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use opendal::Buffer;
use opendal::raw::oio::{WriteDyn as _, Writer};
use tokio::task::JoinHandle;

use super::ObjectStore;
use crate::error::{Context, Error, Result};
use crate::storage::{StoreWriter, already_exists};

/// Bytes of a part. With one part filling, one held back until it is known whether it is the only one, and one on its
/// way, an open file holds three. 10,000 parts are allowed, so a file can have 80 GiB.
const PART_BYTES: usize = 8 << 20;

enum UploadState {
    /// Nothing is on its way.
    Idle(Writer),
    /// A part is being sent while the next one fills.
    Sending(JoinHandle<(Writer, Result<()>)>),
    /// A part was lost: the object can only be given up.
    Broken(Writer),
    /// Closed or given up.
    Over,
}

/// An object that appears whole on closing. One smaller than a part takes a single request.
pub(super) struct ObjectWriter {
    path: Arc<str>,
    store: Arc<ObjectStore>,
    state: UploadState,
    part: BytesMut,
    size: u64,
}

/// Sends one part. One that was not taken can be given again.
async fn send_part(upload: &mut Writer, part: Bytes, store: &ObjectStore, path: &str) -> Result<()> {
    let mut attempts = store.attempts("write");
    while let Err(error) = upload.write_dyn(Buffer::from(part.clone())).await {
        attempts.again(error).await.context(|| format!("write {path}"))?;
    }
    Ok(())
}

/// Frees the parts that were sent.
async fn abort(mut upload: Writer, store: Arc<ObjectStore>, path: Arc<str>) -> Result<()> {
    let mut attempts = store.attempts("write");
    while let Err(error) = upload.abort_dyn().await {
        attempts.again(error).await.context(|| format!("abort {path}"))?;
    }
    Ok(())
}

impl ObjectWriter {
    pub(super) fn new(path: &str, upload: Writer, store: Arc<ObjectStore>) -> Self {
        Self { path: path.into(), store, state: UploadState::Idle(upload), part: BytesMut::new(), size: 0 }
    }

    /// Waits until nothing is on its way. A cancelled caller loses nothing: the task stays in place.
    async fn settle(&mut self) -> Result<()> {
        let UploadState::Sending(task) = &mut self.state else { return Ok(()) };
        let joined = task.await;
        self.state = UploadState::Over;
        let (upload, sent) =
            joined.map_err(|e| Error::internal(format!("write {}: the upload was cut off: {e}", self.path)))?;
        self.state = if sent.is_ok() { UploadState::Idle(upload) } else { UploadState::Broken(upload) };
        sent
    }

    fn not_open(&self) -> Error {
        Error::internal(format!("write {}: the writer is closed or has failed", self.path))
    }

    async fn send(&mut self, part: Bytes) -> Result<()> {
        self.settle().await?;
        match std::mem::replace(&mut self.state, UploadState::Over) {
            UploadState::Idle(mut upload) => {
                let (store, path) = (Arc::clone(&self.store), Arc::clone(&self.path));
                self.state = UploadState::Sending(tokio::spawn(async move {
                    let sent = send_part(&mut upload, part, &store, &path).await;
                    (upload, sent)
                }));
                Ok(())
            }
            other => {
                self.state = other;
                Err(self.not_open())
            }
        }
    }
}

#[async_trait]
impl StoreWriter for ObjectWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        if matches!(self.state, UploadState::Broken(_) | UploadState::Over) {
            return Err(self.not_open());
        }
        self.size += content.len() as u64;
        self.part.extend_from_slice(&content);
        while self.part.len() >= PART_BYTES {
            let part = self.part.split_to(PART_BYTES).freeze();
            self.send(part).await?;
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<u64> {
        let rest = self.part.split().freeze();
        if !rest.is_empty() {
            self.send(rest).await?;
        }
        self.settle().await?;
        let UploadState::Idle(upload) = &mut self.state else { return Err(self.not_open()) };
        let mut attempts = self.store.attempts("write");
        while let Err(error) = upload.close_dyn().await {
            let is_taken = error.kind() == opendal::ErrorKind::ConditionNotMatch;
            attempts.again(error).await.map_err(|e| match is_taken {
                true => already_exists(&self.path),
                false => e.context(format!("close {}", self.path)),
            })?;
        }
        self.state = UploadState::Over;
        Ok(self.size)
    }

    async fn abort(&mut self) -> Result<()> {
        self.part = BytesMut::new();
        // Whatever became of the last part, it goes with the rest.
        let _ = self.settle().await;
        match std::mem::replace(&mut self.state, UploadState::Over) {
            UploadState::Idle(upload) | UploadState::Broken(upload) => {
                abort(upload, Arc::clone(&self.store), Arc::clone(&self.path)).await
            }
            UploadState::Sending(_) | UploadState::Over => Ok(()),
        }
    }
}

impl Drop for ObjectWriter {
    /// A writer that is dropped open (its task was cancelled) still frees its uploaded parts, if it can.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, path) = (Arc::clone(&self.store), Arc::clone(&self.path));
        match std::mem::replace(&mut self.state, UploadState::Over) {
            UploadState::Idle(upload) | UploadState::Broken(upload) => {
                runtime.spawn(abort(upload, store, path));
            }
            UploadState::Sending(task) => {
                runtime.spawn(async move {
                    if let Ok((upload, _)) = task.await {
                        let _ = abort(upload, store, path).await;
                    }
                });
            }
            UploadState::Over => {}
        }
    }
}
