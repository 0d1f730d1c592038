//! The server on a thread of its own, so that nothing else in the process keeps it from answering a probe, and nothing that
//! is asked for keeps the scheduler from its work. What takes long is made on a second thread, one thing at a time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::{ServerState, serve};
use crate::error::{Error, Result};

/// Threads for what takes long: the metrics and one view.
const THREADS_MAX: usize = 2;
/// Views in memory at the same time, most of them because they are read slowly.
const UNREAD_MAX: usize = 32;

/// Serves from another thread until `shutdown`. What is returned is done when the server has ended.
/// [`crate::error::ErrorKind::Internal`] if the thread or its runtime cannot be made.
pub fn serve_apart(
    listener: TcpListener,
    state: ServerState,
    shutdown: CancellationToken,
) -> Result<oneshot::Receiver<()>> {
    let failed = |what: &str, e: std::io::Error| Error::internal(format!("{what} for the HTTP server: {e}"));
    let listener = listener.into_std().map_err(|e| failed("the listener", e))?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(THREADS_MAX).thread_name("icewright-view");
    let runtime = runtime.build().map_err(|e| failed("a runtime", e))?;
    let (ended, end) = oneshot::channel();
    let work = move || {
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, state, shutdown).await,
                Err(error) => tracing::error!(%error, "the HTTP server cannot listen"),
            }
        });
        // What still makes a view holds up nobody.
        runtime.shutdown_background();
        let _ = ended.send(());
    };
    std::thread::Builder::new().name("icewright-http".into()).spawn(work).map_err(|e| failed("a thread", e))?;
    Ok(end)
}

/// Makes views, one at a time, beside the thread that answers.
#[derive(Debug, Clone)]
pub struct Aside {
    making: Arc<Semaphore>,
    unread: Arc<Semaphore>,
}

impl Default for Aside {
    fn default() -> Self {
        Self { making: Arc::new(Semaphore::new(1)), unread: Arc::new(Semaphore::new(UNREAD_MAX)) }
    }
}

impl Aside {
    /// The answer that `make` returns. [`crate::error::ErrorKind::Unavailable`] while too many answers are still being read,
    /// [`crate::error::ErrorKind::Internal`] if it panics.
    pub(super) async fn answer(&self, make: impl FnOnce() -> Response + Send + 'static) -> Result<Response> {
        let internal = |why: String| Error::internal(format!("make a view: {why}"));
        let Ok(unread) = self.unread.clone().try_acquire_owned() else {
            return Err(Error::unavailable("too many answers are still being read: read faster, or ask again later"));
        };
        let place = self.making.clone().acquire_owned().await.map_err(|e| internal(e.to_string()))?;
        let making = tokio::task::spawn_blocking(move || {
            // Also when nobody waits for it any more, it is one thing at a time.
            let _place = place;
            make()
        });
        let response = making.await.map_err(|e| internal(e.to_string()))?;
        Ok(response.map(|body| Body::new(Unread { body, _unread: unread })))
    }
}

/// A body that counts until it was read, or nobody reads it any more.
struct Unread {
    body: Body,
    _unread: OwnedSemaphorePermit,
}

impl hyper::body::Body for Unread {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use axum::body::to_bytes;
    use axum::response::IntoResponse;

    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test]
    async fn a_view_that_takes_long_keeps_no_other_task_waiting_and_panics_alone() {
        let aside = Aside::default();
        let (release, wait) = mpsc::channel::<()>();
        let slow = aside.clone();
        let slow = tokio::spawn(async move {
            let make = move || wait.recv().map_or("nobody", |()| "made").into_response();
            slow.answer(make).await
        });
        // This thread is the only one of its runtime.
        tokio::task::yield_now().await;
        release.send(()).expect("it waits on another thread");
        let answer = slow.await.expect("joins").expect("an answer");
        assert_eq!(to_bytes(answer.into_body(), 100).await.expect("a body"), "made");
        let error = aside.answer(|| panic!("on purpose")).await.expect_err("it panicked");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(aside.answer(|| "again".into_response()).await.is_ok());
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_are_bounded() {
        let aside = Aside::default();
        let mut unread = Vec::new();
        for _ in 0..UNREAD_MAX {
            unread.push(aside.answer(|| "a view".into_response()).await.expect("an answer"));
        }
        let error = aside.answer(|| "one more".into_response()).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        drop(unread.pop());
        assert!(aside.answer(|| "one more".into_response()).await.is_ok());
    }
}
