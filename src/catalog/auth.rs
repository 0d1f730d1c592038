//! Tokens: fetched on first use, renewed before they expire or when the catalog rejects them, never logged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::classify::{self, Rejection};
use crate::clock::Clock;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::http_client::{NoObserver, RequestObserver};
use crate::http_client::{RetryDelay, chain, retry_after};

/// Reads a secret anew each time it is called, so that a rotated one is picked up.
pub type SecretSource = Arc<dyn Fn() -> Result<String> + Send + Sync>;

/// How the catalog learns who asks.
#[derive(Clone)]
pub enum Auth {
    None,
    /// A token made elsewhere; read again when it is rejected.
    Bearer(SecretSource),
    /// OAuth2 client credentials.
    OAuth2 {
        /// `id:secret`, or a secret alone.
        credential: SecretSource,
        /// Scope asked for; `catalog` unless set.
        scope: Option<String>,
        /// Where tokens are given out: an address, or a path below the catalog's; `v1/oauth/tokens` there unless set.
        server_uri: Option<String>,
    },
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bearer(_) => "Bearer",
            Self::OAuth2 { .. } => "OAuth2",
        })
    }
}

/// A token request is tried again this often before the caller's request fails.
const TOKEN_BACKOFF: RetryDelay =
    RetryDelay { retries: 2, first: Duration::from_millis(300), longest: Duration::from_secs(5) };
/// After that, later requests fail at once for this long, doubling, before the next token request.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// How observers call it.
const TOKEN_OPERATION: &str = "token";
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// After a rejected token was renewed, rejections cause no further renewal for this long: the token is not the reason.
const REJECTED_AGAIN: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct CatalogToken {
    /// The value of the `Authorization` header; `None` without authentication.
    pub(super) header: Option<String>,
    /// Counts renewals, so that several requests rejected together renew once.
    pub(super) generation: u64,
}

#[derive(Default)]
struct TokenState {
    header: Option<String>,
    generation: u64,
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
    /// When a renewal was last caused by a rejection.
    renewed_as_rejected: Option<Instant>,
    failure: Option<Failure>,
}

struct Failure {
    error: Error,
    pause: Duration,
    until: Instant,
}

pub(super) struct Authenticator {
    auth: Auth,
    token_uri: String,
    client: reqwest::Client,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn RequestObserver>,
    state: Mutex<TokenState>,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    expires_in: Option<f64>,
}

impl Authenticator {
    pub(super) fn new(auth: Auth, catalog_uri: &str, client: reqwest::Client, clock: Arc<dyn Clock>) -> Self {
        let token_uri = match &auth {
            Auth::OAuth2 { server_uri: Some(uri), .. } if uri.contains("://") => uri.clone(),
            Auth::OAuth2 { server_uri: Some(path), .. } => format!("{catalog_uri}/{}", path.trim_start_matches('/')),
            _ => format!("{catalog_uri}/v1/oauth/tokens"),
        };
        Self { auth, token_uri, client, clock, observer: Arc::new(NoObserver), state: Mutex::default() }
    }

    pub(super) fn observe_by(&mut self, observer: Arc<dyn RequestObserver>) {
        self.observer = observer;
    }

    /// The token to send, fetched or renewed first if it is time.
    pub(super) async fn token(&self) -> Result<CatalogToken> {
        if matches!(self.auth, Auth::None) {
            return Ok(CatalogToken { header: None, generation: 0 });
        }
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let due = state.header.is_none() || state.renew_at.is_some_and(|at| now >= at);
        if due && let Err(e) = self.renew_locked(&mut state).await {
            let usable = state.header.is_some() && state.expires_at.is_none_or(|at| now < at);
            if !usable {
                return Err(e);
            }
        }
        Ok(CatalogToken { header: state.header.clone(), generation: state.generation })
    }

    /// After `rejected` was not accepted: whether there is another token now.
    ///
    /// A right that is missing is no reason for a new token unless the old one is over, or does not tell how long it lives.
    pub(super) async fn renew(&self, rejected: &CatalogToken, rejection: Rejection) -> Result<bool> {
        if matches!(self.auth, Auth::None) {
            return Ok(false);
        }
        let mut state = self.state.lock().await;
        if state.generation == rejected.generation && self.may_help(&state, rejection) {
            state.renewed_as_rejected = Some(Instant::now());
            self.renew_locked(&mut state).await?;
        }
        Ok(state.header != rejected.header)
    }

