//! The commands as a user calls them: exit codes, output, and what they say when something is wrong.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use icewright::sandbox::catalog::CatalogServer;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::interop::process::{Process, free_port, wait_for};
use crate::support::command::{Lake, icewright, run, write_config};

pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Every key of every object in it.
fn assert_kebab_case(value: &Value) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            let plain = !key.contains('_') && !key.chars().any(char::is_uppercase);
            assert!(plain || key.contains('.'), "{key} in {value}");
            assert_kebab_case(value);
        }),
        Value::Array(values) => values.iter().for_each(assert_kebab_case),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn check_tells_good_from_bad() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (good, bad) = (dir.path().join("good.toml"), dir.path().join("bad.toml"));
    write_config(&good, "http://localhost:1", "3x", 9091);
    let (code, out, _) = run(&["check", "--config", &good.to_string_lossy()]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("ok: 1 catalog, 1 policy"), "{out}");
    let text = std::fs::read_to_string(&good).expect("the file").replace("rewrite-all", "rewrite-most");
    std::fs::write(&bad, text).expect("write");
    let (code, out, _) = run(&["check", "--config", &bad.to_string_lossy()]);
    assert_eq!(code, Some(2));
    assert!(out.contains("rewrite-most") && out.contains("help: "), "{out}");
    let missing = dir.path().join("missing.toml");
    for command in ["check", "run", "once", "plan"] {
        for config in [&bad, &missing] {
            assert_eq!(run(&[command, "--config", &config.to_string_lossy()]).0, Some(2), "{command} {config:?}");
        }
    }
}

