//! `[traces]`: where spans of runs go.

use std::collections::BTreeMap;

use super::Secret;
use super::file::{http_uri, read_secret, warn_of_clear_text};
use super::reader::{Section, TomlValue};
use crate::policy::SettingReader;

/// `[traces]`: spans of runs, sent by OTLP over HTTP.
#[derive(Debug, Clone, PartialEq)]
pub struct TracesConfig {
    /// Base address of the collector, without `/v1/traces`; `None`: no spans.
    pub endpoint: Option<String>,
    /// Share of the runs that are sent, above 0, at most 1.
    pub sample_ratio: f64,
    /// Further headers of each request.
    pub headers: BTreeMap<String, Secret>,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self { endpoint: None, sample_ratio: 1.0, headers: BTreeMap::new() }
    }
}

pub(super) fn read(mut section: Section<'_>) -> TracesConfig {
    let mut config = TracesConfig { endpoint: section.get("endpoint", http_uri), ..TracesConfig::default() };
    section.set("sample-ratio", &mut config.sample_ratio, TomlValue::ratio);
    let (diagnostics, place, path) = (section.diagnostics, section.key_place("headers"), section.path_of("headers"));
    for (name, _, item) in section.section("headers").iter().flat_map(Section::entries) {
        if reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
            item.error(format!("\"{name}\" is no name of an HTTP header"), "");
        }
        config.headers.extend(read_secret(&item).map(|secret| (name.to_owned(), secret)));
    }
    section.finish();
    if let Some(endpoint) = &config.endpoint {
        warn_of_clear_text(diagnostics, place.filter(|_| !config.headers.is_empty()), &path, endpoint, "endpoint");
    }
    config
}
