//! A catalog with tables in it, the daemon's configuration for it, and the judges' questions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use icewright::run_id::RunId;
use serde_json::Value;
use tempfile::TempDir;

use super::process::{ICEWRIGHT, Process, free_port, installed, output, wait_for};

/// How judges and writers reach a catalog.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    /// The REST catalog.
    pub(super) uri: String,
    /// `--warehouse` and `--credential`, if it needs them.
    pub(super) options: Vec<String>,
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// The reference implementation; local files only.
    Java,
    /// Not for equality deletes whose columns are NULL.
    DuckDb,
    /// Not for equality deletes.
    PyIceberg,
}

/// For local tables without equality deletes, such as any that were maintained.
pub(super) const ALL: &[Engine] = &[Engine::Java, Engine::DuckDb, Engine::PyIceberg];

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::DuckDb => "duckdb",
            Self::PyIceberg => "pyiceberg",
        }
    }
}

/// A row multiset: how many, and two sums over the hashes of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) rows: u64,
    sum: i128,
    xor: u64,
}

impl Digest {
    /// Reads a judge's answer.
    pub(super) fn from_json(answer: &Value) -> Self {
        let number = |key: &str| answer[key].as_str().unwrap_or_else(|| panic!("{key} in {answer}"));
        Self {
            rows: answer["rows"].as_u64().expect("a row count"),
            sum: number("sum").parse().expect("a sum"),
            xor: number("xor").parse().expect("an xor"),
        }
    }

    /// The digest of both multisets together.
    pub(super) fn plus(self, other: Self) -> Self {
        Self { rows: self.rows + other.rows, sum: self.sum + other.sum, xor: self.xor ^ other.xor }
    }
}

impl Judge {
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(installed("venv/bin/python"));
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/judge.py"));
        command.args(["--uri", &self.uri]).args(&self.options).args(arguments);
        command
    }

    /// Asks one of the questions that `judge.py` lists.
    pub(super) fn ask(&self, arguments: &[&str]) -> Value {
        let output = output(&mut self.command(arguments));
        serde_json::from_slice(&output.stdout).expect("a JSON answer")
    }

    /// Asks a question that takes its time.
    pub(super) fn start(&self, arguments: &[&str], log: PathBuf) -> Process {
        Process::start(arguments[0], &mut self.command(arguments), log)
    }

    /// The live rows as the engines read them, who must agree.
    pub(super) fn digest(&self, table: &str, engines: &[Engine]) -> Digest {
        let mut question = vec!["digest", table];
        question.extend(engines.iter().map(|engine| engine.name()));
        let answer = self.ask(&question);
        let digests: Vec<_> = engines.iter().map(|engine| Digest::from_json(&answer[engine.name()])).collect();
        assert!(digests.iter().all(|d| *d == digests[0]), "engines disagree on {table}: {answer}");
        digests[0]
    }

    /// Files and snapshots of the table.
    pub(super) fn files(&self, table: &str) -> Files {
        Files(self.ask(&["files", table]))
    }

    /// Files in storage that nothing reaches, but those that `may_stay`. Asserts that every reachable file exists.
    pub(super) fn unreachable(&self, table: &str, may_stay: impl Fn(&str) -> bool) -> Vec<String> {
        let storage = self.ask(&["storage", table]);
        assert_eq!(storage["missing"], Value::Array(vec![]), "reachable files are gone");
        let all = storage["unreachable"].as_array().expect("a list").iter().filter_map(Value::as_str);
        all.filter(|path| !may_stay(path)).map(String::from).collect()
    }

    /// Asserts that storage holds exactly the reachable files.
    pub(super) fn assert_storage_exact(&self, table: &str) {
        assert_eq!(self.unreachable(table, |_| false), [""; 0], "unreachable files are left");
    }
}

/// A judge's answer about a table's files and snapshots.
#[derive(Debug)]
pub(super) struct Files(Value);

impl Files {
    /// Data files of the current snapshot.
    pub(super) fn data_files(&self) -> u64 {
        self.0["data_files"].as_u64().expect("a count")
    }

    /// Delete files of the current snapshot.
    pub(super) fn delete_files(&self) -> u64 {
        self.0["delete_files"].as_u64().expect("a count")
    }

    /// Manifests of the current snapshot that list live delete files.
    pub(super) fn delete_manifests(&self) -> u64 {
        self.0["manifests"]["deletes"].as_u64().expect("a count")
    }

