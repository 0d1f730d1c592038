//! Passes of `icewright once --no-wait`, one after the other.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cli::json_lines;
use crate::interop::process::free_port;
use crate::support::command::{Lake, icewright, run, write_config};

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

#[test]
fn a_catalog_that_is_down_keeps_no_other_from_its_pass() {
    let lake = Lake::start();
    // Before the live one in the order of names.
    let dead = format!("[catalogs.dead]\nuri = \"http://127.0.0.1:{}\"\n", free_port());
    let config = lake.config_with("1ms", &dead);
    let text = std::fs::read_to_string(&config)
        .expect("the file")
        .replace("[\"lake.shop.*\"]", "[\"lake.shop.*\", \"dead.**\"]");
    std::fs::write(&config, text).expect("write");
    for command in ["plan", "once"] {
        let (code, out, err) = run(&[command, "--config", config.to_str().expect("a path of text"), "--json"]);
        assert_eq!((code, json_lines(&out).len()), (Some(1), 2), "{out}{err}");
        assert!(err.contains("list the tables of catalog `dead`: "), "{err}");
        assert!(json_lines(&out).iter().all(|line| line.get("error").is_none_or(Value::is_null)), "{out}");
    }
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
    assert!(steps[0]["expire-snapshots"].is_object() && steps[0]["errors"].as_object().is_some_and(|e| e.is_empty()));
    assert_eq!(steps[1]["outcome"], "success");
    assert!(steps[1]["added-data-files"].as_u64() > Some(0), "{}", steps[1]);

    // Nothing is left to compact: one clean-up is enough.
    let (steps, not_due) = pass("1ms");
    assert_eq!((names(&steps), not_due), (vec!["clean-up".to_owned(), "rewrite-data-files".to_owned()], None));
}

/// Whoever waits for a catalog that does not answer can stop waiting.
#[test]
fn commands_stop_at_the_first_signal_while_a_catalog_is_silent() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let uri = format!("http://{}", silent.local_addr().expect("an address"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("icewright.toml");
    write_config(&config, &uri, "1s", 1);
    let config = config.to_str().expect("a path of text");
    for command in ["plan", "inspect", "once"] {
        let mut child = icewright(&[command, "--config", config, "lake.shop.orders"]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start icewright");
        // It has asked the catalog.
        let connection = silent.accept().expect("a request");
        let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
        assert!(told.success());
        let output = child.wait_with_output().expect("its end");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {err}");
        assert!(err.contains("a second signal ends the process at once"), "{command}: {err}");
        drop(connection);
    }
}
