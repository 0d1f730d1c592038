//! Every shipped configuration loads, and bad files give the expected list of problems.

use std::path::{Path, PathBuf};
use std::time::Duration;

use icewright::cli::check::check;
use icewright::config::{AuthConfig, Config, LoadedConfig, Secret};
use icewright::policy::{
    CommitInterval, PartitionSelection, ResolvedPolicy, Schedule, Setting, Span, TablePolicy, Window,
};
use icewright::table::TableName;
use proptest::prelude::*;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name)
}

fn load(path: &Path) -> LoadedConfig {
    Config::load(path).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn parse(text: &str) -> LoadedConfig {
    Config::parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn resolve(config: &Config, table: &str) -> ResolvedPolicy {
    let name: TableName = table.parse().expect("a table name");
    config.policies.resolve(&name).expect("no contradiction").expect("a policy")
}

/// The example of the design, word for word.
const EXAMPLE: &str = include_str!("../golden/config/example.toml");

#[test]
fn the_example_means_what_it_says() {
    let LoadedConfig { config, warnings, .. } = parse(EXAMPLE);
    assert_eq!(warnings, []);
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:9091");
    assert_eq!((config.limits.memory_bytes, config.limits.concurrent_tables), (Some(4 << 30), 4));
    let lake = &config.catalogs["lake"];
    assert_eq!((lake.uri.as_str(), lake.warehouse.as_deref()), ("http://localhost:8181", Some("demo")));
    assert_eq!(lake.resolve_properties().expect("plain")["s3.region"], "ap-northeast-2");
    let credential = Secret::Env("LAKE_CREDENTIAL".into());
    assert_eq!(lake.auth, AuthConfig::OAuth2 { credential, scope: "PRINCIPAL_ROLE:ALL".into(), server_uri: None });

    let db = resolve(&config, "lake.cdc.orders");
    assert_eq!(db.names, ["db-logs"]);
    assert_eq!(db.policy.schedule, Schedule::Cron("0 6,18 * * *".into()));
    assert_eq!(db.policy.time_zone, "Asia/Seoul");
    assert_eq!(db.policy.delay, Span::Intervals(3.0));
    assert_eq!(db.policy.commit_interval, CommitInterval::Fixed(Duration::from_secs(600)));
    assert!(db.policy.rewrite_data_files.rewrite_all && db.policy.rewrite_data_files.partial_progress.enabled);
    assert_eq!(db.policy.rewrite_data_files.target_file_size_bytes, Some(256 << 20));
    assert_eq!(db.policy.remove_orphan_files.unproven_min_age, Span::Fixed(Duration::from_secs(86400)));
    assert_eq!(db.origins["rewrite-data-files.target-file-size"].to_string(), "policy \"db-logs\" line 24");
    assert_eq!(db.origins["commit-interval"].to_string(), "[defaults] line 13");
    assert_eq!(db.origins["rewrite-data-files.min-input-files"].to_string(), "built-in default");
    assert_eq!(db.origins.len(), Setting::KEYS.len());

    let logs = resolve(&config, "lake.logs.web");
    assert_eq!(logs.policy.commit_interval, CommitInterval::Fixed(Duration::from_secs(60)));
    assert_eq!(logs.policy.schedule, Schedule::Every(Duration::from_secs(3600)));
    assert_eq!(logs.policy.rewrite_data_files.max_concurrent_file_group_rewrites, 1);
    assert_eq!(
        logs.policy.rewrite_data_files.partitions,
        PartitionSelection::Window {
            column: "hour".into(),
            window: Window::PreviousHour,
            format: Some("%Y-%m-%d %H".into())
        }
    );
    assert_eq!(config.policies.resolve(&"lake.other.t".parse().expect("name")).expect("no contradiction"), None);
}

#[test]
fn every_shipped_file_loads_without_a_warning() {
    for name in ["icewright.toml", "policies/db-logs.toml", "policies/server-logs.toml"] {
        assert_eq!(load(&shipped(name)).warnings, [], "{name}");
    }
    let shipped_policies = std::fs::read_dir(shipped("policies")).expect("folder").count();
    assert_eq!(shipped_policies, 2, "each shipped policy is named here");
    let db = resolve(&load(&shipped("policies/db-logs.toml")).config, "lake.cdc.t").policy;
    let interval = Duration::from_secs(600);
    assert_eq!(db.delay.resolve(interval), Duration::from_secs(30 * 60));
    assert_eq!(db.expire_snapshots.older_than.resolve(interval), Duration::from_secs(20 * 60));
    let logs = resolve(&load(&shipped("policies/server-logs.toml")).config, "lake.logs.t").policy;
    assert_eq!(logs.delay.resolve(Duration::from_secs(60)), Duration::from_secs(180));
}

/// The reference file says what happens anyway, and its commented examples are valid too.
#[test]
fn the_reference_file_holds_every_key_with_its_default() {
    let path = shipped("icewright.toml");
    let text = std::fs::read_to_string(&path).expect("readable");
    let said = load(&path).config;
    let bare = parse("catalogs.lake.uri = 'http://localhost:8181'\npolicies = [{ name = 'a', tables = ['lake.**'] }]");
    assert_eq!(
        (&said.server, &said.limits, &said.metrics),
        (&bare.config.server, &bare.config.limits, &bare.config.metrics)
    );
    assert_eq!(said.catalogs, bare.config.catalogs);
    assert_eq!(resolve(&said, "lake.a.b").policy, TablePolicy::default());
    assert_eq!(resolve(&bare.config, "lake.a.b").policy, TablePolicy::default());

    for key in Setting::KEYS {
        let key = key.strip_prefix("rewrite-data-files.partial-").map_or(*key, |_| key);
        let last = match key.split_once("partial-progress.") {
            Some(_) => key.trim_start_matches("rewrite-data-files."),
            None => key.rsplit('.').next().expect("a last part"),
        };
        assert!(text.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{last} ="))), "{key}");
    }

    // Each commented example takes the place of what stands there, one at a time.
    let examples: Vec<(usize, String)> = text
        .lines()
        .enumerate()
        .filter_map(|(i, line)| Some((i, line.strip_prefix("# ")?.to_owned())))
        .filter(|(_, line)| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')))
        .collect();
    assert!(examples.len() >= 15, "{examples:?}");
    for (at, example) in examples {
        let key = example.split(" = ").next().expect("a key");
        let replaced = if key == "schedule" { "every" } else { key };
        let mut lines: Vec<&str> = text.lines().collect();
        lines[at] = &example;
        let changed: Vec<&str> = lines
            .iter()
            .enumerate()
            .filter(|(i, line)| *i == at || !line.starts_with(&format!("{replaced} =")))
            .map(|(_, line)| *line)
            .collect();
        parse(&changed.join("\n"));
    }
}

/// Each `tests/golden/config/*.bad.toml` gives the text beside it. `BLESS=1` writes what was given.
#[test]
fn bad_files_list_all_their_problems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/config");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).expect("folder") {
        let path = entry.expect("entry").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".bad.toml"))
        else {
            continue;
        };
        seen += 1;
        let text = std::fs::read_to_string(&path).expect("readable");
        let given = match Config::parse(name, &text) {
            Ok(loaded) => loaded.warnings.iter().map(ToString::to_string).collect(),
            Err(problems) => problems.to_string(),
        };
        let golden = path.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&golden, &given).expect("writable");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert!(given == expected, "{name} gives\n{given}\ninstead of\n{expected}");
        assert!(!given.contains("hunter2"), "{name}: a secret is shown");
    }
    assert_eq!(seen, 6);
}

