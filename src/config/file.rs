//! The sections of the file, apart from policies.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::limits::MEMORY_MIN_BYTES;
use super::policy_file::{read_defaults, read_policies};
use super::problem::{Diagnostics, Place};
use super::reader::{Item, Section, count, duration, size, string};
use super::validate::{check_memory, validate};
use super::{
    Auth, CatalogConfig, Config, LimitsConfig, MetricsConfig, PropertyValue, PushgatewayConfig, Secret, ServerConfig,
    leader_election, traces,
};
use crate::policy::PolicySet;

/// Endings of property names whose values are secrets.
const SECRET_PROPERTIES: [&str; 9] = [
    "secret-access-key",
    "session-token",
    "token",
    "credential",
    "password",
    "secret",
    "account-key",
    "sas-token",
    "private-key",
];

/// Reads a whole file; `None` if it is no TOML.
pub(super) fn read(diagnostics: &mut Diagnostics<'_>, text: &str, base: &Path) -> Option<Config> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let span = error.span().unwrap_or(text.len()..text.len());
            blank_line_with_secret(diagnostics, text, span.start);
            diagnostics.error(diagnostics.place(&span), "", format!("not TOML: {}", error.message()), "");
        }
        return None;
    }
    let mut root = Section::new(document.get_ref(), "", 0..0);
    let server = root.section(diagnostics, "server").map(|s| read_server(diagnostics, s, base)).unwrap_or_default();
    let limits = root.section(diagnostics, "limits").map(|s| read_limits(diagnostics, s)).unwrap_or_default();
    let metrics = root.section(diagnostics, "metrics").map(|s| read_metrics(diagnostics, s, base)).unwrap_or_default();
    let leader_election = root.section(diagnostics, "leader-election");
    let leader_election = leader_election.map(|s| leader_election::read(diagnostics, s)).unwrap_or_default();
    let traces = root.section(diagnostics, "traces").map(|s| traces::read(diagnostics, s, base)).unwrap_or_default();
    let (catalogs, catalog_places) = read_catalogs(diagnostics, &mut root, base);
    let defaults = root.section(diagnostics, "defaults").map(|s| read_defaults(diagnostics, s)).unwrap_or_default();
    let policies = root.take("policies").map(|item| read_policies(diagnostics, &item)).unwrap_or_default();
    root.finish(diagnostics);
    let policies = PolicySet { defaults, policies };
    let config = Config { server, limits, metrics, leader_election, traces, catalogs, policies };
    validate(diagnostics, &config, &catalog_places);
    Some(config)
}

/// A line that does not parse might hold a secret all the same.
fn blank_line_with_secret(diagnostics: &mut Diagnostics<'_>, text: &str, at: usize) {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |i| i + 1);
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("");
    if SECRET_PROPERTIES.iter().any(|word| line.contains(word)) {
        let value = line.find('=').map_or(start, |i| start + i + 1);
        diagnostics.blank(value..start + line.len());
    }
}

fn read_server(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>, base: &Path) -> ServerConfig {
    let default = ServerConfig::default();
    let listen = section.read(diagnostics, "listen", address);
    let grace = section.read(diagnostics, "grace", duration);
    let admin_token = section.take("admin-token").and_then(|item| read_secret(diagnostics, &item, base));
    section.finish(diagnostics);
    ServerConfig {
        admin_token,
        listen: listen.map_or(default.listen, |placed| placed.value),
        grace: grace.map_or(default.grace, |placed| placed.value),
    }
}

fn address(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<SocketAddr> {
    let text = item.str(diagnostics)?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let cure = "write an IP address and a port, such as \"0.0.0.0:9091\", \"127.0.0.1:9091\" or \"[::]:9091\"";
        item.error(diagnostics, format!("\"{text}\" is no address to listen on"), cure);
    }
    parsed
}

fn read_limits(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>) -> LimitsConfig {
    let default = LimitsConfig::default();
    let memory = section.read(diagnostics, "memory", |diagnostics, item| {
        let bytes = size(diagnostics, item)?;
        if bytes < MEMORY_MIN_BYTES {
            item.error(diagnostics, "is too little to rewrite files in", "use at least \"64MiB\"");
        }
        Some(bytes)
    });
    let concurrent_tables = section.read(diagnostics, "concurrent-tables", count(1));
    let run_timeout = section.read(diagnostics, "run-timeout", duration);
    section.finish(diagnostics);
    if let Some(memory) = &memory {
        check_memory(diagnostics, memory);
    }
    LimitsConfig {
        memory_bytes: memory.map(|placed| placed.value),
        concurrent_tables: concurrent_tables.map_or(default.concurrent_tables, |placed| placed.value),
        run_timeout: run_timeout.map_or(default.run_timeout, |placed| placed.value),
    }
}

