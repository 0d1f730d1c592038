//! The page, in a real Chromium: over the sandbox, and over a made-up daemon for what no sandbox shows.
//! The scripts are in `tests/page`; screenshots go to `page` in cargo's target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interop::process::{ICEWRIGHT, Process, free_port, installed, node, output};

/// Bytes of all files of the page together, and lines of each.
const BYTES_MAX: usize = 100_000;
const LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn script(name: &str) -> Command {
    let mut command = Command::new(node());
    command
        .arg(root().join("tests/page").join(name))
        .env("ICEWRIGHT_PAGE_MODULES", installed("page"))
        .env("ICEWRIGHT_PAGE_OUTPUT", Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("page"));
    command
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("src/server/page")).expect("the page's folder");
    let files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() > 5, "{files:?}");
    files
}

#[test]
fn it_shows_what_the_daemon_does() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let address = format!("127.0.0.1:{}", free_port());
    let mut sandbox = Process::start(
        "sandbox",
        Command::new(ICEWRIGHT)
            .args(["sandbox", "--catalog-listen", "127.0.0.1:0", "--listen", &address, "--dir"])
            .arg(dir.path()),
        dir.path().with_extension("log"),
    );
    sandbox.wait_ready(&format!("http://{address}/readyz"));
    let token = std::fs::read_to_string(dir.path().join("admin-token")).expect("the sandbox's admin token");
    output(script("sandbox.mjs").args([format!("http://{address}/"), token.trim().to_owned()]));
    sandbox.assert_running();
}

#[test]
fn it_copes_with_thousands_of_tables_odd_names_refusals_and_a_daemon_that_goes_away() {
    output(&mut script("made_up.mjs"));
}

#[test]
fn it_is_small_needs_nobody_else_and_takes_data_for_text() {
    // Whatever turns text into markup or code, and what the content security policy forbids.
    let forbidden = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "style=",
        "cssText",
    ];
    let mut bytes = 0;
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path.display();
        bytes += text.len();
        assert!(text.lines().count() <= LINES_MAX, "{name} has more than {LINES_MAX} lines");
        for word in forbidden {
            assert!(!text.contains(word), "{name} contains {word}");
        }
        let addresses = text.split("://").skip(1).filter(|rest| !rest.starts_with("www.w3.org/2000/svg\""));
        assert_eq!(addresses.count(), 0, "{name} names another host");
    }
    assert!(bytes <= BYTES_MAX, "{bytes} bytes are more than {BYTES_MAX}");
}
