//! What the chart renders.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use icewright::config::Config;
use serde_json::{Value, json};

use super::{RENDERED, container, helm, judged, list, of_kind, one, pass, pod, read, root, selects, text_of};

#[test]
fn every_value_set_gives_the_objects_that_it_is_about() {
    let always = ["Pod", "ServiceAccount"];
    let daemon = ["ConfigMap", "Deployment", "Service"];
    let highly_available = ["NetworkPolicy", "Role", "RoleBinding"];
    let expected: BTreeMap<&str, Vec<&[&str]>> = BTreeMap::from([
        ("default", vec![&always[..], &daemon]),
        ("plain", vec![&always, &daemon]),
        ("digest", vec![&always, &daemon]),
        ("ha", vec![&always, &daemon, &highly_available, &["PodDisruptionBudget"]]),
        ("existing", vec![&["Pod", "Deployment", "Service"], &highly_available]),
        ("cronjob", vec![&always, &["ConfigMap", "CronJob", "NetworkPolicy"]]),
        (
            "everything",
            vec![&always, &daemon, &highly_available, &["PodDisruptionBudget", "ServiceMonitor", "PrometheusRule"]],
        ),
    ]);
    let kinds = |objects: &[Value]| -> BTreeSet<String> {
        objects.iter().filter_map(|object| object["kind"].as_str()).map(str::to_owned).collect()
    };
    let rendered: BTreeMap<&str, BTreeSet<String>> =
        RENDERED.iter().map(|(set, objects)| (set.as_str(), kinds(objects))).collect();
    let expected = expected
        .into_iter()
        .map(|(set, parts)| (set, parts.concat().into_iter().map(str::to_owned).collect()))
        .collect();
    assert_eq!(rendered, expected);
}

#[test]
fn every_pod_is_locked_down() {
    let mut seen = 0;
    for (set, object) in RENDERED.iter().flat_map(|(set, objects)| objects.iter().map(move |object| (set, object))) {
        let Some(pod) = pod(object) else { continue };
        seen += 1;
        let context = &pod["spec"]["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{set}");
        assert_eq!(context["runAsUser"], 65532, "{set}");
        assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{set}");
        // Variables named after a Service could look like icewright's own.
        assert_eq!(pod["spec"]["enableServiceLinks"], false, "{set}");
        for forbidden in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(pod["spec"][forbidden], Value::Null, "{set}");
        }
        let containers = pod["spec"]["containers"].as_array().expect("containers");
        assert_eq!((containers.len(), &pod["spec"]["initContainers"]), (1, &Value::Null), "{set}");
        let container = &containers[0];
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], expected, "{set}");
        for mount in container["volumeMounts"].as_array().expect("mounts") {
            assert_eq!((&mount["readOnly"], &mount["subPath"]), (&json!(true), &Value::Null), "{set}: {mount}");
        }
        let image = container["image"].as_str().expect("an image");
        let name = image.rsplit('/').next().expect("a name");
        assert!(name.contains(':') && !name.ends_with(":latest"), "{set}: {image}");
        // The API server's token is there only for the Lease.
        let leads = !of_kind(set, "Role").is_empty() && object["kind"] == "Deployment";
        assert_eq!(pod["spec"]["automountServiceAccountToken"], leads, "{set}");
        let resources = &container["resources"];
        assert_eq!(resources["limits"]["memory"], resources["requests"]["memory"], "{set}");
        assert!(resources["limits"]["memory"].is_string() && resources["limits"]["cpu"].is_null(), "{set}");
    }
    assert_eq!(seen, 2 * RENDERED.len(), "one that works and one that tests");
}

