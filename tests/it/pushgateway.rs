//! Passes tell a real Pushgateway what they did, whatever tables are called; without one they are none the worse.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use icewright::report::metrics::Metrics;
use icewright::report::push::Pushgateway;
use icewright::table::TableName;

use crate::interop::process::{Process, free_port};
use crate::support::command::{Lake, run};
use crate::support::http_server::{HttpServer, Reply};

/// A gateway at work.
struct Gateway {
    url: String,
    _process: Process,
}

impl Gateway {
    fn start(dir: &std::path::Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let url = format!("http://{address}");
        let mut command = Command::new("prometheus-pushgateway");
        // Debian's would keep what it is given in a folder of the machine.
        command.args([&format!("--web.listen-address={address}"), "--persistence.file="]);
        let mut process = Process::start("prometheus-pushgateway", &mut command, dir.join("pushgateway.log"));
        process.wait_ready(&format!("{url}/-/ready"));
        Self { url, _process: process }
    }

    async fn page(&self) -> String {
        reqwest::get(format!("{}/metrics", self.url)).await.expect("an answer").text().await.expect("a text")
    }
}

/// The labels and the value of each sample of a metric. No value in these tests holds a comma or a quote.
fn samples(page: &str, metric: &str) -> Vec<(BTreeMap<String, String>, f64)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{')?.split_once("} "));
    let sample = |(labels, value): (&str, &str)| {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').expect("a pair");
            (name.to_owned(), value.trim_matches('"').to_owned())
        };
        (labels.split(',').map(pair).collect(), value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

#[test]
fn a_pass_pushes_a_group_for_each_table() {
    let lake = Lake::start();
    let gateway = Gateway::start(lake.dir());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = lake.config_with("1s", &format!("[metrics.pushgateway]\nurl = \"{}\"\n", gateway.url));
    let config = config.to_str().expect("a path of text");
    // What somebody else has pushed under the same name stays.
    runtime.block_on(async {
        let url = format!("{}/metrics/job/shop/table/orders/catalog/lake", gateway.url);
        let sent =
            reqwest::Client::new().post(url).body("# TYPE rows gauge\nrows 7\n").send().await.expect("an answer");
        assert!(sent.status().is_success());
    });
    assert_eq!(run(&["once", "--config", config]).0, Some(0));
    let page = runtime.block_on(gateway.page());
    let value = |metric: &str, table: &str, more: &[(&str, &str)]| {
        let labels = [&[("job", "shop"), ("catalog", "lake"), ("table", table), ("instance", "")], more].concat();
        let fits = |found: &BTreeMap<String, String>| labels.iter().all(|(k, v)| found.get(*k).is_some_and(|f| f == v));
        let found: Vec<f64> = samples(&page, metric).into_iter().filter(|(l, _)| fits(l)).map(|(_, v)| v).collect();
        assert_eq!(found.len(), 1, "{metric} of {table}: {page}");
        found[0]
    };
    assert_eq!(value("rows", "orders", &[]), 7.0);
    for table in ["orders", "server_logs"] {
        assert!(value("icewright_table_data_files", table, &[("namespace", "shop")]) >= 1.0);
        assert!(value("icewright_table_data_file_size_bytes_count", table, &[]) >= 1.0);
        assert!(value("icewright_rewritten_data_files_total", table, &[]) >= 3.0);
        let success = [("action", "expire-snapshots"), ("outcome", "success")];
        assert_eq!(value("icewright_runs_total", table, &success), 1.0);
        assert!(value("icewright_table_last_healthy_timestamp_seconds", table, &[]) > 1.6e9);
        assert_eq!(value("icewright_table_unhealthy", table, &[("reason", "failing")]), 0.0);
        assert!(value("push_time_seconds", table, &[]) > 1.6e9);
        assert_eq!(value("push_failure_time_seconds", table, &[]), 0.0);
    }
    assert!(!page.contains("icewright_build_info"), "that is of no table");
}

#[test]
fn a_dead_gateway_is_logged_once_and_changes_nothing_else() {
    let lake = Lake::start();
    let url = format!("http://127.0.0.1:{}", free_port());
    let config = lake.config_with("1s", &format!("[metrics.pushgateway]\nurl = \"{url}\"\n"));
    let (code, out, err) = run(&["once", "--config", config.to_str().expect("text")]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("lake.shop.orders: success") && out.contains("lake.shop.server_logs: success"), "{out}");
    let group = format!("{url}/metrics/job/shop/table/");
    assert!(err.contains("metrics not pushed") && err.contains(&group), "{err}");
    assert_eq!(err.matches(&group).count(), 1, "the second table does not wait for an answer too: {err}");
}

#[tokio::test]
async fn any_name_comes_back_as_it_is() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let gateway = Gateway::start(dir.path());
    let to = Pushgateway::new(gateway.url.clone(), None).expect("a client");
    let names: &[(&[&str], &str)] = &[
        (&["shop", "eu"], "orders"),
        (&["shop"], "a/b c"),
        (&["shop"], ".."),
        (&["shop"], ""),
        (&["gemüse"], "größe 🧊"),
        (&[""], "in an empty level"),
        (&["100%"], "a?b#c&d+e=f"),
    ];
    for (namespace, table) in names {
        let namespace = namespace.iter().map(|level| (*level).to_owned()).collect();
        let name = TableName { catalog: "lake".into(), namespace, table: (*table).to_owned() };
        let metrics = Metrics::new(1);
        metrics.set_target_file_size(&name, 1000);
        to.push(&name, &metrics).await.expect("taken");
    }
    let page = gateway.page().await;
    let mut found: Vec<(String, String, String)> = samples(&page, "icewright_table_target_file_size_bytes")
        .into_iter()
        .map(|(labels, _)| (labels["job"].clone(), labels["namespace"].clone(), labels["table"].clone()))
        .collect();
    let mut wanted: Vec<(String, String, String)> = names
        .iter()
        .map(|(namespace, table)| {
            // An empty level is written in quotes, of which the helper above takes the outer ones.
            let namespace = if **namespace == [""] { "\\\"\\".to_owned() } else { namespace.join(".") };
            (namespace.clone(), namespace, (*table).to_owned())
        })
        .collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted, "{page}");
}

#[tokio::test]
async fn an_answer_that_is_no_success_is_told_and_the_token_is_sent() {
    let server = HttpServer::start(|request| {
        let text = format!("not for {}", request.header("authorization").unwrap_or("anybody"));
        Reply::Answer(403, vec![], text.into_bytes())
    });
    let name: TableName = "lake.shop.orders".parse().expect("a name");
    for (token, told) in [(None, "403 Forbidden: not for anybody"), (Some("abc\n"), "not for Bearer abc")] {
        let token = token.map(|token| Arc::new(move || Ok(token.to_owned())) as _);
        let gateway = Pushgateway::new(server.uri(), token).expect("a client");
        // A gateway that answers is asked again.
        for _ in 0..2 {
            let error = gateway.push(&name, &Metrics::new(1)).await.expect_err("refused").to_string();
            assert!(error.contains(told) && error.contains("/metrics/job/shop/table/orders/catalog/lake"), "{error}");
        }
    }
    let sent = server.received().pop().expect("a request");
    assert_eq!(
        (sent.method.as_str(), sent.header("content-type")),
        ("POST", Some("text/plain; version=0.0.4; charset=utf-8"))
    );
}
