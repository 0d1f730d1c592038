use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;

use super::definitions::{OPERATIONS, request_outcomes};
use super::*;
use crate::action::{Action, Doing, Outcome};
use crate::actions::report::{ActionReport, RunCounts, StoredFiles};
use crate::clock::PhaseTimes;
use crate::http_client::RequestObserver;
use crate::inspect::{SizeHistogram, TableStats};
use crate::report::health::ReasonKind;
use crate::schedule::observer::QueueStatus;

const ENDED_MS: i64 = 1_796_000_000_500;

fn table(name: &str) -> TableName {
    name.parse().expect(name)
}

fn stats(seed: u64) -> TableStats {
    let mut size_histogram = SizeHistogram::default();
    [10_000, 5 << 20, 300 << 20, 2 << 30].iter().for_each(|bytes| size_histogram.add(bytes * seed));
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
        size_histogram,
    }
}

fn run(action: Action, outcome: Outcome, counts: RunCounts) -> ActionReport {
    let mut phases = PhaseTimes::default();
    action.phases().iter().for_each(|phase| phases.add(*phase, Duration::from_millis(1500)));
    let (duration, refused) = (Duration::from_millis(75_500), outcome == Outcome::Skipped);
    ActionReport { outcome, duration, counts, phases, refused, ..ActionReport::new(action) }
}

/// Everything that is recorded of tables, apart from runs.
fn record_all(metrics: &Metrics, name: &TableName, seed: u64) {
    metrics.record_stats(name, &stats(seed));
    metrics.set_target_file_size(name, 512 << 20);
    metrics.record_stored(
        name,
        StoredFiles { files: 100 + seed, bytes: 10_000, orphan_files: 3 + seed, orphan_bytes: 4096 },
    );
    metrics.set_health(name, &[ReasonKind::SmallFiles], Some(1_795_999_000_000));
    metrics.set_step(name, Doing::Delay);
    metrics.set_next(name, Some(1_796_003_600_000), Some(1_796_000_300_000));
    metrics.set_table_paused(name, true);
    metrics
        .set_backoff(name, Backoff { consecutive_failures: 2, until_ms: Some(1_796_000_060_000), quarantined: true });
}

/// A page with every family on it.
fn full_page() -> Metrics {
    let metrics = Metrics::new(1);
    let (orders, rest) = (table("lake.\"c.d\".eu.orders"), table("lake.cdc.rest"));
    metrics.record_config_load(1_796_000_000_000, Some(2));
    metrics.record_config_reload(1_796_000_000_500, Some(2));
    metrics.record_config_reload(1_796_000_000_900, None);
    metrics.watch_memory(|| MemoryUse { budget: 1 << 30, reserved: 1 << 20, manifest_cache: 4096 });
    metrics.set_queue(QueueStatus { running: 4, queued: 2, limit: 4, oldest: Duration::from_millis(1500) });
    metrics.set_paused(true);
    metrics.set_catalog_up("lake", true);
    metrics.set_catalog_up("pond", false);
    record_all(&metrics, &orders, 1);
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
    metrics.record_run(&orders, &run(Action::RewriteDataFiles, Outcome::Success, rewrite), ENDED_MS);
    let expire = RunCounts { expired_snapshots: 11, deleted_files: 50, deleted_bytes: 123, ..RunCounts::default() };
    metrics.record_run(&orders, &run(Action::ExpireSnapshots, Outcome::Failed, expire), ENDED_MS);
    metrics.set_last_success(&orders, Action::ExpireSnapshots, 1_795_000_000_000);
    metrics.observe("load_table", "ok", 0.03);
    metrics.observe("read", "not_found", 0.003);
    metrics.retried("read");
    metrics.bytes_read(1000);
    metrics.bytes_written(500);
    // Beyond the limit.
    record_all(&metrics, &rest, 2);
    metrics.record_run(&rest, &run(Action::RewriteDataFiles, Outcome::Skipped, RunCounts::default()), ENDED_MS);
    metrics
}

