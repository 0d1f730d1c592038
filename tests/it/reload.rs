//! The configuration file changes under a running daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use icewright::catalog::Catalog;
use icewright::clock::SystemClock;
use icewright::config::Config;
use icewright::error::{Error, Result};
use icewright::fleet::{Fleet, Member, OpenStore};
use icewright::inspect::ManifestCache;
use icewright::reload::{BuildMember, Reloader};
use icewright::report::board::Board;
use icewright::report::events::Reporter;
use icewright::report::metrics::Metrics;
use icewright::report::probes::Probes;
use icewright::rewrite::MemoryBudget;
use icewright::schedule::settings::LiveSettings;
use icewright::storage::StoreRef;
use icewright::table::LoadedTable;
use icewright::testing::{MemoryCatalog, MemoryStore};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::cli::get;
use crate::interop::process::{Process, free_port, wait_for};
use crate::interop::proxy::{Fate, Proxy};
use crate::support::command::{Lake, icewright};

/// A folder as Kubernetes mounts a ConfigMap: `icewright.toml -> ..data/icewright.toml`, `..data -> VERSION`.
struct Mount {
    dir: TempDir,
    version: usize,
}

impl Mount {
    fn new(text: &str) -> Self {
        let mut mount = Self { dir: tempfile::tempdir().expect("a folder"), version: 0 };
        mount.swap(text);
        std::os::unix::fs::symlink("..data/icewright.toml", mount.file()).expect("a link");
        mount
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("icewright.toml")
    }

    /// Puts a new version in place at once.
    fn swap(&mut self, text: &str) {
        self.version += 1;
        let version = format!("..version-{}", self.version);
        let folder = self.dir.path().join(&version);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("icewright.toml"), text).expect("write");
        let link = self.dir.path().join("..data_tmp");
        std::os::unix::fs::symlink(&version, &link).expect("a link");
        std::fs::rename(&link, self.dir.path().join("..data")).expect("the swap");
    }
}

const BASE: &str = r#"
[catalogs.lake]
uri = "http://localhost:1"
auth = { type = "none" }
[[policies]]
name = "all"
tables = ["lake.db.*"]
every = "1h"
"#;

struct NoStore;

#[async_trait]
impl OpenStore for NoStore {
    async fn open(&self, _: &Arc<dyn Catalog>, _: &iceberg::TableIdent, _: &LoadedTable) -> Result<StoreRef> {
        Err(Error::internal("no store is needed"))
    }
}

/// A reloader on a file, with what it drives.
struct Bench {
    reloader: Reloader,
    settings: watch::Receiver<LiveSettings>,
    metrics: Arc<Metrics>,
    builds: Arc<AtomicUsize>,
}

impl Bench {
    fn new(file: &Path) -> Self {
        let loaded = Config::load(file).unwrap_or_else(|problems| panic!("{problems}"));
        let metrics = Arc::new(Metrics::new(10));
        let probes = Arc::new(Probes::new(0, Duration::from_secs(60), loaded.config.catalogs.keys().cloned()));
        let board = Arc::new(Board::new(0, Arc::new(MemoryBudget::new(0)), Arc::new(ManifestCache::new(0))));
        let reporter = Arc::new(Reporter::new(metrics.clone(), board, probes, false));
        let builds = Arc::new(AtomicUsize::new(0));
        let build: BuildMember = {
            let builds = builds.clone();
            Box::new(move |_, _| {
                builds.fetch_add(1, Ordering::Relaxed);
                let catalog = Arc::new(MemoryCatalog::new(Arc::new(MemoryStore::new())));
                Ok(Member { catalog, stores: Arc::new(NoStore) })
            })
        };
        let member = |(name, catalog): (&String, _)| (name.clone(), build(name, catalog).expect("a member"));
        let members = loaded.config.catalogs.iter().map(member).collect();
        let fleet = Arc::new(Fleet::new(members, loaded.config.policies.clone()));
        let (publish, settings) = watch::channel(LiveSettings::of(&loaded.config, fleet));
        builds.store(0, Ordering::Relaxed);
        let reloader = Reloader::new(&loaded, build, publish, reporter, SystemClock::shared());
        let reloader = reloader.expect("readable secrets").expect("a file");
        Self { reloader, settings, metrics, builds }
    }

    /// Looks at the file twice, so that a change counts.
    async fn look(&mut self) {
        self.reloader.look().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.reloader.look().await;
    }

