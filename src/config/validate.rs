//! What shows only when sections are looked at together.

use std::collections::BTreeMap;

use super::limits::{MEMORY_MIN_BYTES, USUAL_MEMORY_BYTES};
use super::problem::{Diagnostics, did_you_mean};
use super::{CatalogConfig, Config};
use crate::policy::Place;
use crate::policy::{
    Finding, Layer, Origin, Placed, PolicySet, ResolvedPolicy, Setting, Severity, TablePattern, check, key,
};
use crate::table::TableName;

/// `catalog_places` says where each catalog's name stands.
pub(super) fn validate(diagnostics: &Diagnostics<'_>, config: &Config, catalog_places: &BTreeMap<String, Place>) {
    if config.policies.policies.is_empty() {
        let place = Place { line: 1, column: 1, width: 1 };
        let cure = "add a [[policies]] section with name = \"...\" and tables = [\"catalog.namespace.*\"]";
        diagnostics.warning(place, "policies", "no table is maintained, since there is no policy", cure);
    }
    check_dead_patterns(diagnostics, config);
    check_same_catalogs(diagnostics, config, catalog_places);
    check_shadowed(diagnostics, &config.policies);
    check_contradictions(diagnostics, config);
}

/// Small groups fit any budget; those of usual size are refused one by one at run time, which is late to learn of it.
pub(super) fn check_memory(diagnostics: &Diagnostics<'_>, memory: &Placed<u64>) {
    let usual = USUAL_MEMORY_BYTES;
    if (MEMORY_MIN_BYTES..usual).contains(&memory.value) {
        let message = format!(
            "is too little for file groups of usual size: with row groups of 128 MiB, one thread needs {} MiB",
            usual >> 20
        );
        let cure = format!(
            "use at least \"{}MiB\", or give the tables a smaller write.parquet.row-group-size-bytes",
            usual >> 20
        );
        diagnostics.warning(memory.place, "limits.memory", message, cure);
    }
}

/// A pattern whose catalog is not configured never matches.
fn check_dead_patterns(diagnostics: &Diagnostics<'_>, config: &Config) {
    if config.catalogs.is_empty() {
        return;
    }
    for (i, layer) in config.policies.policies.iter().enumerate() {
        for pattern in &layer.tables {
            check_dead_pattern(diagnostics, config, &pattern.value, pattern.place, &format!("policies[{i}].tables"));
        }
    }
    let layers = config.policies.policies.iter().enumerate().map(|(i, layer)| (format!("policies[{i}]"), layer));
    for (section, layer) in std::iter::once(("defaults".to_owned(), &config.policies.defaults)).chain(layers) {
        let Some(place) = layer.said.get(key::IGNORE_UNREADABLE) else { continue };
        for pattern in &layer.values.remove_orphan_files.ignore_unreadable.0 {
            let key = format!("{section}.{}", key::IGNORE_UNREADABLE);
            check_dead_pattern(diagnostics, config, pattern, *place, &key);
        }
    }
}

fn check_dead_pattern(diagnostics: &Diagnostics<'_>, config: &Config, pattern: &TablePattern, place: Place, key: &str) {
    if config.catalogs.keys().any(|catalog| pattern.may_match_catalog(catalog)) {
        return;
    }
    let known: Vec<&str> = config.catalogs.keys().map(String::as_str).collect();
    let literal = pattern.literal_catalog();
    let cure = match literal.as_deref().and_then(|name| did_you_mean(name, known.iter().copied())) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("configured catalogs: {}", known.join(", ")),
    };
    let message = match literal {
        Some(name) => format!("never matches: catalog `{name}` is not configured"),
        None => "never matches: no configured catalog fits its first level".to_owned(),
    };
    diagnostics.error(place, key, message, cure);
}

/// Two names of one catalog: each table has both, so that none of its files may be deleted under either, and it is maintained under each
/// that a policy matches.
fn check_same_catalogs(diagnostics: &Diagnostics<'_>, config: &Config, places: &BTreeMap<String, Place>) {
    let address = |catalog: &CatalogConfig| (catalog.uri.clone(), catalog.warehouse.clone(), catalog.prefix.clone());
    let mut first_names: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    // One without a valid address is told of already.
    for (name, catalog) in config.catalogs.iter().filter(|(_, catalog)| !catalog.uri.is_empty()) {
        let before = first_names.entry(address(catalog)).or_default();
        if let (Some(first), Some(place)) = (before.first(), places.get(name)) {
            let twice = before.iter().any(|first| maintained_as_both(&config.policies, first, name));
            let also = if twice { ", and tables that policies match under both are maintained twice" } else { "" };
            let message =
                format!("is the catalog `{first}` again: each table has two names, so no file of it is deleted{also}");
            let cure = "keep one of the two".to_owned();
            let related = places.get(*first).map(|place| (*place, format!("catalogs.{first}"))).into_iter().collect();
            diagnostics.push(Severity::Warning, *place, &format!("catalogs.{name}"), message, cure, related);
        }
        before.push(name);
    }
}

