//! The deployment, as far as it can be judged without a cluster: the Helm chart rendered by helm for each value set in
//! its `ci` folder and judged by the schemas of Kubernetes and of the Prometheus Operator, the plain manifests, the image.

mod chart;
mod image;
mod pods;
mod values;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

use crate::interop::process::{installed, node};

/// The oldest version that Chart.yaml allows, and the newest that there are schemas for.
const KUBERNETES: [&str; 2] = ["1.25", "1.37"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Runs a program with `input`; what it printed. It must succeed, and is named by its first argument if it does not.
fn pass(command: &mut Command, input: &[u8]) -> String {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("start a program");
    // All of them read their input to its end before they print.
    child.stdin.take().expect("a pipe").write_all(input).expect("write to a program");
    text_of(&child.wait_with_output().expect("wait for a program"))
}

fn text_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// helm in the chart's parent folder, so that the chart is called `icewright`.
fn helm(arguments: &[&str]) -> Output {
    let mut command = Command::new(installed("kube/bin/helm"));
    command.current_dir(root().join("deploy/helm")).args(arguments).output().expect("start helm")
}

/// Manifests as values, after Kubernetes' own schemas, and those of the Prometheus Operator, have accepted them.
fn judged(manifests: &str) -> Vec<Value> {
    let program = root().join("tests/interop/kube/manifests.py");
    let mut judge = Command::new(installed("kube/bin/python3"));
    let json = pass(judge.arg(program).args(KUBERNETES), manifests.as_bytes());
    let objects: Vec<Value> = serde_json::from_str(&json).expect("JSON");
    let of_operator = |o: &&Value| o["apiVersion"].as_str().is_some_and(|v| v.starts_with("monitoring.coreos.com/"));
    let monitoring: Vec<&Value> = objects.iter().filter(of_operator).collect();
    if !monitoring.is_empty() {
        let program = root().join("tests/interop/kube/monitoring.mjs");
        let input = serde_json::to_vec(&monitoring).expect("JSON");
        pass(Command::new(node()).arg(program).arg(installed("kube")), &input);
    }
    objects
}

/// Objects of a release called `keeper` in the namespace `lake`, for each value set in the chart's `ci` folder.
static RENDERED: LazyLock<BTreeMap<String, Vec<Value>>> = LazyLock::new(|| {
    let folder = std::fs::read_dir(root().join("deploy/helm/icewright/ci")).expect("value sets");
    let render = |file: std::io::Result<std::fs::DirEntry>| {
        let file = file.expect("a value set").file_name().into_string().expect("UTF-8");
        let name = file.strip_suffix("-values.yaml").expect("SET-values.yaml").to_owned();
        let values = format!("icewright/ci/{file}");
        text_of(&helm(&["lint", "icewright", "--strict", "--values", &values]));
        let manifests = text_of(&helm(&["template", "keeper", "icewright", "-n", "lake", "--values", &values]));
        (name, judged(&manifests))
    };
    folder.map(render).collect()
});

/// Objects of a kind in a value set.
fn of_kind<'a>(set: &str, kind: &str) -> Vec<&'a Value> {
    RENDERED[set].iter().filter(|object| object["kind"] == kind).collect()
}

/// The only object of its kind in a value set.
fn one<'a>(set: &str, kind: &str) -> &'a Value {
    let found = of_kind(set, kind);
    assert_eq!(found.len(), 1, "{set}: {kind}");
    found[0]
}

/// The pod that an object makes; `None` if it makes none.
fn pod(object: &Value) -> Option<&Value> {
    let path = match object["kind"].as_str()? {
        "Pod" => "",
        "Deployment" => "/spec/template",
        "CronJob" => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer(path)
}

/// What a pod runs.
fn container(object: &Value) -> &Value {
    pod(object).and_then(|pod| pod.pointer("/spec/containers/0")).unwrap_or_else(|| panic!("{object} makes no pod"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether all of `wanted` is among the labels.
fn selects(wanted: &Value, labels: &Value) -> bool {
    let wanted = wanted.as_object().expect("labels");
    assert!(!wanted.is_empty(), "it selects everything");
    wanted.iter().all(|(key, value)| labels[key] == *value)
}

#[test]
fn what_is_generated_is_up_to_date() {
    let mut generate = Command::new(root().join("deploy/generate.sh"));
    pass(generate.arg("--check").env("HELM", installed("kube/bin/helm")), b"");
}

#[test]
fn kustomize_builds_the_plain_manifests() {
    let folder = root().join("deploy/kubernetes");
    let built = pass(Command::new(installed("kube/bin/kubectl")).arg("kustomize").arg(&folder), b"");
    let mut built = judged(&built);
    let mut files = Vec::new();
    for file in std::fs::read_dir(&folder).expect("manifests") {
        let path = file.expect("a file").path();
        if !path.ends_with("kustomization.yaml") {
            files.extend(judged(&std::fs::read_to_string(&path).expect("a manifest")));
        }
    }
    let kind = |object: &Value| object["kind"].to_string();
    built.sort_by_key(kind);
    files.sort_by_key(kind);
    assert_eq!(built, files);
    let kinds: Vec<&str> = files.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "Service", "ServiceAccount"]);
    for object in &files {
        let text = object.to_string();
        assert!(!text.contains("Helm") && !text.contains("helm.sh"), "{text}");
    }
}

/// The chart's installations that the documentation shows, on a configuration that reads the secret that they give.
#[test]
fn the_helm_commands_in_the_documentation_render() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink(root().join("deploy"), folder.path().join("deploy")).expect("a link");
    let mut seen = 0;
    for page in ["README.md", "docs/deployment.md", "deploy/helm/icewright/README.md"] {
        for line in
            read(page).lines().filter(|line| line.starts_with("helm install") || line.starts_with("helm upgrade"))
        {
            seen += 1;
            let credential =
                if line.contains("secretEnv") { "{ env = 'LAKE_CREDENTIAL' }" } else { "{ file = 'token' }" };
            let config = format!(
                "leader-election.enabled = true\n[catalogs.lake]\nuri = 'https://c'\n\
                 auth = {{ type = 'bearer', token = {credential} }}"
            );
            std::fs::write(folder.path().join("icewright.toml"), config).expect("write");
            // There is no release to take values from.
            let line = line.replace("helm install", "\"$HELM\" template").replace("helm upgrade", "\"$HELM\" template");
            let line = line.replace(" --reset-then-reuse-values", "");
            let mut shell = Command::new("bash");
            shell.args(["-c", &line]).env("HELM", installed("kube/bin/helm")).current_dir(folder.path());
            judged(&pass(&mut shell, b""));
        }
    }
    assert!(seen >= 6, "{seen}");
}
