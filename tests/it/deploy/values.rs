//! What the chart may be given: values.yaml, its schema, and what is said about values that make no sense.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use icewright::config::Config;
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
    let existing = "icewright/ci/existing-values.yaml";
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
        (Some(lake), "config=[", "config: no TOML"),
        (
            Some(lake),
            "config=catalogs.a.token = { env = \"LAKE\" }",
            "config reads the environment variable LAKE: give --set secretEnv.LAKE.secret=SECRET",
        ),
        (
            Some(lake),
            "config=catalogs.a.token = { file = \"/secrets/lake/token\" }",
            "config reads /secrets/lake/token: give --set secretFiles.lake=SECRET",
        ),
        (
            Some(lake),
            "memory=16Mi",
            "memory: 16Mi is too little for the least budget, 64 MiB, and the process itself: 320Mi",
        ),
        (Some(lake), "memory=319Mi", "320Mi; give that or more, or leave memory out"),
        (Some(existing), "memory=512Mi", "memory: 512Mi is too little for limits.memory = \"512MiB\" in config: 768Mi"),
        (
            Some(existing),
            "existingConfigMap.excerpt.limits.memory=63MiB",
            "existingConfigMap.excerpt: limits.memory = \"63MiB\": write at least \"64MiB\"",
        ),
        (
            Some(existing),
            "existingConfigMap.excerpt.leader-election.enabled=yes",
            "at '/existingConfigMap/excerpt/leader-election/enabled': got string, want boolean",
        ),
        (Some(lake), "cronjob.schedule=@hourly", "at '/cronjob/schedule': '@hourly' does not match pattern"),
        (Some(lake), "cronjob.schedule=5 * * *", "at '/cronjob/schedule': '5 * * *' does not match pattern"),
        (Some(lake), "cronjob.schedule=0 5 * * * *", "at '/cronjob/schedule': '0 5 * * * *' does not match pattern"),
        (Some(lake), "cronjob.timeZone=", "at '/cronjob/timeZone': '' does not match pattern"),
        (Some(lake), "cronjob.timeZone=Local", "at '/cronjob/timeZone': 'Local' does not match pattern"),
        (Some(lake), "listenAddress=localhost", "at '/listenAddress': 'localhost' does not match pattern"),
        (Some(lake), "listenAddress=127.0.0.1", "listenAddress: 127.0.0.1 is reached only inside the pod"),
        (Some(everything), "memory=4Gi", "memory: 4Gi is too little for limits.memory = \"4GiB\" in config: 5120Mi"),
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

const LAKE: &str = "catalogs.lake.uri = 'http://c'\n";

/// What is said about a configuration by the chart and by icewright itself; `None`: it is accepted.
fn judgements(config: &str) -> [Option<String>; 2] {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("icewright.toml");
    std::fs::write(&file, config).expect("write");
    let output = helm(&["template", "keeper", "icewright", "--set-file", &format!("config={}", file.display())]);
    let chart = (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned());
    [chart, Config::parse("icewright.toml", config).err().map(|problems| problems.to_string())]
}

#[test]
fn what_the_chart_refuses_in_a_configuration_icewright_refuses_too() {
    let known = "known here: server, limits, metrics, leader-election, traces, catalogs, defaults, policies\n";
    for (line, catalog, messages) in [
        ("", "", ["config: no catalog is configured; add", "no catalog is configured"]),
        ("catalogs = {}", "", ["config: no catalog is configured; add", "no catalog is configured"]),
        ("[zzz]", "", [known, known]),
        ("zzz = 1", LAKE, ["config: zzz: unknown key; known here: ", "zzz: unknown key"]),
        ("server = 1", LAKE, ["config: server = 1: write a section [server]", "server: expected a table"]),
        ("server.grace = 30", LAKE, ["config: server.grace = 30: write a duration", "server.grace: expected"]),
        ("server.grace = ''", LAKE, ["config: server.grace = \"\": write a duration", "it is empty"]),
        ("server.grace = '0s'", LAKE, ["config: server.grace = \"0s\": write a duration above 0", "must be above 0"]),
        ("server.grace = '9 s'", LAKE, ["config: server.grace = \"9 s\": write a duration", "is not expected here"]),
        ("server.grace = '1s 1m'", LAKE, ["config: server.grace = \"1s 1m\": write", "the largest first"]),
        (
            "limits.memory = 5",
            LAKE,
            ["config: limits.memory = 5: write a size such as", "limits.memory: expected a size"],
        ),
        (
            "limits.memory = '4 apples'",
            LAKE,
            ["config: limits.memory = \"4 apples\": write a size", "is no unit of size"],
        ),
        ("limits.memory = '1kiB'", LAKE, ["config: limits.memory = \"1kiB\": write a size", "is no unit of size"]),
        ("limits.memory = '63MiB'", LAKE, ["config: limits.memory = \"63MiB\": write at least \"64MiB\"", "\"64MiB\""]),
        (
            "leader-election.enabled = 'true'",
            LAKE,
            ["config: leader-election.enabled = \"true\": write true or false", "expected true or false"],
        ),
        (
            "leader-election.lease = 4",
            LAKE,
            ["config: leader-election.lease = 4: write a name of", "leader-election.lease: expected a string"],
        ),
        (
            "leader-election.namespace = 'A'",
            LAKE,
            ["config: leader-election.namespace = \"A\": write a name of", "no name for a Kubernetes object"],
        ),
    ] {
        for (said, message) in judgements(&format!("{line}\n{catalog}")).into_iter().zip(messages) {
            let said = said.unwrap_or_else(|| panic!("{line} is accepted"));
            assert!(said.contains(message), "{line}: {message}\n{said}");
        }
    }
    // The named file is one that is about values, and what is wrong comes at once.
    let [chart, _] =
        judgements("leader-election.enabled = 'true'\nlimits.memory = 5\n[catalogs.lake]\nuri = 'http://c'");
    let expected = "(icewright/templates/values/check.yaml:3:4): config: leader-election.enabled = \"true\": \
                    write true or false\nconfig: limits.memory = 5: write a size";
    let chart = chart.expect("it is refused");
    assert!(chart.contains(expected), "{chart}");
}

#[test]
fn what_icewright_reads_the_chart_reads_too() {
    for line in [
        "server.grace = '1w 2d 3h 4m 5s 6ms'",
        "server.grace = '1m30s'",
        "server.grace = '20ms'",
        "limits.memory = '64MiB'",
        "limits.memory = '65536 KiB'",
        "limits.memory = '70000kB'",
        "leader-election.enabled = false",
        "leader-election = { enabled = true, lease = 'ice.wright-2', namespace = 'data' }",
        "policies = []\nmetrics = {}\ntraces = { endpoint = 'http://t' }\ndefaults = {}",
    ] {
        assert_eq!(judgements(&format!("{line}\n{LAKE}")), [None, None], "{line}");
    }
    for set in [
        "memory=320Mi",
        "cronjob.schedule=*/5 1-4 1\\,15 * MON",
        "cronjob.timeZone=America/Argentina/Salta",
        "cronjob.timeZone=UTC",
        "listenAddress=[::]",
    ] {
        let values = "icewright/ci/default-values.yaml";
        super::text_of(&helm(&["template", "keeper", "icewright", "--values", values, "--set", set]));
    }
}
