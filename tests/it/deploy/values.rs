//! What the chart may be given: values.yaml, its schema, and what is said about values that make no sense.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::{helm, read, root};

const VALUES: &str = "deploy/helm/icewright/values.yaml";

/// Every value by its path, with the comment above it.
fn values() -> BTreeMap<String, String> {
    let (mut found, mut path, mut comment) = (BTreeMap::new(), Vec::new(), String::new());
    for line in read(VALUES).lines() {
        let text = line.trim_start();
        if let Some(more) = text.strip_prefix("# -- ") {
            comment = more.to_owned();
        } else if let Some((key, value)) = text.split_once(':').filter(|_| !text.starts_with('#')) {
            path.truncate((line.len() - text.len()) / 2);
            path.push(key.to_owned());
            if !value.is_empty() {
                found.insert(path.join("."), std::mem::take(&mut comment));
            }
        }
    }
    found
}

#[test]
fn every_value_says_what_it_is_for() {
    let values = values();
    assert!(values.len() > 60, "{values:?}");
    for (path, comment) in values {
        assert!(comment.ends_with('.') || comment.len() > 40, "{path}: {comment:?}");
    }
}

fn templates(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("templates") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            templates(&path, text);
        } else {
            text.push_str(&std::fs::read_to_string(&path).expect("a template"));
        }
    }
}

/// Paths such as `image.tag` that stand after `prefix` in the templates.
fn used(text: &str, prefix: &str) -> BTreeSet<String> {
    let path = |(at, _): (usize, &str)| -> String {
        let rest = text[at + prefix.len()..].chars();
        rest.take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect()
    };
    text.match_indices(prefix).map(path).collect()
}

#[test]
fn every_value_is_used_and_every_used_one_is_there() {
    let mut text = String::new();
    templates(&root().join("deploy/helm/icewright/templates"), &mut text);
    let values = values();
    let named = used(&text, ".Values.");
    assert!(named.len() > 40, "{named:?}");
    for path in &named {
        let is_value = values.keys().any(|value| value == path || value.starts_with(&format!("{path}.")));
        assert!(is_value, "{path} is in no values.yaml");
    }
    // Inside `with .Values` and `with .Values.image` the first part is left out.
    let short: BTreeSet<String> = [" .", "(."].iter().flat_map(|prefix| used(&text, prefix)).collect();
    for path in values.keys() {
        let (parent, last) = path.rsplit_once('.').unwrap_or(("", path));
        let in_with = named.contains(parent) && short.contains(last);
        assert!(named.contains(path) || short.contains(path) || in_with, "{path} is used nowhere");
    }
}

/// Paths of a schema down to what takes anything or no object.
fn schema_paths(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    match schema["properties"].as_object().filter(|_| !path.ends_with("excerpt") && path != "resources") {
        Some(properties) => {
            assert_eq!(schema["additionalProperties"], false, "{path}");
            for (key, inner) in properties {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                schema_paths(inner, &path, found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    let schema: Value = serde_json::from_str(&read("deploy/helm/icewright/values.schema.json")).expect("JSON");
    let mut found = BTreeSet::new();
    schema_paths(&schema, "", &mut found);
    // Helm itself puts this there for subcharts.
    assert!(found.remove("global"));
    assert_eq!(found, values().into_keys().collect());
}

#[test]
fn values_that_make_no_sense_are_refused_with_a_cure() {
    let lake = "icewright/ci/default-values.yaml";
    let everything = "icewright/ci/everything-values.yaml";
    for (values, set, message) in [
        (None, "", "no configuration: give --set-file config=icewright.toml, or existingConfigMap.name"),
        (Some(lake), "existingConfigMap.name=x", "config and existingConfigMap.name: give one of them"),
        (
            Some(lake),
            "existingConfigMap.excerpt.server.grace=1m",
            "excerpt: leave it out, the chart reads config itself",
        ),
        (Some(lake), "replicas=2", "add to config: [leader-election] enabled = true"),
        (Some(lake), "replicas=-1", "at '/replicas': minimum: got -1, want 0"),
        (Some(lake), "replica=2", "additional properties 'replica' not allowed"),
        (Some(lake), "image.tags=1", "at '/image': additional properties 'tags' not allowed"),
        (Some(lake), "image.tag=latest", "image.tag: latest changes under a running release"),
        (Some(lake), "image.digest=sha256:1", "at '/image/digest': 'sha256:1' does not match pattern"),
        (Some(lake), "mode=job", "at '/mode': value must be one of 'deployment', 'cronjob'"),
        (Some(lake), "service.port=80", "at '/service/port': minimum: got 80, want 1,024"),
        (Some(lake), "memory=5GB", "at '/memory': '5GB' does not match pattern"),
        (Some(lake), "resources.limits.memory=5Gi", "resources.limits.memory: say memory instead"),
        (Some(lake), "secretEnv.X=y", "at '/secretEnv/X': got string, want object"),
        (Some(lake), "secretEnv.X.secret=y", "at '/secretEnv/X': missing property 'key'"),
        (Some(lake), "config=[", "config is not TOML"),
        (Some(lake), "config=server = 1", "config: server is no table; `icewright check` tells more"),
        (Some(lake), "config=server.grace = 30", "config: server.grace = 30 is not understood"),
        (Some(lake), "config=limits.memory = \"4 apples\"", "config: limits.memory = 4 apples is not understood"),
        (
            Some(lake),
            "config=leader-election.enabled = \"yes\"",
            "config: leader-election.enabled = yes is not understood",
        ),
        (
            Some(lake),
            "config=a = { env = \"LAKE\" }",
            "config reads the environment variable LAKE: give --set secretEnv.LAKE.secret=SECRET",
        ),
        (
            Some(lake),
            "config=a = { file = \"/secrets/lake/token\" }",
            "config reads /secrets/lake/token: give --set secretFiles.lake=SECRET",
        ),
        (Some(everything), "memory=5Gi,config=limits.memory = \"5GiB\"", "memory: 5Gi is too little for limits.memory"),
        (Some(everything), "mode=cronjob", "replicas above 1: has no meaning with mode=cronjob"),
        (Some(everything), "mode=cronjob", "podDisruptionBudget.enabled: has no meaning with mode=cronjob"),
        (Some(everything), "mode=cronjob", "serviceMonitor.enabled: with mode=cronjob nothing can be scraped"),
    ] {
        let files = values.map_or(vec![], |values| vec!["--values", values]);
        let output = helm(&[&["template", "keeper", "icewright", "--set", set], &files[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{set}: {message}\n{said}");
    }
}