#[test]
fn check_tells_by_its_exit_code_and_lists_everything() {
    let mut out = Vec::new();
    assert_eq!(check(&shipped("icewright.toml"), &mut out), 0);
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.ends_with("icewright.toml: ok: 1 catalog, 1 policy, 0 warnings\n"), "{text}");

    let mut out = Vec::new();
    assert_eq!(check(Path::new("surely/missing.toml"), &mut out), 2);
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.starts_with("surely/missing.toml: error: cannot be read: "), "{text}");

    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("c.toml");
    let unset = "policies = [{ name = 'a', tables = ['lake.**'] }]\n[catalogs.lake]\nuri = 'https://c'\n\
                 auth = { type = 'bearer', token = { env = 'ICEWRIGHT_TEST_SURELY_UNSET' } }\n";
    std::fs::write(&path, unset).expect("writable");
    let mut out = Vec::new();
    assert_eq!(check(&path, &mut out), 0, "the daemon may run elsewhere");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.contains("warning: catalogs.lake.auth.token: secret from environment variable"), "{text}");
    assert!(text.ends_with(" 1 warning\n"), "{text}");

    let more = "[server]\nadmin-token = { env = 'ICEWRIGHT_TEST_SURELY_UNSET' }\n[traces]\nendpoint = 'http://collector:4318'\n\
                headers = { x = { env = 'ICEWRIGHT_TEST_SURELY_UNSET' } }\n";
    std::fs::write(&path, format!("{unset}{more}")).expect("writable");
    let mut out = Vec::new();
    assert_eq!(check(&path, &mut out), 0);
    let text = String::from_utf8(out).expect("UTF-8");
    for key in ["server.admin-token: secret from", "traces.headers.x: secret from"] {
        assert!(text.contains(&format!("warning: {key} environment variable")), "{text}");
    }
    let clear = ":9:1: warning: traces.headers: the secret travels unencrypted, since the endpoint is plain http";
    assert!(text.contains(clear) && text.ends_with(" 4 warnings\n"), "{text}");

    std::fs::write(&path, "[limits]\nmemory = 4\nconcurrent-tables = 0\n").expect("writable");
    let mut out = Vec::new();
    assert_eq!(check(&path, &mut out), 2);
    let text = String::from_utf8(out).expect("UTF-8");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(": error: ")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(text.ends_with("3 errors\n"), "{text}");
}

