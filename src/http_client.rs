//! The HTTP client that catalogs and object stores share: timeouts, trusted certificates, waits between tries.
//!
//! Certificates are verified by rustls against the system's root certificates, read when the client is made.
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` name other ones, and the property [`CA_FILE`] adds some.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{AGE, DATE, HeaderMap};
use tokio::time::Instant;

use crate::backoff;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// Property: a file with further trusted certificates in PEM form.
pub const CA_FILE: &str = "tls.ca-file";
/// Property: longest time for making a connection, milliseconds; 10 s unless set.
pub const CONNECT_TIMEOUT_MS: &str = "rest.client.connection-timeout-ms";

const USER_AGENT: &str = concat!("icewright/", env!("CARGO_PKG_VERSION"));

/// A client set up by `properties`. It has no timeout for a whole request: callers know what they ask for.
pub fn build(properties: &HashMap<String, String>) -> Result<reqwest::Client> {
    finish(builder(properties)?)
}

/// The same, but each request gets a connection of its own. One kept open may be closed by the other side at the moment
/// it is used again; for a request that must not be repeated that would raise needless doubt.
pub fn build_unpooled(properties: &HashMap<String, String>) -> Result<reqwest::Client> {
    finish(builder(properties)?.pool_max_idle_per_host(0))
}

fn builder(properties: &HashMap<String, String>) -> Result<reqwest::ClientBuilder> {
    let connect_timeout = duration_ms(properties, CONNECT_TIMEOUT_MS, Duration::from_secs(10))?;
    let mut builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(connect_timeout)
        .pool_idle_timeout(Duration::from_secs(30))
        // A redirected POST would become a GET; catalogs and stores do not redirect.
        .redirect(reqwest::redirect::Policy::none());
    if let Some(file) = properties.get(CA_FILE) {
        let fail = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Config, format!("{CA_FILE} = {file}: {e}"));
        let pem = std::fs::read(file).map_err(|e| fail(&e))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| fail(&e))?;
        if certificates.is_empty() {
            return Err(fail(&"holds no certificate"));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    Ok(builder)
}

fn finish(builder: reqwest::ClientBuilder) -> Result<reqwest::Client> {
    builder.build().map_err(|e| {
        let cure = "install the system's CA certificates, or name a file by SSL_CERT_FILE";
        Error::new(ErrorKind::Config, format!("set up TLS: {}; {cure}", chain(&e)))
    })
}

/// An error with its causes, which HTTP libraries keep apart.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// A duration given in milliseconds by a property.
pub(crate) fn duration_ms(properties: &HashMap<String, String>, key: &str, default: Duration) -> Result<Duration> {
    let Some(text) = properties.get(key) else { return Ok(default) };
    match text.parse() {
        Ok(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
        _ => Err(Error::new(ErrorKind::Config, format!("{key} = {text:?}: expected milliseconds above 0"))),
    }
}

/// Waits between tries: doubling from `first` to `longest`, each varied by up to a half so that many clients spread.
#[derive(Debug, Clone, Copy)]
pub struct RetryDelay {
    pub retries: u32,
    /// Wait before the second try.
    pub first: Duration,
    pub longest: Duration,
}

impl RetryDelay {
    /// The wait after failed try number `attempt` (from 0); `random` is any number. `None` if there is no further try.
    /// A wait that the server asked for is kept, as long as it is not absurd.
    pub fn wait(&self, attempt: u32, random: u128, retry_after: Option<Duration>) -> Option<Duration> {
        if attempt >= self.retries {
            return None;
        }
        let doubled = backoff::doubled(self.first, self.longest, attempt);
        // The low bits of a version 7 UUID are random, its high ones are the time.
        let share = u32::try_from(random % 500).unwrap_or(0);
        let varied = doubled * (1000 - share) / 1000;
        Some(varied.max(retry_after.unwrap_or_default().min(Duration::from_secs(120))))
    }
}

/// `Retry-After`: seconds, or a date that `now_ms` is compared with.
pub(crate) fn retry_after(headers: &HeaderMap, now_ms: i64) -> Option<Duration> {
    let text = headers.get(reqwest::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
    Some(Duration::from_millis(u64::try_from(date.saturating_sub(now_ms)).unwrap_or(0)))
}

/// What the answers of a server tell of its clock, by their `Date` (and `Age`, if a cache has kept them).
#[derive(Debug, Default)]
pub(crate) struct ToldTime(Mutex<Option<(i64, Instant)>>);

impl ToldTime {
    /// Takes in an answer that has just arrived. One without a date changes nothing.
    pub(crate) fn note(&self, headers: &HeaderMap, clock: &dyn Clock) {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let Some(date) = text(DATE).and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else { return };
        let age_s: i64 = text(AGE).and_then(|age| age.parse().ok()).filter(|age| *age >= 0).unwrap_or(0);
        let told_ms = date.timestamp().as_millisecond().saturating_add(age_s.saturating_mul(1000));
        *self.0.lock() = Some((told_ms, clock.steady()));
    }

    /// What the server's clock shows now, milliseconds since the epoch: the last date told, and the time since.
    pub(crate) fn now_ms(&self, clock: &dyn Clock) -> Option<i64> {
        let (told_ms, at) = (*self.0.lock())?;
        let since = clock.steady().saturating_duration_since(at);
        Some(told_ms.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// Learns of every request to a catalog or a store, for metrics.
pub trait RequestObserver: Send + Sync {
    /// A request of this kind ended like this after this many seconds. Names come from small fixed sets.
    fn observe(&self, operation: &'static str, outcome: &'static str, seconds: f64);
    /// A request of this kind is sent again, since an attempt has failed; what is observed is the whole.
    fn retried(&self, _operation: &'static str) {}
    /// So many bytes came from a store.
    fn bytes_read(&self, _bytes: u64) {}
    /// So many bytes were handed to a store.
    fn bytes_written(&self, _bytes: u64) {}
}

/// An observer that does not care.
#[derive(Debug, Clone, Copy)]
pub struct NoObserver;

impl RequestObserver for NoObserver {
    fn observe(&self, _: &'static str, _: &'static str, _: f64) {}
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderValue, RETRY_AFTER};

    use super::*;
    use crate::testing::SetClock;

    #[tokio::test(start_paused = true)]
    async fn a_servers_time_goes_on_from_its_last_date() {
        let (told, clock) = (ToldTime::default(), SetClock::new(0));
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
        };
        told.note(&headers(&[("content-type", "text/plain")]), &clock);
        assert_eq!(told.now_ms(&clock), None);
        told.note(&headers(&[("date", "Thu, 01 Jan 1970 00:01:00 GMT")]), &clock);
        assert_eq!(told.now_ms(&clock), Some(60_000));
        tokio::time::advance(Duration::from_secs(5)).await;
        clock.suspend(Duration::from_secs(2));
        clock.advance(86_400_000);
        assert_eq!(told.now_ms(&clock), Some(67_000), "what this machine's wall clock is set to does not matter");
        told.note(&headers(&[("date", "yesterday")]), &clock);
        assert_eq!(told.now_ms(&clock), Some(67_000));
        told.note(&headers(&[("date", "Thu, 01 Jan 1970 00:00:00 GMT"), ("age", "3600")]), &clock);
        assert_eq!(told.now_ms(&clock), Some(3_600_000), "an answer out of a cache");
    }

    #[test]
    fn waits_double_up_to_a_limit_and_end() {
        let backoff = RetryDelay { retries: 4, first: Duration::from_secs(1), longest: Duration::from_secs(5) };
        let waits: Vec<_> = (0..5).map(|n| backoff.wait(n, 0, None).map(|d| d.as_millis())).collect();
        assert_eq!(waits, [Some(1000), Some(2000), Some(4000), Some(5000), None]);
        assert_eq!(backoff.wait(0, 250, None), Some(Duration::from_millis(750)), "spread by up to a half");
        assert_eq!(backoff.wait(0, 0, Some(Duration::from_secs(30))), Some(Duration::from_secs(30)));
        assert_eq!(backoff.wait(0, 0, Some(Duration::from_secs(86_400))), Some(Duration::from_secs(120)));
        let endless = RetryDelay { retries: u32::MAX, ..backoff };
        assert_eq!(endless.wait(1_000_000, 0, None), Some(Duration::from_secs(5)));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let headers = |text: &'static str| HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
        assert_eq!(retry_after(&headers("7"), 0), Some(Duration::from_secs(7)));
        let date = headers("Thu, 01 Jan 1970 00:01:00 GMT");
        assert_eq!(retry_after(&date, 20_000), Some(Duration::from_secs(40)));
        assert_eq!(retry_after(&date, 90_000), Some(Duration::ZERO));
        assert_eq!(retry_after(&headers("soon"), 0), None);
        assert_eq!(retry_after(&HeaderMap::new(), 0), None);
    }

    #[test]
    fn bad_settings_name_their_key() {
        let error = build(&HashMap::from([(CA_FILE.to_owned(), "/nonexistent.pem".to_owned())])).map(|_| ());
        assert!(error.is_err_and(|e| e.kind() == ErrorKind::Config && e.to_string().contains("tls.ca-file")));
        let error = build(&HashMap::from([(CONNECT_TIMEOUT_MS.to_owned(), "10s".to_owned())])).map(|_| ());
        assert!(error.is_err_and(|e| e.to_string().contains(CONNECT_TIMEOUT_MS)));
    }
}