#[test]
fn what_belongs_together_finds_each_other() {
    for (set, objects) in RENDERED.iter() {
        let test = &one(set, "Pod")["metadata"]["labels"];
        let mut workers = objects.iter().filter(|object| object["kind"] != "Pod").filter_map(pod);
        let labels = &workers.next().expect("a worker")["metadata"]["labels"];
        for service in of_kind(set, "Service") {
            let selector = &service["spec"]["selector"];
            assert!(selects(selector, labels), "{set}");
            assert!(!selects(selector, test), "{set}: the test's pod serves nothing");
            assert_eq!(service["spec"]["ports"][0]["targetPort"], "http");
            let deployment = one(set, "Deployment");
            assert_eq!(container(deployment)["ports"][0]["name"], "http");
            assert_eq!(container(deployment)["ports"][0]["containerPort"], service["spec"]["ports"][0]["port"]);
            assert!(selects(&deployment["spec"]["selector"]["matchLabels"], labels), "{set}");
            for monitor in of_kind(set, "ServiceMonitor") {
                assert!(selects(&monitor["spec"]["selector"]["matchLabels"], &service["metadata"]["labels"]), "{set}");
                assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
            }
        }
        for budget in of_kind(set, "PodDisruptionBudget") {
            assert!(selects(&budget["spec"]["selector"]["matchLabels"], labels), "{set}");
        }
        for policy in of_kind(set, "NetworkPolicy") {
            let selector = &policy["spec"]["podSelector"]["matchLabels"];
            assert!(selects(selector, labels) && selects(selector, test), "{set}");
        }
        for binding in of_kind(set, "RoleBinding") {
            let role = one(set, "Role");
            assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"], "{set}");
            assert_eq!(binding["metadata"]["namespace"], role["metadata"]["namespace"], "{set}");
            let account = &pod(one(set, "Deployment")).expect("a pod")["spec"]["serviceAccountName"];
            let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "lake"});
            assert_eq!(binding["subjects"], json!([subject]), "{set}");
        }
    }
}

/// A Deployment's selector cannot be changed, so nothing that an upgrade may change can stand in it.
#[test]
fn selectors_hold_only_what_never_changes() {
    let expected = json!({
        "app.kubernetes.io/name": "icewright",
        "app.kubernetes.io/instance": "keeper",
        "app.kubernetes.io/component": "maintenance",
    });
    for set in RENDERED.keys().filter(|set| *set != "cronjob") {
        assert_eq!(one(set, "Deployment")["spec"]["selector"], json!({"matchLabels": expected}), "{set}");
    }
}

#[test]
fn the_configuration_inside_is_usable_and_its_secrets_are_there() {
    let mut secrets = 0;
    for (set, objects) in RENDERED.iter() {
        let Some(map) = objects.iter().find(|object| object["data"]["icewright.toml"].is_string()) else {
            assert_eq!(set, "existing");
            continue;
        };
        let text = map["data"]["icewright.toml"].as_str().expect("text");
        let loaded = Config::parse("icewright.toml", text).unwrap_or_else(|problems| panic!("{set}: {problems}"));
        assert_eq!(loaded.warnings, [], "{set}");
        for object in objects.iter().filter(|object| pod(object).is_some()) {
            let spec = &pod(object).expect("a pod")["spec"];
            let grace = Duration::from_secs(spec["terminationGracePeriodSeconds"].as_u64().expect("seconds"));
            assert_eq!(grace, loaded.config.server.grace + Duration::from_secs(10), "{set}");
            assert_eq!(spec["volumes"][0]["configMap"]["name"], map["metadata"]["name"], "{set}");
            let inside = container(object);
            let admin = loaded.config.server.admin_token.iter().map(|token| ("server.admin-token".to_owned(), token));
            for (key, secret) in loaded.config.catalogs.values().flat_map(|catalog| catalog.secrets()).chain(admin) {
                secrets += 1;
                let source = secret.to_string();
                let found = match source.strip_prefix("environment variable ") {
                    Some(variable) => list(&inside["env"]).iter().any(|env| env["name"] == variable),
                    None => list(&inside["volumeMounts"])
                        .iter()
                        .filter_map(|mount| mount["mountPath"].as_str())
                        .any(|path| source.contains(&format!("{path}/"))),
                };
                assert!(found, "{set}: {key}: {source}");
            }
        }
    }
    assert!(secrets >= 10, "{secrets}");
}

