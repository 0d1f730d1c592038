//! The page of metrics under Prometheus' own eyes.

use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn promtool_has_nothing_to_say_about_it() {
    // Every family is on this page, which another test compares with what the daemon gives.
    let page = include_str!("../golden/metrics.txt");
    let process = "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n\
                   # TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n";
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("promtool: run tests/interop/setup.sh first");
    child.stdin.take().expect("a pipe").write_all([page, process].concat().as_bytes()).expect("write to promtool");
    let output = child.wait_with_output().expect("wait for promtool");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && said == ["", ""], "{} {said:?}", output.status);
}
