//! SeaweedFS: an S3 store and a REST catalog with OAuth2 that hands out scoped, short-lived storage credentials.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::lake::{AT_ONCE, Config, Digest, Engine, Judge, LIMITS, careful, not_ours, wait_maintained};
use super::process::{Process, free_port, installed, wait_for};

const BOTH: &[Engine] = &[Engine::DuckDb, Engine::PyIceberg];

struct SeaweedFs {
    judge: Judge,
    server: Process,
    // Last, so that it is removed after the server has ended.
    dir: TempDir,
}

impl SeaweedFs {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("make a folder");
        let (s3, catalog) = (free_port(), free_port());
        let iam = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/seaweedfs-iam.json");
        let mut command = Command::new(installed("venv/bin/weed"));
        command
            .args(["mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-s3.port.lance=0"])
            .arg(format!("-dir={}", dir.path().display()))
            .args(["-tableBucket=warehouse", "-s3.iceberg.credentialRole=arn:aws:iam::role/Vend"])
            .arg("-s3.iceberg.credentialDurationSeconds=900")
            .arg(format!("-s3.iam.config={}", iam.display()))
            .arg(format!("-s3.externalUrl=http://127.0.0.1:{s3}"))
            .args([format!("-s3.port={s3}"), format!("-s3.port.iceberg={catalog}")])
            .envs([("AWS_ACCESS_KEY_ID", "admin"), ("AWS_SECRET_ACCESS_KEY", "secretsecret"), ("S3_BUCKET", "plain")]);
        let others =
            ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"];
        for port in others.into_iter().chain(["s3.port.grpc", "admin.port", "admin.port.grpc"]) {
            command.arg(format!("-{port}={}", free_port()));
        }
        let mut server = Process::start("SeaweedFS", &mut command, dir.path().join("weed.log"));
        let uri = format!("http://127.0.0.1:{catalog}");
        server.wait_ready(&format!("{uri}/v1/config"));
        let options = ["--warehouse", "s3://warehouse", "--credential", "admin:secretsecret"];
        Self { judge: Judge { uri, options: options.map(String::from).to_vec() }, server, dir }
    }

    /// An empty log table. Asserts that its storage credentials are vended: without them clients would fall back on
    /// whatever their environment holds.
    fn create(&self, table: &str) {
        // The catalog answers a moment before its table bucket is made.
        let made = wait_for("the table bucket", || {
            let output = self.judge.command(&["create", table]).output().map_err(|e| e.to_string())?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
            serde_json::from_slice::<serde_json::Value>(&output.stdout).map_err(|e| e.to_string())
        });
        let vended = made["vended"].as_array().expect("a list");
        assert!(vended.iter().any(|key| key == "s3.session-token"), "no vended credentials: {made}");
    }

    fn append(&self, table: &str, options: &[&str]) -> Digest {
        let answer = self.judge.ask(&[&["append", table], options].concat());
        Digest::from_json(&answer)
    }

    fn config(&self, file: &str, tables: &str, policy: &str) -> Config {
        let port = free_port();
        let uri = &self.judge.uri;
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\n{LIMITS}\
             [catalogs.weed]\nuri = \"{uri}\"\nwarehouse = \"s3://warehouse\"\n\
             auth = {{ type = \"oauth2\", credential = {{ env = \"LAKE_CREDENTIAL\" }}, scope = \"PRINCIPAL_ROLE:ALL\" }}\n\
             [[policies]]\nname = \"tested\"\ntables = [\"{tables}\"]\n{policy}"
        );
        Config::write(self.dir.path().join(file), port, &text).with("LAKE_CREDENTIAL", "admin:secretsecret")
    }
}

/// Nothing in the log could sign or authorize a request.
fn assert_no_secret(log: &Path) {
    let log = std::fs::read(log).expect("read the log");
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("\"level\":\"TRACE\""), "everything is logged");
    // The client's secret, signatures in headers and queries, session tokens, and tokens as they begin (`{"` in base64).
    for mark in ["secretsecret", "Signature=", "Credential=", "ecurity-token", "ecurity-Token", "Bearer ey", "eyJ"] {
        let line = log.lines().find(|line| line.contains(mark));
        assert_eq!(line, None, "{mark}");
    }
}

#[test]
fn a_real_catalog_with_vended_credentials_and_other_writers() {
    let mut weed = SeaweedFs::start();
    weed.create("app.logs");
    weed.create("app.idle");
    weed.append("app.idle", &["--commits", "2"]);
    let idle = weed.judge.files("app.idle").snapshot_ids();
    let first = weed.append("app.logs", &["--commits", "12", "--rows", "500", "--hour", "2025-04-01 02"]);
    let second = weed.append("app.logs", &["--commits", "12", "--rows", "500", "--first-id", "5"]);
    assert_eq!(weed.judge.digest("app.logs", BOTH), first.plus(second));
    assert_eq!(weed.judge.ask(&["delete", "app.logs", "id % 10 = 3"])["deleted"], 1200);
    let before = weed.judge.digest("app.logs", BOTH);
    assert_eq!(before.rows, 10_800);
    assert!(weed.judge.files("app.logs").delete_files() > 0);

    // PyIceberg appends while the daemon works.
    let mut daemon = weed.config("run.toml", "weed.app.logs", &careful()).with("ICEWRIGHT_LOG", "trace").run();
    let appended = weed.append("app.logs", &["--commits", "15", "--first-id", "2000000000", "--pause", "0.1"]);
    let files = wait_maintained(&weed.judge, "app.logs", not_ours);
    weed.server.assert_running();
    daemon.assert_running();
    assert_eq!((files.data_files(), files.delete_files(), files.delete_manifests()), (2, 0, 0));
    let after = weed.judge.digest("app.logs", BOTH);
    assert_eq!(after, before.plus(appended));

    // DuckDB deletes from compacted files; the next run applies that as well.
    let compacted = files.snapshot_ids();
    assert_eq!(weed.judge.ask(&["delete", "app.logs", "id % 10 = 4"])["deleted"], 1350);
    let files = wait_for("the next run", || {
        let files = wait_maintained(&weed.judge, "app.logs", not_ours);
        if files.snapshot_ids() == compacted { Err("as before".into()) } else { Ok(files) }
    });
    assert_eq!(daemon.terminate(), Some(0));
    assert_no_secret(&weed.dir.path().join("run.log"));
    assert_eq!((files.data_files(), files.delete_files()), (2, 0));
    assert_eq!(weed.judge.digest("app.logs", BOTH).rows, after.rows - 1350);

    // Now that no one else writes, whatever the writers gave up may go as well.
    weed.config("once.toml", "weed.app.logs", AT_ONCE).once("weed.app.logs", &[]);
    weed.judge.assert_storage_exact("app.logs");
    assert_eq!(weed.judge.files("app.idle").snapshot_ids(), idle, "not ours to maintain");
}
