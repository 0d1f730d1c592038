use async_trait::async_trait;
use iceberg::TableIdent;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::actions::env::{ActiveRuns, Longest};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::fleet::{Fleet, Member, OpenStore};
use crate::inspect::ManifestCache;
use crate::rewrite::memory::MemoryBudget;
use crate::schedule::control::control;
use crate::storage::StoreRef;
use crate::table::LoadedTable;
use crate::testing::{MemoryCatalog, MemoryStore, SetClock};

/// Nobody listens, and there is no store.
struct Nothing;

impl Observer for Nothing {
    fn observe(&self, _: Event<'_>, _: i64) {}
}

#[async_trait]
impl OpenStore for Nothing {
    async fn open(&self, _: &Arc<dyn Catalog>, _: &TableIdent, _: &LoadedTable) -> Result<StoreRef> {
        Err(Error::internal("no store"))
    }
}

fn settings(every: &str, before: Option<&LiveSettings>) -> LiveSettings {
    let lake = "[catalogs.lake]\nuri = 'http://lake'\nauth = { type = 'none' }";
    let policy = format!("[[policies]]\nname = 'all'\ntables = ['**']\nevery = '{every}'");
    let config = Config::parse("test.toml", &format!("{lake}\n{policy}")).expect("a configuration").config;
    let fleet = match before {
        Some(before) => before.fleet.successor(config.catalogs.keys(), [].into(), config.policies.clone()),
        None => {
            let catalog = Arc::new(MemoryCatalog::new(Arc::new(MemoryStore::new())));
            let member = Member { catalog, stores: Arc::new(Nothing) };
            Fleet::new([("lake".to_owned(), member)].into(), config.policies.clone())
        }
    };
    LiveSettings::of(&config, Arc::new(fleet))
}

fn env() -> Env {
    Env {
        clock: Arc::new(SetClock::new(7_000)),
        memory: Arc::new(MemoryBudget::new(0)),
        manifests: Arc::new(ManifestCache::new(0)),
        threads: 1,
        active: ActiveRuns::default(),
        run_timeout: Duration::ZERO,
        run_over_after: Longest::new(Duration::ZERO),
        cancel: CancellationToken::new(),
    }
}

#[tokio::test]
async fn numbers_stay_with_their_table_through_a_reload_and_go_with_it() {
    let first = settings("1h", None);
    let current = watch::channel(first.clone()).1;
    let mut scheduler = Scheduler::new(env(), current, Arc::new(Nothing), control().1);
    let (maintained, name): (_, TableName) = (scheduler.maintained(), "lake.db.t".parse().expect("a name"));
    let from_collector = scheduler.collector().numbers;
    let take = |scheduler: &mut Scheduler, at_ms| {
        from_collector.try_send(CollectedNumbers { name: name.clone(), stats: Arc::default(), at_ms }).expect("room");
        let numbers = scheduler.numbers.1.try_recv().expect("the numbers");
        scheduler.take_numbers(numbers);
        scheduler.tables.get(&name)?.numbers.as_ref().map(|(_, at_ms)| *at_ms)
    };
    let list = |scheduler: &mut Scheduler, settings: &LiveSettings, names| {
        let (fleet, catalog) = (settings.fleet.clone(), "lake".into());
        scheduler.take_in(CatalogListing { fleet, catalog, names, after_failure: false });
    };
    assert_eq!((take(&mut scheduler, 1), scheduler.tables.len()), (None, 0), "they make no table");
    list(&mut scheduler, &first, vec![name.clone()]);
    assert_eq!((take(&mut scheduler, 2), maintained.borrow().len()), (Some(2), 1));
    let second = settings("2h", Some(&first));
    scheduler.use_settings(second.clone());
    let entry = &scheduler.tables[&name];
    assert!(entry.is_due(7_000) && entry.numbers.is_some(), "another policy, the same table");
    list(&mut scheduler, &second, Vec::new());
    assert_eq!((take(&mut scheduler, 3), maintained.borrow().len()), (None, 0));
    list(&mut scheduler, &second, vec![name.clone()]);
    assert_eq!(scheduler.tables[&name].numbers, None, "a table of the same name begins anew");
}