fn read_metrics(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>, base: &Path) -> MetricsConfig {
    let default = MetricsConfig::default();
    let interval = section.read(diagnostics, "interval", duration);
    let max_tables = section.read(diagnostics, "max-tables", count(1));
    let pushgateway = section.section(diagnostics, "pushgateway");
    let pushgateway = pushgateway.and_then(|s| read_pushgateway(diagnostics, s, base));
    section.finish(diagnostics);
    MetricsConfig {
        interval: interval.map_or(default.interval, |placed| placed.value),
        max_tables: max_tables.map_or(default.max_tables, |placed| placed.value),
        pushgateway,
    }
}

fn read_pushgateway(
    diagnostics: &mut Diagnostics<'_>,
    mut section: Section<'_, '_>,
    base: &Path,
) -> Option<PushgatewayConfig> {
    let url = section.read(diagnostics, "url", http_uri);
    if section.key_place(diagnostics, "url").is_none() {
        section.missing(diagnostics, "url", "add url = \"http://...\", the address before /metrics");
    }
    let place = section.key_place(diagnostics, "token");
    let token = section.take("token").and_then(|item| read_secret(diagnostics, &item, base));
    let path = section.path_of("token");
    section.finish(diagnostics);
    let url = url?.value;
    warn_of_clear_text(diagnostics, place, &path, &url, "url");
    Some(PushgatewayConfig { url, token })
}

/// The catalogs, and where each one's name stands.
fn read_catalogs(
    diagnostics: &mut Diagnostics<'_>,
    root: &mut Section<'_, '_>,
    base: &Path,
) -> (BTreeMap<String, CatalogConfig>, BTreeMap<String, Place>) {
    let (mut catalogs, mut places) = (BTreeMap::new(), BTreeMap::new());
    if let Some(section) = root.section(diagnostics, "catalogs") {
        for (name, key_span, item) in section.entries() {
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') || name.is_empty() {
                let place = diagnostics.place(&key_span);
                diagnostics.error(place, &item.path, "is no name for a catalog", "use letters, digits, `-` and `_`");
            }
            if let Some(section) = item.section(diagnostics) {
                let catalog = read_catalog(diagnostics, section, base);
                catalogs.insert(name.to_owned(), catalog);
                places.insert(name.to_owned(), diagnostics.place(&key_span));
            }
        }
    }
    if catalogs.is_empty() {
        let place = Place { line: 1, column: 1, width: 1 };
        let place = root.key_place(diagnostics, "catalogs").unwrap_or(place);
        let cure = "add a section [catalogs.NAME] with at least uri = \"http://...\"";
        diagnostics.error(place, "catalogs", "no catalog is configured", cure);
    }
    (catalogs, places)
}

fn read_catalog(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>, base: &Path) -> CatalogConfig {
    let uri = section.read(diagnostics, "uri", http_uri);
    if section.key_place(diagnostics, "uri").is_none() {
        section.missing(diagnostics, "uri", "add uri = \"http://...\", the address before /v1");
    }
    let warehouse = section.read(diagnostics, "warehouse", string);
    let prefix = section.read(diagnostics, "prefix", string);
    let properties = section.section(diagnostics, "properties");
    let properties = properties.map(|s| read_properties(diagnostics, s, base)).unwrap_or_default();
    let auth_place = section.key_place(diagnostics, "auth");
    let auth = section.section(diagnostics, "auth").and_then(|s| read_auth(diagnostics, s, base));
    let auth = auth.unwrap_or(Auth::None);
    let path = section.path_of("auth");
    section.finish(diagnostics);
    let uri = uri.map(|placed| placed.value).unwrap_or_default();
    warn_of_clear_text(diagnostics, auth_place.filter(|_| auth != Auth::None), &path, &uri, "catalog's uri");
    CatalogConfig {
        uri,
        warehouse: warehouse.map(|placed| placed.value),
        prefix: prefix.map(|placed| placed.value),
        properties,
        auth,
    }
}

/// A secret at `place`, if there is one, should not go to another machine as it is.
pub(super) fn warn_of_clear_text(
    diagnostics: &mut Diagnostics<'_>,
    place: Option<Place>,
    path: &str,
    uri: &str,
    what: &str,
) {
    if let Some(place) = place.filter(|_| sent_in_the_clear(uri)) {
        let message = format!("the secret travels unencrypted, since the {what} is plain http");
        diagnostics.warning(place, path, message, "use https, unless something else protects the way");
    }
}

/// Plain HTTP to another machine.
fn sent_in_the_clear(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("http://") else { return false };
    let host = rest.split('/').next().unwrap_or("");
    let host = host.rsplit_once(':').map_or(host, |(name, port)| if port.contains(']') { host } else { name });
    !(host == "localhost" || host.starts_with("127.") || host == "[::1]")
}

