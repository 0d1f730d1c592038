//! Writes an object in parts of bounded size.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use opendal::Buffer;
use opendal::raw::oio::{WriteDyn as _, Writer};
use tokio::task::JoinHandle;

use super::{ObjectStore, translate};
use crate::error::{Error, Result};
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

/// Sends one part. One that was not taken can be given again, here with renewed credentials.
async fn send_part(mut inner: Writer, part: Bytes, store: Arc<ObjectStore>, path: Arc<str>) -> (Writer, Result<()>) {
    let generation = store.settings.generation();
    let sent = match inner.write_dyn(Buffer::from(part.clone())).await {
        Err(e) => match store.has_new_credentials(&e, generation).await {
            Ok(true) => inner.write_dyn(Buffer::from(part)).await,
            Ok(false) => Err(e),
            Err(renewal) => return (inner, Err(renewal.context(format!("write {path}")))),
        },
        Ok(()) => Ok(()),
    };
    (inner, sent.map_err(|e| translate(&e).context(format!("write {path}"))))
}

impl ObjectWriter {
    pub(super) fn new(path: &str, inner: Writer, store: Arc<ObjectStore>) -> Self {
        Self { path: path.into(), store, state: UploadState::Idle(inner), part: BytesMut::new(), size: 0 }
    }

    /// Waits until nothing is on its way. A cancelled caller loses nothing: the task stays in place.
    async fn settle(&mut self) -> Result<()> {
        let UploadState::Sending(task) = &mut self.state else { return Ok(()) };
        let joined = task.await;
        self.state = UploadState::Over;
        let (inner, sent) =
            joined.map_err(|e| Error::internal(format!("write {}: the upload was cut off: {e}", self.path)))?;
        self.state = if sent.is_ok() { UploadState::Idle(inner) } else { UploadState::Broken(inner) };
        sent
    }

    fn not_open(&self) -> Error {
        Error::internal(format!("write {}: the writer is closed or has failed", self.path))
    }

    async fn send(&mut self, part: Bytes) -> Result<()> {
        self.settle().await?;
        match std::mem::replace(&mut self.state, UploadState::Over) {
            UploadState::Idle(inner) => {
                let work = send_part(inner, part, Arc::clone(&self.store), Arc::clone(&self.path));
                self.state = UploadState::Sending(tokio::spawn(work));
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
        let UploadState::Idle(inner) = &mut self.state else { return Err(self.not_open()) };
        let generation = self.store.settings.generation();
        let closed = match inner.close_dyn().await {
            Err(e) if self.store.has_new_credentials(&e, generation).await? => inner.close_dyn().await,
            other => other,
        };
        closed.map_err(|e| match e.kind() {
            opendal::ErrorKind::ConditionNotMatch => already_exists(&self.path),
            _ => translate(&e).context(format!("close {}", self.path)),
        })?;
        self.state = UploadState::Over;
        Ok(self.size)
    }

    async fn abort(&mut self) -> Result<()> {
        self.part = BytesMut::new();
        // Whatever became of the last part, it goes with the rest.
        let _ = self.settle().await;
        match std::mem::replace(&mut self.state, UploadState::Over) {
            UploadState::Idle(mut inner) | UploadState::Broken(mut inner) => {
                inner.abort_dyn().await.map_err(|e| translate(&e).context(format!("abort {}", self.path)))
            }
            UploadState::Sending(_) | UploadState::Over => Ok(()),
        }
    }
}

impl Drop for ObjectWriter {
    /// A writer that is dropped open (its task was cancelled) still frees its uploaded parts, if it can.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        match std::mem::replace(&mut self.state, UploadState::Over) {
            UploadState::Idle(mut inner) | UploadState::Broken(mut inner) => {
                runtime.spawn(async move { inner.abort_dyn().await });
            }
            UploadState::Sending(task) => {
                runtime.spawn(async move {
                    if let Ok((mut inner, _)) = task.await {
                        let _ = inner.abort_dyn().await;
                    }
                });
            }
            UploadState::Over => {}
        }
    }
}
