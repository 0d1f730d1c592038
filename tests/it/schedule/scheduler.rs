//! The loop: order, fairness, back-off, and tables that come, go or make trouble.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use iceberg::TableUpdate;
use iceberg::spec::FormatVersion;
use icewright::action::Action;
use icewright::actions::env::Env;
use icewright::actions::subject::Subject;
use icewright::catalog::{Catalog, CommitOutcome};
use icewright::fleet::Fleet;
use icewright::report::board::Board;
use icewright::report::events::Reporter;
use icewright::report::health::ReasonKind;
use icewright::report::metrics::Metrics;
use icewright::report::probes::Probes;
use icewright::schedule::collector::Collected;
use icewright::schedule::control::{Control, control};
use icewright::schedule::observer::{Event, Observer, TableEvent};
use icewright::schedule::scheduler::Scheduler;
use icewright::schedule::settings::LiveSettings;
use icewright::storage::Store;
use icewright::table::TableName;
use icewright::testing::{Operation, StoreFault};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::world::{HOUR, Lake, MINUTE, POLICY, ident};

/// A scheduler and a collector at work.
pub(crate) struct Daemon {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) board: Arc<Board>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) maintained: watch::Receiver<BTreeSet<TableName>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) control: Control,
    pub(crate) settings: watch::Sender<LiveSettings>,
    /// As whoever plans on demand has it.
    pub(crate) env: Env,
    pub(crate) scheduler: JoinHandle<()>,
    pub(crate) collector: JoinHandle<()>,
}

impl Daemon {
    pub(crate) fn start(lake: &Lake, concurrent_tables: usize) -> Self {
        Self::with_fleet(lake, lake.fleet(POLICY), concurrent_tables)
    }

    pub(crate) fn with_fleet(lake: &Lake, fleet: Arc<Fleet>, concurrent_tables: usize) -> Self {
        let env = lake.env();
        let metrics = Arc::new(Metrics::new(100));
        let probes = Probes::new(lake.clock.now_ms(), Duration::from_secs(60), ["lake".to_owned()]);
        let board = Arc::new(Board::new(lake.clock.now_ms(), env.memory.clone(), env.manifests.clone()));
        let reporter = Arc::new(Reporter::new(metrics.clone(), board.clone(), Arc::new(probes), false));
        let (settings, current) = watch::channel(LiveSettings {
            fleet,
            concurrent_tables,
            run_timeout: env.run_timeout,
            collect_every: 5 * MINUTE,
            grace: MINUTE,
        });
        let (control, orders) = control();
        let (cancel, planning) = (env.cancel.clone(), env.clone());
        let scheduler = Scheduler::new(env, current, reporter.clone(), orders);
        let maintained = scheduler.maintained();
        let collector = tokio::spawn(scheduler.collector().run());
        let scheduler = tokio::spawn(scheduler.run());
        Self { metrics, board, reporter, maintained, cancel, control, settings, env: planning, scheduler, collector }
    }

    /// The value of a series with `labels`, which is there.
    pub(crate) fn value(&self, metric: &str, labels: &str) -> f64 {
        self.series(|line| line.starts_with(&format!("{metric}{{")) && line.contains(labels))
            .unwrap_or_else(|| panic!("no series {metric} with {labels}"))
    }

    pub(crate) fn series(&self, is_it: impl Fn(&str) -> bool) -> Option<f64> {
        let text = self.metrics.gather().expect("metrics");
        let line = text.lines().find(|line| is_it(line))?;
        Some(line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number"))
    }

    pub(crate) fn runs(&self, table: &str, action: &str, outcome: &str) -> f64 {
        let labels = format!(
            "{{action=\"{action}\",catalog=\"lake\",namespace=\"db\",outcome=\"{outcome}\",table=\"{table}\"}}"
        );
        self.series(|line| line.starts_with(&format!("icewright_runs_total{labels}"))).unwrap_or(0.0)
    }

    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        self.scheduler.await.expect("no panic");
        self.collector.await.expect("no panic");
    }
}

/// Lets simulated time pass until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(limit: Duration, what: &str, mut holds: impl FnMut() -> F) {
    let start = tokio::time::Instant::now();
    let step = (limit / 400).clamp(Duration::from_secs(1), Duration::from_secs(15));
    while !holds().await {
        assert!(start.elapsed() < limit, "not within {} min: {what}", limit.as_secs() / 60);
        tokio::time::sleep(step).await;
    }
}

