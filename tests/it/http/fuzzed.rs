//! Schemathesis, which `tests/interop/setup.sh` installs, asks `icewright sandbox` whatever the description allows and much
//! that it does not, and compares the answers with it. The seed is fixed, so that a failure comes again.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::interop::process::{ICEWRIGHT, Process, free_port, installed, output, wait_for};

const SEED: &str = "1";
/// Requests of each kind for each operation, beyond those that cover each field.
const EXAMPLES: &str = "15";

/// The sandbox, and the address of its API.
struct Sandbox {
    dir: tempfile::TempDir,
    address: String,
    _process: Process,
}

impl Sandbox {
    /// Started, with both tables looked at, so that every part of their views is filled in.
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(ICEWRIGHT);
        command
            .args(["sandbox", "--listen", &address, "--catalog-listen", "127.0.0.1:0", "--dir"])
            .arg(dir.path().join("sandbox"));
        let mut process = Process::start("icewright sandbox", &mut command, dir.path().join("log"));
        process.wait_ready(&format!("http://{address}/readyz"));
        wait_for("both tables' runs", || {
            let text = text_of(&format!("http://{address}/api/v1/tables"));
            let list: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            let ran = |table: &Value| {
                !table["collected-at-ms"].is_null() && table["last-runs"]["rewrite-data-files"].is_object()
            };
            match list["tables"].as_array() {
                Some(tables) if tables.len() == 2 && tables.iter().all(ran) => Ok(()),
                _ => Err(text),
            }
        });
        Self { dir, address, _process: process }
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("sandbox/admin-token")).expect("the token")
    }

    /// Everything schemathesis can check; `authorization` goes with every request.
    fn check(&self, authorization: Option<String>) -> String {
        let mut command = Command::new(installed("schemathesis/bin/schemathesis"));
        command.args(["run", "--url", &format!("http://{}", self.address), "--seed", SEED, "--max-examples", EXAMPLES]);
        command.args(["--checks", "all", "--mode", "all", "--phases", "examples,coverage,fuzzing"]);
        if let Some(authorization) = authorization {
            command.args(["--header", &format!("Authorization: {authorization}")]);
        }
        // From the file: of a description that it fetches it leaves out the path where that was.
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/openapi.json")).current_dir(self.dir.path());
        let printed = output(&mut command).stdout;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        assert!(printed.contains("12 selected / 12 total"), "{printed}");
        printed
    }
}

/// The body of a page.
fn text_of(url: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match tokio::time::timeout(Duration::from_secs(5), async { reqwest::get(url).await?.text().await }).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        }
    })
}

#[test]
fn the_server_does_what_its_description_says() {
    let sandbox = Sandbox::start();
    let token = sandbox.token();
    for authorization in [Some(format!("Bearer {token}")), None, Some("Bearer wrong".into())] {
        let right = authorization.as_ref().is_some_and(|text| text.ends_with(&token));
        let printed = sandbox.check(authorization);
        assert_eq!(right, !printed.contains("7 operations returned only 401/403 responses"), "{printed}");
    }
    // Nothing that was asked has made it worse.
    let status: Value =
        serde_json::from_str(&text_of(&format!("http://{}/api/v1/status", sandbox.address))).expect("a status");
    assert_eq!(status["catalogs"][0]["up"], true);
}