/// Whether policies match some table under both names of its catalog. Each pattern stands for a table that it matches.
fn maintained_as_both(policies: &PolicySet, a: &str, b: &str) -> bool {
    let patterns = || policies.policies.iter().flat_map(|layer| &layer.tables);
    [(a, b), (b, a)].into_iter().any(|(one, other)| {
        patterns().filter(|pattern| pattern.value.may_match_catalog(one)).any(|pattern| {
            let table = TableName { catalog: other.to_owned(), ..pattern.value.example(one) };
            !policies.matching(&table).is_empty()
        })
    })
}

/// A policy of which later ones with the same patterns say everything anew is never heard.
fn check_shadowed(diagnostics: &Diagnostics<'_>, policies: &PolicySet) {
    for (i, layer) in policies.policies.iter().enumerate() {
        if layer.said.is_empty() || layer.tables.is_empty() {
            continue;
        }
        let later = &policies.policies[i + 1..];
        let overridden = |pattern: &TablePattern, key: &str| {
            later.iter().find(|other| other.tables.iter().any(|p| p.value == *pattern) && other.said.contains_key(key))
        };
        let all: Option<Vec<&Layer>> = layer
            .tables
            .iter()
            .flat_map(|pattern| layer.said.keys().map(move |key| overridden(&pattern.value, key)))
            .collect();
        let Some(others) = all else { continue };
        let mut names: Vec<String> = others.iter().filter_map(|other| other.name.as_ref()).map(quoted).collect();
        names.sort();
        names.dedup();
        let message = format!("is never heard: {} says all of it anew for the same tables", names.join(", "));
        let cure = "remove it, or give it other tables";
        diagnostics.warning(layer.tables[0].place, &format!("policies[{i}]"), message, cure);
    }
}

fn quoted(name: &std::sync::Arc<str>) -> String {
    format!("policy \"{name}\"")
}

/// Contradictions in the defaults alone, and wherever policies meet: each pattern stands for a table that it matches.
fn check_contradictions(diagnostics: &Diagnostics<'_>, config: &Config) {
    let policies = &config.policies;
    // A value that could not be read contradicts nothing: its default is not what was meant.
    let unreadable: Vec<&str> = Setting::KEYS.iter().copied().filter(|key| diagnostics.is_unreadable(key)).collect();
    let report = |resolved: &ResolvedPolicy| {
        let readable = |finding: &Finding| {
            !unreadable.contains(&finding.key) && finding.other.is_none_or(|other| !unreadable.contains(&other))
        };
        for finding in check(resolved).into_iter().filter(readable) {
            report_finding(diagnostics, policies, resolved, finding);
        }
    };
    report(&policies.merge(&[]));
    for layer in &policies.policies {
        // Also where the tables or their catalog are mistakes themselves: what the policy says is checked all the same.
        if layer.tables.is_empty() {
            report(&policies.merge(&[layer]));
        }
        for pattern in &layer.tables {
            let configured = config.catalogs.keys().find(|name| pattern.value.may_match_catalog(name)).cloned();
            let catalog =
                configured.or_else(|| pattern.value.literal_catalog()).unwrap_or_else(|| "catalog".to_owned());
            report(&policies.merge(&policies.matching(&pattern.value.example(&catalog))));
        }
    }
}

fn report_finding(diagnostics: &Diagnostics<'_>, policies: &PolicySet, resolved: &ResolvedPolicy, finding: Finding) {
    let path = |origin: &Origin, key: &str| match origin {
        Origin::BuiltIn => key.to_owned(),
        Origin::Defaults(_) => format!("defaults.{key}"),
        Origin::Policy(name, _) => {
            let at = policies.policies.iter().position(|layer| layer.name.as_ref() == Some(name)).unwrap_or(0);
            format!("policies[{at}].{key}")
        }
    };
    let said = |key: &'static str| (resolved.key_in_file(key), resolved.origin(key));
    let mut here = said(finding.key);
    let mut there = finding.other.map(said);
    let mut message = finding.message;
    // Point at what the file says; a built-in default is named in the text.
    if let (None, Some(other)) = (here.1.place(), there)
        && other.1.place().is_some()
    {
        message = format!("{}: {message}", here.0);
        there = Some(here);
        here = other;
    }
    let related = match there {
        Some((key, origin)) => match origin.place() {
            Some(place) => vec![(place, path(origin, key))],
            None => {
                message = format!("{message} ({key} has its built-in default)");
                Vec::new()
            }
        },
        None => Vec::new(),
    };
    // Only the built-in defaults: they do not contradict each other.
    let Some(place) = here.1.place() else { return };
    diagnostics.push(finding.severity, place, &path(here.1, here.0), message, finding.cure, related);
}