/// `BLESS=1` writes the page that was given.
#[test]
fn the_page_is_the_golden_one() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/metrics.txt");
    let page = full_page().gather().expect("text");
    // What was built and by what changes.
    let hidden = |line: &str| match line.split_once("icewright_build_info{") {
        Some(("", _)) => "icewright_build_info{revision=\"...\",rustc=\"...\",version=\"...\"} 1\n".to_owned(),
        _ => format!("{line}\n"),
    };
    let page: String = page.lines().map(hidden).collect();
    if std::env::var_os("BLESS").is_some() {
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
        assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
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

    record_all(&metrics, &orders, 1);
    metrics.set_last_success(&orders, Action::ExpireSnapshots, 1);
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
    let sizes = |rest: &str| {
        let labels = "{catalog=\"lake\",namespace=\"_other\",table=\"_other\"";
        value(&format!("icewright_table_data_file_size_bytes_{}", rest.replacen('{', labels, 1)))
    };
    assert_eq!(sizes("bucket{,le=\"1048576\"}"), Some(2.0));
    assert_eq!((sizes("count{}"), sizes("bucket{,le=\"+Inf\"}")), (Some(8.0), Some(8.0)));
    metrics.set_health(&second, &[ReasonKind::Failing], None);
    metrics.set_health(&third, &[ReasonKind::Failing, ReasonKind::Overdue], None);
    let unhealthy = |reason: &str| {
        let labels = format!("catalog=\"lake\",namespace=\"_other\",reason=\"{reason}\",table=\"_other\"");
        value(&format!("icewright_table_unhealthy{{{labels}}}"))
    };
    assert_eq!(
        (unhealthy("failing"), unhealthy("overdue"), unhealthy("unreadable")),
        (Some(2.0), Some(1.0), Some(0.0))
    );

    metrics.forget_table(&first);
    metrics.record_stats(&second, &stats(4));
    assert_eq!(value("icewright_table_data_files{catalog=\"lake\",namespace=\"a\",table=\"two\"}"), Some(44.0));
    assert_eq!(value(other), Some(43.0));
    metrics.forget_table(&third);
    assert_eq!((value(other), sizes("count{}")), (Some(0.0), Some(0.0)));
}

#[test]
fn a_catalog_that_goes_leaves_nothing_once_its_last_table_is_gone() {
    let metrics = Metrics::new(1);
    let page = || metrics.gather().expect("text");
    let empty = page();
    let (own, folded, late) = (table("lake.a.own"), table("lake.a.folded"), table("lake.a.late"));
    for name in [&own, &folded, &late] {
        record_all(&metrics, name, 1);
    }
    metrics.set_catalog_up("lake", true);
    metrics.forget_catalog("lake");
    [&own, &folded].into_iter().for_each(|name| metrics.forget_table(name));
    assert!(page().contains("table=\"_other\""), "a step is still running");
    metrics.forget_table(&late);
    assert_eq!(page(), empty);

    // One that comes back counts on.
    [&own, &folded].into_iter().for_each(|name| record_all(&metrics, name, 1));
    metrics.forget_catalog("lake");
    metrics.set_catalog_up("lake", true);
    [&own, &folded].into_iter().for_each(|name| metrics.forget_table(name));
    assert!(page().contains("icewright_runs_total{action=\"expire-snapshots\",catalog=\"lake\",namespace=\"_other\""));
}

#[test]
fn what_a_table_waits_for_is_shown_while_it_waits() {
    let metrics = Metrics::new(1);
    let (own, folded) = (table("lake.a.one"), table("lake.a.two"));
    for name in [&own, &folded] {
        metrics.set_next(name, Some(9_000), Some(5_000));
        metrics.set_backoff(name, Backoff { consecutive_failures: 1, until_ms: Some(5_000), quarantined: false });
    }
    let value = |metric: &str| {
        let series =
            format!("icewright_table_{metric}_timestamp_seconds{{catalog=\"lake\",namespace=\"a\",table=\"one\"}}");
        let page = metrics.gather().expect("text");
        page.lines().find_map(|line| line.strip_prefix(&series)?.trim().parse::<f64>().ok())
    };
    let shown = || (value("next_run"), value("delay_end"), value("backoff_until"));
    assert_eq!(shown(), (Some(9.0), Some(5.0), Some(5.0)));
    [&own, &folded].into_iter().for_each(|name| metrics.end_wait(name));
    assert_eq!(shown(), (None, Some(0.0), Some(0.0)));
    metrics.set_next(&own, Some(8_000), None);
    assert_eq!(value("next_run"), Some(8.0));
    metrics.set_next(&own, None, None);
    assert_eq!(value("next_run"), None);
}

