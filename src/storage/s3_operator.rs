//! Sets opendal up for one bucket: where it is, who asks, how long to wait, how often to try.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opendal::layers::{HttpClientLayer, RetryEvent, RetryLayer, TimeoutLayer};
use opendal::raw::{Accessor, HttpBody, HttpClient, HttpFetch};
use opendal::services::S3;
use opendal::{Buffer, Operator};
use reqsign_aws_v4::Credential;
use reqsign_core::{ProvideCredential, ProvideCredentialChain};

use super::credentials::{self, Settings};
use crate::clock::Clock;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::http_client::RequestObserver;
use crate::http_client::{self, RetryDelay, ToldTime};

/// Time for one request without a body, and for one piece of a body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Tries after the first for errors that pass by themselves.
const RETRIES: usize = 5;
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LONGEST: Duration = Duration::from_secs(20);
/// The same for reads.
pub(super) const READ_BACKOFF: RetryDelay = RetryDelay { retries: 5, first: RETRY_FIRST, longest: RETRY_LONGEST };

/// The way to a bucket.
#[derive(Clone)]
pub(super) struct Bucket {
    /// Sends each request once. For reads: opendal's retrying reader panics if a store sends more than was asked for.
    pub(super) once: Accessor,
    /// Sends it again on errors that pass by themselves.
    pub(super) retrying: Accessor,
}

/// Gives the signer the keys in force at each request.
pub(super) struct Keys {
    settings: Arc<Settings>,
    prefix: String,
    clock: Arc<dyn Clock>,
}

