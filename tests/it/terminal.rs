//! What people see: live lines and aligned tables on a terminal, plain lines in a pipe. The terminal is that of script(1).

use std::process::{Command, Stdio};

use crate::interop::process::ICEWRIGHT;
use crate::support::command::{Lake, icewright};

/// Everything that a command writes to a terminal of 100 columns.
fn on_terminal(variables: &[(&str, &str)], arguments: &str) -> String {
    let command = format!("stty cols 100 rows 40; exec {ICEWRIGHT} {arguments}");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).stdin(Stdio::null());
    script.env_remove("ICEWRIGHT_LOG").env_remove("NO_COLOR").env("TERM", "xterm").envs(variables.iter().copied());
    let output = script.output().expect("script(1), of util-linux, is installed");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("text").replace("\r\n", "\n")
}

fn piped(arguments: &str) -> String {
    let mut command = icewright(&arguments.split(' ').collect::<Vec<_>>());
    let output = command.env("TERM", "xterm").output().expect("start icewright");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("text")
}

/// The width of each line as it stays on the screen.
fn widths(shown: &str) -> impl Iterator<Item = usize> {
    shown.lines().map(|line| {
        line.rsplit('\r').next().unwrap_or("").replace("\x1b[1m", "").replace("\x1b[0m", "").chars().count()
    })
}

#[test]
fn once_counts_down_on_a_terminal_and_ends_with_an_overview() {
    let lake = Lake::start();
    let config = lake.config("3s", 1);
    let shown = on_terminal(&[], &format!("once --config {}", config.display()));
    assert!(shown.contains("until the clean-ups") && shown.contains("\x1b["), "{shown:?}");
    assert!(
        shown.contains("groups, ") && shown.contains(" rows, read ") && shown.contains("lake.shop.orders ["),
        "the rewrite is shown: {shown:?}"
    );
    assert!(shown.contains("\x1b[1mlake.shop.orders: success\x1b[0m"), "{shown:?}");
    let overview = shown.rsplit_once("OUTCOME").expect("an overview").1;
    assert!(
        overview.contains("lake.shop.orders") && overview.contains(" -> ") && overview.contains("snapshots"),
        "{shown:?}"
    );

    let again = on_terminal(&[("NO_COLOR", "1")], &format!("once --config {}", config.display()));
    assert!(again.contains("lake.shop.orders: success\n") && !again.contains("\x1b[1m"), "{again:?}");
    let dumb = on_terminal(&[("TERM", "dumb")], &format!("once --config {} lake.shop.orders", config.display()));
    assert!(
        dumb.starts_with("lake.shop.orders: success\n  rewrite-data-files: ") && !dumb.contains('\x1b'),
        "{dumb:?}"
    );
    let json = on_terminal(&[], &format!("once --config {} --json --no-wait lake.shop.orders", config.display()));
    assert!(json.starts_with("{\"table\":") && json.lines().count() == 1 && !json.contains('\x1b'), "{json:?}");
}

#[test]
fn plan_and_inspect_are_aligned_on_a_terminal_and_plain_in_a_pipe() {
    let lake = Lake::start();
    let config = lake.config("50m", 1);
    for command in ["plan", "inspect"] {
        let arguments = format!("{command} --config {} lake.shop.orders", config.display());
        let (shown, plain) = (on_terminal(&[], &arguments), piped(&arguments));
        assert!(shown.starts_with("\x1b[1mlake.shop.orders\x1b[0m\n"), "{shown}");
        let drawn = |line: &&str| line.starts_with("    ");
        assert!(
            widths(&shown).zip(shown.lines()).filter(|(_, line)| !drawn(line)).all(|(width, _)| width <= 100),
            "{shown}"
        );
        assert!(plain.starts_with("lake.shop.orders\n  ") && !plain.contains(['\x1b', '\r']), "{plain}");
        let value = |line: &str| line.split_once(": ").map(|(label, _)| label.starts_with("  "));
        assert!(plain.lines().any(|line| value(line) == Some(true)), "{plain}");
    }
    let plan = piped(&format!("plan --config {} lake.shop.orders", config.display()));
    assert!(plan.contains("\n  commit interval: 1 s, delay 50 m\n"), "{plan}");
}
