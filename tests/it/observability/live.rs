//! The real Prometheus on `icewright sandbox`: every expression is answered, and shows data.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{RULE_FILES, list, queries, read, rules};
use crate::interop::process::{ICEWRIGHT, Process, free_port, output, wait_for};

/// Queries that show nothing in a sandbox where all is well, by the end of their place, and why.
const EMPTY: [(&str, &str); 4] = [
    ("fleet: Unhealthy tables: A", "no table is unhealthy for long"),
    ("table: Health: A", "no table is unhealthy for long"),
    ("fleet: Failed requests: A", "no request fails"),
    ("fleet: Retries: A", "no request is sent again"),
];
/// Alerts that are no news in a sandbox, and why.
const EXPECTED_ALERTS: [(&str, &str); 0] = [];

/// The daemon with its sandbox, and Prometheus beside it.
struct Watched {
    daemon: Process,
    prometheus: Process,
    daemon_address: String,
    prometheus_address: String,
    runtime: Runtime,
    /// Goes last: the programs above work in it.
    dir: TempDir,
}

impl Watched {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let address = || format!("127.0.0.1:{}", free_port());
        let (daemon_address, prometheus_address) = (address(), address());
        let mut sandbox = Command::new(ICEWRIGHT);
        sandbox.args(["sandbox", "--catalog-listen", "127.0.0.1:0", "--listen", &daemon_address]).arg("--dir");
        sandbox.arg(dir.path().join("sandbox")).env_remove("ICEWRIGHT_LOG");
        let daemon = Process::start("icewright", &mut sandbox, dir.path().join("icewright.log"));
        configure(dir.path(), &daemon_address);
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={prometheus_address}"))
            .arg("--log.level=warn");
        let prometheus = Process::start("prometheus", &mut command, dir.path().join("prometheus.log"));
        let runtime = Runtime::new().expect("a runtime");
        let mut watched = Self { daemon, prometheus, daemon_address, prometheus_address, runtime, dir };
        watched.daemon.wait_ready(&format!("http://{}/readyz", watched.daemon_address));
        watched.prometheus.wait_ready(&format!("http://{}/-/ready", watched.prometheus_address));
        watched
    }

    fn get(&self, address: &str, path: &str, query: &[(&str, &str)]) -> String {
        self.runtime.block_on(async {
            let client = reqwest::Client::new().get(format!("http://{address}{path}")).query(query);
            let answer = client.timeout(Duration::from_secs(60)).send().await.expect("an answer");
            answer.text().await.expect("text")
        })
    }

    /// The `data` of an answer of Prometheus, or its error.
    fn ask(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let answer = self.get(&self.prometheus_address, path, query);
        let answer: Value = serde_json::from_str(&answer).map_err(|e| format!("{e}: {answer}"))?;
        if answer["status"] == "success" { Ok(answer["data"].clone()) } else { Err(answer["error"].to_string()) }
    }

    /// Series that an expression has now.
    fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        Ok(list(&self.ask("/api/v1/query", &[("query", expr)])?, "result").to_vec())
    }

    /// The only value of an expression now, if there is just one.
    fn value(&self, expr: &str) -> Option<f64> {
        match self.query(expr).expect("a valid expression").as_slice() {
            [series] => series["value"][1].as_str().and_then(|value| value.parse().ok()),
            _ => None,
        }
    }

    /// Series that an expression had at any time of the last two minutes.
    fn query_range(&self, expr: &str) -> Result<Vec<Value>, String> {
        let now = self.value("vector(time())").expect("the time");
        let (start, end) = ((now - 120.0).to_string(), now.to_string());
        let range = [("query", expr), ("start", &start), ("end", &end), ("step", "1s")];
        Ok(list(&self.ask("/api/v1/query_range", &range)?, "result").to_vec())
    }

    fn metrics(&self) -> String {
        self.get(&self.daemon_address, "/metrics", &[])
    }

    /// Until both tables went round twice, so that a second success is a change of the first.
    fn wait_for_runs(&self) {
        let compactions = r#"icewright_last_success_timestamp_seconds{action="rewrite-data-files"}"#;
        let clean_ups = r#"icewright_runs_total{action="remove-orphan-files",outcome="success"}"#;
        let done = format!("count(changes({compactions}[5m]) > 0) == 2 and on () count({clean_ups} > 1) == 2");
        wait_for("two rounds on both tables", || {
            if self.value(&done).is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(500));
            Err(format!("{:?}", self.query("icewright_runs_total > 0")))
        });
    }
}

/// The shipped configuration and rules, with this target and without patience.
fn configure(dir: &Path, daemon: &str) {
    let config = read("deploy/prometheus/prometheus.yml");
    let fast = config.replace("_interval: 30s", "_interval: 1s").replace("localhost:9091", daemon);
    assert_eq!(fast.matches("_interval: 1s").count(), 2);
    assert!(fast.contains(daemon));
    std::fs::write(dir.join("prometheus.yml"), fast).expect("write");
    for file in RULE_FILES {
        let rules = read(&format!("deploy/prometheus/{file}")).replace("interval: 5m", "interval: 1s");
        std::fs::write(dir.join(file), rules).expect("write");
    }
}

