//! Other tables that hang, may not be read, or change their names: what that costs the clean-ups of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use icewright::catalog::Catalog;
use icewright::error::{Error, ErrorKind};
use icewright::testing::MemoryCatalog;
use tokio::time::Instant;

use super::lying::{Ask, Told, member, other_namespace};
use super::neighbours::{clean, fleet, lake, name, orphans, refused};
use super::scheduler::{Daemon, grown, until};
use super::world::{HOUR, Lake, MINUTE, POLICY, ident};

/// Three clean-ups one after the other beside this many tables that the catalog tells nothing of: how often these were asked for, and how
/// long the clean-ups took.
async fn beside_bad_tables(bad: usize, refusal: Option<Error>) -> (usize, [Duration; 3]) {
    let (lake, litter) = lake().await;
    lake.litter("u");
    (0..bad).for_each(|k| lake.create_at(&other_namespace(&format!("bad{k:02}")), &format!("s3://b/db2/bad{k}")));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let lie = move |ask: &Ask<'_>, _: &MemoryCatalog| match ask {
        Ask::Load(table) if table.name().starts_with("bad") => {
            counted.fetch_add(1, Ordering::Relaxed);
            Some(refusal.clone().map_or(Ok(Told::Never), Err))
        }
        _ => None,
    };
    let fleet = fleet(vec![("lake", member(&lake, lie))], POLICY);
    let mut took = [Duration::ZERO; 3];
    for (table, took) in ["t", "u", "t"].into_iter().zip(&mut took) {
        let begun = Instant::now();
        let refusal = refused(&clean(&lake, &fleet, &format!("lake.db.{table}")).await);
        assert!(refusal.detail.contains("lake.db2.bad"), "{}", refusal.detail);
        *took = begun.elapsed();
    }
    assert!(lake.has(&litter));
    (asked.load(Ordering::Relaxed), took)
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_hangs_is_not_waited_for_by_each_clean_up() {
    let (asked, took) = beside_bad_tables(1, None).await;
    assert!(asked <= 2, "asked for {asked} times");
    assert!(took[1] < MINUTE && took[0] < 3 * MINUTE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn many_neighbours_that_hang_are_not_all_waited_for() {
    let (asked, took) = beside_bad_tables(80, None).await;
    assert!(asked <= 3 * 8, "asked for {asked} times");
    assert!(took.iter().all(|took| *took < 10 * MINUTE), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn neighbours_that_may_not_be_read_are_not_asked_for_by_each_clean_up() {
    let error = Error::new(ErrorKind::Forbidden, "HTTP 403 ForbiddenException");
    let (asked, took) = beside_bad_tables(40, Some(error)).await;
    assert!(asked <= 40, "asked for {asked} times by clean-ups within {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_that_answers_again_is_believed_again() {
    let (lake, litter) = lake().await;
    let hangs = Arc::new(AtomicBool::new(true));
    let hanging = hangs.clone();
    let lie = move |ask: &Ask<'_>, _: &MemoryCatalog| match ask {
        Ask::Load(table) if table.name() == "v" && hanging.load(Ordering::Relaxed) => Some(Ok(Told::Never)),
        _ => None,
    };
    let fleet = fleet(vec![("lake", member(&lake, lie))], POLICY);
    refused(&clean(&lake, &fleet, "lake.db.t").await);
    hangs.store(false, Ordering::Relaxed);
    // Whoever loads it tells all others.
    fleet.open(&name("lake.db2.v")).await.expect("a table");
    assert!(orphans(&clean(&lake, &fleet, "lake.db.t").await).refused.is_none());
    assert!(!lake.has(&litter));
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_is_down_for_an_hour_does_not_leave_tables_of_others_refused_until_their_next_run() {
    let (lake, pond) = (Lake::new(), Lake::new());
    let litter = grown(&lake, "t").await;
    // Its clock makes the same UUIDs at the same time.
    tokio::time::sleep(MINUTE).await;
    pond.create("x");
    let down = Arc::new(AtomicBool::new(true));
    let is_down = down.clone();
    let lie = move |_: &Ask<'_>, _: &MemoryCatalog| {
        is_down.load(Ordering::Relaxed).then(|| Err(Error::unavailable("connection refused")))
    };
    let fleet = fleet(vec![("lake", lake.member()), ("pond", member(&pond, lie))], POLICY);
    let daemon = Daemon::with_fleet(&lake, fleet, 2);
    let labels = "{action=\"remove-orphan-files\",catalog=\"lake\"";
    let refused = || daemon.series(|line| line.starts_with(&format!("icewright_table_refused{labels}")));
    until(HOUR, "refused", || async { refused() == Some(1.0) }).await;
    assert_eq!(daemon.runs("t", "remove-orphan-files", "failed"), 0.0);
    assert_eq!(daemon.value("icewright_table_unhealthy", "reason=\"failing\",table=\"t\""), 0.0);
    tokio::time::sleep(HOUR / 2).await;
    assert!(lake.has(&litter));
    down.store(false, Ordering::Relaxed);
    // It is compacted again in five hours.
    until(HOUR, "cleaned", || async { !lake.has(&litter) && refused() == Some(0.0) }).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tables_that_exchange_their_names_are_no_wrong_answer() {
    let (lake, litter) = lake().await;
    let fleet = fleet(vec![("lake", member(&lake, |_, _| None))], POLICY);
    for table in ["lake.db.u", "lake.db2.v"] {
        fleet.open(&name(table)).await.expect("a table");
    }
    let (u, v) = (ident("u"), other_namespace("v"));
    let document = |table| lake.catalog.document(table).expect("known");
    let (of_u, of_v) = ((lake.load("u").await.metadata_location, document(&u)), document(&v));
    let place_of_v = lake.catalog.load_table(&v).await.expect("a table").metadata_location;
    lake.catalog.register_json(&u, place_of_v, of_v).expect("registered");
    lake.catalog.register_json(&v, of_u.0, of_u.1).expect("registered");
    assert!(orphans(&clean(&lake, &fleet, "lake.db.t").await).refused.is_none());
    assert!(!lake.has(&litter));
    for (table, location) in [("lake.db.u", "s3://b/db2/v"), ("lake.db2.v", "s3://b/db/u")] {
        let opened = fleet.open(&name(table)).await.expect("a table");
        assert_eq!(opened.loaded.metadata.location(), location);
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_in_the_place_of_another_one_whose_name_is_gone_is_no_wrong_answer() {
    let (lake, _) = lake().await;
    let fleet = fleet(vec![("lake", member(&lake, |_, _| None))], POLICY);
    for table in ["lake.db.t", "lake.db.u"] {
        fleet.open(&name(table)).await.expect("a table");
    }
    // `u` takes the place of `t`, as when a table is built anew beside the old one.
    let (location, document) =
        (lake.load("u").await.metadata_location, lake.catalog.document(&ident("u")).expect("known"));
    lake.catalog.register_json(&ident("t"), location, document).expect("registered");
    lake.catalog.drop_table(&ident("u"));
    let opened = fleet.open(&name("lake.db.t")).await.expect("before any listing");
    assert_eq!(opened.loaded.metadata.location(), "s3://b/db/u");
}
