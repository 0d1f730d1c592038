//! Which settings apply to a path, and how credentials that a catalog vended are renewed.
//!
//! Precedence, strongest first: the vended credential with the longest matching prefix, the table's own `config`,
//! the catalog's properties (after the catalog's overrides and defaults), this program's defaults.
//! Credentials are never mixed from two sources.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::RwLock;

use super::scheme::SCHEMES;
use crate::clock::Clock;
use crate::error::{Context, Result};
use crate::table::path::with_family;
use crate::table::{StorageCredential, TableCredentials};

/// Renewed at the earliest this long before they expire.
const MARGIN_MS: i64 = 300_000;
/// After a failed or a forced renewal the next one waits this long.
const PAUSE_MS: i64 = 10_000;

/// Where new credentials for a table come from.
#[async_trait]
pub trait CredentialSource: Send + Sync {
    /// Asks for new ones.
    async fn fetch(&self) -> Result<TableCredentials>;
}

/// What is in force now.
struct Current {
    vended: TableCredentials,
    /// Counts renewals.
    generation: u64,
    fetched_ms: i64,
    /// The earliest expiry of all, if any tells one.
    expires_at_ms: Option<i64>,
    /// No renewal before this.
    not_before_ms: i64,
}

impl Current {
    fn new(vended: TableCredentials, generation: u64, now_ms: i64) -> Self {
        let configs = std::iter::once(&vended.config).chain(vended.storage_credentials.iter().map(|c| &c.config));
        let expires_at_ms = configs.flat_map(|c| SCHEMES.iter().filter_map(|s| s.expires_at_ms(c))).min();
        Self { vended, generation, fetched_ms: now_ms, expires_at_ms, not_before_ms: 0 }
    }

    /// In the last quarter of their life, or in its last five minutes if that is shorter.
    fn due(&self, now_ms: i64) -> bool {
        let Some(expires_at_ms) = self.expires_at_ms else { return false };
        let early_ms = (expires_at_ms.saturating_sub(self.fetched_ms) / 4).clamp(0, MARGIN_MS);
        now_ms >= expires_at_ms - early_ms && now_ms >= self.not_before_ms
    }
}

/// Settings of a store, with the part that a catalog vended and that is renewed.
pub(super) struct StoreSettings {
    base: HashMap<String, String>,
    current: RwLock<Arc<Current>>,
    renewing: tokio::sync::Mutex<()>,
    source: Option<Arc<dyn CredentialSource>>,
    clock: Arc<dyn Clock>,
}

impl StoreSettings {
    pub(super) fn new(
        base: HashMap<String, String>,
        vended: TableCredentials,
        source: Option<Arc<dyn CredentialSource>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let current = Current::new(vended, 0, clock.now_ms());
        Self { base, current: RwLock::new(Arc::new(current)), renewing: tokio::sync::Mutex::default(), source, clock }
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read())
    }

    fn replace(&self, current: Current) {
        *self.current.write() = Arc::new(current);
    }

    pub(super) fn generation(&self) -> u64 {
        self.current().generation
    }

    /// The prefix of the vended credential that `path` uses; empty if none applies.
    pub(super) fn prefix_for(&self, path: &str) -> String {
        choose(&self.current().vended.storage_credentials, path).map(|c| c.prefix.clone()).unwrap_or_default()
    }

    /// All settings under a prefix that [`Self::prefix_for`] gave.
    pub(super) fn properties(&self, prefix: &str) -> HashMap<String, String> {
        let current = self.current();
        let mut merged = self.base.clone();
        overlay(&mut merged, &current.vended.config);
        if let Some(vended) = current.vended.storage_credentials.iter().find(|c| c.prefix == prefix) {
            overlay(&mut merged, &vended.config);
        }
        merged
    }

    /// The settings under a prefix that [`Self::prefix_for`] gave, as they change.
    pub(super) fn vended(self: &Arc<Self>, prefix: &str) -> VendedSettings {
        VendedSettings { settings: Arc::clone(self), prefix: prefix.to_owned() }
    }

    /// Renews, unless somebody else has done so since `seen` or it was tried a moment ago.
    /// Says whether there are other credentials than those of generation `seen`.
    pub(super) async fn renew(&self, seen: u64) -> Result<bool> {
        let Some(source) = &self.source else { return Ok(false) };
        let _one_at_a_time = self.renewing.lock().await;
        let current = self.current();
        if current.generation != seen {
            return Ok(true);
        }
        let now_ms = self.clock.now_ms();
        // A longer pause than there is: the clock was set back since.
        if (1..=PAUSE_MS).contains(&current.not_before_ms.saturating_sub(now_ms)) {
            return Ok(false);
        }
        let fetched = source.fetch().await.context(|| "renew storage credentials");
        let not_before_ms = self.clock.now_ms() + PAUSE_MS;
        match fetched {
            Ok(mut vended) => {
                // Credentials that come on a way of their own bring no other settings; the known ones stay.
                if vended.config.is_empty() {
                    vended.config = current.vended.config.clone();
                }
                self.replace(Current { not_before_ms, ..Current::new(vended, seen + 1, now_ms) });
                tracing::debug!(generation = seen + 1, "storage credentials renewed");
                Ok(true)
            }
            Err(e) => {
                let Current { fetched_ms, expires_at_ms, .. } = *current;
                let vended = current.vended.clone();
                self.replace(Current { vended, generation: seen, fetched_ms, expires_at_ms, not_before_ms });
                Err(e)
            }
        }
    }
}

