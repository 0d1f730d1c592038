//! Other tables when one is cleaned: catalogs that answer wrongly, several catalogs, other stores, and how often tables are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use icewright::action::{Action, Outcome, RunStep};
use icewright::actions::ActionPlan;
use icewright::actions::report::{ActionDetail, StepReport};
use icewright::actions::subject::Subject;
use icewright::clean::{ExpireReport, OrphanReport, Refused};
use icewright::error::{Error, ErrorKind};
use icewright::fleet::{Fleet, Member};
use icewright::plan::remove_orphan_files::KeepReason;
use icewright::schedule::plan_table::plan_table;
use icewright::schedule::run_table::{TableRun, run_step};
use icewright::table::TableName;
use icewright::testing::{MemoryCatalog, Operation};

use super::lying::{Ask, Lie, Told, lies, member, missing, other_namespace, space};
use super::scheduler::{Daemon, until};
use super::world::{HOUR, Lake, MINUTE, POLICY, ident, policies};

pub(super) fn fleet(members: Vec<(&str, Member)>, policy: &str) -> Arc<Fleet> {
    let members = members.into_iter().map(|(name, member)| (name.to_owned(), member)).collect();
    Arc::new(Fleet::new(members, policies(&["lake.**"], policy)))
}

pub(super) fn name(table: &str) -> TableName {
    table.parse().expect("a name")
}

/// Cleans a table up, whether or not that is due.
pub(super) async fn clean(lake: &Lake, fleet: &Fleet, table: &str) -> StepReport {
    let (env, name) = (lake.env(), name(table));
    let subject = Subject::load(fleet, &name).await.expect("a table");
    run_step(&env, fleet, &subject, TableRun::start(&env), RunStep::LAST, &()).await.expect("done").report
}

pub(super) fn orphans(report: &StepReport) -> &OrphanReport {
    match report.detail(Action::RemoveOrphanFiles) {
        Some(ActionDetail::OrphanReport(report)) => report,
        other => panic!("not begun: {other:?}"),
    }
}

pub(super) fn expiry(report: &StepReport) -> &ExpireReport {
    match report.detail(Action::ExpireSnapshots) {
        Some(ActionDetail::ExpireReport(report)) => report,
        other => panic!("not begun: {other:?}"),
    }
}

pub(super) fn refused(report: &StepReport) -> Refused {
    orphans(report).refused.clone().unwrap_or_else(|| panic!("not refused: {:?}", orphans(report)))
}

