//! The dashboards: Grafana can read them, and they name only what exists.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use serde_json::Value;

use super::promql::Known;
use super::{DASHBOARDS, DOCS, dashboard, list, queries, read, root, text};
use crate::interop::process::{installed, output};

fn python() -> Command {
    let mut command = Command::new("python3");
    // Without files of its own beside the scripts.
    command.arg("-B");
    command
}

#[test]
fn the_dashboards_are_what_the_script_writes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    output(python().arg(root("deploy/grafana/generate.py")).arg(dir.path()));
    for name in DASHBOARDS {
        let written = std::fs::read_to_string(dir.path().join(format!("{name}.json"))).expect("a dashboard");
        let shipped = read(&format!("deploy/grafana/{name}.json"));
        assert!(written == shipped, "{name}.json is out of date: run deploy/grafana/generate.py");
    }
}

#[test]
fn grafana_knows_every_key_and_unit() {
    let models = installed("grafana");
    let files = DASHBOARDS.map(|name| root(&format!("deploy/grafana/{name}.json")));
    let check = |files: &[std::path::PathBuf]| {
        let mut command = python();
        command.env("PYTHONPATH", &models).arg(root("tests/interop/grafana.py")).args(files);
        command
    };
    output(&mut check(&files));

    // And the check finds what is wrong.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bad = dir.path().join("bad.json");
    let text = read("deploy/grafana/fleet.json").replacen("\"colorMode\"", "\"colourMode\"", 1);
    std::fs::write(&bad, text.replacen("\"bytes\"", "\"octets\"", 1)).expect("write");
    let said = check(&[bad]).output().expect("start python");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("colourMode") && said.contains("unknown unit 'octets'"), "{said}");
}

#[test]
fn a_dashboard_can_be_imported_anywhere() {
    let mut uids = BTreeSet::new();
    for name in DASHBOARDS {
        let dashboard = dashboard(name);
        assert_eq!(dashboard["id"], Value::Null);
        assert!(uids.insert(text(&dashboard, "uid").to_owned()));
        assert_eq!(dashboard["schemaVersion"], 38);
        assert_eq!(text(&dashboard, "timezone"), "browser");
        assert!(list(&dashboard, "tags").contains(&"icewright".into()));
        let variables = list(&dashboard["templating"], "list");
        let names: Vec<&str> = variables.iter().map(|variable| text(variable, "name")).collect();
        assert_eq!(names, ["datasource", "job", "catalog", "namespace", "table"]);
        for variable in &variables[1..] {
            assert_eq!(variable["multi"], true);
            assert_eq!(variable["includeAll"], true);
            assert_eq!(text(variable, "allValue"), ".*");
        }
        every_datasource_is_the_variable(&dashboard, name);
    }
    let page = read("docs/operations.md");
    for name in DASHBOARDS {
        let content = read(&format!("deploy/grafana/{name}.json"));
        let other = uids.iter().find(|uid| !uid.ends_with(name)).expect("two dashboards");
        assert!(content.contains(&format!("\"/d/{other}")), "{name} leads to {other}");
        for part in content.split("\"/d/").skip(1) {
            let uid = part.split(['"', '?']).next().expect("a uid");
            assert!(uids.contains(uid), "{name}: {uid}");
        }
        for part in content.split(DOCS).skip(1) {
            let anchor = part.strip_prefix('#').and_then(|rest| rest.split('"').next()).expect("an anchor");
            assert!(page.to_lowercase().contains(&format!("\n## {anchor}\n")), "{name}: {anchor}");
        }
        assert!(content.contains(DOCS), "{name}");
    }
}

fn every_datasource_is_the_variable(node: &Value, place: &str) {
    match node {
        Value::Object(object) => {
            for (key, value) in object {
                if key == "datasource" {
                    assert_eq!(value["uid"], "${datasource}", "{place}");
                }
                every_datasource_is_the_variable(value, &format!("{place}.{key}"));
            }
        }
        Value::Array(values) => values.iter().for_each(|value| every_datasource_is_the_variable(value, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn panels_are_explained_and_do_not_overlap() {
    for name in DASHBOARDS {
        let dashboard = dashboard(name);
        let (mut ids, mut titles, mut cells) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for panel in list(&dashboard, "panels") {
            let title = text(panel, "title");
            assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{name}: {title}");
            let at = |key: &str| panel["gridPos"][key].as_u64().unwrap_or_else(|| panic!("{name}: {title}: {key}"));
            assert!(at("w") > 0 && at("h") > 0 && at("x") + at("w") <= 24, "{name}: {title}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(cells.insert((x, y)), "{name}: {title} lies on another panel");
                }
            }
            if text(panel, "type") == "row" {
                continue;
            }
            assert!(titles.insert(title.to_owned()), "{name}: two panels {title}");
            assert!(text(panel, "description").ends_with('.'), "{name}: {title}");
            let defaults = &panel["fieldConfig"]["defaults"];
            assert!(!text(defaults, "unit").is_empty(), "{name}: {title}");
            assert!(!list(&defaults["thresholds"], "steps").is_empty(), "{name}: {title}");
            for target in list(panel, "targets") {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}: {title}");
            }
        }
        // No holes either: Grafana would move panels up and show another picture than this file.
        let height = cells.iter().map(|(_, y)| y + 1).max().expect("panels");
        assert_eq!(cells.len() as u64, 24 * height, "{name}");
    }
}

#[test]
fn every_query_is_valid_and_names_only_metrics_and_labels_that_exist() {
    let known = Known::new();
    let mut rules = String::from("groups:\n  - name: queries\n    rules:\n");
    let mut problems = Vec::new();
    for (i, query) in queries().iter().enumerate() {
        problems.extend(known.problems(&query.filled_in()).into_iter().map(|p| format!("{}: {p}", query.place)));
        // JSON text is YAML text. Writing to a string cannot fail.
        let _ = writeln!(rules, "      - record: query:{i}\n        expr: {}", Value::from(query.filled_in()));
    }
    assert!(problems.is_empty(), "{problems:#?}");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("queries.yaml");
    std::fs::write(&file, rules).expect("write");
    output(Command::new("promtool").args(["check", "rules"]).arg(file));
}

#[test]
fn variables_ask_for_labels_that_exist() {
    let known = Known::new();
    for name in DASHBOARDS {
        let dashboard = dashboard(name);
        for variable in &list(&dashboard["templating"], "list")[1..] {
            let query = text(&variable["query"], "query");
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (selector, label) = inner.and_then(|rest| rest.rsplit_once(", ")).unwrap_or_else(|| panic!("{query}"));
            assert_eq!(known.problems(&format!("count by ({label}) ({selector})")), [""; 0], "{name}: {query}");
        }
    }
}