#[test]
fn nothing_that_formats_a_configuration_shows_a_secret() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("token"), "hunter2\n").expect("writable");
    let file = dir.path().join("c.toml");
    let text = "[catalogs.lake]\nuri = 'https://c'\nauth = { type = 'bearer', token = { file = 'token' } }\n\
                properties = { 's3.secret-access-key' = { file = 'token' }, 's3.region' = 'r' }\n";
    let loaded = Config::parse(&file.display().to_string(), text).unwrap_or_else(|problems| panic!("{problems}"));
    let lake = &loaded.config.catalogs["lake"];
    let secrets: Vec<_> = lake.secrets().map(|(key, secret)| (key, secret.resolve())).collect();
    assert_eq!(secrets.len(), 2);
    for (key, secret) in secrets {
        assert_eq!(secret.expect("beside the configuration").expose(), "hunter2", "{key}");
    }
    assert_eq!(lake.resolve_properties().expect("resolved")["s3.secret-access-key"], "hunter2");
    assert_eq!(lake.resolve_properties().expect("resolved")["s3.region"], "r");
    let again = lake.resolve_secret_properties().expect("resolved");
    assert_eq!(again.keys().collect::<Vec<_>>(), ["s3.secret-access-key"], "the others are the catalog's to override");
    assert!(!format!("{:?}", loaded.config).contains("hunter2"));
}