/// The objects for a configuration, and further arguments of helm.
fn render(config: &str, arguments: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("icewright.toml");
    std::fs::write(&file, config).expect("write");
    let file = format!("config={}", file.display());
    // The one command of the README, but for what needs a cluster.
    let command = [&["template", "icewright", "icewright", "--set-file", &file], arguments].concat();
    judged(&text_of(&helm(&command)))
}

#[test]
fn the_pod_follows_the_configuration() {
    let lake = "[catalogs.lake]\nuri = \"http://c\"\n[[policies]]\nname = \"a\"\ntables = [\"lake.**\"]\n";
    for (config, arguments, grace, memory) in [
        ("", &[][..], 40, "5Gi"),
        ("", &["--set", "memory=2Gi"], 40, "2Gi"),
        ("server.grace = \"1h 30m\"\n", &[], 5410, "5Gi"),
        ("server = { grace = \"1500ms\" }\n", &[], 12, "5Gi"),
        ("[limits]\nmemory = \"4GiB\"\n[server]\ngrace = \"2d\"\n", &[], 172_810, "5120Mi"),
        // The process itself needs 256 MiB, whatever the budget.
        ("limits.memory = \"512MiB\"\n", &[], 40, "768Mi"),
        ("limits.memory = \"1GB\"\n", &[], 40, "1210Mi"),
        ("limits.memory = \"1TiB\"\n", &[], 40, "1310720Mi"),
        ("limits.memory = \"4GiB\"\n", &["--set", "memory=6Gi"], 40, "6Gi"),
    ] {
        let objects = render(&format!("{config}{lake}"), arguments);
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
        let spec = &deployment["spec"]["template"]["spec"];
        assert_eq!(spec["terminationGracePeriodSeconds"], grace, "{config}");
        assert_eq!(container(deployment)["resources"]["limits"]["memory"], memory, "{config}");
        // What the daemon reads as its own file and what the chart has read of it agree.
        let loaded = Config::parse("icewright.toml", &format!("{config}{lake}")).expect("a usable configuration");
        assert!(Duration::from_secs(grace) >= loaded.config.server.grace + Duration::from_secs(10), "{config}");
    }
}

#[test]
fn a_configuration_arrives_as_it_was_written() {
    // Sections may have any name, and the first line may be indented.
    for name in ["env", "file"] {
        let config = format!("  # Ours.\n\n[catalogs.{name}]\nuri = \"http://c\"\n");
        let objects = render(&config, &[]);
        let map = objects.iter().find(|object| object["kind"] == "ConfigMap").expect("a ConfigMap");
        assert_eq!(map["data"]["icewright.toml"], config);
    }
}

/// As `kubectl get lease ... | sed` of the notes and the documentation does.
#[test]
fn the_leader_s_pod_is_cut_out_of_the_lease() {
    let command = "sed 's/_[^_]*$//'";
    for place in ["docs/deployment.md", "deploy/helm/icewright/templates/NOTES.txt"] {
        assert!(read(place).contains(command), "{place}");
    }
    let identity = b"keeper-icewright-5d9c-x2x_8f14e45f-ceea-467f-a9a6-6f2a3c1b0d4e\n";
    assert_eq!(pass(Command::new("sh").args(["-c", command]), identity), "keeper-icewright-5d9c-x2x\n");
}

