//! The adapter for Iceberg REST catalogs.
//!
//! The catalog need not be up when this is made: its configuration is asked for at the first request, and again until it
//! is given. Reads are tried again with growing waits. A commit is sent again only if it was not looked at, as the answer says
//! (it did not leave, 429, or a rejected token that was renewed). 5xx, a timeout, a cut connection or a body that cannot be read
//! are *unknown*, never a failure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use iceberg_catalog_rest::{CommitTableRequest, ListNamespaceResponse, ListTablesResponse};
use parking_lot::Mutex as StdMutex;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use super::auth::{Auth, SecretSource};
use super::names::{Separator, encode};
use super::transport::{self, CatalogRequest, CommitAnswer, Transport};
pub use super::transport::{MAX_RETRIES, REQUEST_TIMEOUT_MS};
use super::{Catalog, CommitOutcome, MaySend};
use crate::clock::{Clock, SystemClock};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::http_client;
use crate::http_client::RequestObserver;
use crate::permit::WritePermit;
use crate::table::{DeclaredPaths, LoadedTable, StorageCredential, TableCredentials};

/// Pages of one listing at most.
const PAGES_MAX: usize = 10_000;
const COMMIT_OPERATION: &str = "commit_table";
const COMMIT_ENDPOINT: &str = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}";
const CREDENTIALS_ENDPOINT: &str = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials";

/// Where a catalog is and how to speak to it.
#[derive(Debug, Clone)]
pub struct RestCatalogConfig {
    /// Its name in the configuration, for messages.
    pub name: String,
    /// Its address, to which `/v1/...` is added.
    pub uri: String,
    pub warehouse: Option<String>,
    /// Iceberg's catalog properties: `header.*`, `prefix`, storage settings, [`REQUEST_TIMEOUT_MS`], [`MAX_RETRIES`],
    /// [`http_client::CONNECT_TIMEOUT_MS`], [`http_client::CA_FILE`].
    pub properties: HashMap<String, String>,
    /// Who asks.
    pub auth: Auth,
}

/// What the catalog's own configuration makes of ours.
struct Connection {
    /// Address, `v1` and prefix, without a slash at the end.
    base: String,
    properties: HashMap<String, String>,
    separator: Separator,
    headers: HeaderMap,
    /// What the catalog announced; empty if it announced nothing.
    endpoints: HashSet<String>,
    idempotency_keys: bool,
}

#[derive(Default)]
struct ConnectionSlot {
    open: Option<Arc<Connection>>,
    /// When opening it last failed, and why.
    failed: Option<(Instant, Error)>,
}

pub struct RestCatalog {
    config: RestCatalogConfig,
    transport: Transport,
    clock: Arc<dyn Clock>,
    connection: Mutex<ConnectionSlot>,
    /// Tokens that the catalog gave for single tables.
    table_tokens: StdMutex<HashMap<TableIdent, String>>,
}

