//! What an operator reads when something fails: every error a run can meet names its place, and names it once.

use std::collections::BTreeSet;

use icewright::action::RunStep;
use icewright::actions::report::ActionDetail;
use icewright::actions::subject::Subject;
use icewright::error::Error;
use icewright::schedule::run_table::{TableRun, run_step};
use icewright::testing::{Operation, StoreFault};

use super::world::{HOUR, Lake, POLICY};

/// Which part of the message says something a second time: a whole link of the chain, or a path.
fn repeated(message: &str) -> Option<String> {
    let links = message.split(": ").map(str::trim).filter(|link| link.contains(' ')).map(str::to_owned);
    let words = message.split([' ', ',', ';']).filter(|word| word.contains("://"));
    let paths = words.map(|word| word.trim_end_matches(':').to_owned());
    let mut seen = BTreeSet::new();
    links.chain(paths).find(|part| !seen.insert(part.clone()))
}

#[test]
fn repetition_is_found() {
    for (message, part) in [
        ("read s3://b/x: read s3://b/x: no such file", Some("read s3://b/x")),
        ("open s3://b/x: read s3://b/x: no such file", Some("s3://b/x")),
        ("load table lake.db.t: load table lake.db.t: gone", Some("load table lake.db.t")),
        ("find orphan files: read s3://b/x: no such file", None),
    ] {
        assert_eq!(repeated(message).as_deref(), part);
    }
}

/// Every error text in the reports of a run in which one call of the store fails.
async fn errors_of_run(lake: &Lake) -> Vec<String> {
    let (env, fleet) = (lake.env(), lake.fleet(POLICY));
    let name = "lake.db.t".parse().expect("a name");
    let text = |error: &Error| error.to_string();
    let mut errors = Vec::new();
    let run = TableRun::start(&env);
    match Subject::load(&fleet, &name).await {
        Ok(subject) => {
            let done = run_step(&env, &fleet, &subject, run, RunStep::FIRST, &()).await.expect("done");
            let [report] = &done.report.actions[..] else { panic!("one action") };
            let Some(ActionDetail::RewriteReport(report)) = &report.detail else {
                panic!("a compaction was asked for")
            };
            errors.extend(report.errors.iter().cloned());
            errors.extend(report.outcome.is_failure().then_some(report.reason.clone()).flatten());
        }
        Err(error) => errors.push(text(&error)),
    }
    tokio::time::sleep(24 * HOUR).await;
    let subject = Subject::load(&fleet, &name).await.expect("a table");
    let done = match run_step(&env, &fleet, &subject, run, RunStep::LAST, &()).await {
        Ok(done) => done,
        Err(error) => return [errors, vec![text(&error)]].concat(),
    };
    for action in done.report.actions {
        match action.detail {
            Some(ActionDetail::ExpireReport(expired)) => {
                errors.extend(expired.error.iter().map(text).chain(expired.failures))
            }
            Some(ActionDetail::OrphanReport(orphans)) => {
                errors.extend(orphans.error.iter().map(text).chain(orphans.failures))
            }
            _ => errors.extend(action.reason),
        }
    }
    errors
}

/// A table with two files in each of two partitions, its first snapshots old, and a file that nothing refers to.
async fn lake() -> Lake {
    let lake = Lake::new();
    lake.create("t");
    lake.create("other");
    for _ in 0..2 {
        lake.append("t", 0..2).await;
    }
    lake.append("other", 0..1).await;
    tokio::time::sleep(HOUR).await;
    lake.store.set_now_ms(lake.clock.now_ms());
    lake.litter("t");
    lake
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_is_named_once() {
    let operations = [
        Operation::Read,
        Operation::ReadRange,
        Operation::Stat,
        Operation::Create,
        Operation::Write,
        Operation::Close,
        Operation::List,
        Operation::Delete,
    ];
    let mut failed = BTreeSet::new();
    for operation in operations {
        for fault in [StoreFault::fail(), StoreFault::Short] {
            for call in 0.. {
                let lake = lake().await;
                lake.faulty.inject(operation, call..call + 1, fault.clone());
                for error in errors_of_run(&lake).await {
                    assert_eq!(repeated(&error), None, "call {call} of {operation:?}: {error}");
                    assert!(
                        !error.contains("injected") || error.contains("://"),
                        "{operation:?} names no place: {error}"
                    );
                    failed.insert(format!("{operation:?}"));
                }
                if lake.faulty.count(operation) <= call {
                    break;
                }
            }
        }
    }
    assert_eq!(failed, operations.map(|operation| format!("{operation:?}")).into(), "each kind of call was met");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_be_loaded_is_named_once() {
    let lake = lake().await;
    let (fleet, name) = (lake.fleet(POLICY), "lake.db.t".parse().expect("a name"));
    let subject = Subject::load(&fleet, &name).await.expect("a table");
    lake.catalog.fail_loads(1);
    let refreshed = subject.table.refresh().await.expect_err("the catalog is down").to_string();
    lake.catalog.fail_loads(1);
    let loaded = Subject::load(&fleet, &name).await.err().expect("the catalog is down").to_string();
    assert_eq!(
        (loaded.as_str(), repeated(&loaded)),
        ("load table lake.db.t: injected fault: the catalog is down", None)
    );
    assert_eq!(refreshed, loaded);
}
