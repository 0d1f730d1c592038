//! What an operator wrote. Job: TOML file -> [`Config`], or every problem of the file at once, each with line, key and cure.
//! It reads nothing but the file: catalogs are not asked, and secrets stay unread until [`Secret::resolve`].
//!
//! `file` reads sections, `policy_file` policies, `partitions` partition selections, `validate` looks across sections.

mod file;
mod leader_election;
mod limits;
mod partitions;
mod policy_file;
mod problem;
mod reader;
mod secret;
mod traces;
pub mod units;
mod validate;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use leader_election::LeaderElectionConfig;
pub use limits::{MEMORY_FALLBACK_BYTES, USUAL_MEMORY_BYTES, detect_memory_bytes};
pub use problem::{Problem, Problems};
pub use secret::{Secret, SecretText};
pub use traces::TracesConfig;

use crate::error::{Context, Result};
use crate::policy::PolicySet;

const FILE_MAX_BYTES: u64 = 16 << 20;

/// Everything the configuration says; all defaults are filled in, except those that follow from the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[limits]`.
    pub limits: LimitsConfig,
    /// `[metrics]`.
    pub metrics: MetricsConfig,
    /// `[leader-election]`.
    pub leader_election: LeaderElectionConfig,
    /// `[traces]`.
    pub traces: TracesConfig,
    /// `[catalogs.NAME]`, by name; at least one.
    pub catalogs: BTreeMap<String, CatalogConfig>,
    /// `[defaults]` and `[[policies]]`.
    pub policies: PolicySet,
}

/// `[server]`: HTTP and the end of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// After SIGTERM, how long running work may take to come to an end.
    pub grace: Duration,
    /// Whoever knows it may make the daemon do something over HTTP; `None`: nobody may.
    pub admin_token: Option<Secret>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 9091)), grace: Duration::from_secs(30), admin_token: None }
    }
}

/// `[limits]`: what the process may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Bytes for rewriting; `None`: see [`detect_memory_bytes`].
    pub memory_bytes: Option<u64>,
    /// Tables maintained at the same time.
    pub concurrent_tables: usize,
    /// A run of one action is aborted after this. What an older run left behind is provably garbage.
    pub run_timeout: Duration,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { memory_bytes: None, concurrent_tables: 4, run_timeout: Duration::from_secs(6 * 60 * 60) }
    }
}

impl LimitsConfig {
    /// The memory budget in bytes: as configured, else as the machine allows.
    pub fn memory_budget_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(detect_memory_bytes)
    }
}

/// `[metrics]`: collection of table statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Time between two looks at a table.
    pub interval: Duration,
    /// Tables with series of their own; the rest shares `table="_other"`.
    pub max_tables: usize,
    /// `[metrics.pushgateway]`: where `once` pushes to.
    pub pushgateway: Option<PushgatewayConfig>,
}

/// `[metrics.pushgateway]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushgatewayConfig {
    /// Its address, before `/metrics`, without a slash at the end.
    pub url: String,
    /// The bearer token that it wants, if any.
    pub token: Option<Secret>,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5 * 60), max_tables: 1000, pushgateway: None }
    }
}

/// `[catalogs.NAME]`: an Iceberg REST catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogConfig {
    /// Base address, before `/v1`, without a slash at the end.
    pub uri: String,
    /// The warehouse asked for at `/v1/config`.
    pub warehouse: Option<String>,
    /// Path prefix of requests, if the catalog's own answer shall not decide.
    pub prefix: Option<String>,
    /// Settings as Iceberg names them, such as `s3.region`; they win over those of the catalog's defaults.
    pub properties: BTreeMap<String, PropertyValue>,
    /// How to prove who is asking.
    pub auth: AuthConfig,
}

impl CatalogConfig {
    /// All properties with their secrets read.
    pub fn resolve_properties(&self) -> Result<HashMap<String, String>> {
        let plain = self.properties.iter().filter_map(|(key, value)| match value {
            PropertyValue::Plain(text) => Some((key.clone(), text.clone())),
            PropertyValue::Secret(_) => None,
        });
        let mut properties = self.resolve_secret_properties()?;
        properties.extend(plain);
        Ok(properties)
    }

    /// Those of the properties that are secrets, read.
    pub fn resolve_secret_properties(&self) -> Result<HashMap<String, String>> {
        let resolve = |(key, value): (&String, &PropertyValue)| match value {
            PropertyValue::Plain(_) => None,
            PropertyValue::Secret(secret) => {
                let text = secret.resolve().context(|| format!("read property {key}"));
                Some(text.map(|text| (key.clone(), text.expose().to_owned())))
            }
        };
        self.properties.iter().filter_map(resolve).collect()
    }

    /// Every secret the catalog needs, with the key path it stands at.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &Secret)> {
        let auth = match &self.auth {
            AuthConfig::None => None,
            AuthConfig::Bearer { token } => Some(("auth.token".to_owned(), token)),
            AuthConfig::OAuth2 { credential, .. } => Some(("auth.credential".to_owned(), credential)),
        };
        let properties = self.properties.iter().filter_map(|(key, value)| match value {
            PropertyValue::Plain(_) => None,
            PropertyValue::Secret(secret) => Some((format!("properties.\"{key}\""), secret)),
        });
        auth.into_iter().chain(properties)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    /// As it stands in the file.
    Plain(String),
    /// Read when needed.
    Secret(Secret),
}

/// `auth` of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthConfig {
    /// No proof.
    None,
    /// A token sent as it is, read anew for each request so that it may be rotated.
    Bearer { token: Secret },
    /// OAuth2 client credentials.
    OAuth2 {
        /// `client-id:client-secret`.
        credential: Secret,
        scope: String,
        /// Token endpoint; `None`: `{uri}/v1/oauth/tokens`.
        server_uri: Option<String>,
    },
}

/// A usable configuration, with what is odd about it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedConfig {
    pub config: Config,
    /// All of severity [`crate::policy::Severity::Warning`].
    pub warnings: Vec<Problem>,
    /// The file it was read from, if it was.
    pub source: Option<ConfigFile>,
}

/// A configuration file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    pub path: PathBuf,
    /// What it said.
    pub text: String,
}

impl Config {
    pub fn load(path: &Path) -> Result<LoadedConfig, Problems> {
        let text = Self::read(path)?;
        let mut loaded = Self::parse(&path.display().to_string(), &text)?;
        loaded.source = Some(ConfigFile { path: path.to_owned(), text });
        Ok(loaded)
    }

    /// The text of a file of at most 16 MiB.
    pub fn read(path: &Path) -> Result<String, Problems> {
        let read = || -> std::io::Result<String> {
            let mut text = String::new();
            std::fs::File::open(path)?.take(FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
            if text.len() as u64 > FILE_MAX_BYTES {
                return Err(std::io::Error::other(format!("it is larger than {} MiB", FILE_MAX_BYTES >> 20)));
            }
            Ok(text)
        };
        read().map_err(|e| {
            let cure = "name an existing TOML file in UTF-8 with --config";
            Problems(vec![Problem::of_file(path, "", format!("cannot be read: {e}"), cure)])
        })
    }

    /// Validates the text of a file. Paths of secrets are taken relative to the folder of `file`, which is not read.
    pub fn parse(file: &str, text: &str) -> Result<LoadedConfig, Problems> {
        let diagnostics = problem::Diagnostics::new(file, text);
        let config = file::read(&diagnostics, text);
        let failed = diagnostics.has_errors();
        let problems = diagnostics.finish();
        match config {
            Some(config) if !failed => Ok(LoadedConfig { config, warnings: problems, source: None }),
            _ => Err(Problems(problems)),
        }
    }
}