    /// Partition value and the number of its data files.
    pub(super) fn partitions(&self) -> Vec<(String, u64)> {
        let partitions = self.0["partitions"].as_object().expect("partitions");
        partitions.iter().map(|(name, p)| (name.clone(), p["files"].as_u64().expect("a count"))).collect()
    }

    /// Sizes in bytes of all data files of the current snapshot.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let partitions = self.0["partitions"].as_object().expect("partitions");
        let sizes = partitions.values().flat_map(|p| p["sizes"].as_array().expect("sizes"));
        sizes.map(|size| size.as_u64().expect("a size")).collect()
    }

    fn snapshots(&self) -> &[Value] {
        self.0["snapshots"].as_array().expect("snapshots")
    }

    /// Retained snapshots, oldest first.
    pub(super) fn snapshot_ids(&self) -> Vec<i64> {
        self.snapshots().iter().map(|s| s["id"].as_i64().expect("an id")).collect()
    }

    /// The run that made each retained snapshot; `None` for those of other writers.
    pub(super) fn runs(&self) -> Vec<Option<&str>> {
        self.snapshots().iter().map(|s| s["summary"][icewright::run_id::SUMMARY_RUN_ID].as_str()).collect()
    }

    /// Whether each partition is one file and no delete file is left.
    pub(super) fn compact(&self) -> bool {
        self.delete_files() == 0 && self.partitions().iter().all(|(_, files)| *files == 1)
    }

    /// Whether the current snapshot is a rewrite by the daemon and the only one left.
    pub(super) fn maintained(&self) -> bool {
        self.runs().len() == 1 && self.runs()[0].is_some()
    }
}

/// The most that one run may take; half of it later the files of a killed run are known to be garbage.
pub(super) const LIMITS: &str = "[limits]\nrun-timeout = \"60s\"\n";

/// The policy of most tests: everything at once, as if the table were committed to every millisecond. Only for tables that no one else writes to meanwhile: a file that a
/// writer has not committed yet would count as garbage.
pub(super) const AT_ONCE: &str = r#"
commit-interval = "1ms"
every = "1s"
delay = "0s"
[policies.rewrite-data-files]
rewrite-all = true
target-file-size = "64MiB"
[policies.expire-snapshots]
older-than = "1x"
retain-last = 1
[policies.remove-orphan-files]
older-than = "1x"
unproven-min-age = "1x"
"#;

/// [`AT_ONCE`] for tables with other writers: garbage goes at once if it is proven, else after a day.
pub(super) fn careful() -> String {
    AT_ONCE.replace("unproven-min-age = \"1x\"\n", "")
}

