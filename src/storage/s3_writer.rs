//! Writes an object in parts of bounded size.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use opendal::Buffer;
use opendal::raw::oio::{WriteDyn as _, Writer};
use tokio::task::JoinHandle;

use super::credentials::Settings;
use super::s3::{rejected_keys, translate};
use super::{StoreWriter, already_exists};
use crate::error::{Error, Result};

/// Bytes of a part. With one part filling, one held back until it is known whether it is the only one, and one on its
/// way, an open file holds three. 10,000 parts are allowed, so a file can have 80 GiB.
const PART_BYTES: usize = 8 << 20;

enum State {
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
pub(super) struct S3Writer {
    path: Arc<str>,
    settings: Arc<Settings>,
    state: State,
    part: BytesMut,
    size: u64,
}

/// Sends one part. One that was not taken can be given again, here with renewed keys.
async fn send_part(mut inner: Writer, part: Bytes, settings: Arc<Settings>, path: Arc<str>) -> (Writer, Result<()>) {
    let generation = settings.generation();
    let sent = match inner.write_dyn(Buffer::from(part.clone())).await {
        Err(e) if rejected_keys(&e) => match settings.renew(generation).await {
            Ok(true) => inner.write_dyn(Buffer::from(part)).await,
            Ok(false) => Err(e),
            Err(renewal) => return (inner, Err(renewal.context(format!("write {path}")))),
        },
        other => other,
    };
    (inner, sent.map_err(|e| translate(&e).context(format!("write {path}"))))
}

impl S3Writer {
    pub(super) fn new(path: &str, inner: Writer, settings: Arc<Settings>) -> Self {
        Self { path: path.into(), settings, state: State::Idle(inner), part: BytesMut::new(), size: 0 }
    }

    /// Waits until nothing is on its way. A cancelled caller loses nothing: the task stays in place.
    async fn settle(&mut self) -> Result<()> {
        let State::Sending(task) = &mut self.state else { return Ok(()) };
        let joined = task.await;
        self.state = State::Over;
        let (inner, sent) =
            joined.map_err(|e| Error::internal(format!("write {}: the upload was cut off: {e}", self.path)))?;
        self.state = if sent.is_ok() { State::Idle(inner) } else { State::Broken(inner) };
        sent
    }

    fn not_open(&self) -> Error {
        Error::internal(format!("write {}: the writer is closed or has failed", self.path))
    }

    async fn send(&mut self, part: Bytes) -> Result<()> {
        self.settle().await?;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Idle(inner) => {
                let work = send_part(inner, part, Arc::clone(&self.settings), Arc::clone(&self.path));
                self.state = State::Sending(tokio::spawn(work));
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
impl StoreWriter for S3Writer {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        if matches!(self.state, State::Broken(_) | State::Over) {
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
        let State::Idle(inner) = &mut self.state else { return Err(self.not_open()) };
        let generation = self.settings.generation();
        let closed = match inner.close_dyn().await {
            Err(e) if rejected_keys(&e) && self.settings.renew(generation).await? => inner.close_dyn().await,
            other => other,
        };
        closed.map_err(|e| match e.kind() {
            opendal::ErrorKind::ConditionNotMatch => already_exists(&self.path),
            _ => translate(&e).context(format!("close {}", self.path)),
        })?;
        self.state = State::Over;
        Ok(self.size)
    }

    async fn abort(&mut self) -> Result<()> {
        self.part = BytesMut::new();
        // Whatever became of the last part, it goes with the rest.
        let _ = self.settle().await;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Idle(mut inner) | State::Broken(mut inner) => {
                inner.abort_dyn().await.map_err(|e| translate(&e).context(format!("abort {}", self.path)))
            }
            State::Sending(_) | State::Over => Ok(()),
        }
    }
}

impl Drop for S3Writer {
    /// A writer that is dropped open (its task was cancelled) still frees its uploaded parts, if it can.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        match std::mem::replace(&mut self.state, State::Over) {
            State::Idle(mut inner) | State::Broken(mut inner) => {
                runtime.spawn(async move { inner.abort_dyn().await });
            }
            State::Sending(task) => {
                runtime.spawn(async move {
                    if let Ok((mut inner, _)) = task.await {
                        let _ = inner.abort_dyn().await;
                    }
                });
            }
            State::Over => {}
        }
    }
}
