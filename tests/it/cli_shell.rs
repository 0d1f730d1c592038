//! What holds for every command: version, exit codes, completions, and arguments that are checked before anything starts.

use crate::interop::process::free_port;
use crate::support::command::{icewright, run, write_config};

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
