//! Sends requests to a REST catalog: tokens, timeouts, retries of reads, and the strict rules for commits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::MaySend;
use super::auth::{Authenticator, CatalogToken};
use super::classify::{self, CommitClass, Rejection};
use crate::clock::Clock;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::http_client::{self, RetryDelay, ToldTime, chain, duration_ms, retry_after};
use crate::http_client::{NoObserver, RequestObserver};
use crate::permit::WritePermit;

/// Property: longest time for a whole request, milliseconds; 60 s unless set.
pub const REQUEST_TIMEOUT_MS: &str = "rest.client.request-timeout-ms";
/// Property: tries of a read after the first; 5 unless set.
pub const MAX_RETRIES: &str = "rest.client.max-retries";

const BODY_BYTES_MAX: usize = 512 << 20;

/// One request, as often as it may have to be sent.
pub(super) struct CatalogRequest {
    /// What it is for, as observers name it.
    pub(super) operation: &'static str,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
    /// A token for this table alone, which takes the place of the catalog's.
    pub(super) table_token: Option<String>,
}

struct CatalogAnswer {
    status: u16,
    retry_after: Option<Duration>,
    body: Bytes,
}

/// How one attempt ended without an answer.
enum Failed {
    /// Nothing has left this machine.
    NotSent(Error),
    /// It may have arrived.
    Lost(Error),
}

impl Failed {
    fn into_error(self) -> Error {
        match self {
            Self::NotSent(e) | Self::Lost(e) => e,
        }
    }
}

/// What became of a commit request.
pub(super) enum CommitAnswer {
    /// 200, with this body.
    Applied(Bytes),
    Conflict(Error),
    Refused(Error),
    NotSent(Error),
    Unknown(Error),
}

pub(super) struct Transport {
    reads: reqwest::Client,
    commits: reqwest::Client,
    authenticator: Authenticator,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    backoff: RetryDelay,
    /// Asked right before a commit is sent.
    pub(super) permit: WritePermit,
    observer: Arc<dyn RequestObserver>,
    /// What the catalog's answers told of its clock.
    pub(super) told_time: ToldTime,
}

impl Transport {
    pub(super) fn new(
        reads: reqwest::Client,
        authenticator: Authenticator,
        clock: Arc<dyn Clock>,
        properties: &HashMap<String, String>,
    ) -> Result<Self> {
        let timeout = duration_ms(properties, REQUEST_TIMEOUT_MS, Duration::from_secs(60))?;
        let retries = match properties.get(MAX_RETRIES) {
            None => 5,
            Some(text) => text.parse().ok().filter(|n| *n <= 100).ok_or_else(|| {
                Error::new(ErrorKind::Config, format!("{MAX_RETRIES} = {text:?}: expected a number from 0 to 100"))
            })?,
        };
        let backoff = RetryDelay { retries, first: Duration::from_millis(200), longest: Duration::from_secs(10) };
        let commits = http_client::build_unpooled(properties)?;
        Ok(Self {
            reads,
            commits,
            authenticator,
            clock,
            timeout,
            backoff,
            permit: WritePermit::always(),
            observer: Arc::new(NoObserver),
            told_time: ToldTime::default(),
        })
    }

    /// Reports every request, and every token request, from now on.
    pub(super) fn observe_by(&mut self, observer: Arc<dyn RequestObserver>) {
        self.authenticator.observe_by(Arc::clone(&observer));
        self.observer = observer;
    }

    /// Reports a request that is over, with all its attempts.
    pub(super) fn observe(&self, operation: &'static str, outcome: &'static str, start: Instant) {
        self.observer.observe(operation, outcome, start.elapsed().as_secs_f64());
    }

    /// Reads: sent again on errors that pass, and once with a fresh token.
    pub(super) async fn read(&self, mut request: CatalogRequest) -> Result<Bytes> {
        let mut attempt = 0;
        let mut token_renewed = false;
        loop {
            let token = self.authenticator.token().await?;
            let outcome = self.send(&self.reads, &request, &token).await;
            let (error, asked) = match outcome {
                Ok(answer) if answer.status == 200 => return Ok(answer.body),
                Ok(answer) => {
                    let error = classify::error_of(request.operation, answer.status, &answer.body);
                    if let Some(rejection) = classify::token_rejected(answer.status).filter(|_| !token_renewed) {
                        token_renewed = true;
                        if self.fresh_token(&mut request, &token, rejection).await? {
                            self.observer.retried(request.operation);
                            continue;
                        }
                    }
                    if !classify::read_again(answer.status) {
                        return Err(error);
                    }
                    (error, answer.retry_after)
                }
                Err(failed) => (failed.into_error(), None),
            };
            match self.backoff.wait(attempt, self.clock.uuid().as_u128(), asked) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
            self.observer.retried(request.operation);
            attempt += 1;
        }
    }