#[derive(Deserialize)]
struct ConfigResponse {
    #[serde(default)]
    defaults: HashMap<String, Option<String>>,
    #[serde(default)]
    overrides: HashMap<String, Option<String>>,
    endpoints: Option<Vec<String>>,
    #[serde(rename = "idempotency-key-lifetime")]
    idempotency_key_lifetime: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct TableResponse {
    metadata_location: Option<String>,
    metadata: serde_json::Value,
    config: Option<HashMap<String, String>>,
    storage_credentials: Option<Vec<StorageCredential>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CredentialsResponse {
    storage_credentials: Vec<StorageCredential>,
}

impl RestCatalog {
    /// Sets everything up and tries to reach the catalog. One that is down is no error: it is tried again when needed.
    /// Only a wrong configuration fails.
    pub async fn connect(config: RestCatalogConfig) -> Result<Self> {
        let catalog = Self::new(config)?;
        match catalog.connection().await {
            Err(e) if e.kind() == ErrorKind::Config => return Err(e),
            Err(e) => tracing::warn!(catalog = catalog.config.name, error = %e, "catalog not reachable yet"),
            Ok(_) => {}
        }
        Ok(catalog)
    }

    /// Sets everything up without sending anything.
    pub fn new(config: RestCatalogConfig) -> Result<Self> {
        let clock = SystemClock::shared();
        let uri = config.uri.trim_end_matches('/');
        let valid = reqwest::Url::parse(uri).is_ok_and(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
        if !valid {
            let message = format!("catalog {}: uri = {uri:?} is no http or https address", config.name);
            return Err(Error::new(ErrorKind::Config, message));
        }
        let what = || format!("set up catalog {}", config.name);
        let client = http_client::build(&config.properties).context(what)?;
        transport::headers(&config.properties).context(what)?;
        let authenticator =
            super::auth::Authenticator::new(config.auth.clone(), uri, client.clone(), Arc::clone(&clock));
        let transport = Transport::new(client, authenticator, Arc::clone(&clock), &config.properties).context(what)?;
        let table_tokens = StdMutex::default();
        Ok(Self { config, transport, clock, connection: Mutex::default(), table_tokens })
    }

    /// Commits from now on only while the permit holds.
    #[must_use]
    pub fn with_permit(mut self, permit: WritePermit) -> Self {
        self.transport.permit = permit;
        self
    }

    /// Reports every request from now on.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn RequestObserver>) -> Self {
        self.transport.observe_by(observer);
        self
    }

    /// Whether the catalog has answered yet.
    pub async fn connected(&self) -> bool {
        self.connection.lock().await.open.is_some()
    }

    /// The connection, opened if there is none.
    async fn connection(&self) -> Result<Arc<Connection>> {
        let asked = Instant::now();
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &slot.open {
            return Ok(Arc::clone(connection));
        }
        // Whoever waited while another one failed shares its error: a catalog that is down is not asked once for each.
        if let Some((_, error)) = slot.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        match self.open_connection().await {
            Ok(connection) => Ok(Arc::clone(slot.open.insert(Arc::new(connection)))),
            Err(error) => {
                slot.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn open_connection(&self) -> Result<Connection> {
        let uri = self.config.uri.trim_end_matches('/');
        let query = self.config.warehouse.as_ref().map(|w| format!("?warehouse={}", encode(w))).unwrap_or_default();
        let request = get("config", format!("{uri}/v1/config{query}"), transport::headers(&self.config.properties)?);
        let answer: ConfigResponse = self.read(request).await?;
        let mut properties = present(answer.defaults);
        properties.extend(self.config.properties.clone());
        properties.extend(present(answer.overrides));
        let uri = properties.get("uri").map_or(uri, |u| u.trim_end_matches('/'));
        let prefix = properties.get("prefix").map(|p| p.trim_matches('/')).filter(|p| !p.is_empty());
        let base = prefix.map_or(format!("{uri}/v1"), |prefix| format!("{uri}/v1/{prefix}"));
        let separator = properties.get("namespace-separator").map(|s| Separator::from_property(s)).transpose()?;
        let lifetime = answer.idempotency_key_lifetime.is_some() || properties.contains_key("idempotency-key-lifetime");
        Ok(Connection {
            base,
            separator: separator.unwrap_or_default(),
            headers: transport::headers(&properties)?,
            endpoints: answer.endpoints.unwrap_or_default().into_iter().collect(),
            idempotency_keys: lifetime,
            properties,
        })
    }

    /// Sends a read and parses its answer.
    async fn read<T: for<'de> Deserialize<'de>>(&self, request: CatalogRequest) -> Result<T> {
        let (start, operation) = (Instant::now(), request.operation);
        let url = request.url.clone();
        let parsed = match self.transport.read(request).await {
            Ok(body) => serde_json::from_slice(&body)
                .map_err(|e| Error::unavailable(format!("the answer is not what the protocol says: {e}"))),
            Err(e) => Err(e),
        };
        self.transport.observe(operation, parsed.as_ref().map_or_else(|e| e.kind().as_str(), |_| "ok"), start);
        parsed.context(|| format!("catalog {}: GET {url}", self.config.name))
    }

    fn table_token(&self, table: &TableIdent) -> Option<String> {
        self.table_tokens.lock().get(table).cloned()
    }

    fn remember_token(&self, table: &TableIdent, config: &HashMap<String, String>) {
        let mut tokens = self.table_tokens.lock();
        match config.get("token") {
            Some(token) => tokens.insert(table.clone(), token.clone()),
            None => tokens.remove(table),
        };
    }

    /// Follows the pages of a listing; `next` takes one in and gives the token of the one after.
    async fn pages<T: for<'de> Deserialize<'de>>(
        &self,
        operation: &'static str,
        connection: &Connection,
        url: &str,
        mut next: impl FnMut(T) -> Option<String>,
    ) -> Result<()> {
        let mut token = String::new();
        let mut seen = HashSet::new();
        let separator = if url.contains('?') { '&' } else { '?' };
        for _ in 0..PAGES_MAX {
            let request =
                get(operation, format!("{url}{separator}pageToken={}", encode(&token)), connection.headers.clone());
            let page = self.read(request).await?;
            match next(page).filter(|t| !t.is_empty()) {
                None => return Ok(()),
                Some(following) => token = following,
            }
            if !seen.insert(token.clone()) {
                return Err(Error::unavailable(format!("{url}: the catalog gives the same page token again")));
            }
        }
        Err(Error::unavailable(format!("{url}: more than {PAGES_MAX} pages")))
    }

    async fn table_response(&self, table: &TableIdent) -> Result<TableResponse> {
        let connection = self.connection().await?;
        let url = format!("{}/{}", connection.base, connection.separator.table(table)?);
        let request = CatalogRequest {
            table_token: self.table_token(table),
            ..get("load_table", url, connection.headers.clone())
        };
        self.read(request).await
    }

    async fn try_load(&self, table: &TableIdent) -> Result<LoadedTable> {
        let loaded = parse_table(self.table_response(table).await?)?;
        self.remember_token(table, &loaded.vended.config);
        Ok(loaded)
    }

    async fn commit_request(
        &self,
        table: &TableIdent,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> Result<CatalogRequest> {
        let connection = self.connection().await?;
        if !connection.endpoints.is_empty() && !connection.endpoints.contains(COMMIT_ENDPOINT) {
            return Err(Error::unsupported("the catalog announces no way to commit to tables"));
        }
        let url = format!("{}/{}", connection.base, connection.separator.table(table)?);
        let mut headers = connection.headers.clone();
        if connection.idempotency_keys {
            // The same in every attempt of this commit.
            let key = HeaderValue::from_str(&self.clock.uuid().hyphenated().to_string());
            headers.insert("idempotency-key", key.map_err(|e| Error::internal(e.to_string()))?);
        }
        let body = serde_json::to_vec(&CommitTableRequest { identifier: Some(table.clone()), requirements, updates })?;
        let table_token = self.table_token(table);
        Ok(CatalogRequest {
            operation: COMMIT_OPERATION,
            method: Method::POST,
            url,
            headers,
            body: Some(Bytes::from(body)),
            table_token,
        })
    }
}

fn get(operation: &'static str, url: String, headers: HeaderMap) -> CatalogRequest {
    CatalogRequest { operation, method: Method::GET, url, headers, body: None, table_token: None }
}

fn present(properties: HashMap<String, Option<String>>) -> HashMap<String, String> {
    properties.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn parse_table(answer: TableResponse) -> Result<LoadedTable> {
    let location = answer.metadata_location.ok_or_else(|| Error::invalid("the catalog tells no metadata-location"))?;
    let mut loaded = LoadedTable::from_metadata_json(location, &answer.metadata)?;
    loaded.vended.config = answer.config.unwrap_or_default();
    loaded.vended.storage_credentials = answer.storage_credentials.unwrap_or_default();
    Ok(loaded)
}

#[async_trait]
impl Catalog for RestCatalog {
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        let connection = self.connection().await?;
        let mut url = format!("{}/namespaces", connection.base);
        if let Some(parent) = parent {
            url = format!("{url}?parent={}", connection.separator.namespace(parent)?);
        }
        let mut found = Vec::new();
        let take = |page: ListNamespaceResponse| {
            found.extend(page.namespaces);
            page.next_page_token
        };
        self.pages("list_namespaces", &connection, &url, take).await?;
        Ok(found)
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        let connection = self.connection().await?;
        let url = format!("{}/namespaces/{}/tables", connection.base, connection.separator.namespace(namespace)?);
        let mut found = Vec::new();
        let take = |page: ListTablesResponse| {
            found.extend(page.identifiers);
            page.next_page_token
        };
        self.pages("list_tables", &connection, &url, take).await?;
        Ok(found)
    }

    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable> {
        self.try_load(table).await
    }

    async fn declared_paths(&self, table: &TableIdent) -> Result<DeclaredPaths> {
        DeclaredPaths::in_json(&self.table_response(table).await?.metadata)
    }

    async fn load_credentials(&self, table: &TableIdent) -> Result<TableCredentials> {
        let what = || format!("get credentials for table {table}");
        let connection = self.connection().await.context(what)?;
        if !connection.endpoints.contains(CREDENTIALS_ENDPOINT) {
            return Ok(self.load_table(table).await.context(what)?.vended);
        }
        let url = format!("{}/{}/credentials", connection.base, connection.separator.table(table).context(what)?);
        let request = CatalogRequest {
            table_token: self.table_token(table),
            ..get("load_credentials", url, connection.headers.clone())
        };
        let answer: CredentialsResponse = self.read(request).await.context(what)?;
        Ok(TableCredentials { config: HashMap::new(), storage_credentials: answer.storage_credentials })
    }

    async fn commit_table(
        &self,
        table: &TableIdent,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        may_send: MaySend<'_>,
    ) -> CommitOutcome {
        let start = Instant::now();
        let what = || format!("catalog {}: commit to table {table}", self.config.name);
        let answer = match self.commit_request(table, requirements, updates).await {
            Ok(request) => self.transport.commit(request, may_send).await,
            Err(e) => CommitAnswer::NotSent(e),
        };
        let outcome = match answer {
            CommitAnswer::Applied(body) => {
                let parsed = serde_json::from_slice(&body).map_err(Error::from).and_then(parse_table);
                match parsed {
                    Ok(loaded) => CommitOutcome::Committed(Box::new(loaded)),
                    Err(e) => CommitOutcome::Unknown(
                        Error::new(ErrorKind::CommitUnknown, format!("the answer to a commit cannot be read: {e}"))
                            .context(what()),
                    ),
                }
            }
            CommitAnswer::Conflict(e) => CommitOutcome::Conflict(e.context(what())),
            CommitAnswer::Refused(e) => CommitOutcome::Refused(e.context(what())),
            CommitAnswer::NotSent(e) => CommitOutcome::NotSent(e.context(what())),
            CommitAnswer::Unknown(e) => CommitOutcome::Unknown(e.context(what())),
        };
        let label = match &outcome {
            CommitOutcome::Committed(_) => "ok",
            CommitOutcome::Conflict(_) => "conflict",
            CommitOutcome::Refused(_) | CommitOutcome::NotSent(_) => "refused",
            CommitOutcome::Unknown(_) => "unknown",
        };
        self.transport.observe(COMMIT_OPERATION, label, start);
        outcome
    }

    fn time_ms(&self) -> Option<i64> {
        self.transport.told_time.now_ms(self.clock.as_ref())
    }

    async fn storage_properties(&self) -> Result<HashMap<String, String>> {
        let mut properties = self.connection().await?.properties.clone();
        for secret in ["token", "credential"] {
            properties.remove(secret);
        }
        Ok(properties)
    }
}