/// What one place of a store is reached by, whenever it is asked.
pub(super) struct VendedSettings {
    settings: Arc<StoreSettings>,
    prefix: String,
}

impl VendedSettings {
    /// The settings in force, their credentials renewed first if they are about to expire.
    /// If that fails, they are used as long as they last.
    pub(super) async fn in_force(&self) -> Result<HashMap<String, String>> {
        let settings = &self.settings;
        if settings.source.is_some() && settings.current().due(self.now_ms()) {
            let renewed = settings.renew(settings.generation()).await;
            let lapsed = settings.current().expires_at_ms.is_some_and(|at| self.now_ms() >= at);
            match renewed {
                Err(e) if lapsed => return Err(e),
                Err(e) => tracing::warn!(error = %e, "storage credentials could not be renewed, trying again later"),
                Ok(_) => {}
            }
        }
        Ok(settings.properties(&self.prefix))
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.settings.clock.now_ms()
    }
}

impl fmt::Debug for VendedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VendedSettings").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Lays stronger settings over weaker ones.
fn overlay(weaker: &mut HashMap<String, String>, stronger: &HashMap<String, String>) {
    SCHEMES.iter().for_each(|scheme| scheme.drop_replaced(weaker, stronger));
    weaker.extend(stronger.iter().map(|(k, v)| (k.clone(), v.clone())));
}

