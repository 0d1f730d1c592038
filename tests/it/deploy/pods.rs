//! What the pods run, run here: with the arguments that the chart gives, on a folder as the kubelet mounts a ConfigMap.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{container, list, one};
use crate::interop::process::{ICEWRIGHT, Process, free_port, output, wait_for};

/// A mounted ConfigMap: `icewright.toml -> ..data/icewright.toml`, `..data -> ..VERSION`.
struct Mount {
    dir: TempDir,
    versions: usize,
}

impl Mount {
    fn new(config: &str) -> Self {
        let mut mount = Self { dir: tempfile::tempdir().expect("a temporary directory"), versions: 0 };
        mount.update(config);
        symlink("..data/icewright.toml", mount.path()).expect("a link");
        mount
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("icewright.toml")
    }

    /// All files of a version change at once, by one rename.
    fn update(&mut self, config: &str) {
        self.versions += 1;
        let version = format!("..{}", self.versions);
        let folder = self.dir.path().join(&version);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("icewright.toml"), config).expect("write");
        symlink(&version, self.dir.path().join("..data_tmp")).expect("a link");
        std::fs::rename(self.dir.path().join("..data_tmp"), self.dir.path().join("..data")).expect("a rename");
    }
}

/// What the container of an object runs, on another file and port.
fn command(object: &Value, config: &Path, port: u16) -> Command {
    let arguments = list(&container(object)["args"]).iter().filter_map(Value::as_str);
    let arguments: Vec<String> = arguments
        .map(|argument| match argument {
            "/etc/icewright/icewright.toml" => config.to_string_lossy().into_owned(),
            _ => argument.replace("0.0.0.0:9091", &format!("127.0.0.1:{port}")),
        })
        .collect();
    assert!(arguments.iter().any(|argument| Path::new(argument) == config), "{arguments:?}");
    let mut command = Command::new(ICEWRIGHT);
    command.args(arguments).env_remove("ICEWRIGHT_CONFIG").env_remove("ICEWRIGHT_LOG");
    command
}

fn metrics(port: u16) -> String {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await.expect("an answer");
        answer.text().await.expect("text")
    })
}

#[test]
fn the_pods_work_on_the_mounted_configuration_and_the_daemon_follows_its_changes() {
    let lake = tempfile::tempdir().expect("a temporary directory");
    let (catalog_port, port) = (free_port(), free_port());
    let mut serve = Command::new(ICEWRIGHT);
    serve.args(["catalog", "--dir"]).arg(lake.path().join("warehouse")).arg("--listen");
    serve.arg(format!("127.0.0.1:{catalog_port}"));
    let mut catalog = Process::start("catalog", &mut serve, lake.path().join("catalog.log"));
    catalog.wait_ready(&format!("http://127.0.0.1:{catalog_port}/v1/config"));

    // The address that the server shall not listen on is the default.
    let config = |every: &str| {
        format!(
            "[catalogs.lake]\nuri = \"http://127.0.0.1:{catalog_port}\"\n\
             [[policies]]\nname = \"everything\"\ntables = [\"lake.**\"]\nevery = \"{every}\"\n"
        )
    };
    let mut mount = Mount::new(&config("1h"));
    output(&mut command(one("default", "Pod"), &mount.path(), port));
    output(&mut command(one("cronjob", "CronJob"), &mount.path(), port));

    let deployment = one("default", "Deployment");
    let mut run = command(deployment, &mount.path(), port);
    let mut daemon = Process::start("run", &mut run, lake.path().join("run.log"));
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = container(deployment)[probe]["httpGet"]["path"].as_str().expect("a path");
        daemon.wait_ready(&format!("http://127.0.0.1:{port}{path}"));
    }
    let reloads = |outcome: &str, count: u32| {
        let line = format!("icewright_config_reloads_total{{outcome=\"{outcome}\"}} {count}\n");
        wait_for(&line, || {
            let text = metrics(port);
            if text.contains(&line) { Ok(()) } else { Err("other numbers".into()) }
        });
    };
    reloads("success", 0);
    mount.update(&config("2h"));
    reloads("success", 1);
    mount.update(&config("2 hours"));
    reloads("failed", 1);
    daemon.assert_running();
    assert_eq!(daemon.terminate(), Some(0));
}
