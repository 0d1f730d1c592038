//! Hands a table's metrics to a Prometheus Pushgateway: for passes that end before anybody can ask for them.
//!
//! Each table is a group of its own, `/metrics/job/<namespace>/table/<table>/catalog/<catalog>`, which is pushed to with
//! `POST`, so that what other jobs have pushed under it stays.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};

use super::metrics::Metrics;
use crate::catalog::auth::SecretSource;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::http_client::{self, chain};
use crate::table::TableName;

/// Longest time for a push.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are told at most.
const ANSWER_TOLD: usize = 300;

/// The way to a Pushgateway.
pub struct Pushgateway {
    client: reqwest::Client,
    url: String,
    token: Option<SecretSource>,
    /// A push got no answer. Whoever pushes holds it: those who wait learn of that instead of waiting for an answer too.
    silent: tokio::sync::Mutex<bool>,
}

impl Pushgateway {
    /// A gateway at `url`, before `/metrics` and without a slash at the end, which asks for this bearer token, if for any.
    /// Sends nothing yet.
    pub fn new(url: impl Into<String>, token: Option<SecretSource>) -> Result<Self> {
        Ok(Self { client: http_client::build(&HashMap::new())?, url: url.into(), token, silent: false.into() })
    }

    /// Pushes what `metrics` says of tables to the group of `table`; it should know no other one.
    /// [`ErrorKind::Unavailable`] if the gateway does not take it within 10 seconds. After a push without an answer nothing
    /// more is sent, which is no error.
    pub async fn push(&self, table: &TableName, metrics: &Metrics) -> Result<()> {
        let mut silent = self.silent.lock().await;
        if *silent {
            return Ok(());
        }
        let url = format!("{}{}", self.url, group_path(table));
        self.send(&url, metrics.gather_tables()?, &mut silent).await.context(|| format!("push metrics to {url}"))
    }

    async fn send(&self, url: &str, text: String, silent: &mut bool) -> Result<()> {
        let format = "text/plain; version=0.0.4; charset=utf-8";
        let mut request = self.client.post(url).timeout(TIMEOUT).header(CONTENT_TYPE, format).body(text);
        if let Some(token) = &self.token {
            let header = format!("Bearer {}", token()?.trim());
            let mut header = HeaderValue::from_str(&header)
                .map_err(|_| Error::new(ErrorKind::Config, "the token has characters no header can hold"))?;
            header.set_sensitive(true);
            request = request.header(AUTHORIZATION, header);
        }
        let unavailable = |e: reqwest::Error| Error::unavailable(chain(&e.without_url()));
        let sent = request.send().await;
        *silent = sent.is_err();
        let mut response = sent.map_err(unavailable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let answer = response.chunk().await.map_err(unavailable)?.unwrap_or_default();
        let told = String::from_utf8_lossy(&answer[..answer.len().min(ANSWER_TOLD)]).into_owned();
        Err(Error::unavailable(format!("{status}: {}", told.trim())))
    }
}

/// The path of a table's group. The namespace is spelt as in the label `namespace`.
fn group_path(table: &TableName) -> String {
    let labels = [("job", table.namespace_text()), ("table", table.table.clone()), ("catalog", table.catalog.clone())];
    let pairs = labels.map(|(name, value)| {
        // Dots alone would mean other folders.
        let plain = !value.trim_matches('.').is_empty()
            && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if plain { format!("/{name}/{value}") } else { format!("/{name}@base64/{}", base64_url(value.as_bytes())) }
    });
    format!("/metrics{}", pairs.concat())
}

/// Base64 for URLs, without padding; nothing is a single `=`, as the gateway wants it.
fn base64_url(bytes: &[u8]) -> String {
    if bytes.is_empty() { "=".to_owned() } else { URL_SAFE_NO_PAD.encode(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(namespace: &[&str], table: &str) -> String {
        let namespace = namespace.iter().map(|level| (*level).to_owned()).collect();
        group_path(&TableName { catalog: "lake".into(), namespace, table: table.into() })
    }

    #[test]
    fn base64_is_the_one_of_the_standard() {
        let known =
            [("", "="), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("\u{fb}\u{ff}?", "w7vDvz8")];
        for (plain, encoded) in known {
            assert_eq!(base64_url(plain.as_bytes()), encoded, "{plain}");
        }
        assert_eq!(base64_url(&[0xfb, 0xff, 0xfe]), "-__-");
    }

    #[test]
    fn names_that_a_path_cannot_hold_are_encoded() {
        assert_eq!(path(&["shop", "eu"], "orders_1"), "/metrics/job/shop.eu/table/orders_1/catalog/lake");
        assert_eq!(path(&["shop"], "a/b"), "/metrics/job/shop/table@base64/YS9i/catalog/lake");
        assert_eq!(path(&["shop"], ""), "/metrics/job/shop/table@base64/=/catalog/lake");
        assert_eq!(path(&["shop"], ".."), "/metrics/job/shop/table@base64/Li4/catalog/lake");
        // An empty level is written in quotes.
        assert_eq!(path(&[""], "t"), "/metrics/job@base64/IiI/table/t/catalog/lake");
        assert_eq!(path(&["a b"], "é"), "/metrics/job@base64/YSBi/table@base64/w6k/catalog/lake");
    }
}