    /// Commits: sent again only if all answers so far say that it was not looked at.
    pub(super) async fn commit(&self, mut request: CatalogRequest, may_send: MaySend<'_>) -> CommitAnswer {
        let (mut attempt, mut sent, mut token_renewed) = (0, false, false);
        // An answer that says no is no proof that nothing was applied.
        let end = |sent: bool, error| if sent { CommitAnswer::Refused(error) } else { CommitAnswer::NotSent(error) };
        loop {
            let token = match self.authenticator.token().await {
                Ok(token) => token,
                Err(e) => return end(sent, e),
            };
            if let Err(e) = self.permit.check().and_then(|()| may_send()) {
                return end(sent, e);
            }
            let (error, asked) = match self.send(&self.commits, &request, &token).await {
                Err(Failed::Lost(e)) => return CommitAnswer::Unknown(unknown(&e)),
                Err(Failed::NotSent(e)) => (e, None),
                Ok(answer) => {
                    sent = true;
                    let error = classify::error_of(request.operation, answer.status, &answer.body);
                    match classify::commit_class(answer.status) {
                        CommitClass::Applied => return CommitAnswer::Applied(answer.body),
                        CommitClass::Conflict => return CommitAnswer::Conflict(error),
                        CommitClass::Refused => return CommitAnswer::Refused(error),
                        CommitClass::Unknown => return CommitAnswer::Unknown(unknown(&error)),
                        CommitClass::TooMany => (error, answer.retry_after),
                        CommitClass::Token(_) if token_renewed => return CommitAnswer::Refused(error),
                        CommitClass::Token(rejection) => {
                            token_renewed = true;
                            match self.fresh_token(&mut request, &token, rejection).await {
                                Ok(true) => {
                                    self.observer.retried(request.operation);
                                    continue;
                                }
                                Ok(false) => return CommitAnswer::Refused(error),
                                Err(e) => return CommitAnswer::Refused(e),
                            }
                        }
                    }
                }
            };
            match self.backoff.wait(attempt, self.clock.uuid().as_u128(), asked) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return end(sent, error),
            }
            self.observer.retried(request.operation);
            attempt += 1;
        }
    }

    /// Whether the request can be repeated with another token than the one rejected.
    async fn fresh_token(
        &self,
        request: &mut CatalogRequest,
        rejected: &CatalogToken,
        rejection: Rejection,
    ) -> Result<bool> {
        if request.table_token.take().is_some() {
            // The table's own token is over; the catalog's still stands.
            return Ok(true);
        }
        self.authenticator.renew(rejected, rejection).await
    }

    async fn send(
        &self,
        client: &reqwest::Client,
        request: &CatalogRequest,
        token: &CatalogToken,
    ) -> Result<CatalogAnswer, Failed> {
        let mut builder =
            client.request(request.method.clone(), &request.url).timeout(self.timeout).headers(request.headers.clone());
        let of_table = request.table_token.as_ref().map(|t| format!("Bearer {t}"));
        if let Some(header) = of_table.as_ref().or(token.header.as_ref()) {
            let mut value = HeaderValue::from_str(header).map_err(|_| {
                Failed::NotSent(Error::new(ErrorKind::Config, "the token has characters no header can hold"))
            })?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = builder.send().await.map_err(failed)?;
        self.told_time.note(response.headers(), self.clock.as_ref());
        let status = response.status().as_u16();
        let asked = retry_after(response.headers(), self.clock.now_ms());
        let body = take_body(response).await?;
        Ok(CatalogAnswer { status, retry_after: asked, body })
    }
}

fn failed(error: reqwest::Error) -> Failed {
    let not_sent = error.is_connect() || error.is_builder();
    let error = Error::unavailable(chain(&error));
    if not_sent { Failed::NotSent(error) } else { Failed::Lost(error) }
}

async fn take_body(mut response: reqwest::Response) -> Result<Bytes, Failed> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| Failed::Lost(Error::unavailable(chain(&e))))? {
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(Failed::Lost(Error::unavailable(format!("the answer has more than {BODY_BYTES_MAX} bytes"))));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn unknown(error: &Error) -> Error {
    Error::new(ErrorKind::CommitUnknown, format!("the commit may or may not have been applied: {error}"))
}

/// The headers for every request: what the properties say under `header.`, and the wish for vended credentials.
pub(super) fn headers(properties: &HashMap<String, String>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert("x-iceberg-access-delegation", HeaderValue::from_static("vended-credentials"));
    for (key, value) in properties {
        let Some(name) = key.strip_prefix("header.") else { continue };
        let fail = || Error::new(ErrorKind::Config, format!("{key}: not a valid HTTP header"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| fail())?;
        let value = HeaderValue::from_str(value).map_err(|_| fail()).context(|| "read the catalog's properties")?;
        headers.insert(name, value);
    }
    Ok(headers)
}
