//! Sends requests to one root: how long to wait, how often to try, and what the answers tell of the time.

use std::sync::Arc;
use std::time::Duration;

use opendal::layers::{HttpClientLayer, RetryEvent, RetryLayer, TimeoutLayer};
use opendal::raw::{Accessor, HttpBody, HttpClient, HttpFetch};
use opendal::{Buffer, Operator};

use crate::clock::Clock;
use crate::http_client::{Backoff, RequestObserver, ToldTime};

/// Time for one request without a body, and for one piece of a body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Tries after the first for errors that pass by themselves.
const RETRIES: u32 = 5;
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LONGEST: Duration = Duration::from_secs(20);
/// The same for reads.
pub(super) const READ_BACKOFF: Backoff = Backoff { retries: RETRIES, first: RETRY_FIRST, longest: RETRY_LONGEST };

/// The way to a root.
#[derive(Clone)]
pub(super) struct RootAccess {
    /// Sends each request once. For reads: opendal's retrying reader panics if a store sends more than was asked for.
    pub(super) once: Accessor,
    /// Sends it again on errors that pass by themselves.
    pub(super) retrying: Accessor,
}

impl RootAccess {
    /// `observer` learns of requests that are sent again.
    pub(super) fn new(operator: Operator, client: DatedClient, observer: Arc<dyn RequestObserver>) -> Self {
        let once = operator
            .layer(HttpClientLayer::new(HttpClient::with(client)))
            .layer(TimeoutLayer::new().with_timeout(REQUEST_TIMEOUT).with_io_timeout(REQUEST_TIMEOUT));
        let notify = move |event: RetryEvent<'_>| {
            tracing::debug!(operation = %event.op, error = %event.err, "sent again");
            observer.retried(event.op.into_static());
        };
        let retry = RetryLayer::new().with_max_times(RETRIES as usize);
        let retry = retry.with_min_delay(RETRY_FIRST).with_max_delay(RETRY_LONGEST).with_jitter().with_notify(notify);
        let retrying = once.clone().layer(retry);
        Self { once: once.into_inner(), retrying: retrying.into_inner() }
    }
}

/// A client that notes the date of each answer.
pub(super) struct DatedClient {
    pub(super) client: reqwest::Client,
    pub(super) told_time: Arc<ToldTime>,
    pub(super) clock: Arc<dyn Clock>,
}

impl HttpFetch for DatedClient {
    async fn fetch(&self, request: http::Request<Buffer>) -> opendal::Result<http::Response<HttpBody>> {
        let answer = self.client.fetch(request).await?;
        self.told_time.note(answer.headers(), self.clock.as_ref());
        Ok(answer)
    }
}
