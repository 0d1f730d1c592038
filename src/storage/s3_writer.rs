//! Writes an object in parts of bounded size.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use opendal::Buffer;
use opendal::raw::oio::{WriteDyn as _, Writer};

use super::StoreWriter;
use super::credentials::Settings;
use super::s3::{rejected_keys, translate};
use crate::error::{Error, Result};

/// Bytes of a part. With one part filling, one waiting and two on their way an open file holds at most four.
/// 10,000 parts are allowed, so a file can have 80 GiB.
const PART_BYTES: usize = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

/// An object that appears whole on closing. One smaller than a part takes a single request.
pub(super) struct S3Writer {
    path: String,
    settings: Arc<Settings>,
    inner: Option<Writer>,
    part: BytesMut,
    size: u64,
    state: State,
}

impl S3Writer {
    pub(super) fn new(path: String, inner: Writer, settings: Arc<Settings>) -> Self {
        Self { path, settings, inner: Some(inner), part: BytesMut::new(), size: 0, state: State::Open }
    }

    fn inner(&mut self) -> Result<&mut Writer> {
        match (&mut self.inner, self.state) {
            (Some(inner), State::Open) => Ok(inner),
            _ => Err(Error::internal(format!("write {}: the writer is closed", self.path))),
        }
    }

    async fn send(&mut self, part: Bytes) -> Result<()> {
        let (settings, path) = (Arc::clone(&self.settings), self.path.clone());
        let generation = settings.generation();
        let inner = self.inner()?;
        let outcome = match inner.write_dyn(Buffer::from(part.clone())).await {
            // A part that was not taken can be given again.
            Err(e) if rejected_keys(&e) && settings.renew(generation).await? => {
                inner.write_dyn(Buffer::from(part)).await
            }
            other => other,
        };
        outcome.map_err(|e| translate(&e).context(format!("write {path}")))
    }
}

#[async_trait]
impl StoreWriter for S3Writer {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        self.inner()?;
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
        let (settings, path) = (Arc::clone(&self.settings), self.path.clone());
        let generation = settings.generation();
        let inner = self.inner()?;
        let outcome = match inner.close_dyn().await {
            Err(e) if rejected_keys(&e) && settings.renew(generation).await? => inner.close_dyn().await,
            other => other,
        };
        outcome.map_err(|e| {
            let taken = e.kind() == opendal::ErrorKind::ConditionNotMatch;
            let why = if taken { "the file already exists and is never overwritten: " } else { "" };
            translate(&e).context(format!("close {path}{}{why}", if taken { ": " } else { "" }))
        })?;
        self.state = State::Closed;
        Ok(self.size)
    }

    async fn abort(&mut self) -> Result<()> {
        self.part = BytesMut::new();
        self.state = State::Closed;
        match self.inner.take() {
            Some(mut inner) => {
                inner.abort_dyn().await.map_err(|e| translate(&e).context(format!("abort {}", self.path)))
            }
            None => Ok(()),
        }
    }
}

impl Drop for S3Writer {
    /// A writer that is dropped open (its task was cancelled) still frees its uploaded parts, if it can.
    fn drop(&mut self) {
        if self.state == State::Closed {
            return;
        }
        if let (Some(mut inner), Ok(runtime)) = (self.inner.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { inner.abort_dyn().await });
        }
    }
}