#[test]
fn updates_overlap_only_under_leader_election() {
    assert_eq!(one("plain", "Deployment")["spec"]["strategy"], json!({"type": "Recreate"}));
    let ha = one("ha", "Deployment");
    assert_eq!((&ha["spec"]["strategy"]["type"], &ha["spec"]["replicas"]), (&json!("RollingUpdate"), &json!(3)));
    let env = list(&container(ha)["env"]);
    for (name, field) in [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")] {
        let found = env.iter().find(|env| env["name"] == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(found["valueFrom"]["fieldRef"]["fieldPath"], field);
    }
    for (set, lease, namespace) in [("ha", "icewright", "lake"), ("existing", "lake-policies", "leases")] {
        let role = one(set, "Role");
        assert_eq!(role["metadata"]["namespace"], namespace);
        let groups = json!(["coordination.k8s.io"]);
        let rules = json!([
            {"apiGroups": groups, "resources": ["leases"], "resourceNames": [lease], "verbs": ["get", "update"]},
            {"apiGroups": groups, "resources": ["leases"], "verbs": ["create"]},
        ]);
        assert_eq!(role["rules"], rules);
    }
}

#[test]
fn the_network_policy_opens_what_the_configuration_speaks_of() {
    let ports = |rule: &Value| -> Vec<u64> { list(&rule["ports"]).iter().filter_map(|p| p["port"].as_u64()).collect() };
    for (set, expected) in [
        // Name servers; addresses in the configuration; the API server; what else was asked for.
        ("ha", vec![vec![53, 53], vec![443, 8181], vec![443, 6443]]),
        ("cronjob", vec![vec![53, 53], vec![443, 9091]]),
        ("existing", vec![vec![53, 53], vec![443, 9000], vec![443, 6443]]),
        ("everything", vec![vec![53, 53], vec![443, 9000, 4318], vec![443, 6443], vec![80]]),
    ] {
        let policy = &one(set, "NetworkPolicy")["spec"];
        assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]), "{set}");
        assert_eq!(list(&policy["egress"]).iter().map(ports).collect::<Vec<_>>(), expected, "{set}");
        let expected = match set {
            "cronjob" => json!([]),
            "everything" => {
                let monitoring = json!({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}});
                json!([{"from": [{"namespaceSelector": monitoring}], "ports": [{"port": "http"}]}])
            }
            _ => json!([{"from": [{"namespaceSelector": {}}], "ports": [{"port": "http"}]}]),
        };
        assert_eq!(policy["ingress"], expected, "{set}");
    }
}

