//! The configuration file, read again while the daemon runs. Job: a changed file -> new [`LiveSettings`], or all that is wrong with it.
//!
//! The file is looked at every few seconds, and at once when somebody asks. Its content counts, not its times, so that it does
//! not matter how it is replaced. A file that cannot be used changes nothing.

mod difference;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use self::difference::Difference;
use crate::clock::Clock;
use crate::config::{CatalogConfig, Config, LoadedConfig, Problem, Problems};
use crate::error::Result;
use crate::fleet::Member;
use crate::policy::Severity;
use crate::schedule::observer::{Event, Observer};
use crate::schedule::settings::LiveSettings;

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A changed file that nobody spoke of must say the same this much later: whoever writes it may be in the middle.
const UNCHANGED_FOR: Duration = Duration::from_secs(2);
/// Likewise where somebody says that it is complete; only links may still be moving.
const SETTLED_AFTER: Duration = Duration::from_millis(250);
/// Then a file that changes all the time is read as it is after so many tries.
const SETTLING_MAX: u32 = 20;

/// Makes a catalog's client; its own settings are all it depends on.
pub type BuildMember = Box<dyn Fn(&str, &CatalogConfig) -> Result<Member> + Send + Sync>;

pub struct Reloader {
    path: PathBuf,
    /// What the file said last.
    seen: Result<String, Problems>,
    /// What it says since when, if that is something else.
    changed: Option<(Instant, Result<String, Problems>)>,
    /// Why what it said could not be put in force, although it is a valid file. It may be soon: a secret may come later.
    refused: Option<Problems>,
    config: Config,
    /// Properties with their secrets, as each catalog's client was made with.
    properties: BTreeMap<String, HashMap<String, String>>,
    build: BuildMember,
    settings: watch::Sender<LiveSettings>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
}

