//! What Prometheus and Grafana are given (`deploy/prometheus`, `deploy/grafana`): it is valid, names only what exists,
//! fires when it should and only then, tells what to do, and shows data when the real Prometheus scrapes the daemon.
//!
//! | file | judge |
//! |---|---|
//! | `rules.rs` | promtool, docs/operations.md |
//! | `dashboards.rs` | Grafana's own models, promtool |
//! | `live.rs` | Prometheus and `icewright sandbox` |
//! | `promql.rs` | which metrics and labels an expression names, and whether they exist |

mod dashboards;
mod live;
mod promql;
mod rules;

use std::path::PathBuf;

use serde_json::Value;

/// Stands for the address where the reader keeps the documentation.
const DOCS: &str = "https://docs.example.com/icewright/operations.md";

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn yaml(path: &str) -> Value {
    yaml_serde::from_str(&read(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// An element of a JSON document that must be text.
fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no text {key} in {value}"))
}

/// An element of a JSON document that must be a list.
fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key} in {value}"))
}

/// A rule of one of the rule files.
struct Rule {
    /// Of the alert or the recorded series.
    name: String,
    is_alert: bool,
    expr: String,
    /// As written.
    rule: Value,
}

const RULE_FILES: [&str; 2] = ["recording.rules.yaml", "alerts.rules.yaml"];

fn rules() -> Vec<Rule> {
    let files = RULE_FILES.map(|file| yaml(&format!("deploy/prometheus/{file}")));
    let groups = files.iter().flat_map(|file| list(file, "groups"));
    let rules = groups.flat_map(|group| list(group, "rules")).map(|rule| {
        let is_alert = rule.get("alert").is_some();
        let name = text(rule, if is_alert { "alert" } else { "record" }).to_owned();
        Rule { name, is_alert, expr: text(rule, "expr").to_owned(), rule: rule.clone() }
    });
    let rules: Vec<Rule> = rules.collect();
    assert!(rules.len() >= 30, "{}", rules.len());
    rules
}

/// A query of a dashboard, with the variables that Grafana would fill in.
struct Query {
    /// Dashboard and panel.
    place: String,
    expr: String,
}

impl Query {
    /// As Grafana asks when everything is selected, one sample a second is scraped and the screen shows a minute.
    fn filled_in(&self) -> String {
        let mut expr = self.expr.replace("$__rate_interval", "30s");
        for variable in ["job", "catalog", "namespace", "table"] {
            expr = expr.replace(&format!("\"${variable}\""), "\".*\"");
        }
        assert!(!expr.contains('$'), "{}: {expr}", self.place);
        expr
    }
}

const DASHBOARDS: [&str; 2] = ["fleet", "table"];

fn dashboard(name: &str) -> Value {
    let path = format!("deploy/grafana/{name}.json");
    serde_json::from_str(&read(&path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every query of the panels and annotations.
fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for name in DASHBOARDS {
        let dashboard = dashboard(name);
        for panel in list(&dashboard, "panels").iter().filter(|panel| text(panel, "type") != "row") {
            for target in list(panel, "targets") {
                let place = format!("{name}: {}: {}", text(panel, "title"), text(target, "refId"));
                queries.push(Query { place, expr: text(target, "expr").to_owned() });
            }
        }
        for note in list(&dashboard["annotations"], "list") {
            let place = format!("{name}: annotation {}", text(note, "name"));
            queries.push(Query { place, expr: text(note, "expr").to_owned() });
        }
    }
    assert!(queries.len() >= 80, "{}", queries.len());
    queries
}