/// [`AT_ONCE`], but with a long delay between compaction and clean-up.
pub(super) fn delayed() -> String {
    AT_ONCE.replace(r#"delay = "0s""#, r#"delay = "1h""#)
}

/// The embedded catalog with an empty warehouse beside it.
pub(super) struct Lake {
    pub(super) judge: Judge,
    catalog: Process,
    files: AtomicUsize,
    // Last, so that it is removed after the processes have ended.
    dir: TempDir,
}

impl Lake {
    /// Starts `icewright catalog`.
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().expect("make a folder");
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(ICEWRIGHT);
        command.arg("catalog").arg("--dir").arg(dir.path().join("catalog")).args(["--listen", &address]);
        let mut catalog = Process::start("icewright catalog", &mut command, dir.path().join("catalog.log"));
        let uri = format!("http://{address}");
        catalog.wait_ready(&format!("{uri}/v1/config"));
        Self { judge: Judge { uri, options: vec![] }, catalog, files: AtomicUsize::new(0), dir }
    }

    /// A path in the lake's folder that no one else uses.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{}-{name}", self.files.fetch_add(1, Ordering::Relaxed)))
    }

    /// Where the Java library keeps a table's files.
    pub(super) fn table_dir(&self, table: &str) -> PathBuf {
        self.dir.path().join("warehouse").join(table.replace('.', "/"))
    }

    /// Lets the Java library make a table (see `Fixtures.java`) and registers it. With `scheme` (`file://` or nothing)
    /// before its location.
    pub(super) fn fixture(&self, scheme: &str, kind: &str, table: &str, options: &[&str]) {
        let metadata = self.java_fixture(
            &format!("{scheme}{}", self.dir.path().join("warehouse").display()),
            kind,
            table,
            options,
        );
        self.judge.ask(&["register", table, &metadata]);
    }

    /// Lets the Java library make a table, or go on with one, through the catalog itself.
    pub(super) fn remote_fixture(&self, kind: &str, table: &str, options: &[&str]) {
        self.java_fixture(&self.judge.uri, kind, table, options);
    }

    fn java_fixture(&self, warehouse: &str, kind: &str, table: &str, options: &[&str]) -> String {
        let classes = format!("{}:{}/*", installed("classes").display(), installed("jars").display());
        let mut command = Command::new("java");
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", &classes, "Fixtures"]);
        let made = output(command.args([warehouse, kind, table]).args(options));
        String::from_utf8(made.stdout).expect("text").trim().into()
    }

    /// Writes a configuration with one policy for all tables of the catalog at `uri`.
    pub(super) fn config(&self, uri: &str, policy: &str) -> Config {
        self.config_with(LIMITS, uri, policy)
    }

    /// The same for a daemon whose commits are held up: a request is waited for a quarter of the run's time at most.
    pub(super) fn patient_config(&self, uri: &str, policy: &str) -> Config {
        self.config_with("[limits]\nrun-timeout = \"30m\"\n", uri, policy)
    }

    fn config_with(&self, limits: &str, uri: &str, policy: &str) -> Config {
        let port = free_port();
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\n{limits}[catalogs.lake]\nuri = \"{uri}\"\nauth = {{ type = \"none\" }}\n\
             properties = {{ \"rest.client.request-timeout-ms\" = \"600000\" }}\n\
             [[policies]]\nname = \"tested\"\ntables = [\"lake.*.*\"]\n{policy}"
        );
        Config::write(self.path("icewright.toml"), port, &text)
    }

    /// Waits until the daemon has compacted the (small) table, expired what it had to and removed all garbage.
    pub(super) fn wait_maintained(&mut self, table: &str) -> Files {
        self.catalog.assert_running();
        wait_maintained(&self.judge, table, |_| false)
    }

    /// The same, but what another writer gave up may be left.
    pub(super) fn wait_maintained_beside_others(&mut self, table: &str) -> Files {
        self.catalog.assert_running();
        wait_maintained(&self.judge, table, not_ours)
    }
}

/// Whether a file was made by someone else than the daemon, by its name.
pub(super) fn not_ours(path: &str) -> bool {
    RunId::from_file_name(path).is_none()
}

/// See [`Lake::wait_maintained`]; garbage that `may_stay` is not waited for.
pub(super) fn wait_maintained(judge: &Judge, table: &str, may_stay: impl Fn(&str) -> bool) -> Files {
    wait_for(&format!("{table} to be maintained"), || {
        let files = judge.files(table);
        let left = judge.unreachable(table, &may_stay);
        let done = left.is_empty() && files.maintained() && files.compact();
        if done { Ok(files) } else { Err(format!("{files:?} left: {left:?}")) }
    })
}

/// A configuration file, and the secrets that it takes from the environment.
pub(super) struct Config {
    path: PathBuf,
    port: u16,
    environment: Vec<(&'static str, &'static str)>,
}

impl Config {
    /// Writes it. `port` is where its server listens.
    pub(super) fn write(path: PathBuf, port: u16, text: &str) -> Self {
        std::fs::write(&path, text).expect("write a configuration");
        Self { path, port, environment: vec![] }
    }

    /// With a variable in the environment of the daemon.
    pub(super) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(ICEWRIGHT);
        command.arg(verb).arg("--config").arg(&self.path).envs(self.environment.iter().copied());
        command
    }

    /// One pass over a table in the foreground, which must succeed; the report.
    pub(super) fn once(&self, table: &str, options: &[&str]) -> Value {
        let output = output(self.command("once").args([table, "--json"]).args(options));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!("the report is no JSON: {e}\n{}", String::from_utf8_lossy(&output.stdout));
        })
    }

    /// Starts the daemon and waits until it is ready.
    pub(super) fn run(&self) -> Process {
        let mut daemon = self.run_unready();
        daemon.wait_ready(&format!("http://127.0.0.1:{}/readyz", self.port));
        daemon
    }

    /// Starts the daemon without waiting.
    pub(super) fn run_unready(&self) -> Process {
        Process::start("icewright run", &mut self.command("run"), self.path.with_extension("log"))
    }
}
