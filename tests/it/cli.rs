//! The commands as a user calls them: exit codes, output, and what they say when something is wrong.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use icewright::catalog::Catalog;
use icewright::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use icewright::sandbox::catalog::CatalogServer;
use icewright::sandbox::writers::{create_tables, write_once};
use icewright::storage;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::interop::process::{ICEWRIGHT, Process, free_port, wait_for};

/// An embedded catalog with the sandbox's two tables, three commits each.
pub(crate) struct Lake {
    dir: TempDir,
    uri: String,
    stop: CancellationToken,
    runtime: Runtime,
}

impl Lake {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let runtime = Runtime::new().expect("a runtime");
        let stop = CancellationToken::new();
        let uri = runtime.block_on(async {
            let server = CatalogServer::open(dir.path()).expect("open the catalog");
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let uri = format!("http://{}", listener.local_addr().expect("an address"));
            tokio::spawn(server.serve(listener, stop.clone()));
            create_tables(&uri).await.expect("create the tables");
            for _ in 0..3 {
                write(&uri).await;
            }
            uri
        });
        Self { dir, uri, stop, runtime }
    }

    /// One more commit to each table.
    fn write(&self) {
        self.runtime.block_on(write(&self.uri));
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A configuration with this delay and more sections.
    pub(crate) fn config_with(&self, delay: &str, more: &str) -> PathBuf {
        let path = self.config(delay, 1);
        let text = std::fs::read_to_string(&path).expect("the file");
        std::fs::write(&path, format!("{more}{text}")).expect("write");
        path
    }

    /// A configuration with this delay, and a server on this port.
    pub(crate) fn config(&self, delay: &str, port: u16) -> PathBuf {
        let path = self.dir.path().join(format!("icewright-{port}.toml"));
        write_config(&path, &self.uri, delay, port);
        path
    }
}

async fn write(uri: &str) {
    let config = RestCatalogConfig {
        name: "lake".into(),
        uri: uri.to_owned(),
        warehouse: None,
        properties: Default::default(),
        auth: Auth::None,
    };
    let catalog: Arc<dyn Catalog> = Arc::new(RestCatalog::connect(config).await.expect("connect"));
    write_once(catalog, storage::open(&Default::default())).await.expect("write");
}

impl Drop for Lake {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn write_config(path: &Path, uri: &str, delay: &str, port: u16) {
    let text = format!(
        r#"[server]
listen = "127.0.0.1:{port}"
grace = "20s"
[limits]
memory = "512MiB"
[catalogs.lake]
uri = "{uri}"
auth = {{ type = "none" }}
properties = {{ "client.max-retries" = "0" }}
[[policies]]
name = "shop"
tables = ["lake.shop.*"]
commit-interval = "1s"
every = "1h"
delay = "{delay}"
[policies.rewrite-data-files]
rewrite-all = true
"#
    );
    std::fs::write(path, text).expect("write a configuration");
}

pub(crate) fn icewright(arguments: &[&str]) -> Command {
    let mut command = Command::new(ICEWRIGHT);
    command.args(arguments).env_remove("ICEWRIGHT_CONFIG").env_remove("ICEWRIGHT_LOG").stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = icewright(arguments).output().expect("start icewright");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

fn json_lines(text: &str) -> Vec<Value> {
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
fn help_tells_of_every_command_and_wrong_arguments_are_refused() {
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    for command in ["sandbox", "catalog", "run", "check", "plan", "once", "inspect", "completions"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command} in {help}");
        let (code, help, _) = run(&[command, "--help"]);
        assert_eq!(code, Some(0));
        assert!(help.contains("Usage:") && help.contains(&format!("  icewright {command}")), "{help}");
    }
    for wrong in [
        &["mend"][..],
        &["once"],
        &["inspect", "--config", "x.toml"],
        &["sandbox", "--for", "soon"],
        &["completions", "cobol"],
        &["check", "--config", "x.toml", "--log-format", "xml"],
    ] {
        let (code, out, err) = run(wrong);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{wrong:?}");
        assert!(err.contains("error:") && err.contains("--help"), "{err}");
    }
}

/// Rows of the README's table of exit codes: code and meaning.
fn documented_exit_codes() -> Vec<(String, String)> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("the README");
    let rows = readme.lines().skip_while(|line| !line.starts_with("| exit code |")).skip(2);
    let cells = |row: &str| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (cells[1].to_owned(), cells[2].to_owned())
    };
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

#[test]
fn the_readme_and_the_help_tell_the_same_exit_codes() {
    let help = run(&["--help"]).1;
    let told = help.lines().skip_while(|line| *line != "Exit codes:").skip(1).take_while(|line| !line.is_empty());
    let split = |line: &str| line.trim().split_once(' ').map(|(code, text)| (code.to_owned(), text.trim().to_owned()));
    let told: Vec<_> = told.map(|line| split(line).unwrap_or_else(|| panic!("{line}"))).collect();
    assert_eq!(told, documented_exit_codes());
    assert!(told.len() >= 4, "{told:?}");
}

#[test]
fn version_tells_commit_and_compiler() {
    let (code, out, _) = run(&["--version"]);
    let rest = out.trim().strip_prefix(concat!("icewright ", env!("CARGO_PKG_VERSION"), " (")).expect(&out);
    let (revision, rustc) = rest.strip_suffix(')').and_then(|rest| rest.split_once(", rustc ")).expect(&out);
    assert_eq!((code, revision, rustc), (Some(0), icewright::version::REVISION, icewright::version::RUSTC));
    assert!(rustc.starts_with("1."), "{rustc}");
    let commit = revision.trim_end_matches("+dev");
    let is_commit = commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(is_commit || revision == "unknown" || option_env!("ICEWRIGHT_REVISION") == Some(revision), "{revision}");
}

#[test]
fn completions_are_scripts_that_know_the_commands() {
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef icewright"), ("fish", "complete -c icewright")] {
        let (code, out, err) = run(&["completions", shell]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.contains(word) && out.contains("inspect") && out.contains("log-filter"), "{shell}");
    }
}

