use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::inspect::SizeHistogram;

fn table(name: &str) -> TableName {
    name.parse().expect(name)
}

fn stats(seed: u64) -> TableStats {
    TableStats {
        data_files: 40 + seed,
        data_file_bytes: 6_000_000 * seed,
        data_records: 1000 * seed,
        small_data_files: 30 + seed,
        position_delete_files: 3 + seed,
        equality_delete_files: 20 + seed,
        deletion_vectors: 1 + seed,
        data_manifests: 5 + seed,
        delete_manifests: 2 + seed,
        manifest_bytes: 7000 + seed,
        snapshots: 12 + seed,
        partitions: 5,
        partition_records_rsd_ratio: 0.25,
        partition_bytes_rsd_ratio: 0.5,
        partition_bytes_mean: 48_000_000.5,
        all_files: 90 + seed,
        all_file_bytes: 9_000_000 * seed,
        size_histogram: SizeHistogram::default(),
    }
}

fn run(action: Action, outcome: Outcome, counts: RunCounts) -> RunRecord {
    RunRecord { action, outcome, duration: Duration::from_millis(75_500), finished_ms: 1_796_000_000_500, counts }
}

/// A page with every family on it.
fn full_page() -> Metrics {
    let metrics = Metrics::new(1);
    let (orders, rest) = (table("lake.\"c.d\".eu.orders"), table("lake.cdc.rest"));
    metrics.record_config_load(1_796_000_000_000, Some(2));
    metrics.record_stats(&orders, &stats(1));
    metrics.record_orphans(&orders, 4, 4096);
    metrics.set_step(&orders, Step::Delay);
    metrics.set_backoff(
        &orders,
        Backoff { consecutive_failures: 2, until_ms: Some(1_796_000_060_000), quarantined: true },
    );
    let rewrite = RunCounts {
        rewritten_data_files: 40,
        rewritten_bytes: 6_000_000,
        added_data_files: 5,
        added_bytes: 5_500_000,
        removed_delete_files: 23,
        commit_conflicts: 1,
        commit_unknown: 2,
        ..RunCounts::default()
    };
    metrics.record_run(&orders, &run(Action::RewriteDataFiles, Outcome::Success, rewrite));
    let expire = RunCounts { expired_snapshots: 11, deleted_files: 50, deleted_bytes: 123, ..RunCounts::default() };
    metrics.record_run(&orders, &run(Action::ExpireSnapshots, Outcome::Failed, expire));
    metrics.set_last_success(&orders, Action::ExpireSnapshots, 1_795_000_000_000);
    metrics.observe("load_table", "ok", 0.03);
    metrics.observe("read", "not_found", 0.003);
    metrics.bytes_read(1000);
    metrics.bytes_written(500);
    // Beyond the limit.
    metrics.record_stats(&rest, &stats(2));
    metrics.record_orphans(&rest, 1, 10);
    metrics.record_run(&rest, &run(Action::RewriteDataFiles, Outcome::Skipped, RunCounts::default()));
    metrics
}

/// `ICEWRIGHT_BLESS=1` writes the page that was given.
#[test]
fn the_page_is_the_golden_one() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/metrics.txt");
    // The version changes with each release.
    let page = full_page().gather().expect("text").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    if std::env::var_os("ICEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, &page).expect("writable");
    }
    let golden = std::fs::read_to_string(&path).expect("golden page");
    let different = page.lines().zip(golden.lines()).find(|(given, wanted)| given != wanted);
    assert_eq!(different, None, "first line that differs");
    assert_eq!(page, golden);
    for definition in ALL {
        assert!(page.contains(&format!("# TYPE {} {}\n", definition.name, definition.kind.as_str())));
        assert!(page.contains(&format!("# HELP {} {}\n", definition.name, definition.help)));
    }
}

