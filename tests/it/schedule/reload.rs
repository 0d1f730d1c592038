//! New settings while the loop goes round.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::FutureExt;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use icewright::catalog::{Catalog, CommitOutcome, MaySend};
use icewright::error::Result;
use icewright::fleet::{Fleet, Member};
use icewright::policy::PolicySet;
use icewright::run_id::RunId;
use icewright::schedule::settings::LiveSettings;
use icewright::table::{DeclaredPaths, LoadedTable};
use icewright::testing::{CommitFault, MemoryCatalog, Operation, StoreFault};
use tokio::sync::watch;

use super::scheduler::{Daemon, grown, until};
use super::world::{HOUR, Lake, MINUTE, POLICY, policies};

const ALL: &[&str] = &["lake.db.*"];

impl Daemon {
    /// The same catalogs under other policies.
    fn use_policies(&self, policies: PolicySet) {
        use_policies(&self.settings, policies);
    }

    fn maintained(&self) -> Vec<String> {
        self.maintained.borrow().iter().map(ToString::to_string).collect()
    }
}

fn use_policies(settings: &watch::Sender<LiveSettings>, policies: PolicySet) {
    settings.send_modify(|settings| {
        let names = settings.fleet.catalog_names();
        settings.fleet = Arc::new(settings.fleet.successor(&names, [].into(), policies));
    });
}