#[test]
fn a_log_filter_is_checked_before_anything_starts() {
    let (code, _, err) = run(&["catalog", "--dir", "/nonexistent", "--log-filter", "inof"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("\"inof\" is no level") && err.contains("write a level"), "{err}");
    let with_variable = |value: &str| {
        let mut command = icewright(&["catalog", "--dir", "/proc/nonexistent"]);
        command.env("ICEWRIGHT_LOG", value).output().expect("start icewright").status.code()
    };
    assert_eq!((with_variable("icewright=loud"), with_variable("")), (Some(2), Some(1)));
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
fn once_without_waiting_says_what_is_not_due() {
    let lake = Lake::start();
    let config = lake.config("1h", 1);
    let config = config.to_str().expect("a path of text");
    let (code, out, _) = run(&["once", "--config", config, "lake.shop.orders", "--no-wait", "--json"]);
    let report = &json_lines(&out)[0];
    assert_eq!((code, report["steps"].as_array().map(Vec::len)), (Some(0), Some(1)));
    assert!(report["not-due"].as_str().is_some_and(|why| why.ends_with(" left")), "{report}");
}

/// As a CronJob does on a table that is written all the time.
#[test]
fn passes_without_waiting_clean_up_after_each_other() {
    let lake = Lake::start();
    let pass = |delay: &str| {
        let config = lake.config(delay, 1);
        let config = config.to_str().expect("a path of text");
        let (code, out, err) = run(&["once", "--config", config, "lake.shop.orders", "--no-wait", "--json"]);
        assert_eq!(code, Some(0), "{out}{err}");
        let report = json_lines(&out).remove(0);
        let steps = report["steps"].as_array().expect("steps").clone();
        (steps, report["not-due"].as_str().map(str::to_owned))
    };
    let names = |steps: &[Value]| -> Vec<String> {
        steps.iter().filter_map(|step| step["step"].as_str()).map(str::to_owned).collect()
    };
    let (steps, _) = pass("1h");
    assert_eq!(names(&steps), ["rewrite-data-files"]);
    assert_eq!(steps[0]["outcome"], "success");

    // There is something to compact, and the clean-ups would be put off by it.
    lake.write();
    let (steps, not_due) = pass("1h");
    assert_eq!(names(&steps), [""; 0]);
    assert!(not_due.is_some_and(|why| why.contains(" left")));

    // The delay is over, and a commit of this pass begins the next.
    let (steps, _) = pass("1ms");
    assert_eq!(names(&steps)[..2], ["clean-up", "rewrite-data-files"]);
    assert_eq!(steps[0]["expire-snapshots"]["outcome"], "committed");
    assert_eq!(steps[1]["outcome"], "success");
    assert!(steps[1]["added-data-files"].as_u64() > Some(0), "{}", steps[1]);

    // Nothing is left to compact: one clean-up is enough.
    let (steps, not_due) = pass("1ms");
    assert_eq!((names(&steps), not_due), (vec!["clean-up".to_owned(), "rewrite-data-files".to_owned()], None));
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

    let warehouse = dir.path().join("warehouse");
    let listen = format!("127.0.0.1:{catalog_port}");
    let arguments = ["catalog", "--dir", &warehouse.to_string_lossy(), "--listen", &listen];
    let catalog = Process::start("catalog", &mut icewright(&arguments), dir.path().join("catalog.log"));
    daemon.wait_ready(&format!("http://127.0.0.1:{port}/readyz"));
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(catalog.terminate(), Some(0));
}

#[test]
fn leader_election_outside_a_pod_is_refused_with_a_cure() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("icewright.toml");
    write_config(&config, "http://127.0.0.1:1", "1s", free_port());
    let text = std::fs::read_to_string(&config).expect("the file");
    std::fs::write(&config, format!("leader-election.enabled = true\n{text}")).expect("write");
    let mut command = icewright(&["run", "--config", &config.to_string_lossy()]);
    let output = command.env_remove("KUBERNETES_SERVICE_HOST").output().expect("start icewright");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("KUBERNETES_SERVICE_HOST") && err.contains("leader-election.enabled = false"), "{err}");
}

fn get(port: u16, path: &str) -> (u16, String) {
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