#[test]
fn plan_once_and_inspect_tell_machines_and_people() {
    let lake = Lake::start();
    let config = lake.config("1s", 1);
    let config = config.to_str().expect("a path of text");
    let (code, out, err) = run(&["plan", "--config", config, "--json"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let plans = json_lines(&out);
    assert_eq!(
        plans.iter().map(|p| p["table"].as_str().expect("a name")).collect::<Vec<_>>(),
        ["lake.shop.orders", "lake.shop.server_logs"]
    );
    let expected = [
        "commit-interval-s",
        "delay-s",
        "expire-snapshots",
        "next-step",
        "policies",
        "remove-orphan-files",
        "rewrite-data-files",
        "settings",
        "table",
    ];
    for plan in &plans {
        assert_eq!(keys(plan), expected);
        assert_kebab_case(plan);
        assert!(plan["rewrite-data-files"]["would"]["file-groups"].as_u64() >= Some(1), "{plan}");
        assert!(plan["next-step"].as_str().is_some_and(|next| next.starts_with("rewrite-data-files now")), "{plan}");
    }
    let (code, out, _) = run(&["plan", "--config", config, "lake.shop.orders"]);
    assert!(code == Some(0) && out.starts_with("lake.shop.orders\n") && out.contains("settings:"), "{out}");

    let (code, out, err) = run(&["once", "--config", config, "--json"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let reports = json_lines(&out);
    assert_eq!(reports.len(), 2);
    for report in &reports {
        assert_eq!(keys(report), ["error", "not-due", "outcome", "run-id", "steps", "table"]);
        assert_kebab_case(report);
        let (rewrite, clean_up) = (&report["steps"][0], &report["steps"][1]);
        assert_eq!((&report["outcome"], &report["error"]), (&Value::from("success"), &Value::Null));
        assert_eq!((&rewrite["step"], &clean_up["step"]), (&"rewrite-data-files".into(), &"clean-up".into()));
        assert_eq!(rewrite["planned-groups"], rewrite["committed-groups"]);
        assert!(rewrite["rewritten-data-files"].as_u64() >= Some(3), "{rewrite}");
        assert_eq!(clean_up["expire-snapshots"]["error"], Value::Null);
        assert!(clean_up["remove-orphan-files"]["listed"]["files"].as_u64() > Some(0), "{clean_up}");
    }

    let (code, out, _) = run(&["inspect", "--config", config, "lake.shop.orders", "--json"]);
    assert_eq!(code, Some(0));
    let state = &json_lines(&out)[0];
    assert_kebab_case(state);
    assert_eq!((&state["table"], &state["equality-delete-files"]), (&"lake.shop.orders".into(), &0.into()));
    assert!(state["data-files"].as_u64() >= Some(1) && state["metadata-location"].is_string(), "{state}");
    let (code, out, _) = run(&["inspect", "--config", config, "lake.shop.orders"]);
    assert!(code == Some(0) && out.contains("data-files: "), "{out}");

    let (code, out, _) = run(&["once", "--config", config, "lake.shop.orders", "--no-wait"]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with("lake.shop.orders: success\n") && out.contains("no new snapshot"), "{out}");
}

#[test]
fn a_table_that_is_not_maintained_or_not_there_is_told_apart() {
    let lake = Lake::start();
    let config = lake.config("1s", 1);
    let config = config.to_str().expect("a path of text");
    for command in ["once", "plan", "inspect"] {
        for (name, cure) in [
            ("lake.other.t", "add it to the `tables` of a [[policies]] entry"),
            ("pond.shop.orders", "[[policies]]"),
            ("orders", "write catalog.namespace.table"),
        ] {
            let (code, out, err) = run(&[command, "--config", config, name]);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{command} {name}: {err}");
            assert!(err.contains(cure), "{command} {name}: {err}");
        }
        let (code, out, err) = run(&[command, "--config", config, "lake.shop.missing"]);
        assert_eq!(code, Some(1), "{command}");
        let said = format!("{out}{err}");
        assert!(said.contains("lake.shop.missing") && said.matches("load table").count() <= 1, "{command}: {said}");
    }
    let (_, out, _) = run(&["once", "--config", config, "lake.shop.missing", "--json"]);
    let report = &json_lines(&out)[0];
    assert_eq!((&report["outcome"], &report["steps"]), (&"failed".into(), &Value::Array(vec![])));
    assert!(report["error"].as_str().is_some_and(|error| error.contains("lake.shop.missing")), "{report}");
    let (_, out, _) = run(&["plan", "--config", config, "lake.shop.missing", "--json"]);
    assert_eq!(keys(&json_lines(&out)[0]), ["error", "table"]);
}

#[test]
fn a_catalog_that_is_down_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("icewright.toml");
    let uri = format!("http://127.0.0.1:{}", free_port());
    write_config(&config, &uri, "1s", 1);
    for command in ["once", "plan"] {
        let (code, _, err) = run(&[command, "--config", &config.to_string_lossy()]);
        assert_eq!(code, Some(1));
        assert!(err.contains("list the tables of catalog `lake`") && err.contains(&uri), "{err}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let lake = Lake::start();
    let config = lake.config("1s", 1);
    for command in ["plan", "once", "check"] {
        let mut child = icewright(&[command, "--config", &config.to_string_lossy()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start icewright");
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        assert_eq!((child.wait().expect("an end").code(), err.as_str()), (Some(0), ""), "{command}");
    }
    // Standard error gone as well, with everything logged.
    let mut child = icewright(&["once", "--config", &config.to_string_lossy(), "lake.shop.missing"])
        .env("ICEWRIGHT_LOG", "trace")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start icewright");
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().expect("an end").code(), Some(1));
}

#[test]
fn the_daemon_is_ready_once_the_catalog_answers_and_ends_when_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (catalog_port, port) = (free_port(), free_port());
    let config = dir.path().join("icewright.toml");
    write_config(&config, &format!("http://127.0.0.1:{catalog_port}"), "1s", port);
    let config = config.to_string_lossy().into_owned();
    let mut daemon = Process::start("run", &mut icewright(&["run", "--config", &config]), dir.path().join("run.log"));
    daemon.wait_ready(&format!("http://127.0.0.1:{port}/livez"));
    let (status, text) = get(port, "/readyz");
    assert_eq!(status, 503);
    assert!(text.contains("catalog lake: not reached yet"), "{text}");

    let (code, _, err) = run(&["run", "--config", &config]);
    assert_eq!(code, Some(1), "the port is taken");
    assert!(err.contains(&format!("127.0.0.1:{port}")) && err.contains("choose another `server.listen`"), "{err}");
    let taken = format!("127.0.0.1:{port}");
    let empty = dir.path().join("empty").to_string_lossy().into_owned();
    let by_option: [(&[&str], &str); 4] = [
        (&["run", "--config", &config, "--listen", &taken], "--listen"),
        (&["catalog", "--dir", &empty, "--listen", &taken], "--listen"),
        (&["sandbox", "--dir", &empty, "--listen", "127.0.0.1:0", "--catalog-listen", &taken], "--catalog-listen"),
        (&["sandbox", "--dir", &empty, "--listen", &taken, "--catalog-listen", "127.0.0.1:0"], "--listen"),
    ];
    for (arguments, option) in by_option {
        let (code, _, err) = run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: the port is taken");
        assert!(err.contains(&format!("choose another `{option}`")), "{arguments:?}: {err}");
    }

    let warehouse = dir.path().join("warehouse");
    let listen = format!("127.0.0.1:{catalog_port}");
    let arguments = ["catalog", "--dir", &warehouse.to_string_lossy(), "--listen", &listen];
    let catalog = Process::start("catalog", &mut icewright(&arguments), dir.path().join("catalog.log"));
    daemon.wait_ready(&format!("http://127.0.0.1:{port}/readyz"));
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(catalog.terminate(), Some(0));
}

pub(crate) fn get(port: u16, path: &str) -> (u16, String) {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let answer = reqwest::get(format!("http://127.0.0.1:{port}{path}")).await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("text"))
    })
}

#[test]
fn the_sandbox_shows_runs_and_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path().to_string_lossy().into_owned();
    let arguments = ["--catalog-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--dir", &dir];
    for round in ["first", "second"] {
        // Long enough for a loaded machine; the test asks it to stop as soon as all was seen.
        let mut child = icewright(&["sandbox", "--for", "3m"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start icewright");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let banner: Vec<String> =
            lines.by_ref().map_while(Result::ok).take_while(|l| !l.contains("A line for each")).collect();
        for what in ["page", "metrics", "health", "API", "catalog"] {
            let address = banner.iter().find_map(|line| line.trim_start().strip_prefix(what)).expect(what);
            assert!(address.trim_start().starts_with("http://127.0.0.1:") && !address.contains(":0/"), "{banner:?}");
        }
        assert!(banner.iter().any(|line| line.contains("Ctrl-C")), "{banner:?}");
        let mut wanted: BTreeSet<String> = ["orders", "server_logs"]
            .iter()
            .flat_map(|t| ["rewrite-data-files", "expire-snapshots"].map(|a| format!("sandbox.shop.{t}: {a}: ")))
            .filter(|start| round == "first" || !start.contains("rewrite"))
            .collect();
        let mut steps = Vec::new();
        while !wanted.is_empty() {
            let Some(line) = lines.next() else { break };
            let line = line.expect("text");
            wanted.retain(|start| !line.starts_with(start));
            steps.push(line);
        }
        assert!(wanted.is_empty(), "{round}: not seen: {wanted:?} in {steps:?}");
        let stop = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("send a signal");
        assert!(stop.success());
        steps.extend(lines.map(|line| line.expect("text")));
        let mut err = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(0), "{round}: {err}");
        let odd = |line: &&String| line.contains("failed") || line.contains("has no snapshot");
        assert_eq!(steps.iter().find(odd), None, "{round}: {steps:?}");
    }
    // Nobody holds the directory any more.
    wait_for("the directory to be free", || match CatalogServer::open(Path::new(&dir)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    });
}
