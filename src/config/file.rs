//! The sections of the file, apart from policies.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use toml::de::{DeTable, DeValue};

use super::limits::MEMORY_MIN_BYTES;
use super::policy_file::{read_defaults, read_policies};
use super::problem::Diagnostics;
use super::reader::{Section, TomlValue};
use super::validate::{check_memory, validate};
use super::{
    AuthConfig, CatalogConfig, Config, LimitsConfig, MetricsConfig, PropertyValue, PushgatewayConfig, Secret,
    ServerConfig, leader_election, traces,
};
use crate::policy::Place;
use crate::policy::{PolicySet, SettingReader};

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
pub(super) fn read(diagnostics: &Diagnostics<'_>, text: &str) -> Option<Config> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let span = error.span().unwrap_or(text.len()..text.len());
            blank_line_with_secret(diagnostics, text, span.start);
            diagnostics.error(diagnostics.place(&span), "", format!("not TOML: {}", error.message()), "");
        }
        return None;
    }
    let mut root = Section::root(diagnostics, document.get_ref());
    let server = root.section("server").map(read_server).unwrap_or_default();
    let limits = root.section("limits").map(read_limits).unwrap_or_default();
    let metrics = root.section("metrics").map(read_metrics).unwrap_or_default();
    let leader_election = root.section("leader-election").map(leader_election::read).unwrap_or_default();
    let traces = root.section("traces").map(traces::read).unwrap_or_default();
    let (catalogs, catalog_places) = read_catalogs(&mut root);
    let defaults = root.section("defaults").map(read_defaults).unwrap_or_default();
    let policies = root.take("policies").as_ref().map(read_policies).unwrap_or_default();
    root.finish();
    let policies = PolicySet { defaults, policies };
    let config = Config { server, limits, metrics, leader_election, traces, catalogs, policies };
    validate(diagnostics, &config, &catalog_places);
    Some(config)
}

/// A line that does not parse might hold a secret all the same.
fn blank_line_with_secret(diagnostics: &Diagnostics<'_>, text: &str, at: usize) {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |i| i + 1);
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("");
    if SECRET_PROPERTIES.iter().any(|word| line.contains(word)) {
        let value = line.find('=').map_or(start, |i| start + i + 1);
        diagnostics.blank(value..start + line.len());
    }
}

fn read_server(mut section: Section<'_>) -> ServerConfig {
    let mut config = ServerConfig::default();
    section.set("listen", &mut config.listen, address);
    section.set("grace", &mut config.grace, TomlValue::duration);
    config.admin_token = section.get("admin-token", read_secret);
    section.finish();
    config
}

fn address(item: &TomlValue<'_>) -> Option<SocketAddr> {
    let text = item.str()?;
    let cure = "write an IP address and a port, such as \"0.0.0.0:9091\", \"127.0.0.1:9091\" or \"[::]:9091\"";
    text.parse().map_or_else(|_| item.refuse(format!("\"{text}\" is no address to listen on"), cure), Some)
}

fn read_limits(mut section: Section<'_>) -> LimitsConfig {
    let mut config = LimitsConfig::default();
    let memory = section.read("memory", |item| {
        let bytes = item.size()?;
        if bytes < MEMORY_MIN_BYTES {
            item.error("is too little to rewrite files in", "use at least \"64MiB\"");
        }
        Some(bytes)
    });
    section.set("concurrent-tables", &mut config.concurrent_tables, |item| item.count(1));
    section.set("run-timeout", &mut config.run_timeout, TomlValue::duration);
    if let Some(memory) = &memory {
        check_memory(section.diagnostics, memory);
    }
    section.finish();
    LimitsConfig { memory_bytes: memory.map(|placed| placed.value), ..config }
}

fn read_metrics(mut section: Section<'_>) -> MetricsConfig {
    let mut config = MetricsConfig::default();
    section.set("interval", &mut config.interval, TomlValue::duration);
    section.set("max-tables", &mut config.max_tables, |item| item.count(1));
    config.pushgateway = section.section("pushgateway").and_then(read_pushgateway);
    section.finish();
    config
}

fn read_pushgateway(mut section: Section<'_>) -> Option<PushgatewayConfig> {
    let url = section.required("url", "add url = \"http://...\", the address before /metrics", http_uri);
    let token = section.get("token", read_secret);
    let (diagnostics, place, path) = (section.diagnostics, section.key_place("token"), section.path_of("token"));
    section.finish();
    let url = url?.value;
    warn_of_clear_text(diagnostics, place, &path, &url, "url");
    Some(PushgatewayConfig { url, token })
}

/// The catalogs, and where each one's name stands.
fn read_catalogs(root: &mut Section<'_>) -> (BTreeMap<String, CatalogConfig>, BTreeMap<String, Place>) {
    let (mut catalogs, mut places) = (BTreeMap::new(), BTreeMap::new());
    let diagnostics = root.diagnostics;
    for (name, key_span, item) in root.section("catalogs").iter().flat_map(Section::entries) {
        let place = diagnostics.place(&key_span);
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') || name.is_empty() {
            diagnostics.error(place, &item.path, "is no name for a catalog", "use letters, digits, `-` and `_`");
        }
        if let Some(section) = item.section() {
            catalogs.insert(name.to_owned(), read_catalog(section));
            places.insert(name.to_owned(), place);
        }
    }
    if catalogs.is_empty() {
        let place = Place { line: 1, column: 1, width: 1 };
        let place = root.key_place("catalogs").unwrap_or(place);
        let cure = "add a section [catalogs.NAME] with at least uri = \"http://...\"";
        diagnostics.error(place, "catalogs", "no catalog is configured", cure);
    }
    (catalogs, places)
}