#[test]
fn each_workload_calls_what_it_is_for() {
    let arguments = |object: &Value| -> Vec<String> {
        list(&container(object)["args"]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let file = ["--config", "/etc/icewright/icewright.toml"];
    let plain = one("plain", "Deployment");
    assert_eq!(arguments(plain), [&["run", "--listen=0.0.0.0:9091"], &file[..]].concat());
    for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(container(plain)[probe]["httpGet"], json!({"path": path, "port": "http"}));
    }
    let job = one("cronjob", "CronJob");
    assert_eq!(arguments(job), [&["once", "--no-wait"], &file[..]].concat());
    assert_eq!((&job["spec"]["concurrencyPolicy"], &job["spec"]["timeZone"]), (&json!("Forbid"), &json!("Asia/Seoul")));
    assert_eq!(job["spec"]["jobTemplate"]["spec"]["backoffLimit"], 0);
    assert_eq!(container(job)["livenessProbe"], Value::Null, "it serves nothing");
    for set in RENDERED.keys().filter(|set| *set != "existing") {
        let test = one(set, "Pod");
        assert_eq!(test["metadata"]["annotations"]["helm.sh/hook"], "test");
        assert_eq!(arguments(test), [&["plan"], &file[..]].concat());
    }
    assert_eq!(arguments(one("existing", "Pod")), ["plan", "--config", "/etc/icewright/policies.toml"]);
    let digest = container(one("digest", "Deployment"))["image"].as_str().expect("an image");
    assert!(digest.starts_with("registry.example.com:5000/data/icewright@sha256:0123"), "{digest}");
}

#[test]
fn a_table_s_namespace_is_not_taken_for_the_pod_s() {
    let monitor = one("everything", "ServiceMonitor");
    assert_eq!(monitor["spec"]["endpoints"][0]["honorLabels"], true);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    // Rules count leaders by job and find icewright by the job's name.
    let job = json!({"targetLabel": "job", "replacement": "icewright/lake/keeper"});
    let relabelings = list(&monitor["spec"]["endpoints"][0]["relabelings"]);
    assert_eq!((relabelings.len(), &relabelings[0]), (2, &job));
}

/// The job for Kubernetes in the example configuration, which only a Prometheus in a cluster can load.
#[test]
fn the_example_scrapes_the_pods_as_the_operator_would() {
    let example = read("deploy/prometheus/prometheus.yml");
    let lines = example.lines().filter_map(|line| line.strip_prefix("  # "));
    let lines: Vec<&str> = lines.skip_while(|line| !line.starts_with("- job_name")).collect();
    let end = lines.iter().position(|line| line.starts_with(char::is_uppercase)).unwrap_or(lines.len());
    let job: Value = yaml_serde::from_str(&lines[..end].join("\n")).expect("YAML");
    let job = &job[0];
    assert_eq!(job["honor_labels"], true);
    let label = job["kubernetes_sd_configs"][0]["selectors"][0]["label"].as_str().expect("a selector");
    let labels = &pod(one("plain", "Deployment")).expect("a pod")["metadata"]["labels"];
    for (key, value) in label.split(',').filter_map(|pair| pair.split_once('=')) {
        assert_eq!(labels[key], value);
    }
    assert_eq!(job["relabel_configs"][0]["regex"], container(one("plain", "Deployment"))["ports"][0]["name"]);
    let named = &job["relabel_configs"][1];
    assert_eq!((&named["target_label"], &named["replacement"]), (&json!("job"), &json!("icewright/$1")));
}

#[test]
fn rules_and_dashboards_come_whole_and_with_the_place_of_their_runbooks() {
    let rules = of_kind("everything", "PrometheusRule");
    let names: Vec<&str> = rules.iter().filter_map(|rule| rule["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["lake-keeper-alerts", "lake-keeper-recording"]);
    let text = rules[0].to_string();
    assert!(text.contains("https://wiki.example.com/lake/operations.md#icewright"), "{text}");
    assert!(!text.contains("docs.example.com") && text.contains("{{ $labels.job }}"), "{text}");

    let dashboards = of_kind("everything", "ConfigMap").into_iter();
    let dashboards: Vec<&Value> =
        dashboards.filter(|map| map["metadata"]["labels"]["grafana_dashboard"] == "1").collect();
    let files = std::fs::read_dir(root().join("deploy/grafana")).expect("dashboards");
    let files: Vec<String> = files
        .filter_map(|file| file.expect("a file").file_name().into_string().ok())
        .filter(|name| name.ends_with(".json"))
        .collect();
    assert_eq!((dashboards.len(), files.len()), (2, 2), "{files:?}");
    for name in files {
        let map = dashboards.iter().find(|map| map["data"][&name].is_string()).unwrap_or_else(|| panic!("{name}"));
        let shipped = read(&format!("deploy/grafana/{name}"));
        let led = shipped.replace("https://docs.example.com/icewright/", "https://wiki.example.com/lake/");
        assert!(map["data"][&name] == led && led != shipped, "{name}");
        assert_eq!(map["metadata"]["annotations"]["grafana_folder"], "Lake");
    }
}

#[test]
fn a_changed_configuration_restarts_pods_only_if_asked_to() {
    let checksum =
        |set: &str| pod(one(set, "Deployment")).expect("a pod")["metadata"]["annotations"]["checksum/config"].clone();
    assert_eq!(checksum("plain"), Value::Null);
    assert_eq!(checksum("everything").as_str().map(str::len), Some(64));
}

#[test]
fn the_notes_name_what_was_installed() {
    for (set, commands) in [
        (
            "default",
            vec!["helm test keeper -n lake", "port-forward service/keeper-icewright 9091", "honor_labels: true"],
        ),
        ("cronjob", vec!["helm test keeper -n lake", "create job --from=cronjob/keeper-icewright"]),
        ("digest", vec!["helm test keeper -n lake"]),
        (
            "everything",
            vec![
                "icewright:0.1.0 names no registry",
                "get lease lake -o jsonpath='{.spec.holderIdentity}'",
                "port-forward \"pod/$pod\" 9100",
                "logs deployment/lake-keeper",
            ],
        ),
    ] {
        let values = format!("icewright/ci/{set}-values.yaml");
        let arguments = ["install", "keeper", "icewright", "-n", "lake", "--dry-run=client", "--values", &values];
        let text = text_of(&helm(&arguments));
        let notes = text.split_once("\nNOTES:\n").expect("notes").1;
        for command in commands {
            assert!(notes.contains(command), "{set}: {command}:\n{notes}");
        }
    }
}