/// The credential with the longest prefix of `path`.
fn choose<'a>(credentials: &'a [StorageCredential], path: &str) -> Option<&'a StorageCredential> {
    let path = with_family(path);
    credentials
        .iter()
        .filter(|c| path.starts_with(&with_family(&c.prefix)))
        .max_by_key(|c| with_family(&c.prefix).len())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::storage::s3::{ACCESS_KEY, EXPIRES_AT_MS, SECRET_KEY, SESSION_TOKEN};
    use crate::testing::SetClock;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    /// Lends keys that live 60 s; fails while `down`.
    struct Lender {
        clock: Arc<SetClock>,
        calls: AtomicUsize,
        down: std::sync::atomic::AtomicBool,
    }

    #[async_trait]
    impl CredentialSource for Lender {
        async fn fetch(&self) -> Result<TableCredentials> {
            let n = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
            if self.down.load(Ordering::SeqCst) {
                return Err(Error::unavailable("down"));
            }
            Ok(lend(n, self.clock.now_ms() + 60_000))
        }
    }

    fn lend(n: usize, expires_at_ms: i64) -> TableCredentials {
        let key = format!("key{n}");
        let config = map(&[
            (ACCESS_KEY, &key),
            (SECRET_KEY, "s"),
            (SESSION_TOKEN, "t"),
            (EXPIRES_AT_MS, &expires_at_ms.to_string()),
        ]);
        let credential = StorageCredential { prefix: "s3://b/t".into(), config };
        TableCredentials { config: HashMap::new(), storage_credentials: vec![credential] }
    }

    fn settings() -> (Arc<SetClock>, Arc<Lender>, Arc<StoreSettings>) {
        let clock = Arc::new(SetClock::default());
        let down = std::sync::atomic::AtomicBool::new(false);
        let lender = Arc::new(Lender { clock: clock.clone(), calls: AtomicUsize::new(0), down });
        let settings = StoreSettings::new(HashMap::new(), lend(0, 60_000), Some(lender.clone()), clock.clone());
        (clock, lender, Arc::new(settings))
    }

    async fn key(settings: &Arc<StoreSettings>) -> Result<String> {
        let vended = settings.vended(&settings.prefix_for("s3a://b/t/data/f"));
        Ok(vended.in_force().await?.remove(ACCESS_KEY).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_stops_no_renewal() {
        let (clock, lender, settings) = settings();
        clock.set(86_400_000);
        lender.down.store(true, Ordering::SeqCst);
        assert!(settings.renew(0).await.is_err());
        clock.set(50_000);
        lender.down.store(false, Ordering::SeqCst);
        assert!(settings.renew(0).await.unwrap());
        assert!(!settings.renew(1).await.unwrap(), "the pause holds");
        assert_eq!(lender.calls.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn keys_are_renewed_before_they_expire_and_once() {
        let (clock, lender, settings) = settings();
        clock.set(44_000);
        assert_eq!(key(&settings).await.unwrap(), "key0");
        clock.set(45_000);
        let (a, b) = tokio::join!(key(&settings), key(&settings));
        assert_eq!((a.unwrap(), b.unwrap()), ("key1".into(), "key1".into()));
        assert_eq!(lender.calls.load(Ordering::SeqCst), 1);
        clock.set(45_000 + 45_000);
        assert_eq!(key(&settings).await.unwrap(), "key2");
    }

    #[tokio::test]
    async fn a_failed_renewal_is_tried_again_and_old_keys_serve_while_they_last() {
        let (clock, lender, settings) = settings();
        lender.down.store(true, Ordering::SeqCst);
        clock.set(46_000);
        assert_eq!(key(&settings).await.unwrap(), "key0");
        assert_eq!(key(&settings).await.unwrap(), "key0");
        assert_eq!(lender.calls.load(Ordering::SeqCst), 1, "the second request does not ask again at once");
        clock.set(61_000);
        assert_eq!(key(&settings).await.unwrap_err().kind(), ErrorKind::Unavailable, "now they are over");
        lender.down.store(false, Ordering::SeqCst);
        clock.set(72_000);
        assert_eq!(key(&settings).await.unwrap(), "key3");
    }

    #[tokio::test]
    async fn a_forced_renewal_happens_once_for_all_who_saw_the_old_keys() {
        let (clock, lender, settings) = settings();
        clock.set(1_000);
        assert!(settings.renew(0).await.unwrap());
        assert!(settings.renew(0).await.unwrap(), "already done by somebody else");
        assert!(!settings.renew(1).await.unwrap(), "not twice in a moment: then it is not the age of the keys");
        assert_eq!(lender.calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_longest_prefix_wins_whatever_the_scheme() {
        let credential = |prefix: &str| StorageCredential { prefix: prefix.into(), config: HashMap::new() };
        let all = ["s3", "s3://b/", "s3a://b/t/data", "s3://b/t", "gs://b/t/data/x"].map(credential);
        let chosen = |path: &str| choose(&all, path).map(|c| c.prefix.clone());
        assert_eq!(chosen("s3://b/t/data/x").as_deref(), Some("s3a://b/t/data"));
        assert_eq!(chosen("s3n://b/t/metadata").as_deref(), Some("s3://b/t"));
        assert_eq!(chosen("s3://other/x").as_deref(), Some("s3"));
        assert_eq!(chosen("/local"), None);
    }

    #[test]
    fn stronger_settings_win_and_key_sets_are_not_mixed() {
        let clock = Arc::new(SetClock::default());
        let base = map(&[
            (ACCESS_KEY, "base"),
            (SECRET_KEY, "base"),
            (SESSION_TOKEN, "base"),
            ("s3.endpoint", "base"),
            ("s3.region", "base"),
        ]);
        let config = map(&[(ACCESS_KEY, "config"), (SECRET_KEY, "config"), ("s3.endpoint", "config")]);
        let vended = map(&[(ACCESS_KEY, "vended"), (SECRET_KEY, "vended"), (SESSION_TOKEN, "vended")]);
        let storage_credentials = vec![StorageCredential { prefix: "s3://b/t".into(), config: vended }];
        let settings = StoreSettings::new(base, TableCredentials { config, storage_credentials }, None, clock);
        let inside = settings.properties("s3://b/t");
        assert_eq!((inside[ACCESS_KEY].as_str(), inside[SESSION_TOKEN].as_str()), ("vended", "vended"));
        assert_eq!((inside["s3.endpoint"].as_str(), inside["s3.region"].as_str()), ("config", "base"));
        let outside = settings.properties("");
        assert_eq!(outside[ACCESS_KEY], "config");
        assert_eq!(outside.get(SESSION_TOKEN), None, "the base's token does not belong to the config's key");
    }
}