/// The value of a series in the text format.
fn shown(metrics: &str, series: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series}")).parse().expect("a number")
}

#[test]
fn prometheus_evaluates_every_expression_on_the_sandbox_with_data() {
    let mut watched = Watched::start();
    watched.wait_for_runs();
    let mut problems = Vec::new();
    dashboards_show_data(&watched, &mut problems);
    rules_show_data(&watched, &mut problems);
    assert!(problems.is_empty(), "{problems:#?}");
    prometheus_tells_what_the_daemon_tells(&watched);
    metrics_are_named_as_prometheus_wants(&watched);
    watched.daemon.assert_running();
    watched.prometheus.assert_running();
    assert_eq!(watched.prometheus.terminate(), Some(0));
    assert_eq!(watched.daemon.terminate(), Some(0));
}

fn dashboards_show_data(watched: &Watched, problems: &mut Vec<String>) {
    let queries = queries();
    let places: BTreeSet<&str> = queries.iter().map(|query| query.place.as_str()).collect();
    for query in &queries {
        let excused = EMPTY.iter().any(|(place, _)| *place == query.place);
        match watched.query_range(&query.filled_in()) {
            Err(error) => problems.push(format!("{}: {error}", query.place)),
            Ok(series) if series.is_empty() && !excused => problems.push(format!("{}: no data", query.place)),
            Ok(_) => {}
        }
    }
    let gone: Vec<_> = EMPTY.iter().filter(|(place, _)| !places.contains(place)).collect();
    assert!(gone.is_empty(), "no such panel: {gone:?}");
}

fn rules_show_data(watched: &Watched, problems: &mut Vec<String>) {
    let loaded = watched.ask("/api/v1/rules", &[]).expect("the rules");
    let loaded: Vec<&Value> = list(&loaded, "groups").iter().flat_map(|group| list(group, "rules")).collect();
    assert_eq!(loaded.len(), rules().len());
    problems.extend(loaded.iter().filter(|rule| rule["health"] != "ok").map(|rule| rule.to_string()));
    for rule in rules() {
        let excused = EXPECTED_ALERTS.iter().any(|(name, _)| *name == rule.name);
        match watched.query(if rule.is_alert { &rule.expr } else { &rule.name }) {
            Err(error) => problems.push(format!("{}: {error}", rule.name)),
            Ok(series) if rule.is_alert && !series.is_empty() && !excused => {
                problems.push(format!("{} would fire: {series:?}", rule.name));
            }
            Ok(series) if !rule.is_alert && series.is_empty() => problems.push(format!("{}: no data", rule.name)),
            Ok(_) => {}
        }
    }
}

/// Counters only grow: what Prometheus has lies between what the daemon told before and after.
fn prometheus_tells_what_the_daemon_tells(watched: &Watched) {
    let before = watched.metrics();
    let scraped = watched.value(r#"timestamp(up{job="icewright"})"#).expect("a scrape");
    wait_for("another scrape", || match watched.value(r#"timestamp(up{job="icewright"})"#) {
        Some(now) if now > scraped + 1.0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let counters = [
        r#"icewright_runs_total{action="rewrite-data-files",catalog="sandbox",namespace="shop",outcome="success",table="orders"}"#,
        r#"icewright_rewritten_bytes_total{catalog="sandbox",namespace="shop",table="orders"}"#,
        r#"icewright_deleted_files_total{action="expire-snapshots",catalog="sandbox",namespace="shop",table="server_logs"}"#,
        "icewright_storage_written_bytes_total",
    ];
    let seen: Vec<f64> = counters.iter().map(|series| watched.value(series).expect("one series")).collect();
    let same = ["icewright_concurrent_tables_limit", "icewright_memory_budget_bytes", "icewright_leader"];
    let gauges: Vec<f64> = same.iter().map(|series| watched.value(series).expect("one series")).collect();
    let after = watched.metrics();
    for (series, seen) in counters.iter().zip(seen) {
        let (low, high) = (shown(&before, series), shown(&after, series));
        assert!(low > 0.0 && low <= seen && seen <= high, "{series}: {low} {seen} {high}");
    }
    for (series, seen) in same.iter().zip(gauges) {
        assert!(seen > 0.0, "{series}");
        assert_eq!(shown(&after, series), seen, "{series}");
    }
    // The histogram of sizes counts each live data file once.
    let sizes = r#"icewright_table_data_file_size_bytes_count{catalog="sandbox",namespace="shop",table="orders"}"#;
    let files = r#"icewright_table_data_files{catalog="sandbox",namespace="shop",table="orders"}"#;
    wait_for("a picture between two collections", || {
        let now = watched.metrics();
        let (sizes, files) = (shown(&now, sizes), shown(&now, files));
        if sizes == files && files > 0.0 { Ok(()) } else { Err(format!("{sizes} sizes of {files} files")) }
    });
    assert_eq!(watched.value(r#"count(up{job="icewright"} == 1)"#), Some(1.0));
}

fn metrics_are_named_as_prometheus_wants(watched: &Watched) {
    let file = watched.dir.path().join("metrics.txt");
    std::fs::write(&file, watched.metrics()).expect("write");
    // promtool reads them from its input.
    output(Command::new("sh").arg("-c").arg(format!("promtool check metrics <'{}'", file.display())));
}