/// The next commits take ten minutes each.
fn slow_commits(lake: &Lake, count: usize) {
    let slow = || tokio::time::sleep(10 * MINUTE).boxed();
    lake.catalog.script((0..count).map(|_| CommitFault::After(Arc::new(slow))));
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_under_the_policy_it_began_with_and_the_next_has_the_new_one() {
    let lake = Lake::new();
    let litter = grown(&lake, "t").await;
    let before = lake.rows("t").await;
    slow_commits(&lake, 1);
    let appended = lake.catalog.commits();
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "commits", || async { lake.catalog.commits() > appended }).await;
    let off =
        "commit-interval = \"10m\"\nevery = \"6h\"\ndelay = \"3h\"\n[policies.rewrite-data-files]\nenabled = false\n";
    daemon.use_policies(policies(ALL, off));
    until(HOUR, "the commit ends", || async { lake.files("t").await.len() == 2 }).await;
    let committed = lake.newest_ms("t").await;
    assert_eq!(lake.rows("t").await, before);
    until(4 * HOUR, "cleaned", || async { !lake.has(&litter) }).await;
    let waited = lake.clock.now_ms() - committed;
    assert!((3 * 3_600_000..3 * 3_600_000 + 60_000).contains(&waited), "the new delay: {waited} ms");
    lake.append("t", 0..2).await;
    tokio::time::sleep(7 * HOUR).await;
    assert_eq!(lake.files("t").await.len(), 4, "compaction is off");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waits_are_measured_anew_and_nothing_is_done_twice() {
    let lake = Lake::new();
    let litter = grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "compacted", || async { lake.files("t").await.len() == 2 }).await;
    let started = lake.clock.now_ms();
    // In the delay of half an hour: make it ten minutes.
    tokio::time::sleep(2 * MINUTE).await;
    daemon.use_policies(policies(ALL, &POLICY.replace("delay = \"3x\"", "delay = \"10m\"")));
    until(HOUR, "cleaned", || async { !lake.has(&litter) }).await;
    let waited = lake.clock.now_ms() - started;
    assert!((9 * 60_000..11 * 60_000).contains(&waited), "{waited} ms");
    // In the wait for the next run: every two hours from the last run's start, instead of six.
    lake.append("t", 0..2).await;
    daemon.use_policies(policies(ALL, &POLICY.replace("6h", "2h")));
    until(6 * HOUR, "compacted again", || async { lake.files("t").await.len() == 2 }).await;
    let waited = lake.clock.now_ms() - started;
    assert!((119 * 60_000..121 * 60_000).contains(&waited), "{waited} ms");
    assert_eq!(daemon.runs("t", "remove-orphan-files", "success"), 1.0);
    assert_eq!(daemon.runs("t", "rewrite-data-files", "success"), 2.0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tables_of_no_policy_leave_at_once_and_running_ones_when_they_end() {
    let lake = Lake::new();
    grown(&lake, "runs").await;
    slow_commits(&lake, 1);
    let appended = lake.catalog.commits();
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "commits", || async { lake.catalog.commits() > appended }).await;
    grown(&lake, "waits").await;
    until(MINUTE, "found", || async { daemon.maintained().len() == 2 }).await;
    daemon.use_policies(policies(&["lake.other.*"], POLICY));
    until(MINUTE, "the idle one leaves", || async { daemon.maintained() == ["lake.db.runs"] }).await;
    let error = daemon.control.run_now(&"lake.db.runs".parse().expect("a name")).await;
    assert!(error.expect_err("leaves").to_string().contains("is not maintained"));
    until(HOUR, "its run ends", || async { lake.files("runs").await.len() == 2 }).await;
    until(MINUTE, "it leaves", || async { daemon.maintained().is_empty() }).await;
    tokio::time::sleep(7 * HOUR).await;
    assert_eq!((lake.snapshots("runs").await, lake.snapshots("waits").await), (3, 2), "nothing more is done");
    daemon.use_policies(policies(ALL, POLICY));
    until(HOUR, "both again", || async { (lake.snapshots("runs").await, lake.snapshots("waits").await) == (1, 1) })
        .await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_comes_back_during_a_run_keeps_the_table() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    slow_commits(&lake, 1);
    let appended = lake.catalog.commits();
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "commits", || async { lake.catalog.commits() > appended }).await;
    daemon.use_policies(policies(&["lake.other.*"], POLICY));
    tokio::time::sleep(MINUTE).await;
    daemon.use_policies(policies(ALL, POLICY));
    until(2 * HOUR, "the whole run", || async { lake.snapshots("t").await == 1 }).await;
    assert_eq!(daemon.runs("t", "rewrite-data-files", "success"), 1.0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn catalogs_come_and_change_and_go() {
    let (lake, pond) = (Lake::new(), Lake::new());
    grown(&lake, "t").await;
    grown(&pond, "u").await;
    let daemon = Daemon::start(&lake, 1);
    until(2 * HOUR, "a whole run", || async { lake.snapshots("t").await == 1 }).await;
    let both = || policies(&["lake.db.*", "pond.db.*"], POLICY);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let replace = |catalogs: &[&str], rebuilt: Vec<(&str, Member)>| {
        daemon.settings.send_modify(|settings| {
            let rebuilt = rebuilt.into_iter().map(|(name, member)| (name.to_owned(), member)).collect();
            settings.fleet = Arc::new(settings.fleet.successor(&names(catalogs), rebuilt, both()));
        });
    };
    replace(&["lake", "pond"], vec![("pond", pond.member())]);
    until(2 * HOUR, "the new catalog's table", || async { pond.snapshots("u").await == 1 }).await;
    assert_eq!(daemon.runs("t", "expire-snapshots", "success"), 1.0, "the other is not disturbed");
    // Another client of the same catalog: where the table stands is found out from the table, so its clean-up is done again.
    replace(&["lake", "pond"], vec![("lake", lake.member())]);
    let cleaned = || ["success", "skipped"].map(|o| daemon.runs("t", "expire-snapshots", o)).iter().sum::<f64>();
    until(MINUTE, "looked at", || async { cleaned() == 2.0 }).await;
    assert_eq!(daemon.runs("t", "rewrite-data-files", "success"), 1.0);
    replace(&["lake"], Vec::new());
    until(MINUTE, "gone", || async { daemon.maintained() == ["lake.db.t"] }).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn back_off_and_pauses_outlive_new_policies() {
    let lake = Lake::new();
    grown(&lake, "bad").await;
    grown(&lake, "still").await;
    for operation in [Operation::Read, Operation::ReadRange] {
        lake.faulty.inject_on("/db/bad/data/", operation, 0..usize::MAX, StoreFault::fail());
    }
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "found", || async { daemon.maintained().len() == 2 }).await;
    until(MINUTE, "compacted", || async { lake.files("still").await.len() == 2 }).await;
    daemon.control.pause(Some(&"lake.db.still".parse().expect("a name")), "why".into()).await.expect("paused");
    let failed = || daemon.runs("bad", "rewrite-data-files", "failed");
    until(HOUR, "backs off for long", || async { failed() == 5.0 }).await;
    // The next attempt is due in sixteen minutes.
    for delay in ["1m", "2m", "3m", "4m"] {
        daemon.use_policies(policies(ALL, &POLICY.replace("\"3x\"", &format!("\"{delay}\""))));
        tokio::time::sleep(MINUTE).await;
    }
    assert_eq!(failed(), 5.0);
    assert_eq!(daemon.value("icewright_table_consecutive_failures", "table=\"bad\""), 5.0);
    until(15 * MINUTE, "tried again", || async { failed() == 6.0 }).await;
    assert_eq!(lake.snapshots("still").await, 3, "paused all the time");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_holds_once_those_that_run_have_ended() {
    let lake = Lake::new();
    for table in ["a", "b", "c", "d"] {
        grown(&lake, table).await;
    }
    slow_commits(&lake, 4);
    let appended = lake.catalog.commits();
    let daemon = Daemon::start(&lake, 3);
    until(MINUTE, "three commit", || async { lake.catalog.commits() == appended + 3 }).await;
    let compacted = async || {
        let mut count = 0;
        for table in ["a", "b", "c", "d"] {
            count += usize::from(lake.files(table).await.len() == 2);
        }
        count
    };
    daemon.settings.send_modify(|settings| settings.concurrent_tables = 1);
    tokio::time::sleep(MINUTE).await;
    assert_eq!((lake.catalog.commits(), compacted().await), (appended + 3, 0), "none is stopped, none begins");
    until(HOUR, "the fourth", || async { lake.catalog.commits() == appended + 4 }).await;
    assert_eq!(compacted().await, 3);
    daemon.settings.send_modify(|settings| settings.concurrent_tables = 2);
    until(2 * HOUR, "the fourth ends", || async { compacted().await == 4 }).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shorter_run_timeout_makes_nobody_s_files_garbage_sooner() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    // A run that began three hours ago elsewhere, under the timeout of six hours.
    let run = RunId(lake.clock.uuid());
    let output = format!("s3://b/db/t/data/part=0/00000-0-{}-00001.parquet", run.file_token());
    lake.store.put(&output, "output");
    lake.store.set_last_modified(&output, Some(lake.clock.now_ms()));
    tokio::time::sleep(3 * HOUR).await;
    let started = lake.clock.now_ms();
    let daemon = Daemon::start(&lake, 1);
    daemon.settings.send_modify(|settings| settings.run_timeout = HOUR);
    until(HOUR, "cleaned", || async { daemon.runs("t", "remove-orphan-files", "success") == 1.0 }).await;
    assert!(lake.has(&output), "it may still be at work");
    daemon.stop().await;
    until(4 * HOUR, "six hours are over", || async { lake.clock.now_ms() - started > 4 * 3_600_000 - 120_000 }).await;
    let daemon = Daemon::start(&lake, 1);
    until(4 * HOUR, "it goes", || async { !lake.has(&output) }).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_longer_run_timeout_holds_for_plans_on_demand_as_well() {
    let lake = Lake::new();
    let daemon = Daemon::start(&lake, 1);
    for (timeout, longest) in [(9 * HOUR, 9 * HOUR), (HOUR, 9 * HOUR)] {
        daemon.settings.send_modify(|settings| settings.run_timeout = timeout);
        tokio::time::sleep(MINUTE).await;
        assert_eq!(daemon.env.run_over_after.get(), longest);
    }
    daemon.stop().await;
}

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Does something right before it lists tables, and otherwise never answers.
struct Hooked {
    inner: MemoryCatalog,
    hook: Hook,
}

#[async_trait]
impl Catalog for Hooked {
    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        self.inner.list_namespaces(parent).await
    }
    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        let hook = self.hook.lock().expect("no panic").take();
        match hook {
            Some(hook) => hook(),
            None => std::future::pending().await,
        }
        self.inner.list_tables(namespace).await
    }
    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable> {
        self.inner.load_table(table).await
    }
    async fn declared_paths(&self, table: &TableIdent) -> Result<DeclaredPaths> {
        self.inner.declared_paths(table).await
    }
    async fn commit_table(
        &self,
        t: &TableIdent,
        r: Vec<TableRequirement>,
        u: Vec<TableUpdate>,
        m: MaySend<'_>,
    ) -> CommitOutcome {
        self.inner.commit_table(t, r, u, m).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_under_way_says_nothing_about_new_policies() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let hook = Hook::default();
    let catalog = Arc::new(Hooked { inner: lake.catalog.clone(), hook: hook.clone() });
    let member = Member { catalog, ..lake.member() };
    let fleet = Fleet::new([("lake".to_owned(), member)].into(), PolicySet::default());
    let daemon = Daemon::with_fleet(&lake, Arc::new(fleet), 1);
    // The answer and the newer policies reach the loop at the same time; it takes either first.
    for _ in 0..20 {
        let settings = daemon.settings.clone();
        *hook.lock().expect("no panic") =
            Some(Box::new(move || use_policies(&settings, policies(&["lake.other.*"], POLICY))));
        daemon.use_policies(policies(ALL, POLICY));
        tokio::time::sleep(MINUTE).await;
        assert!(hook.lock().expect("no panic").is_none(), "it was listed");
        assert_eq!(daemon.maintained(), [""; 0]);
    }
    assert_eq!(lake.snapshots("t").await, 2, "untouched");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_panics_is_tried_again() {
    let lake = Lake::new();
    lake.create("t");
    let hook: Hook = Arc::new(Mutex::new(Some(Box::new(|| panic!("a bug")))));
    let catalog = Arc::new(Hooked { inner: lake.catalog.clone(), hook: hook.clone() });
    let member = Member { catalog, ..lake.member() };
    let fleet = Fleet::new([("lake".to_owned(), member)].into(), policies(ALL, POLICY));
    let daemon = Daemon::with_fleet(&lake, Arc::new(fleet), 1);
    until(MINUTE, "the first listing", || async { hook.lock().expect("no panic").is_none() }).await;
    assert_eq!(daemon.maintained(), [""; 0]);
    *hook.lock().expect("no panic") = Some(Box::new(|| ()));
    // It is left as it is: work on the table asks this catalog for its neighbours and waits for good.
    until(MINUTE, "the next listing", || async { daemon.maintained() == ["lake.db.t"] }).await;
}
