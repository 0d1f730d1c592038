//! `[defaults]` and `[[policies]]`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::reader::{Section, TomlValue};
use crate::policy::{Layer, Placed, Schedule, Setting, Severity, key};

pub(super) fn read_defaults(mut section: Section<'_>) -> Layer {
    for key in ["name", "tables"] {
        if let Some(item) = section.take(key) {
            item.error("the defaults hold for every policy", "move it to a [[policies]] section");
        }
    }
    let mut layer = Layer::default();
    read_settings(&mut section, "", &mut layer);
    section.finish_with(|key| belongs_below(key, "defaults"));
    layer
}

pub(super) fn read_policies(item: &TomlValue<'_>) -> Vec<Layer> {
    let mut policies: Vec<Layer> = Vec::new();
    let mut names: Vec<Placed<String>> = Vec::new();
    for item in item.elements().unwrap_or_default() {
        let Some(mut section) = item.section() else { continue };
        let cure = "add name = \"...\": reports and `plan` call the policy by it";
        let name = section.required("name", cure, TomlValue::string);
        let tables = section.required("tables", "add tables = [\"catalog.namespace.*\"]", |item| {
            let patterns = item.placed_patterns()?;
            if item.elements()?.is_empty() {
                item.error("names no table", "add a pattern such as \"catalog.namespace.*\"");
            }
            Some(patterns)
        });
        let tables = tables.map(|placed| placed.value).unwrap_or_default();
        let mut layer = Layer { name: Some(Arc::from("")), tables, ..Layer::default() };
        read_settings(&mut section, "", &mut layer);
        let path = section.path_of("name");
        section.finish_with(|key| belongs_below(key, "policies"));
        if let Some(name) = name {
            layer.name = Some(Arc::from(name.value.as_str()));
            if let Some(first) = names.iter().find(|known| known.value == name.value) {
                let message = format!("two policies are called \"{}\"", name.value);
                let related = vec![(first.place, "the first one".to_owned())];
                let cure = "give each policy a name of its own".to_owned();
                item.diagnostics.push(Severity::Error, name.place, &path, message, cure, related);
            }
            names.push(name);
        }
        policies.push(layer);
    }
    policies
}

/// The cure for a key that stands beside the actions (`section` says where) and belongs to one of them or to several.
/// Iceberg's own options are often written with underscores.
fn belongs_below(key: &str, section: &str) -> Option<String> {
    let key = key.replace('_', "-");
    let mut places = BTreeSet::new();
    for path in Setting::KEYS.iter().copied().chain(["rewrite-data-files.strategy"]) {
        let parts: Vec<&str> = path.split('.').collect();
        if let Some(at) = parts.iter().skip(1).position(|part| *part == key) {
            places.insert(format!("[{section}.{}]", parts[..=at].join(".")));
        }
    }
    let places = places.into_iter().reduce(|list, place| format!("{list} or {place}"))?;
    Some(format!("`{key}` belongs under {places}"))
}

/// Reads the settings whose keys begin with `prefix`, which is the path of the section.
fn read_settings(section: &mut Section<'_>, prefix: &str, layer: &mut Layer) {
    for setting in Setting::ALL {
        let Some(rest) = setting.key.strip_prefix(prefix) else { continue };
        match rest.split_once('.') {
            Some((name, _)) if section.was_asked(name) => {}
            Some((name, _)) => {
                if let Some(mut inner) = section.section(name) {
                    read_settings(&mut inner, &format!("{prefix}{name}."), layer);
                    inner.finish();
                }
            }
            None => {
                let read = section.read(rest, |item| (setting.read)(item, &mut layer.values));
                layer.said.extend(read.map(|placed| (setting.key, placed.place)));
                match setting.key {
                    key::SCHEDULE => read_every(section, layer),
                    key::REWRITE_ENABLED => section.get("strategy", check_strategy).unwrap_or_default(),
                    _ => {}
                }
            }
        }
    }
}

/// The other key that sets the schedule.
fn read_every(section: &mut Section<'_>, layer: &mut Layer) {
    let every = section.read("every", TomlValue::period);
    if let (Some(schedule), Some(every)) = (section.key_place("schedule"), section.key_place("every")) {
        let related = vec![(schedule, "the schedule".to_owned())];
        let cure = "keep one: `schedule` for times of day, `every` for a distance".to_owned();
        let message = "cannot stand beside `schedule`".to_owned();
        section.diagnostics.push(Severity::Error, every, &section.path_of("every"), message, cure, related);
    }
    if let Some(every) = every.filter(|_| !layer.said.contains_key(key::SCHEDULE)) {
        layer.values.schedule = Schedule::Every(every.value);
        layer.said.insert(key::SCHEDULE, every.place);
    }
}

fn check_strategy(item: &TomlValue<'_>) -> Option<()> {
    match item.str()? {
        "binpack" => {}
        text @ ("sort" | "zorder" | "z-order" | "zsort") => {
            item.error(format!("strategy \"{text}\" is not in this version"), "use \"binpack\", or leave it out");
        }
        text => item.error(format!("there is no strategy \"{text}\""), "use \"binpack\""),
    }
    None
}
