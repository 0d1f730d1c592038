//! What is written for operators agrees with the code: keys, defaults, examples, metrics, links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use icewright::config::Config;
use icewright::policy::Setting;
use icewright::report::metrics::{ALL, MetricKind};

const PAGES: [&str; 15] = [
    "README.md",
    "docs/api.md",
    "docs/configuration.md",
    "docs/decisions/README.md",
    "docs/decisions/manifest-reader.md",
    "docs/decisions/one-package.md",
    "docs/decisions/orphan-proofs.md",
    "docs/decisions/settling-commits.md",
    "docs/decisions/storage-crate.md",
    "docs/decisions/table-as-state.md",
    "docs/deployment.md",
    "docs/json.md",
    "docs/metrics.md",
    "docs/operations.md",
    "deploy/helm/icewright/README.md",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Keys that the reader knows where `text` has the key `zzzz`: it lists them when it finds an unknown one.
fn known_keys(text: &str) -> BTreeSet<String> {
    let problems = Config::parse("test.toml", text).expect_err("zzzz is no key");
    let unknown = problems.0.iter().find(|p| p.message == "unknown key").unwrap_or_else(|| panic!("{problems}"));
    let list = unknown.cure.strip_prefix("known here: ").unwrap_or_else(|| panic!("{problems}"));
    list.split(", ").map(str::to_owned).collect()
}

/// The rows of the tables below a heading, down to the next one: key and default.
fn rows(page: &str, heading: &str) -> BTreeMap<String, String> {
    let mut lines = page.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "no heading {heading:?}");
    let rows = lines.take_while(|line| !line.starts_with('#')).filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
        // Tables of settings have four columns; others list something else.
        let [key, _kind, default, _meaning] = cells.as_slice() else { return None };
        Some((key.trim_end_matches('`').to_owned(), (*default).to_owned()))
    });
    rows.collect()
}

fn keys(rows: BTreeMap<String, String>) -> BTreeSet<String> {
    rows.into_keys().collect()
}

const CATALOG: &str = "catalogs.lake.uri = 'http://localhost'\n";

#[test]
fn the_configuration_reference_lists_every_key_and_no_other() {
    let page = read("docs/configuration.md");
    for section in ["server", "limits", "metrics", "leader-election", "traces"] {
        let mut known = known_keys(&format!("{CATALOG}{section}.zzzz = 1"));
        if known.remove("pushgateway") {
            let gateway = known_keys(&format!("{CATALOG}{section}.pushgateway.zzzz = 1"));
            known.extend(gateway.iter().map(|key| format!("pushgateway.{key}")));
        }
        assert_eq!(keys(rows(&page, &format!("## `[{section}]`"))), known, "{section}");
    }
    let known = known_keys("[catalogs.lake]\nuri = 'http://localhost'\nzzzz = 1");
    assert_eq!(keys(rows(&page, "## `[catalogs.NAME]`")), known);

    let policy = |rest: &str| format!("{CATALOG}[[policies]]\nname = 'a'\ntables = ['lake.**']\n{rest}");
    let actions = ["rewrite-data-files", "expire-snapshots", "remove-orphan-files"];
    let mut known = known_keys(&policy("zzzz = 1"));
    for action in actions {
        assert!(known.remove(action));
        let mut known = known_keys(&policy(&format!("{action}.zzzz = 1")));
        if known.remove("partial-progress") {
            let partial = known_keys(&policy(&format!("{action}.partial-progress.zzzz = 1")));
            known.extend(partial.iter().map(|key| format!("partial-progress.{key}")));
        }
        assert_eq!(keys(rows(&page, &format!("### `[…{action}]`"))), known, "{action}");
    }
    let mut documented = keys(rows(&page, "## `[defaults]` and `[[policies]]`"));
    documented.extend(keys(rows(&page, "### When")));
    assert_eq!(documented, known);

    let root_keys = known_keys(&format!("{CATALOG}zzzz = 1"));
    for key in root_keys {
        assert!(page.contains(&format!("`[{key}")) || page.contains(&format!("`[[{key}]]`")), "{key}");
    }
}