/// The number of samples on a page.
fn samples(metrics: &Metrics) -> usize {
    metrics.gather().expect("text").lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn there_are_as_many_series_as_the_formula_says() {
    let formula = Cardinality::of_definitions();
    let everything = |own: usize, folded: usize| {
        let metrics = Metrics::new(own);
        for operation in OPERATIONS {
            request_outcomes().iter().for_each(|outcome| metrics.observe(operation, outcome, 0.1));
            metrics.retried(operation);
        }
        metrics.bytes_read(1);
        metrics.bytes_written(1);
        metrics.record_config_load(1, Some(0));
        metrics.set_catalog_up("lake", true);
        metrics.watch_memory(MemoryUse::default);
        for i in 0..own + folded {
            let name = table(&format!("lake.a.t{i}"));
            record_all(&metrics, &name, 1);
            for action in Action::ALL {
                metrics.record_run(&name, &run(action, Outcome::Success, RunCounts::default()), ENDED_MS);
            }
        }
        metrics
    };
    let process = formula.process - ProcessMetrics::SERIES + formula.catalog;
    assert_eq!(samples(&everything(3, 0)), 3 * formula.table + process);
    assert_eq!(samples(&everything(20, 0)), 20 * formula.table + process);
    let folded = everything(3, 5);
    assert_eq!(samples(&folded), 3 * formula.table + formula.other + process);
    let page = folded.gather().expect("text");
    for i in 0..8 {
        folded.forget_table(&table(&format!("lake.a.t{i}")));
    }
    assert_eq!(samples(&folded), formula.other + process, "{page}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_operating_system_tells_seven_things() {
    let metrics = Metrics::new(1);
    let before = samples(&metrics);
    metrics.watch_process();
    metrics.watch_process();
    assert_eq!(samples(&metrics) - before, ProcessMetrics::SERIES);
    assert!(metrics.gather().expect("text").contains("\nprocess_resident_memory_bytes "));
}

#[test]
fn warnings_and_reloads_of_the_configuration_are_told() {
    let metrics = Metrics::new(1);
    let tells = |line: &str| metrics.gather().expect("text").lines().any(|l| l == line);
    metrics.record_config_load(1000, Some(3));
    assert!(tells("icewright_config_warnings 3") && tells("icewright_config_reloads_total{outcome=\"success\"} 0"));
    metrics.record_config_reload(2000, None);
    assert!(tells("icewright_config_warnings 3"), "of the configuration in use");
    assert!(tells("icewright_config_last_load_successful 0"));
    assert!(tells("icewright_config_last_load_success_timestamp_seconds 1"));
    assert!(tells("icewright_config_reloads_total{outcome=\"failed\"} 1"));
    metrics.record_config_reload(3000, Some(1));
    assert!(tells("icewright_config_warnings 1") && tells("icewright_config_last_load_successful 1"));
    assert!(tells("icewright_config_last_load_success_timestamp_seconds 3"));
}

#[test]
fn a_table_alone_is_told_without_what_its_group_is_named_by() {
    let metrics = Metrics::new(1);
    record_all(&metrics, &table("lake.a.one"), 1);
    let text = metrics.gather_tables().expect("text");
    assert!(text.contains("\nicewright_table_data_files{namespace=\"a\"} 41\n"), "{text}");
    assert!(text.contains("\nicewright_table_data_file_size_bytes_bucket{namespace=\"a\",le=\"+Inf\"} 4\n"), "{text}");
    assert!(!text.contains("catalog=") && !text.contains("table=") && !text.contains("icewright_build_info"));
}

/// The documentation shows the table and the formula that the definitions give. `BLESS=1` writes both.
#[test]
fn the_documentation_lists_every_metric() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = std::fs::read_to_string(&path).expect("docs/metrics.md");
    let formula = format!("```text\n{}\n```\n", Cardinality::of_definitions());
    let mut wanted = page.clone();
    for (mark, content) in [("metrics", Metrics::markdown_table()), ("series", formula)] {
        let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
        let (before, rest) = wanted.split_once(&begin).expect("a mark");
        let (_, after) = rest.split_once(&end).expect("its end");
        wanted = format!("{before}{begin}{content}{end}{after}");
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("writable");
    } else {
        assert_eq!(page, wanted);
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
                if slots.assign(&name) == SeriesSlot::Other {
                    slots.set_values(&name, 1, &[f64::from(value)]);
                }
            }
            prop_assert!(slots.own() <= max);
            prop_assert_eq!(slots.own() + slots.other(), last.len());
            let folded = last.iter().filter(|(which, _)| {
                slots.get(&table(&format!("lake.a.t{which}"))) == Some(SeriesSlot::Other)
            });
            let wanted: f64 = folded.map(|(_, value)| value).sum();
            prop_assert_eq!(slots.totals().get("lake").map_or(0.0, |totals| totals[1]), wanted);
        }
    }
}