/// A table with two snapshots of two partitions, and garbage.
pub(crate) async fn grown(lake: &Lake, table: &str) -> String {
    lake.create(table);
    lake.append(table, 0..2).await;
    lake.append(table, 0..2).await;
    lake.litter(table)
}

#[tokio::test(start_paused = true)]
async fn a_table_is_compacted_and_cleaned_after_the_delay_again_and_again() {
    let lake = Lake::new();
    let litter = grown(&lake, "t").await;
    let before = lake.rows("t").await;
    let daemon = Daemon::start(&lake, 2);
    until(MINUTE, "compacted", || async { lake.files("t").await.len() == 2 }).await;
    let committed = lake.newest_ms("t").await;
    assert_eq!(lake.snapshots("t").await, 3);
    assert!(lake.has(&litter), "garbage waits for the delay as well");
    let seconds = |metric: &str| daemon.value(&format!("icewright_table_{metric}_timestamp_seconds"), "table=\"t\"");
    until(MINUTE, "in the delay", || async { seconds("delay_end") > 0.0 }).await;
    assert_eq!((seconds("delay_end") * 1000.0).round() as i64, committed + 30 * 60_000);
    let begun = lake.clock.now_ms();
    let next = (seconds("next_run") * 1000.0) as i64 - begun;
    assert!((6 * 3_600_000 - 120_000..=6 * 3_600_000).contains(&next), "{next} ms");

    until(HOUR, "expired", || async { lake.snapshots("t").await == 1 }).await;
    let waited = lake.clock.now_ms() - committed;
    assert!((30 * 60_000..31 * 60_000).contains(&waited), "{waited} ms");
    until(MINUTE, "orphan gone", || async { !lake.has(&litter) }).await;
    assert_eq!(lake.rows("t").await, before);
    until(MINUTE, "counted", || async { daemon.runs("t", "remove-orphan-files", "success") == 1.0 }).await;
    assert_eq!(seconds("delay_end"), 0.0);
    for action in Action::ALL {
        for phase in action.phases() {
            let labels = format!("action=\"{action}\",phase=\"{}\"", phase.as_str());
            assert_eq!(daemon.value("icewright_run_phase_duration_seconds_count", &labels), 1.0, "{labels}");
        }
        assert_eq!(daemon.value("icewright_table_refused", &format!("action=\"{action}\"")), 0.0);
    }
    let stored = lake.store.paths().iter().filter(|path| path.contains("/db/t/")).count();
    assert_eq!(daemon.value("icewright_table_stored_files", "table=\"t\""), stored as f64);
    assert_eq!(daemon.value("icewright_catalog_up", "catalog=\"lake\""), 1.0);

    // News; the next run starts six hours after the first.
    lake.append("t", 0..2).await;
    let start = lake.clock.now_ms();
    until(7 * HOUR, "compacted again", || async { lake.files("t").await.len() == 2 }).await;
    let waited = lake.clock.now_ms() - start;
    assert!((5 * 3_600_000..6 * 3_600_000).contains(&waited), "{waited} ms");
    assert_eq!(daemon.runs("t", "rewrite-data-files", "success"), 2.0);
    assert_eq!(daemon.runs("t", "expire-snapshots", "success"), 1.0);
    assert_eq!(daemon.runs("t", "remove-orphan-files", "success"), 1.0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_that_waits_holds_no_worker() {
    let lake = Lake::new();
    for table in ["a", "b", "c"] {
        grown(&lake, table).await;
    }
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "all compacted", || async {
        let files = [lake.files("a").await.len(), lake.files("b").await.len(), lake.files("c").await.len()];
        files == [2, 2, 2]
    })
    .await;
    assert_eq!(lake.snapshots("a").await, 3, "the first is in its delay");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_that_always_fails_backs_off_and_stops_nobody() {
    let lake = Lake::new();
    let litter = grown(&lake, "bad").await;
    grown(&lake, "good").await;
    for operation in [Operation::Read, Operation::ReadRange] {
        lake.faulty.inject_on("/db/bad/data/", operation, 0..usize::MAX, StoreFault::fail());
    }
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "the good one is compacted", || async { lake.files("good").await.len() == 2 }).await;
    tokio::time::sleep(6 * HOUR).await;
    // 1, 2, 4 ... 32, 60, 60 ... minutes apart.
    let failed = daemon.runs("bad", "rewrite-data-files", "failed");
    assert!((9.0..=12.0).contains(&failed), "{failed} attempts in six hours");
    assert_eq!(daemon.value("icewright_table_consecutive_failures", "table=\"bad\""), failed);
    assert_eq!(daemon.value("icewright_table_consecutive_failures", "table=\"good\""), 0.0);
    assert_eq!((lake.snapshots("bad").await, lake.has(&litter)), (1, false), "its clean-ups go on");
    assert_eq!(lake.snapshots("good").await, 1);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_that_panics_fails_alone() {
    let lake = Lake::new();
    grown(&lake, "bad").await;
    grown(&lake, "good").await;
    let bug = || async { panic!("a bug") }.boxed();
    lake.faulty.inject_on("/db/bad/metadata/", Operation::Read, 0..usize::MAX, StoreFault::After(Arc::new(bug)));
    let daemon = Daemon::start(&lake, 2);
    until(HOUR, "the good one is cleaned", || async { lake.snapshots("good").await == 1 }).await;
    assert!(daemon.runs("bad", "rewrite-data-files", "failed") >= 2.0);
    assert!(daemon.runs("bad", "expire-snapshots", "failed") >= 2.0, "tried although compaction never works");
    assert!(!daemon.collector.is_finished(), "the collector bears it as well");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_table_is_forgotten_within_a_cycle() {
    let lake = Lake::new();
    grown(&lake, "stays").await;
    grown(&lake, "goes").await;
    let daemon = Daemon::start(&lake, 2);
    let goes: TableName = "lake.db.goes".parse().expect("a name");
    let shown = |table: &str| daemon.metrics.gather().expect("metrics").contains(&format!("table=\"{table}\""));
    let files = |table: &str| {
        let labels = format!("table=\"{table}\"");
        daemon.series(|line| line.starts_with("icewright_table_data_files{") && line.contains(&labels))
    };
    until(MINUTE, "numbers of both", || async { files("goes").is_some() && files("stays").is_some() }).await;
    lake.catalog.drop_table(&ident("goes"));
    until(Duration::from_secs(31), "forgotten", || async { !shown("goes") }).await;
    assert!(shown("stays") && !daemon.maintained.borrow().contains(&goes));
    // Numbers that were on their way do not bring it back, nor does any later round.
    let subject = Subject::load(&lake.fleet(POLICY), &"lake.db.stays".parse().expect("a name")).await.expect("a table");
    let collected = Collected { stats: Arc::default(), target_file_size_bytes: 1, period: HOUR };
    let looked = TableEvent::Looked { subject: &subject, collected: &collected, partitions: &[] };
    daemon.reporter.observe(Event::Table(&goes, looked), 0);
    assert!(daemon.board.table(&goes, 0).is_none());
    tokio::time::sleep(HOUR).await;
    assert!(!shown("goes"));
    // A table of the same name starts anew.
    grown(&lake, "goes").await;
    until(2 * MINUTE, "compacted", || async { lake.files("goes").await.len() == 2 }).await;
    until(MINUTE, "counted from zero", || async { daemon.runs("goes", "rewrite-data-files", "success") == 1.0 }).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_with_invalid_metadata_is_not_compacted_until_that_changes() {
    let lake = Lake::new();
    let litter = grown(&lake, "bad").await;
    let list = lake.load("bad").await.current_snapshot().expect("a snapshot").manifest_list().to_owned();
    let content = lake.store.read(&list).await.expect("the list");
    lake.store.put(&list, "garbage");
    let daemon = Daemon::start(&lake, 1);
    let quarantined = || daemon.value("icewright_table_quarantined", "table=\"bad\"");
    until(MINUTE, "quarantined", || async { daemon.runs("bad", "rewrite-data-files", "failed") == 1.0 }).await;
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!((daemon.runs("bad", "rewrite-data-files", "failed"), quarantined()), (1.0, 1.0));
    let unhealthy =
        |reason: &str| daemon.value("icewright_table_unhealthy", &format!("reason=\"{reason}\",table=\"bad\""));
    for reason in ["quarantined", "failing", "unreadable"] {
        assert_eq!(unhealthy(reason), 1.0, "{reason}");
    }
    assert!(lake.has(&litter));
    // The clean-ups are tried all the same; here they refuse, since they need what cannot be read.
    let tried = ["success", "failed", "skipped"].map(|outcome| daemon.runs("bad", "expire-snapshots", outcome));
    assert!(tried.iter().sum::<f64>() >= 1.0, "{tried:?}");

    lake.store.put(&list, content);
    lake.append("bad", 0..1).await;
    until(2 * HOUR, "compacted", || async { lake.files("bad").await.len() == 2 }).await;
    until(MINUTE, "released", || async { quarantined() == 0.0 }).await;
    // The clean-ups that failed are due after the delay.
    until(HOUR, "healthy", || async { ReasonKind::ALL.iter().all(|kind| unhealthy(kind.as_str()) == 0.0) }).await;
    let healthy_ms = daemon.value("icewright_table_last_healthy_timestamp_seconds", "table=\"bad\"") * 1000.0;
    assert!(lake.clock.now_ms() as f64 - healthy_ms < 15_000.0, "{healthy_ms}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_with_a_path_that_is_live_twice_is_still_cleaned() {
    let lake = Lake::new();
    let litter = grown(&lake, "t").await;
    for part in 0..2 {
        let file = lake.data_file("t", part).await;
        lake.add("t", vec![file.clone()]).await;
        lake.add("t", vec![file]).await;
    }
    let rows = lake.rows("t").await;
    tokio::time::sleep(HOUR).await;
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "cleaned", || async { lake.snapshots("t").await == 1 && !lake.has(&litter) }).await;
    assert_eq!(daemon.value("icewright_table_quarantined", "table=\"t\""), 0.0);
    assert_eq!(daemon.value("icewright_table_refused", "action=\"rewrite-data-files\""), 1.0, "and it is seen");
    assert_eq!(lake.rows("t").await, rows);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_be_compacted_is_still_cleaned() {
    let lake = Lake::new();
    let litter = grown(&lake, "t").await;
    let upgrade = vec![TableUpdate::UpgradeFormatVersion { format_version: FormatVersion::V3 }];
    let outcome = lake.catalog.commit_table(&ident("t"), Vec::new(), upgrade, &|| Ok(())).await;
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    tokio::time::sleep(HOUR).await;
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "cleaned", || async { lake.snapshots("t").await == 1 && !lake.has(&litter) }).await;
    until(MINUTE, "counted", || async { daemon.runs("t", "remove-orphan-files", "success") >= 1.0 }).await;
    assert!(daemon.runs("t", "rewrite-data-files", "skipped") >= 1.0);
    assert_eq!(daemon.runs("t", "rewrite-data-files", "failed"), 0.0);
    let refused = |action: &str| daemon.value("icewright_table_refused", &format!("action=\"{action}\""));
    assert_eq!((refused("rewrite-data-files"), refused("expire-snapshots")), (1.0, 0.0));
    assert_eq!(daemon.value("icewright_table_consecutive_failures", "table=\"t\""), 0.0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_the_delay_goes_on_with_it() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let first = Daemon::start(&lake, 1);
    until(MINUTE, "compacted", || async { lake.files("t").await.len() == 2 }).await;
    let committed = lake.newest_ms("t").await;
    tokio::time::sleep(10 * MINUTE).await;
    first.stop().await;
    tokio::time::sleep(5 * MINUTE).await;
    let second = Daemon::start(&lake, 1);
    until(HOUR, "expired", || async { lake.snapshots("t").await == 1 }).await;
    let waited = lake.clock.now_ms() - committed;
    assert!((30 * 60_000..31 * 60_000).contains(&waited), "{waited} ms");
    assert_eq!(second.runs("t", "rewrite-data-files", "success"), 0.0, "not compacted again");
    // The schedule counts from the first process' run.
    lake.append("t", 0..2).await;
    until(6 * HOUR, "compacted", || async { lake.files("t").await.len() == 2 }).await;
    let since = lake.clock.now_ms() - committed;
    assert!((5 * 3_600_000 + 3_590_000..6 * 3_600_000 + 60_000).contains(&since), "{since} ms");
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_delay_begins_anew_when_somebody_else_compacts() {
    let lake = Lake::new();
    let litter = grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "compacted", || async { lake.files("t").await.len() == 2 }).await;
    tokio::time::sleep(20 * MINUTE).await;
    lake.append("t", 0..2).await;
    lake.compact(&lake.env(), "t", POLICY).await;
    let committed = lake.newest_ms("t").await;
    until(HOUR, "cleaned", || async { !lake.has(&litter) }).await;
    let waited = lake.clock.now_ms() - committed;
    assert!((30 * 60_000..31 * 60_000).contains(&waited), "{waited} ms");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_is_down_is_waited_for() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    lake.catalog.fail_loads(3);
    let daemon = Daemon::start(&lake, 1);
    until(10 * MINUTE, "compacted", || async { daemon.runs("t", "rewrite-data-files", "success") == 1.0 }).await;
    assert!(daemon.runs("t", "rewrite-data-files", "failed") >= 1.0);
    daemon.stop().await;
}