#[test]
fn the_configuration_reference_lists_the_keys_of_inline_tables() {
    let page = read("docs/configuration.md");
    let auth = |fields: &str| format!("[catalogs.lake]\nuri = 'https://c'\nauth = {{ {fields}, zzzz = 1 }}");
    let partitions = |value: &str| {
        format!("{CATALOG}[[policies]]\nname = 'a'\ntables = ['lake.**']\nrewrite-data-files.partitions = {value}")
    };
    let mut known = BTreeSet::new();
    for text in [
        auth("type = 'none'"),
        auth("type = 'bearer', token = { env = 'T' }"),
        auth("type = 'oauth2', credential = { env = 'C' }"),
        partitions("{ column = 'h', window = 'previous-hour', zzzz = 1 }"),
        partitions("[{ column = 'h', older = '1d', zzzz = 1 }]"),
    ] {
        known.extend(known_keys(&text));
    }
    assert!(known.len() >= 11, "{known:?}");
    for key in known {
        let documented = [format!("`{key}`"), format!("{key} = ")].iter().any(|form| page.contains(form));
        assert!(documented, "{key}");
    }
}

#[test]
fn every_setting_and_its_default_are_in_the_configuration_reference() {
    let page = read("docs/configuration.md");
    for key in Setting::KEYS {
        let (heading, row) = match key.split_once('.') {
            Some((action, rest)) => (format!("### `[…{action}]`"), rest),
            None => ("### When".to_owned(), *key),
        };
        assert!(rows(&page, &heading).contains_key(row), "{key}");
    }
    // The shipped file holds the defaults, which another test compares with the code.
    let shipped: toml::Table = read("config/icewright.toml").parse().expect("TOML");
    let mut compared = 0;
    for (heading, path) in [
        ("## `[server]`", "server"),
        ("## `[limits]`", "limits"),
        ("## `[metrics]`", "metrics"),
        ("## `[leader-election]`", "leader-election"),
        ("## `[traces]`", "traces"),
        ("### When", "defaults"),
        ("### `[…rewrite-data-files]`", "defaults.rewrite-data-files"),
        ("### `[…expire-snapshots]`", "defaults.expire-snapshots"),
        ("### `[…remove-orphan-files]`", "defaults.remove-orphan-files"),
    ] {
        for (key, default) in rows(&page, heading) {
            let literal = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            let Some(literal) = literal.filter(|text| !text.contains('`')) else { continue };
            // What follows from the table or the machine is commented out in the shipped file.
            let path: Vec<&str> = path.split('.').chain(key.split('.')).collect();
            let mut value = shipped.get(path[0]);
            for step in &path[1..] {
                value = value.and_then(|value| value.get(step));
            }
            let said: toml::Table = format!("v = {literal}").parse().unwrap_or_else(|e| panic!("{key}: {e}"));
            assert_eq!(value, said.get("v"), "{heading} {key}");
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared}");
}

#[test]
fn every_toml_example_is_a_usable_configuration() {
    let mut seen = 0;
    for page in PAGES {
        for block in read(page).split("```toml\n").skip(1) {
            let text = block.split_once("```").unwrap_or_else(|| panic!("{page}: a block does not end")).0;
            let loaded = Config::parse(page, text).unwrap_or_else(|problems| panic!("{problems}"));
            assert_eq!(loaded.warnings, [], "{page}");
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen}");
}

#[test]
fn every_metric_that_is_named_exists() {
    let mut seen = BTreeSet::new();
    for page in PAGES {
        let text = read(page);
        for (at, _) in text.match_indices("icewright_") {
            let name: String = text[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            let exists = ALL.iter().any(|metric| {
                let parts = ["_bucket", "_sum", "_count"].iter();
                metric.name == name
                    || (metric.kind == MetricKind::Histogram
                        && parts.map(|p| format!("{}{p}", metric.name)).any(|n| n == name))
            });
            assert!(exists, "{page}: {name}");
            seen.insert(name);
        }
    }
    assert!(seen.len() >= ALL.len(), "the list of metrics is complete");
}

#[test]
fn every_relative_link_leads_somewhere() {
    for page in PAGES {
        let folder = root().join(page).parent().expect("a folder").to_path_buf();
        let text = read(page);
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let path = if file.is_empty() { root().join(page) } else { folder.join(file) };
            assert!(path.exists(), "{page}: {target}");
            if let Some(anchor) = anchor {
                assert!(anchors(&path).contains(anchor), "{page}: {target}");
            }
        }
    }
}

/// Anchors of a page's headings, as GitHub makes them.
fn anchors(path: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(path).expect("a page");
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}