/// Table `db.t` with litter, beside `db.u` and `db2.v`.
pub(super) async fn lake() -> (Lake, String) {
    let lake = Lake::new();
    ["t", "u"].iter().for_each(|table| lake.create(table));
    lake.create_at(&other_namespace("v"), "s3://b/db2/v");
    lake.append("t", 0..1).await;
    lake.append("u", 0..1).await;
    let litter = lake.litter("t");
    (lake, litter)
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_while_a_catalog_answers_wrongly_and_the_refusal_names_what_is_wrong() {
    for (what, named, lie) in lies() {
        let (lake, litter) = lake().await;
        let fleet = fleet(vec![("lake", member(&lake, move |ask, inner| lie(ask, inner)))], POLICY);
        let report = clean(&lake, &fleet, "lake.db.t").await;
        let refused = refused(&report);
        assert_eq!(refused.reason, "neighbour_unreadable", "{what}");
        assert!(refused.detail.contains(named), "{what}: {}", refused.detail);
        assert!(refused.detail.contains("ignore-unreadable"), "the cure: {}", refused.detail);
        assert!(lake.has(&litter) && lake.store.deleted().is_empty(), "{what}");
        assert_eq!(report.actions[1].outcome, Outcome::Skipped, "{what}");
        assert_eq!(
            orphans(&report).kept.get(&KeepReason::NeighbourUnreadable).map(|tally| tally.files),
            Some(1),
            "{what}"
        );
        assert_eq!(report.refusal().map(|refusal| refusal.reason), Some("neighbour_unreadable"), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_its_listing_does_not_name_any_more_and_the_answer_says_is_gone_is_gone() {
    let honest: Vec<(&str, Lie)> = vec![
        ("the truth", Arc::new(|_, _| None)),
        ("dropped after the listing", {
            let listings = AtomicUsize::new(0);
            Arc::new(move |ask, _| match ask {
                // Each listing of tables is followed by a load that finds the table gone, and a listing that lacks it.
                Ask::Tables(namespace) if **namespace == space("db2") => {
                    let dropped = listings.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
                    dropped.then(|| Ok(Told::Tables(vec![other_namespace("v"), other_namespace("dropped")])))
                }
                Ask::Load(table) if table.name() == "dropped" => Some(Err(missing("NoSuchTableException"))),
                _ => None,
            })
        }),
        ("a namespace dropped after the listing", {
            let listings = AtomicUsize::new(0);
            Arc::new(move |ask, _| match ask {
                Ask::Namespaces(None) if listings.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
                    Some(Ok(Told::Namespaces(vec![space("db"), space("db2"), space("dropped")])))
                }
                Ask::Namespaces(Some(parent)) if **parent == space("dropped") => {
                    Some(Err(missing("NoSuchNamespaceException")))
                }
                Ask::Tables(namespace) if **namespace == space("dropped") => {
                    Some(Err(missing("NoSuchNamespaceException")))
                }
                _ => None,
            })
        }),
        (
            "a catalog without namespaces within namespaces",
            Arc::new(|ask, _| match ask {
                Ask::Namespaces(Some(_)) => Some(Err(Error::unsupported("HTTP 406 UnsupportedOperationException"))),
                _ => None,
            }),
        ),
    ];
    for (what, lie) in honest {
        let (lake, litter) = lake().await;
        let fleet = fleet(vec![("lake", member(&lake, move |ask, inner| lie(ask, inner)))], POLICY);
        let report = clean(&lake, &fleet, "lake.db.t").await;
        assert!(orphans(&report).refused.is_none(), "{what}: {:?}", orphans(&report).refused);
        assert!(!lake.has(&litter), "{what}");
        assert_eq!(report.actions[1].outcome, Outcome::Success, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_leaves_the_listing_and_can_still_be_loaded_counts_and_is_told() {
    let (lake, litter) = lake().await;
    let hides = Arc::new(AtomicBool::new(false));
    let hiding = hides.clone();
    let lie = move |ask: &Ask<'_>, _: &MemoryCatalog| match ask {
        Ask::Tables(namespace) if **namespace == space("db2") && hiding.load(Ordering::Relaxed) => {
            Some(Ok(Told::Tables(Vec::new())))
        }
        _ => None,
    };
    let fleet = fleet(vec![("lake", member(&lake, lie))], POLICY);
    assert_eq!(fleet.discover("lake").await.expect("listed").names.len(), 3);
    hides.store(true, Ordering::Relaxed);
    let refusal = refused(&clean(&lake, &fleet, "lake.db.t").await);
    assert!(refusal.detail.contains("does not list lake.db2.v, and loads it"), "{}", refusal.detail);
    let discovered = fleet.discover("lake").await.expect("listed");
    assert!(discovered.names.contains(&name("lake.db2.v")) && discovered.unclear.is_some(), "it is not forgotten");
    lake.catalog.drop_table(&other_namespace("v"));
    assert!(orphans(&clean(&lake, &fleet, "lake.db.t").await).refused.is_none(), "gone for sure");
    assert!(!lake.has(&litter));
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_another_tables_metadata_is_not_believed() {
    let (lake, litter) = lake().await;
    let mixes_up = Arc::new(AtomicBool::new(false));
    let mixing = mixes_up.clone();
    let other = lake.load("u").await;
    let lie = move |ask: &Ask<'_>, _: &MemoryCatalog| match ask {
        Ask::Load(table) if table.name() == "v" && mixing.load(Ordering::Relaxed) => {
            Some(Ok(Told::Table(Box::new(other.clone()))))
        }
        _ => None,
    };
    let fleet = fleet(vec![("lake", member(&lake, lie))], POLICY);
    for table in ["lake.db.u", "lake.db2.v"] {
        fleet.open(&name(table)).await.expect("a table");
    }
    mixes_up.store(true, Ordering::Relaxed);
    let error = fleet.open(&name("lake.db2.v")).await.expect_err("the metadata of u");
    assert_eq!(error.kind(), ErrorKind::DataInvalid);
    let refusal = refused(&clean(&lake, &fleet, "lake.db.t").await);
    assert!(
        refusal.detail.contains("lake.db2.v") && refusal.detail.contains("metadata of lake.db.u"),
        "{}",
        refusal.detail
    );
    assert!(lake.has(&litter));
}

#[tokio::test(start_paused = true)]
async fn tables_of_all_configured_catalogs_are_asked_and_one_that_cannot_be_asked_refuses() {
    let (lake, litter) = lake().await;
    // Its files lie below the folder of `lake.db.t`.
    let pond = Lake::new();
    pond.create_at(&ident("y"), "s3://b/db/t/data/y");
    let both = |pond_member| fleet(vec![("lake", lake.member()), ("pond", pond_member)], POLICY);
    let within = refused(&clean(&lake, &both(pond.member()), "lake.db.t").await);
    assert_eq!(within.reason, "shared_location");
    assert!(within.detail.contains("pond.db.y"), "{}", within.detail);

    let down = || member(&pond, |_, _| Some(Err(Error::unavailable("connection refused"))));
    let unknown = refused(&clean(&lake, &both(down()), "lake.db.t").await);
    assert!(unknown.detail.contains("catalog pond: connection refused"), "{}", unknown.detail);
    assert!(lake.has(&litter));

    // A plan says so too.
    let plan = plan_table(&lake.env(), &both(pond.member()), &name("lake.db.t")).await.expect("a plan");
    let ActionPlan::Would(plan) = &plan.actions[&Action::RemoveOrphanFiles] else { panic!("nothing is planned") };
    let ActionDetail::OrphanReport(found) = &plan.detail else { panic!("{plan:?}") };
    assert!(found.refused.as_ref().expect("refused").detail.contains("pond.db.y"));

    // An operator can except a whole catalog, and a namespace of it alone does not do.
    let policy = |pattern: &str| format!("{POLICY}ignore-unreadable = [\"{pattern}\"]\n");
    let excepted = |pattern: &str| fleet(vec![("lake", lake.member()), ("pond", down())], &policy(pattern));
    refused(&clean(&lake, &excepted("pond.db.**"), "lake.db.t").await);
    assert!(orphans(&clean(&lake, &excepted("pond.**"), "lake.db.t").await).refused.is_none());
    assert!(!lake.has(&litter));
}

#[tokio::test(start_paused = true)]
async fn one_table_under_two_names_is_known_by_its_uuid_wherever_it_is_said_to_lie() {
    for location in ["s3://b/db/t", "s3://b/moved/t"] {
        let (lake, litter) = lake().await;
        lake.append("t", 1..2).await;
        tokio::time::sleep(HOUR).await;
        let pond = Lake::new();
        let loaded = lake.load("t").await;
        let mut metadata = lake.catalog.document(&ident("t")).expect("known");
        metadata["location"] = location.into();
        pond.catalog.register_json(&ident("copy"), loaded.metadata_location.clone(), metadata).expect("registered");
        let fleet = fleet(vec![("lake", lake.member()), ("pond", pond.member())], POLICY);
        let before = lake.store.deleted().len();
        let report = clean(&lake, &fleet, "lake.db.t").await;
        let refused = refused(&report);
        assert_eq!(refused.reason, "registered_twice", "{location}");
        assert!(refused.detail.contains("pond.db.copy"), "{}", refused.detail);
        assert_eq!(expiry(&report).kept.keys().collect::<Vec<_>>(), [&"registered-twice"], "{location}");
        assert!(lake.has(&litter) && lake.store.deleted().len() == before, "{location}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_neighbour_counts_only_if_it_could_name_a_file_of_this_store_and_an_operator_can_except_it() {
    let unreadable = |lake: &Lake| {
        // Its manifest list is gone.
        let lists: Vec<String> =
            lake.store.paths().into_iter().filter(|path| path.contains("/db/u/metadata/snap-")).collect();
        assert_eq!(lists.len(), 1);
        lake.faulty.inject_on(&lists[0], Operation::Read, 0..99, icewright::testing::StoreFault::Fail(missing("file")));
    };
    let (lake, litter) = lake().await;
    unreadable(&lake);
    let honest = |lake: &Lake, policy: &str| fleet(vec![("lake", member(lake, |_, _| None))], policy);
    let refusal = refused(&clean(&lake, &honest(&lake, POLICY), "lake.db.t").await);
    assert!(refusal.detail.contains("table lake.db.u: "), "{}", refusal.detail);
    assert!(lake.has(&litter));
    let excepted = format!("{POLICY}ignore-unreadable = [\"lake.db.u\"]\n");
    assert!(orphans(&clean(&lake, &honest(&lake, &excepted), "lake.db.t").await).refused.is_none());
    assert!(!lake.has(&litter));

    // Nothing of a table in another store can be read, and nothing that its metadata names is here.
    let (lake, litter) = self::lake().await;
    lake.create_at(&ident("far"), "gs://bucket/db/far");
    assert!(orphans(&clean(&lake, &honest(&lake, POLICY), "lake.db.t").await).refused.is_none());
    assert!(!lake.has(&litter));

    // It names a file here: then others may be here as well.
    let (lake, litter) = self::lake().await;
    lake.create_at(&ident("far"), "gs://bucket/db/far");
    let metadata = lake.catalog.document(&ident("far")).expect("known");
    lake.catalog
        .register_json(&ident("far"), "s3://b/elsewhere/v1.metadata.json".into(), metadata)
        .expect("registered");
    let refusal = refused(&clean(&lake, &honest(&lake, POLICY), "lake.db.t").await);
    assert!(refusal.detail.contains("table lake.db.far: no store for this scheme"), "{}", refusal.detail);
    assert!(lake.has(&litter));
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_is_looked_at_after_the_file_was_found_however_short_before_it_was_looked_at() {
    let (lake, litter) = lake().await;
    let second = lake.litter("t");
    let fleet = fleet(vec![("lake", member(&lake, |_, _| None))], POLICY);
    lake.import("u", &litter).await;
    let report = clean(&lake, &fleet, "lake.db.t").await;
    assert_eq!(orphans(&report).kept.get(&KeepReason::ReferencedElsewhere).map(|tally| tally.files), Some(1));
    assert!(lake.has(&litter) && !lake.has(&second));
    // Everything is known now, and another table takes another file at once.
    let third = lake.litter("t");
    lake.import("u", &third).await;
    clean(&lake, &fleet, "lake.db.t").await;
    assert!(lake.has(&third) && lake.has(&litter));
}

/// Loads of tables and reads of files for a clean-up of as many tables, all at the same time, and for another one after it.
async fn requests(tables: usize) -> [(usize, usize); 2] {
    let lake = Lake::new();
    let names: Vec<String> = (0..tables).map(|k| format!("t{k:03}")).collect();
    for table in &names {
        lake.create(table);
        lake.append(table, 0..1).await;
    }
    tokio::time::sleep(2 * HOUR).await;
    let fleet = lake.fleet(POLICY);
    let mut counted = Vec::new();
    for _ in 0..2 {
        let litter: Vec<String> = names.iter().map(|table| lake.litter(table)).collect();
        let before = (lake.catalog.loads(), lake.faulty.count(Operation::Read));
        let full: Vec<String> = names.iter().map(|table| format!("lake.db.{table}")).collect();
        let reports = join_all(full.iter().map(|table| clean(&lake, &fleet, table))).await;
        assert!(reports.iter().all(|report| orphans(report).refused.is_none()));
        assert!(litter.iter().all(|path| !lake.has(path)), "everything goes in the first round");
        counted.push((lake.catalog.loads() - before.0, lake.faulty.count(Operation::Read) - before.1));
    }
    [counted[0], counted[1]]
}

#[tokio::test(start_paused = true)]
async fn requests_for_twice_as_many_tables_are_twice_as_many() {
    let (few, many) = (requests(12).await, requests(24).await);
    for (round, (few, many)) in few.into_iter().zip(many).enumerate() {
        // Who comes first finds nothing remembered.
        assert!(many.0.abs_diff(2 * few.0) <= 2, "round {round}: loads and reads {few:?} and {many:?}");
        assert_eq!(many.1, 2 * few.1, "round {round}: reads");
    }
    let (first, second) = (many[0], many[1]);
    assert!(first.0 <= 24 * 8 && second.0 <= first.0, "{many:?}");
    assert!(second.1 < first.1, "manifests of others that were read once are not read again: {many:?}");
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_is_given_up_leaves_the_others_their_answer() {
    let (lake, litter) = lake().await;
    let other = lake.litter("u");
    let fleet = fleet(vec![("lake", member(&lake, |_, _| None))], POLICY);
    {
        // It leads, and stops while it waits for others.
        let leader = clean(&lake, &fleet, "lake.db.u");
        let waiting = async { fleet.waiting().wait_for(|waiting| *waiting > 0).await.map(|_| ()) };
        tokio::select! {
            _ = leader => panic!("nobody else has asked yet"),
            waited = waiting => waited.expect("the fleet lives"),
        }
    }
    assert_eq!(*fleet.waiting().borrow(), 0);
    clean(&lake, &fleet, "lake.db.t").await;
    assert!(!lake.has(&litter) && lake.has(&other));
}

#[tokio::test(start_paused = true)]
async fn with_a_single_worker_all_tables_wait_together_for_one_answer() {
    const TABLES: usize = 8;
    let lake = Lake::new();
    let names: Vec<String> = (0..TABLES).map(|k| format!("t{k}")).collect();
    let litter: Vec<String> = names
        .iter()
        .map(|table| {
            lake.create(table);
            lake.litter(table)
        })
        .collect();
    let policy = "commit-interval = \"10m\"\nevery = \"6h\"\ndelay = \"0s\"\nrewrite-data-files.enabled = false\n";
    let fleet = lake.fleet(policy);
    let mut waiting = fleet.waiting();
    let daemon = Daemon::with_fleet(&lake, fleet, 1);
    let all = tokio::time::timeout(10 * MINUTE, waiting.wait_for(|waiting| *waiting == TABLES)).await;
    all.expect("a clean-up that waits holds no worker").expect("the fleet lives");
    until(MINUTE, "removed", || async { litter.iter().all(|path| !lake.has(path)) }).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_hangs_refuses_in_time() {
    let (lake, litter) = lake().await;
    let lie = |ask: &Ask<'_>, _: &MemoryCatalog| match ask {
        Ask::Load(table) if table.name() == "v" => Some(Ok(Told::Never)),
        _ => None,
    };
    let fleet = fleet(vec![("lake", member(&lake, lie))], POLICY);
    let report = tokio::time::timeout(5 * MINUTE, clean(&lake, &fleet, "lake.db.t")).await.expect("an end");
    let refusal = refused(&report);
    assert!(
        refusal.detail.contains("table lake.db2.v: the catalog has not told of it within 120 s"),
        "{}",
        refusal.detail
    );
    assert!(lake.has(&litter));
}

#[tokio::test(start_paused = true)]
async fn a_table_whose_metadata_is_gone_stays_in_sight_and_is_unhealthy() {
    let (lake, _) = lake().await;
    let lie = |ask: &Ask<'_>, _: &MemoryCatalog| match ask {
        Ask::Load(table) if table.name() == "u" => Some(Err(missing("NoSuchTableException"))),
        Ask::Load(table) if table.name() == "v" => Some(Err(Error::invalid("HTTP 404 NotFoundException"))),
        _ => None,
    };
    let daemon = Daemon::with_fleet(&lake, fleet(vec![("lake", member(&lake, lie))], POLICY), 2);
    for table in ["u", "v"] {
        for reason in ["failing", "unreadable"] {
            let labels = format!("reason=\"{reason}\",table=\"{table}\"");
            let holds = || async {
                daemon.series(|line| line.starts_with("icewright_table_unhealthy{") && line.contains(&labels))
            };
            until(10 * MINUTE, reason, || async { holds().await == Some(1.0) }).await;
        }
    }
    tokio::time::sleep(HOUR).await;
    assert_eq!(daemon.maintained.borrow().len(), 3, "none is forgotten");
    // Its neighbours say what keeps them from being cleaned.
    let refused = "reason=\"refused\",table=\"t\"";
    let holds = || daemon.series(|line| line.starts_with("icewright_table_unhealthy{") && line.contains(refused));
    until(7 * HOUR, "refused", || async { holds() == Some(1.0) }).await;
    assert_eq!(
        daemon.value(
            "icewright_table_refused",
            "action=\"remove-orphan-files\",catalog=\"lake\",namespace=\"db\",table=\"t\""
        ),
        1.0
    );
    daemon.stop().await;
}