    fn shown(&self, series: &str) -> f64 {
        let text = self.metrics.gather().expect("metrics");
        let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        line.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Reloads that succeeded and failed, and whether the last one succeeded.
    fn reloads(&self) -> (f64, f64, f64) {
        (
            self.shown("icewright_config_reloads_total{outcome=\"success\"}"),
            self.shown("icewright_config_reloads_total{outcome=\"failed\"}"),
            self.shown("icewright_config_last_load_successful"),
        )
    }

    /// Whether something was published since the last call.
    fn published(&mut self) -> bool {
        let changed = self.settings.has_changed().expect("open");
        self.settings.mark_unchanged();
        changed
    }

    /// What is in force for the one table.
    fn every(&self) -> String {
        let policy = self.settings.borrow().fleet.policy(&"lake.db.t".parse().expect("a name")).expect("a policy");
        format!("{:?}", policy.policy.schedule)
    }
}

#[tokio::test(start_paused = true)]
async fn a_swapped_link_is_a_new_file_and_a_bad_one_changes_nothing() {
    let mut mount = Mount::new(BASE);
    let mut bench = Bench::new(&mount.file());
    bench.look().await;
    assert_eq!((bench.reloads().0, bench.published()), (0.0, false), "nothing new");

    mount.swap(&BASE.replace("1h", "2h"));
    bench.look().await;
    assert_eq!(bench.reloads(), (1.0, 0.0, 1.0));
    assert!(bench.published() && bench.every() == "Every(7200s)", "{}", bench.every());
    assert_eq!(bench.builds.load(Ordering::Relaxed), 0, "its catalog stays");

    for bad in [BASE.replace("1h", "soon"), BASE.replace("[catalogs.lake]", "[catalogs.pond]"), String::new()] {
        let before = bench.reloads();
        mount.swap(&bad);
        bench.look().await;
        bench.look().await;
        assert_eq!(bench.reloads(), (1.0, before.1 + 1.0, 0.0), "told once: {bad}");
        assert!(!bench.published() && bench.every() == "Every(7200s)");
    }
    std::fs::remove_file(mount.dir.path().join("..data")).expect("remove");
    bench.look().await;
    assert_eq!(bench.reloads(), (1.0, 4.0, 0.0), "no file at all");

    mount.swap(&BASE.replace("1h", "2h"));
    bench.look().await;
    assert_eq!(bench.reloads(), (2.0, 4.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn who_asks_gets_an_answer_although_nothing_changed() {
    let mount = Mount::new(BASE);
    let mut bench = Bench::new(&mount.file());
    bench.reloader.reload().await;
    assert_eq!((bench.reloads(), bench.published()), ((1.0, 0.0, 1.0), false));
}

#[tokio::test(start_paused = true)]
async fn a_file_in_the_middle_of_being_written_is_left_alone() {
    let mount = Mount::new(BASE);
    let mut bench = Bench::new(&mount.file());
    // The first half is a valid file of its own.
    let (half, whole) = (BASE.replace("1h", "2h"), BASE.replace("1h", "3h"));
    std::fs::write(mount.file(), half).expect("write");
    for _ in 0..2 {
        bench.reloader.look().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    std::fs::write(mount.file(), &whole).expect("write");
    bench.reloader.look().await;
    tokio::time::sleep(Duration::from_millis(1_900)).await;
    bench.reloader.look().await;
    assert_eq!((bench.reloads().0, bench.published()), (0.0, false), "nothing said the same for two seconds");
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench.reloader.look().await;
    assert_eq!((bench.reloads(), bench.every().as_str()), ((1.0, 0.0, 1.0), "Every(10800s)"));

    // What was taken back before is no change.
    std::fs::write(mount.file(), BASE).expect("write");
    bench.reloader.look().await;
    std::fs::write(mount.file(), &whole).expect("write");
    bench.look().await;
    std::fs::write(mount.file(), BASE).expect("write");
    bench.reloader.look().await;
    assert_eq!(bench.reloads().0, 1.0);
}

#[tokio::test(start_paused = true)]
async fn who_says_that_a_file_is_complete_need_not_wait() {
    let mount = Mount::new(BASE);
    let mut bench = Bench::new(&mount.file());
    std::fs::write(mount.file(), BASE.replace("1h", "2h")).expect("write");
    let rest = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::write(mount.file(), BASE.replace("1h", "3h")).expect("write");
    };
    let start = tokio::time::Instant::now();
    tokio::join!(bench.reloader.reload(), rest);
    assert_eq!((bench.reloads(), bench.every().as_str()), ((1.0, 0.0, 1.0), "Every(10800s)"));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_restart_is_a_warning_each_time() {
    let mut mount = Mount::new(BASE);
    let mut bench = Bench::new(&mount.file());
    let fixed = "[server]\nlisten = \"127.0.0.1:1\"\n[limits]\nmemory = \"1GiB\"\nconcurrent-tables = 7\n";
    for every in ["2h", "3h"] {
        mount.swap(&format!("{fixed}{}", BASE.replace("1h", every)));
        bench.look().await;
        assert_eq!(bench.shown("icewright_config_warnings"), 2.0);
        assert_eq!(bench.settings.borrow().concurrent_tables, 7);
    }
    mount.swap(BASE);
    bench.look().await;
    assert_eq!(bench.shown("icewright_config_warnings"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_catalog_is_made_anew_when_its_section_or_its_secrets_change() {
    let with_key =
        BASE.replace("[[policies]]", "properties = { \"s3.secret-access-key\" = { file = \"key\" } }\n[[policies]]");
    let mut mount = Mount::new(BASE);
    let mut bench = Bench::new(&mount.file());
    mount.swap(&with_key);
    bench.look().await;
    bench.look().await;
    assert_eq!(bench.reloads(), (0.0, 1.0, 0.0), "the secret is missing, which is told once");
    assert!(!bench.published());

    let key = mount.dir.path().join("key");
    std::fs::write(&key, "first").expect("write");
    bench.look().await;
    assert_eq!(bench.reloads(), (1.0, 1.0, 1.0), "it came, though the file is the same");
    assert!(bench.published());
    assert_eq!(bench.builds.load(Ordering::Relaxed), 1);

    bench.reloader.reload().await;
    assert_eq!((bench.builds.load(Ordering::Relaxed), bench.published()), (1, false));
    std::fs::write(&key, "second").expect("write");
    bench.reloader.reload().await;
    assert_eq!((bench.builds.load(Ordering::Relaxed), bench.published()), (2, true), "rotated, and somebody asked");
}

/// The value of the series that holds all of `parts`.
fn shown(port: u16, parts: &[&str]) -> Option<f64> {
    let (_, text) = get(port, "/metrics");
    let line = text.lines().find(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn wait_shown(port: u16, parts: &[&str], value: Option<f64>) {
    wait_for(&format!("{parts:?} to be {value:?}"), || match shown(port, parts) {
        now if now == value => Ok(()),
        now => Err(format!("{now:?}")),
    });
}

#[test]
fn a_daemon_follows_its_file_while_a_rewrite_runs() {
    let lake = Lake::start();
    let proxy = Proxy::start(lake.uri(), &[Fate::Gate, Fate::Pass]);
    let port = free_port();
    // A commit waits for as long as the test takes.
    let patient = "properties = { \"rest.client.request-timeout-ms\" = \"600000\" }";
    let catalog = |name: &str, uri: &str| {
        format!("[catalogs.{name}]\nuri = \"{uri}\"\nauth = {{ type = \"none\" }}\n{patient}\n")
    };
    let policy = |table: &str, more: &str| {
        let (name, times) = (table.replace('.', "-"), "commit-interval = \"1s\"\nevery = \"1h\"\ndelay = \"1h\"\n");
        format!(
            "[[policies]]\nname = \"{name}\"\ntables = [\"{table}\"]\n{times}[policies.rewrite-data-files]\n\
             rewrite-all = true\n{more}"
        )
    };
    let head = format!("[server]\nlisten = \"127.0.0.1:{port}\"\n[limits]\nmemory = \"512MiB\"\n");
    let head = format!("{head}{}", catalog("lake", &proxy.uri));
    let mut mount = Mount::new(&format!("{head}{}", policy("lake.shop.orders", "")));
    let file = mount.file().to_string_lossy().into_owned();
    let log = lake.dir().join("run.log");
    let mut daemon = Process::start("run", &mut icewright(&["run", "--config", &file]), log.clone());
    daemon.wait_ready(&format!("http://127.0.0.1:{port}/readyz"));
    proxy.wait_held();

    // Nobody tells: it looks by itself.
    mount.swap(&format!("{head}{}", policy("lake.shop.orders", "enabled = \"perhaps\"\n")));
    wait_shown(port, &["icewright_config_reloads_total", "failed"], Some(1.0));
    wait_shown(port, &["icewright_config_last_load_successful "], Some(0.0));
    let told = std::fs::read_to_string(&log).expect("the log");
    assert!(told.contains("icewright.toml:") && told.contains("perhaps"), "the line and what is wrong: {told}");

    // Somebody tells: another catalog with a table, nothing more to do for the first, and another port, which has to wait.
    let listen = |head: &str| head.replace(&format!("127.0.0.1:{port}\"\n[limits"), "127.0.0.1:1\"\n[limits");
    let both = format!(
        "{}{}{}{}",
        listen(&head),
        catalog("pond", lake.uri()),
        policy("lake.shop.orders", "enabled = false\n"),
        policy("pond.shop.server_logs", "")
    );
    mount.swap(&both);
    daemon.signal("HUP");
    wait_shown(port, &["icewright_config_reloads_total", "success"], Some(1.0));
    wait_shown(port, &["icewright_config_last_load_successful "], Some(1.0));
    wait_shown(port, &["icewright_config_warnings "], Some(1.0));
    let runs = |catalog: &str| {
        let catalog = format!("catalog=\"{catalog}\"");
        move |value| {
            wait_shown(port, &["icewright_runs_total", "rewrite-data-files", "\"success\"", catalog.as_str()], value);
        }
    };
    runs("pond")(Some(1.0));
    runs("lake")(Some(0.0));
    // The run that began under the old policy commits.
    proxy.release();
    runs("lake")(Some(1.0));

    mount.swap(&format!("{head}{}{}", catalog("pond", lake.uri()), policy("pond.shop.server_logs", "")));
    daemon.signal("HUP");
    runs("lake")(None);
    runs("pond")(Some(1.0));
    assert_eq!(daemon.terminate(), Some(0));
}