#[test]
fn several_policies_are_merged_key_by_key_most_specific_last() {
    let text = r#"
catalogs.lake.uri = "http://localhost"
[defaults]
delay = "5x"
[[policies]]
name = "orders"
tables = ["lake.cdc.orders"]
expire-snapshots.retain-last = 7
[[policies]]
name = "cdc"
tables = ["lake.cdc.*", "lake.x.**"]
delay = "4x"
expire-snapshots = { retain-last = 5, older-than = "1d" }
[[policies]]
name = "all"
tables = ["lake.**"]
delay = "1x"
rewrite-data-files.rewrite-all = true
remove-orphan-files.older-than = "3d"
"#;
    let config = parse(text).config;
    let orders = resolve(&config, "lake.cdc.orders");
    assert_eq!(orders.names, ["all", "cdc", "orders"]);
    assert_eq!(orders.policy.delay, Span::Intervals(4.0));
    assert_eq!(orders.policy.expire_snapshots.retain_last, 7);
    assert_eq!(orders.policy.expire_snapshots.older_than, Span::Fixed(Duration::from_secs(86400)));
    assert!(orders.policy.rewrite_data_files.rewrite_all);
    assert_eq!(orders.origins["delay"].to_string(), "policy \"cdc\" line 12");
    // The built-in 24 h would be shorter than the age asked for.
    assert_eq!(orders.policy.remove_orphan_files.unproven_min_age, Span::Fixed(Duration::from_secs(3 * 86400)));
    assert_eq!(resolve(&config, "lake.other.t").policy.delay, Span::Intervals(1.0));
    // Equally specific: the later one in the file is heard last.
    let tie = "catalogs.lake.uri = 'http://localhost'\n\
               policies = [{ name = 'a', tables = ['lake.a.*'], delay = '1x' }, { name = 'b', tables = ['lake.a.*'], delay = '2x', every = '2h' }]";
    let tie = parse(tie);
    assert_eq!(resolve(&tie.config, "lake.a.t").policy.delay, Span::Intervals(2.0));
    assert_eq!(tie.warnings.len(), 1, "a is never heard");
}

#[test]
fn policies_that_contradict_each_other_only_on_one_table_stop_that_table() {
    // No pattern stands for a table that both match, so only the table itself shows it.
    let text = "catalogs.lake.uri = 'http://localhost'\n\
                [[policies]]\nname = 'a'\ntables = ['lake.x*.*']\nrewrite-data-files.target-file-size = '64MiB'\n\
                [[policies]]\nname = 'b'\ntables = ['lake.*z.*']\nrewrite-data-files.min-file-size = '100MiB'\n";
    let config = parse(text).config;
    assert!(config.policies.resolve(&"lake.x.t".parse().expect("name")).expect("fine").is_some());
    let error = config.policies.resolve(&"lake.xz.t".parse().expect("name")).expect_err("contradiction").to_string();
    assert!(error.contains("policy \"b\" line 9") && error.contains("policy \"a\" line 5"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No text makes the reader panic, and each problem stands on a line of the file.
    #[test]
    fn any_damage_to_a_file_is_reported_and_never_a_panic(
        which in 0usize..2,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, 0usize..12), 1..4),
    ) {
        let reference = include_str!("../../config/icewright.toml");
        let mut lines: Vec<String> = [EXAMPLE, reference][which].lines().map(str::to_owned).collect();
        let bits = ["\"", "[", "}", "=", "-1", "é", ".", "\"0x\"", "{ env = 1 }", "''", "*", "\n"];
        for (at, kind, bit) in damage {
            let line = at.index(lines.len());
            let chars: Vec<char> = lines[line].chars().collect();
            let column = at.index(chars.len() + 1);
            let (head, tail): (String, String) = (chars[..column].iter().collect(), chars[column..].iter().collect());
            lines[line] = match kind {
                0 => format!("{head}{}{tail}", bits[bit]),
                1 => format!("{head}{}", bits[bit]),
                2 => tail,
                _ => format!("{} = {}", head.split('=').next().unwrap_or_default(), bits[bit]),
            };
        }
        let text = lines.join("\n");
        let problems = match Config::parse("test.toml", &text) {
            Ok(loaded) => loaded.warnings,
            Err(problems) => {
                prop_assert!(!problems.0.is_empty());
                problems.0
            }
        };
        for problem in problems {
            let place = problem.place.expect("a place");
            prop_assert!(place.line as usize <= text.lines().count() + 1, "{}", problem);
            prop_assert!(!problem.to_string().is_empty());
        }
    }
}