    /// Whether a new token may be accepted where the present one was not.
    fn may_help(&self, state: &TokenState, rejection: Rejection) -> bool {
        if matches!(self.auth, Auth::Bearer(_)) {
            // It is read anew, which costs nothing; the same one again is not sent.
            return true;
        }
        let now = Instant::now();
        let just_renewed = state.renewed_as_rejected.is_some_and(|at| now.duration_since(at) < REJECTED_AGAIN);
        let over = state.expires_at.is_none_or(|at| now >= at);
        !just_renewed && (rejection == Rejection::Token || over)
    }

    async fn renew_locked(&self, state: &mut TokenState) -> Result<()> {
        if let Some(failure) = &state.failure
            && Instant::now() < failure.until
        {
            return Err(failure.error.clone());
        }
        match self.fetch().await {
            Ok((token, life)) => {
                let now = Instant::now();
                state.header = Some(format!("Bearer {token}"));
                state.generation += 1;
                state.failure = None;
                // The last tenth of its life is left unused, but not more than five minutes.
                state.expires_at = life.and_then(|life| now.checked_add(life));
                state.renew_at = life.zip(state.expires_at).map(|(l, at)| at - (l / 10).min(Duration::from_secs(300)));
                Ok(())
            }
            Err(error) => {
                let pause = state.failure.as_ref().map_or(PAUSE_FIRST, |f| (f.pause * 2).min(PAUSE_LONGEST));
                state.failure = Some(Failure { error: error.clone(), pause, until: Instant::now() + pause });
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<(String, Option<Duration>)> {
        match &self.auth {
            Auth::None => Err(Error::internal("no authentication is set up")),
            Auth::Bearer(source) => Ok((source().context(|| "read the catalog's token")?.trim().to_owned(), None)),
            Auth::OAuth2 { credential, scope, .. } => {
                let credential = credential().context(|| "read the catalog's credential")?;
                let start = Instant::now();
                let answer = self.ask_again(&form(credential.trim(), scope.as_deref())).await;
                let outcome = answer.as_ref().map_or_else(|e| e.kind().as_str(), |_| "ok");
                self.observer.observe(TOKEN_OPERATION, outcome, start.elapsed().as_secs_f64());
                answer.context(|| format!("get a token from {}", self.token_uri))
            }
        }
    }

    async fn ask_again(&self, form: &HashMap<&'static str, String>) -> Result<(String, Option<Duration>)> {
        let mut attempt = 0;
        loop {
            let (error, after) = match self.ask(form).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let wait = TOKEN_BACKOFF.wait(attempt, self.clock.uuid().as_u128(), after.unwrap_or_default());
            match (after, wait) {
                (Some(_), Some(wait)) => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
            self.observer.retried(TOKEN_OPERATION);
            attempt += 1;
        }
    }

    /// One token request. An error that may pass by itself comes with the wait the server wants, if any.
    #[allow(clippy::type_complexity, reason = "named nowhere else")]
    async fn ask(
        &self,
        form: &HashMap<&'static str, String>,
    ) -> Result<(String, Option<Duration>), (Error, Option<Option<Duration>>)> {
        let lost = |e: reqwest::Error| (Error::unavailable(chain(&e.without_url())), Some(None));
        let sent = self.client.post(&self.token_uri).timeout(TOKEN_TIMEOUT).form(form).send().await;
        let response = sent.map_err(lost)?;
        let status = response.status().as_u16();
        let after = retry_after(response.headers(), self.clock.now_ms());
        let body = response.bytes().await.map_err(lost)?;
        if status != 200 {
            let error = classify::error_of("token", status, &body);
            return Err((
                Error::new(ErrorKind::Unavailable, error.to_string()),
                classify::read_again(status).then_some(after),
            ));
        }
        // The body is not quoted: it may hold a token.
        let parsed: TokenResponse =
            serde_json::from_slice(&body).map_err(|_| (Error::unavailable("the answer is no token response"), None))?;
        let life = parsed.expires_in.filter(|s| *s > 0.0).and_then(|s| Duration::try_from_secs_f64(s).ok());
        Ok((parsed.access_token, life))
    }
}

fn form(credential: &str, scope: Option<&str>) -> HashMap<&'static str, String> {
    let mut form = HashMap::from([
        ("grant_type", "client_credentials".to_owned()),
        ("scope", scope.unwrap_or("catalog").to_owned()),
    ]);
    match credential.split_once(':') {
        Some((id, secret)) => {
            form.insert("client_id", id.to_owned());
            form.insert("client_secret", secret.to_owned());
        }
        None => {
            form.insert("client_secret", credential.to_owned());
        }
    }
    form
}