#[test]
fn names_follow_the_rules_and_are_unique() {
    let mut seen = HashSet::new();
    for Definition { name, kind, labels, help, unit } in ALL {
        assert!(seen.insert(name), "{name}");
        assert!(name.starts_with("icewright_") && help.ends_with('.') && !unit.is_empty(), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        if labels.contains(&"table") {
            assert_eq!(labels[..3], ["catalog", "namespace", "table"], "{name}");
        }
    }
}

#[test]
fn a_known_table_starts_with_zeros_and_a_gone_one_leaves_nothing() {
    let metrics = Metrics::new(10);
    let empty = metrics.gather().expect("text");
    let orders = table("lake.cdc.orders");
    metrics.register_table(&orders);
    let page = metrics.gather().expect("text");
    let zero = "icewright_runs_total{action=\"expire-snapshots\",catalog=\"lake\",namespace=\"cdc\",outcome=\"unknown\",table=\"orders\"} 0\n";
    assert!(page.contains(zero), "{page}");
    assert!(page.contains("icewright_rewritten_bytes_total{catalog=\"lake\",namespace=\"cdc\",table=\"orders\"} 0\n"));
    assert!(page.contains("icewright_tables{series=\"own\"} 1\n"));

    metrics.record_stats(&orders, &stats(1));
    metrics.record_orphans(&orders, 1, 1);
    metrics.set_step(&orders, Step::Idle);
    metrics.set_backoff(&orders, Backoff::default());
    metrics.forget_table(&orders);
    metrics.forget_table(&orders);
    assert_eq!(metrics.gather().expect("text"), empty);
}

#[test]
fn tables_beyond_the_limit_add_up_and_move_in_when_there_is_room() {
    let metrics = Metrics::new(1);
    let (first, second, third) = (table("lake.a.one"), table("lake.a.two"), table("lake.b.three"));
    for (name, seed) in [(&first, 1), (&second, 2), (&third, 3)] {
        metrics.record_stats(name, &stats(seed));
    }
    let value = |series: &str| {
        let page = metrics.gather().expect("text");
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok())
    };
    let other = "icewright_table_data_files{catalog=\"lake\",namespace=\"_other\",table=\"_other\"}";
    assert_eq!(value(other), Some(42.0 + 43.0));
    assert_eq!(value("icewright_tables{series=\"other\"}"), Some(2.0));
    let page = metrics.gather().expect("text");
    assert!(!page.contains("table=\"two\"") && page.contains("table=\"one\""));
    assert!(!page.contains("partition_bytes_mean{catalog=\"lake\",namespace=\"_other\""), "means do not add up");
    metrics.record_stats(&second, &stats(10));
    assert_eq!(value(other), Some(50.0 + 43.0), "replaced, not added");

    metrics.forget_table(&first);
    metrics.record_stats(&second, &stats(4));
    assert_eq!(value("icewright_table_data_files{catalog=\"lake\",namespace=\"a\",table=\"two\"}"), Some(44.0));
    assert_eq!(value(other), Some(43.0));
    metrics.forget_table(&third);
    assert_eq!(value(other), Some(0.0));
}

/// The documentation shows the table that the definitions give.
#[test]
fn the_readme_lists_every_metric() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(path).unwrap_or_default();
    let section = readme.split_once("<!-- metrics -->\n").and_then(|(_, rest)| rest.split_once("<!-- /metrics -->"));
    if let Some((section, _)) = section {
        assert_eq!(section, Metrics::markdown_table());
    }
    let table = Metrics::markdown_table();
    assert_eq!(table.lines().count(), ALL.len() + 2);
    assert!(table.contains(
        "| `icewright_table_snapshots` | gauge | `catalog`, `namespace`, `table` | snapshots | Retained snapshots. |\n"
    ));
    assert!(table.lines().all(|line| line.matches('|').count() == 6));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However tables come and go, totals are what the folded tables last said, and their number is bounded.
    #[test]
    fn slots_add_up(steps in prop::collection::vec((0usize..6, 0u32..1000, 0usize..4), 1..60), max in 0usize..4) {
        let mut slots = Slots::new(max);
        let mut last: BTreeMap<usize, f64> = BTreeMap::new();
        for (which, value, kind) in steps {
            let name = table(&format!("lake.a.t{which}"));
            if kind == 0 {
                slots.remove(&name);
                last.remove(&which);
            } else {
                last.insert(which, f64::from(value));
                if slots.assign(&name) == Slot::Other {
                    slots.set_values(&name, 1, &[f64::from(value)]);
                }
            }
            prop_assert!(slots.own() <= max);
            prop_assert_eq!(slots.own() + slots.other(), last.len());
            let folded = last.iter().filter(|(which, _)| {
                slots.get(&table(&format!("lake.a.t{which}"))) == Some(Slot::Other)
            });
            let wanted: f64 = folded.map(|(_, value)| value).sum();
            prop_assert_eq!(slots.totals("lake").get(1).copied().unwrap_or(0.0), wanted);
        }
    }
}