impl Keys {
    pub(super) fn new(settings: &Arc<Settings>, prefix: &str, clock: &Arc<dyn Clock>) -> Self {
        Self { settings: Arc::clone(settings), prefix: prefix.to_owned(), clock: Arc::clone(clock) }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl ProvideCredential for Keys {
    type Credential = Credential;

    async fn provide_credential(&self, _: &reqsign_core::Context) -> reqsign_core::Result<Option<Credential>> {
        let keys = self.settings.keys(&self.prefix).await;
        let keys = keys.map_err(|e| reqsign_core::Error::credential_invalid(e.to_string()))?;
        let Some(keys) = keys else { return Ok(None) };
        // The signer keeps keys that last two minutes or more. These are kept here, so that a renewal counts at once.
        let soon = reqsign_core::time::Timestamp::from_millisecond(self.clock.now_ms() + 60_000)?;
        Ok(Some(Credential {
            access_key_id: keys.access_key,
            secret_access_key: keys.secret_key,
            session_token: keys.session_token,
            expires_in: Some(soon),
        }))
    }
}

/// Where the dates of answers are noted.
pub(super) struct Dates {
    pub(super) told: Arc<ToldTime>,
    pub(super) clock: Arc<dyn Clock>,
}

/// A client that notes the date of each answer.
struct DatedClient {
    client: reqwest::Client,
    dates: Dates,
}

impl HttpFetch for DatedClient {
    async fn fetch(&self, request: http::Request<Buffer>) -> opendal::Result<http::Response<HttpBody>> {
        let answer = self.client.fetch(request).await?;
        self.dates.told.note(answer.headers(), self.dates.clock.as_ref());
        Ok(answer)
    }
}

fn config_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// The way to a bucket. `keys` are asked at each request if the properties hold keys that can change.
/// `observer` learns of requests that are sent again.
pub(super) fn build(
    bucket: &str,
    properties: &HashMap<String, String>,
    keys: Option<Keys>,
    dates: Dates,
    observer: &Arc<dyn RequestObserver>,
) -> Result<Bucket> {
    credentials::remote_signing(properties)?;
    let get = |key: &str| properties.get(key).map(String::as_str).filter(|v| !v.is_empty());
    let flag = |key: &str| match get(key) {
        None => Ok(None),
        Some(text) => text
            .parse::<bool>()
            .map(Some)
            .map_err(|_| config_error(format!("{key} = {text:?}: expected true or false"))),
    };
    for key in ["client.assume-role.arn", "s3.access-points-enabled", "s3.cross-region-access-enabled"] {
        if get(key).is_some_and(|v| v != "false") {
            return Err(Error::unsupported(format!("{key} is not supported by this version: remove it, or vend keys")));
        }
    }
    let mut builder = S3::default().bucket(bucket);
    let endpoint = get("s3.endpoint");
    match (get("s3.region").or_else(|| get("client.region")), endpoint) {
        (Some(region), _) => builder = builder.region(region),
        // Stores of one's own mostly do not care, but the signature needs one.
        (None, Some(_)) => builder = builder.region("us-east-1"),
        (None, None) => {}
    }
    if let Some(endpoint) = endpoint {
        builder = builder.endpoint(endpoint);
    }
    let by_host = match flag("s3.path-style-access")? {
        Some(path_style) => !path_style,
        None => endpoint.is_none() && !bucket.contains('.'),
    };
    if by_host {
        builder = builder.enable_virtual_host_style();
    }
    builder = encryption(builder, get("s3.sse.type").unwrap_or("none"), get("s3.sse.key"))?;
    let anonymous = flag("s3.anonymous")?.or(flag("s3.allow-anonymous")?).unwrap_or(false);
    builder = match (credentials::keys_in(properties), keys) {
        _ if anonymous => builder.skip_signature(),
        (Some(_), Some(keys)) => builder.credential_provider_chain(ProvideCredentialChain::new().push(keys)),
        (Some(keys), None) => {
            let builder = builder.access_key_id(&keys.access_key).secret_access_key(&keys.secret_key);
            match &keys.session_token {
                Some(token) => builder.session_token(token),
                None => builder,
            }
        }
        (None, _) => builder,
    };
    // Building the client first turns missing root certificates into an error; opendal would panic over them.
    let client = http_client::build(properties)?;
    let fail = |e: opendal::Error| config_error(e.to_string());
    let operator = Operator::new(builder).map_err(fail).context(|| format!("reach bucket {bucket}"))?.finish();
    let once = operator
        .layer(HttpClientLayer::new(HttpClient::with(DatedClient { client, dates })))
        .layer(TimeoutLayer::new().with_timeout(REQUEST_TIMEOUT).with_io_timeout(REQUEST_TIMEOUT));
    let observer = Arc::clone(observer);
    let notify = move |event: RetryEvent<'_>| {
        tracing::debug!(operation = %event.op, error = %event.err, "sent again");
        observer.retried(event.op.into_static());
    };
    let retry = RetryLayer::new().with_max_times(RETRIES).with_min_delay(RETRY_FIRST).with_max_delay(RETRY_LONGEST);
    let retrying = once.clone().layer(retry.with_jitter().with_notify(notify));
    Ok(Bucket { once: once.into_inner(), retrying: retrying.into_inner() })
}

fn encryption(builder: S3, kind: &str, key: Option<&str>) -> Result<S3> {
    match (kind, key) {
        ("none", _) => Ok(builder),
        ("s3", _) => Ok(builder.server_side_encryption_with_s3_key()),
        ("kms", Some(key)) => Ok(builder.server_side_encryption_with_customer_managed_kms_key(key)),
        ("kms", None) => Ok(builder.server_side_encryption_with_aws_managed_kms_key()),
        (other, _) => Err(Error::unsupported(format!("s3.sse.type = {other:?}: this version knows none, s3 and kms"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_client::NoObserver;

    fn try_build(bucket: &str, pairs: &[(&str, &str)]) -> Result<Bucket> {
        let properties = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let dates = Dates { told: Arc::default(), clock: crate::clock::SystemClock::shared() };
        build(bucket, &properties, None, dates, &(Arc::new(NoObserver) as Arc<dyn RequestObserver>))
    }

    #[test]
    fn settings_that_would_be_ignored_are_refused() {
        for (pairs, kind, named) in [
            (vec![("s3.sse.type", "custom")], ErrorKind::Unsupported, "s3.sse.type"),
            (vec![("client.assume-role.arn", "arn:x")], ErrorKind::Unsupported, "client.assume-role.arn"),
            (vec![("s3.remote-signing-enabled", "true")], ErrorKind::Unsupported, "remote-signing"),
            (vec![("s3.path-style-access", "yes")], ErrorKind::Config, "s3.path-style-access"),
        ] {
            let mut all = vec![("s3.region", "eu-west-1")];
            all.extend(pairs);
            let error = try_build("bkt", &all).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
        assert!(try_build("bkt", &[("s3.endpoint", "http://localhost:1")]).is_ok());
        assert!(try_build("b.k.t", &[("s3.region", "eu-west-1")]).is_ok(), "dots force path style");
    }
}