fn read_catalog(mut section: Section<'_>) -> CatalogConfig {
    let uri = section.required("uri", "add uri = \"http://...\", the address before /v1", http_uri);
    let uri = uri.map(|placed| placed.value).unwrap_or_default();
    let warehouse = section.get("warehouse", TomlValue::string);
    let prefix = section.get("prefix", TomlValue::string);
    let properties = section.section("properties").map(read_properties).unwrap_or_default();
    let auth = section.section("auth").and_then(read_auth).unwrap_or(AuthConfig::None);
    let auth_place = section.key_place("auth").filter(|_| auth != AuthConfig::None);
    warn_of_clear_text(section.diagnostics, auth_place, &section.path_of("auth"), &uri, "catalog's uri");
    section.finish();
    CatalogConfig { uri, warehouse, prefix, properties, auth }
}

/// A secret at `place`, if there is one, should not go to another machine as it is.
pub(super) fn warn_of_clear_text(
    diagnostics: &Diagnostics<'_>,
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

pub(super) fn http_uri(item: &TomlValue<'_>) -> Option<String> {
    let text = item.str()?;
    let before_path = text.split_once("://").map_or(text, |(_, rest)| rest).split(['/', '?', '#']).next();
    if before_path.is_some_and(|authority| authority.contains('@')) {
        item.diagnostics.blank(item.span.clone());
        return item.refuse("holds a user name or password", "leave it out; secrets have keys of their own");
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or(""));
    match authority {
        Some(authority) if !authority.is_empty() && !text.contains(['?', '#', ' ']) => {
            Some(text.trim_end_matches('/').to_owned())
        }
        _ => {
            let cure = "write an address such as \"https://catalog.example.com/api/catalog\", without a query";
            item.refuse(format!("\"{text}\" is no http or https address"), cure)
        }
    }
}

fn read_properties(section: Section<'_>) -> BTreeMap<String, PropertyValue> {
    let read = |(name, _, item): (&str, _, TomlValue<'_>)| {
        let last = name.rsplit('.').next().unwrap_or(name);
        let secret_name = SECRET_PROPERTIES.iter().any(|word| last == *word || last.ends_with(&format!("-{word}")));
        let value = if secret_name || matches!(item.value, DeValue::Table(_)) {
            PropertyValue::Secret(read_secret(&item)?)
        } else {
            PropertyValue::Plain(item.str()?.to_owned())
        };
        Some((name.to_owned(), value))
    };
    section.entries().filter_map(read).collect()
}

fn read_auth(mut section: Section<'_>) -> Option<AuthConfig> {
    // Someone may have put a secret under a misspelt key, and its line will be shown.
    for (key, _, item) in section.entries() {
        if !matches!(key, "type" | "scope" | "server-uri") && matches!(item.value, DeValue::String(_)) {
            item.diagnostics.blank(item.span.clone());
        }
    }
    const TYPES: &[(&str, u8)] = &[("none", 0), ("bearer", 1), ("oauth2", 2)];
    let cure = "add type = \"none\", \"bearer\" or \"oauth2\"";
    let auth = match section.required("type", cure, |item| item.one_of(TYPES))?.value {
        0 => Some(AuthConfig::None),
        1 => required_secret(&mut section, "token").map(|token| AuthConfig::Bearer { token }),
        _ => {
            let credential = required_secret(&mut section, "credential");
            let scope = section.get("scope", TomlValue::string).unwrap_or_else(|| "catalog".to_owned());
            let server_uri = section.get("server-uri", http_uri);
            credential.map(|credential| AuthConfig::OAuth2 { credential, scope, server_uri })
        }
    };
    section.finish();
    auth
}

fn required_secret(section: &mut Section<'_>, key: &'static str) -> Option<Secret> {
    let cure = format!("add {key} = {{ env = \"NAME\" }} or {{ file = \"PATH\" }}");
    section.required(key, &cure, read_secret).map(|placed| placed.value)
}

/// `{ env = "NAME" }` or `{ file = "PATH" }`.
pub(super) fn read_secret(item: &TomlValue<'_>) -> Option<Secret> {
    const CURE: &str = "write { env = \"NAME\" } or { file = \"PATH\" }";
    if !matches!(item.value, DeValue::Table(_)) {
        item.diagnostics.blank(item.span.clone());
        return item.refuse("a secret must not stand in the file", CURE);
    }
    let mut section = item.section()?;
    for (_, _, inner) in section.entries() {
        // Until it proves to be a name, it might be the secret itself.
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !matches!(inner.value, DeValue::String(text) if is_name(text)) {
            inner.diagnostics.blank(inner.span.clone());
        }
    }
    let env = section.get("env", |item| {
        let name = item.str()?;
        let usable = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !usable {
            item.error("is no name of an environment variable", "use letters, digits and `_`");
        }
        usable.then(|| Secret::Env(name.to_owned()))
    });
    let file = section.get("file", |item| Some(Secret::File(item.diagnostics.beside(&item.string()?))));
    let both_or_none = section.has("env") == section.has("file");
    section.finish();
    if both_or_none { item.refuse("needs exactly one of `env` and `file`", CURE) } else { env.or(file) }
}
