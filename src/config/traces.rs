//! `[traces]`: where spans of runs go.

use std::collections::BTreeMap;
use std::path::Path;

use super::Secret;
use super::file::{http_uri, read_secret, warn_of_clear_text};
use super::problem::Diagnostics;
use super::reader::{Section, ratio};

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

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>, base: &Path) -> TracesConfig {
    let default = TracesConfig::default();
    let endpoint = section.read(diagnostics, "endpoint", http_uri);
    let sample_ratio = section.read(diagnostics, "sample-ratio", ratio);
    let (mut headers, place, path) =
        (BTreeMap::new(), section.key_place(diagnostics, "headers"), section.path_of("headers"));
    if let Some(section) = section.section(diagnostics, "headers") {
        for (name, _, item) in section.entries() {
            if reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
                item.error(diagnostics, format!("\"{name}\" is no name of an HTTP header"), "");
            }
            headers.extend(read_secret(diagnostics, &item, base).map(|secret| (name.to_owned(), secret)));
        }
    }
    section.finish(diagnostics);
    if let Some(endpoint) = &endpoint {
        warn_of_clear_text(diagnostics, place.filter(|_| !headers.is_empty()), &path, &endpoint.value, "endpoint");
    }
    TracesConfig {
        endpoint: endpoint.map(|placed| placed.value),
        sample_ratio: sample_ratio.map_or(default.sample_ratio, |placed| placed.value),
        headers,
    }
}