pub(super) fn http_uri(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<String> {
    let text = item.str(diagnostics)?;
    let before_path = text.split_once("://").map_or(text, |(_, rest)| rest).split(['/', '?', '#']).next();
    if before_path.is_some_and(|authority| authority.contains('@')) {
        diagnostics.blank(item.span.clone());
        item.error(diagnostics, "holds a user name or password", "leave it out; secrets have keys of their own");
        return None;
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or(""));
    match authority {
        Some(authority) if !authority.is_empty() && !text.contains(['?', '#', ' ']) => {
            Some(text.trim_end_matches('/').to_owned())
        }
        _ => {
            let cure = "write an address such as \"https://catalog.example.com/api/catalog\", without a query";
            item.error(diagnostics, format!("\"{text}\" is no http or https address"), cure);
            None
        }
    }
}

fn read_properties(
    diagnostics: &mut Diagnostics<'_>,
    section: Section<'_, '_>,
    base: &Path,
) -> BTreeMap<String, PropertyValue> {
    let mut properties = BTreeMap::new();
    for (name, _, item) in section.entries() {
        let last = name.rsplit('.').next().unwrap_or(name);
        let secret_name = SECRET_PROPERTIES.iter().any(|word| last == *word || last.ends_with(&format!("-{word}")));
        let value = if secret_name || matches!(item.value, DeValue::Table(_)) {
            read_secret(diagnostics, &item, base).map(PropertyValue::Secret)
        } else {
            item.str(diagnostics).map(|text| PropertyValue::Plain(text.to_owned()))
        };
        if let Some(value) = value {
            properties.insert(name.to_owned(), value);
        }
    }
    properties
}

fn read_auth(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>, base: &Path) -> Option<Auth> {
    // Someone may have put a secret under a misspelt key, and its line will be shown.
    for (key, _, item) in section.entries() {
        if !matches!(key, "type" | "scope" | "server-uri") && matches!(item.value, DeValue::String(_)) {
            diagnostics.blank(item.span.clone());
        }
    }
    const TYPES: &[(&str, u8)] = &[("none", 0), ("bearer", 1), ("oauth2", 2)];
    let has_type = section.key_place(diagnostics, "type").is_some();
    if !has_type {
        section.missing(diagnostics, "type", "add type = \"none\", \"bearer\" or \"oauth2\"");
    }
    let kind = section.read(diagnostics, "type", super::reader::one_of(TYPES))?.value;
    let auth = match kind {
        0 => Some(Auth::None),
        1 => required_secret(diagnostics, &mut section, "token", base).map(|token| Auth::Bearer { token }),
        _ => {
            let credential = required_secret(diagnostics, &mut section, "credential", base);
            let scope = section.read(diagnostics, "scope", string);
            let server_uri = section.read(diagnostics, "server-uri", http_uri);
            credential.map(|credential| Auth::OAuth2 {
                credential,
                scope: scope.map_or_else(|| "catalog".to_owned(), |placed| placed.value),
                server_uri: server_uri.map(|placed| placed.value),
            })
        }
    };
    section.finish(diagnostics);
    auth
}

fn required_secret(
    diagnostics: &mut Diagnostics<'_>,
    section: &mut Section<'_, '_>,
    key: &'static str,
    base: &Path,
) -> Option<Secret> {
    let Some(item) = section.take(key) else {
        section.missing(diagnostics, key, &format!("add {key} = {{ env = \"NAME\" }} or {{ file = \"PATH\" }}"));
        return None;
    };
    read_secret(diagnostics, &item, base)
}

/// `{ env = "NAME" }` or `{ file = "PATH" }`.
pub(super) fn read_secret(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>, base: &Path) -> Option<Secret> {
    const CURE: &str = "write { env = \"NAME\" } or { file = \"PATH\" }";
    if !matches!(item.value, DeValue::Table(_)) {
        diagnostics.blank(item.span.clone());
        item.error(diagnostics, "a secret must not stand in the file", CURE);
        return None;
    }
    let mut section = item.section(diagnostics)?;
    for (_, _, inner) in section.entries() {
        // Until it proves to be a name, it might be the secret itself.
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !matches!(inner.value, DeValue::String(text) if is_name(text)) {
            diagnostics.blank(inner.span.clone());
        }
    }
    let env = section.read(diagnostics, "env", |diagnostics, item| {
        let name = item.str(diagnostics)?;
        let usable = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !usable {
            item.error(diagnostics, "is no name of an environment variable", "use letters, digits and `_`");
        }
        usable.then(|| name.to_owned())
    });
    let file = section.read(diagnostics, "file", string);
    let given = ["env", "file"].iter().filter(|key| section.key_place(diagnostics, key).is_some()).count();
    section.finish(diagnostics);
    if given != 1 {
        item.error(diagnostics, "needs exactly one of `env` and `file`", CURE);
        return None;
    }
    match (env, file) {
        (Some(env), _) => Some(Secret::Env(env.value)),
        (None, Some(file)) => Some(Secret::File(base.join(file.value))),
        (None, None) => None,
    }
}