impl Reloader {
    /// Keeps `settings`, which were made of `loaded`, up to date. `None` if that was not read from a file.
    pub fn new(
        loaded: &LoadedConfig,
        build: BuildMember,
        settings: watch::Sender<LiveSettings>,
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Self>> {
        let Some(source) = loaded.source.clone() else { return Ok(None) };
        let config = loaded.config.clone();
        let resolve = |(name, catalog): (&String, &CatalogConfig)| Ok((name.clone(), catalog.resolve_properties()?));
        let properties = config.catalogs.iter().map(resolve).collect::<Result<_>>()?;
        let (path, seen) = (source.path, Ok(source.text));
        Ok(Some(Self {
            path,
            seen,
            changed: None,
            refused: None,
            config,
            properties,
            build,
            settings,
            observer,
            clock,
        }))
    }

    /// Looks at the file every five seconds, sooner again after a change, and whenever `asked` gives something; forever.
    pub async fn watch(mut self, mut asked: tokio::signal::unix::Signal) {
        loop {
            let pause = if self.changed.is_some() { UNCHANGED_FOR } else { LOOK_EVERY };
            tokio::select! {
                Some(()) = asked.recv() => self.reload().await,
                () = tokio::time::sleep(pause) => self.look().await,
            }
        }
    }

    /// Reloads if the file says something new and said the same two seconds ago, or if what it says could not be put in
    /// force so far.
    pub async fn look(&mut self) {
        let text = read(&self.path).await;
        if text == self.seen {
            self.changed = None;
            if self.refused.is_some() {
                self.load(text, false);
            }
            return;
        }
        match &self.changed {
            Some((since, same)) if *same == text => {
                if since.elapsed() >= UNCHANGED_FOR {
                    self.load(text, false);
                }
            }
            Some(_) | None => self.changed = Some((Instant::now(), text)),
        }
    }

    pub async fn reload(&mut self) {
        let text = read_settled(&self.path).await;
        self.load(text, true);
    }

    /// The same failure as the last time is told only to who `asked`.
    fn load(&mut self, text: Result<String, Problems>, asked: bool) {
        self.changed = None;
        self.seen = text.clone();
        let parsed = text.and_then(|text| Config::parse(&self.path.display().to_string(), &text));
        let now = self.clock.now_ms();
        let refused = self.refused.take();
        match parsed.map(|loaded| self.put_in_force(loaded)) {
            Ok(Ok((loaded, rebuilt))) => {
                let (loaded, rebuilt) = (&loaded, &rebuilt[..]);
                self.observer.observe(Event::ConfigReloaded { loaded, rebuilt }, now);
            }
            Ok(Err(problems)) => {
                if asked || refused.as_ref() != Some(&problems) {
                    self.observer.observe(Event::ConfigRefused(&problems), now);
                }
                self.refused = Some(problems);
            }
            Err(problems) => self.observer.observe(Event::ConfigRefused(&problems), now),
        }
    }

    /// All or nothing. What is in force then, with what is odd about it; and the catalogs with new clients.
    fn put_in_force(&mut self, new: LoadedConfig) -> Result<(LoadedConfig, Vec<String>), Problems> {
        let LoadedConfig { config, mut warnings, source } = new;
        let Difference { config, mut rebuilt, waiting } = Difference::between(&self.config, config);
        let properties = self.read_properties(&config)?;
        let renewed = |name: &&String| self.properties.get(*name) != properties.get(*name) && !rebuilt.contains(name);
        let renewed: Vec<String> = properties.keys().filter(renewed).cloned().collect();
        rebuilt.extend(renewed);
        let mut members = BTreeMap::new();
        for name in &rebuilt {
            let member = (self.build)(name, &config.catalogs[name]);
            let member = member.map_err(|error| self.unusable(name, error.to_string()))?;
            members.insert(name.clone(), member);
        }
        warnings.extend(waiting.into_iter().map(|key| waits_for_restart(&self.path, key)));
        self.settings.send_if_modified(|settings| {
            // Nobody is disturbed by a comment, or by someone who only asks.
            let modified = config != self.config || !rebuilt.is_empty();
            if modified {
                let fleet = settings.fleet.successor(config.catalogs.keys(), members, config.policies.clone());
                *settings = LiveSettings::of(&config, Arc::new(fleet));
            }
            modified
        });
        self.properties = properties;
        self.config = config.clone();
        Ok((LoadedConfig { config, warnings, source }, rebuilt))
    }

    fn read_properties(&self, config: &Config) -> Result<BTreeMap<String, HashMap<String, String>>, Problems> {
        let resolve = |(name, catalog): (&String, &CatalogConfig)| match catalog.resolve_properties() {
            Ok(properties) => Ok((name.clone(), properties)),
            Err(error) => Err(self.unusable(name, error.to_string())),
        };
        config.catalogs.iter().map(resolve).collect()
    }

    fn unusable(&self, catalog: &str, message: String) -> Problems {
        Problems(vec![Problem::of_file(&self.path, &format!("catalogs.{catalog}"), message, "")])
    }
}

fn waits_for_restart(path: &Path, key: &str) -> Problem {
    let message = "differs from the value that the process began with, which stays in force".to_owned();
    let problem = Problem::of_file(path, key, message, "restart the process to change it");
    Problem { severity: Severity::Warning, ..problem }
}

/// What the file says once it says the same twice.
async fn read_settled(path: &Path) -> Result<String, Problems> {
    let mut text = read(path).await;
    for _ in 0..SETTLING_MAX {
        tokio::time::sleep(SETTLED_AFTER).await;
        let again = read(path).await;
        if again == text {
            break;
        }
        text = again;
    }
    text
}

/// A file system that hangs must hold up nothing else.
async fn read(path: &Path) -> Result<String, Problems> {
    let owned = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || Config::read(&owned));
    reading
        .await
        .unwrap_or_else(|e| Err(Problems(vec![Problem::of_file(path, "", format!("cannot be read: {e}"), "")])))
}