#[test]
fn contradictions_are_told_beside_mistakes_in_keys_tables_and_catalogs() {
    let text = r#"
[catalogs.lake]
uri = "http://localhost:8181"
auth = { type = "none" }
[[policies]]
name = "a"
tables = ["laek.db.t"]
comit-interval = "1m"
[policies.rewrite-data-files]
target-file-size = "64MiB"
min-file-size = "65MiB"
[[policies]]
name = "b"
[policies.rewrite-data-files]
target-file-size = "64MiB"
max-file-size = "63MiB"
[[policies]]
name = "c"
tables = ["lake.db.c"]
every = "soon"
delay = "2h"
"#;
    let problems = Config::parse("test.toml", text).expect_err("mistakes").to_string();
    for part in ["comit-interval", "laek", "`tables`", "not below the target", "not above the target", "\"soon\""] {
        let part = part.replace("`tables`", "policies[1]");
        assert!(problems.contains(&part), "{part} in {problems}");
    }
    assert!(!problems.contains("longer than the time between runs"), "nothing is known of that time: {problems}");
}

#[test]
fn a_memory_budget_below_a_usual_file_group_is_warned_of() {
    for (memory, warned) in [("64MiB", true), ("460MiB", true), ("461MiB", false), ("4GiB", false)] {
        let warnings = parse(&EXAMPLE.replace("memory = \"4GiB\"", &format!("memory = \"{memory}\""))).warnings;
        let found = warnings.iter().any(|w| w.key == "limits.memory" && w.cure.contains("\"461MiB\""));
        assert_eq!(found, warned, "{memory}: {warnings:?}");
    }
}

#[test]
fn how_long_a_writer_may_be_silent_is_a_span_and_a_short_one_is_warned_of() {
    let said = |value: &str| format!("{EXAMPLE}[policies.expire-snapshots]\nwriter-retention = \"{value}\"\n");
    let key = "expire-snapshots.writer-retention";
    for (value, warned) in [("23h", true), ("24h", false), ("60d", false), ("0s", true)] {
        let loaded = parse(&said(value));
        assert_eq!(loaded.warnings.iter().any(|w| w.key.ends_with(key)), warned, "{value}: {:?}", loaded.warnings);
    }
    let policy = TablePolicy::default().expire_snapshots;
    let (minute, month) = (Duration::from_secs(60), Duration::from_secs(30 * 24 * 60 * 60));
    assert_eq!(policy.writer_retention(minute), Duration::from_secs(14 * 24 * 60 * 60));
    assert_eq!(policy.writer_retention(month), month, "a writer commits within its interval");
    for wrong in ["-1d", "fortnight", "3651d"] {
        let problems = Config::parse("c.toml", &said(wrong)).expect_err(wrong).to_string();
        assert!(problems.contains(key), "{problems}");
    }
}

#[test]
fn a_pushgateway_is_an_address_and_perhaps_a_token() {
    let text = |gateway: &str| format!("{EXAMPLE}\n[metrics.pushgateway]\n{gateway}\n");
    let read = |gateway: &str| parse(&text(gateway));
    let loaded = read("url = 'https://push.example.com/'\ntoken = { env = 'PUSH' }");
    let gateway = loaded.config.metrics.pushgateway.expect("a gateway");
    assert_eq!((gateway.url.as_str(), gateway.token), ("https://push.example.com", Some(Secret::Env("PUSH".into()))));
    assert_eq!(loaded.warnings, []);
    let warnings = read("url = 'http://push.example.com'\ntoken = { env = 'PUSH' }").warnings;
    assert!(matches!(warnings.as_slice(), [w] if w.key == "metrics.pushgateway.token"), "{warnings:?}");
    assert_eq!(read("url = 'http://push.example.com'").warnings, [], "nothing secret travels");
    for (gateway, key, what) in [
        ("token = { env = 'PUSH' }", "metrics.pushgateway.url", "is missing"),
        ("url = 'push:9091'", "metrics.pushgateway.url", "no http or https address"),
        ("url = 'http://me:hunter2@push'", "metrics.pushgateway.url", "user name or password"),
        ("url = 'http://push'\ntoken = 'hunter2'", "metrics.pushgateway.token", "must not stand in the file"),
        ("url = 'http://push'\njob = 'x'", "metrics.pushgateway.job", "unknown key"),
    ] {
        let problems = Config::parse("test.toml", &text(gateway)).expect_err(gateway);
        let found = problems.0.iter().any(|p| p.key == key && p.message.contains(what));
        assert!(found && !problems.to_string().contains("hunter2"), "{gateway}: {problems}");
    }
}
