//! `icewright once` on tables that the Iceberg Java library wrote.

use std::time::Duration;

use icewright::clock::{Clock, SystemClock};
use icewright::run_id::RunId;

use super::lake::{ALL, AT_ONCE, Engine, Files, Lake, careful, delayed};

/// What a complete pass with [`AT_ONCE`] leaves of a small table without protected snapshots.
fn assert_maintained(lake: &Lake, table: &str, partitions: usize) -> Files {
    let files = lake.judge.files(table);
    assert_eq!(files.partitions().len(), partitions);
    assert!(files.partitions().iter().all(|(_, n)| *n == 1), "not one file per partition: {:?}", files.partitions());
    assert_eq!((files.delete_files(), files.delete_manifests()), (0, 0));
    assert!(files.maintained(), "retained snapshots: {:?}", files.runs());
    lake.judge.assert_storage_exact(table);
    files
}

#[test]
fn an_upsert_table_becomes_one_file_per_bucket() {
    let lake = Lake::start();
    lake.fixture("", "upsert", "db.cdc", &[]);
    let before = lake.judge.digest("db.cdc", &[Engine::Java, Engine::DuckDb]);
    let found = lake.judge.files("db.cdc");
    assert!(found.data_files() >= 100 && found.delete_files() >= 100, "a poor fixture: {found:?}");

    lake.config(&lake.judge.uri, AT_ONCE).once("lake.db.cdc", &[]);

    assert_maintained(&lake, "db.cdc", 5);
    assert_eq!(lake.judge.digest("db.cdc", ALL), before);
}

#[test]
fn a_null_in_a_key_deletes_what_has_the_same_null() {
    let lake = Lake::start();
    lake.fixture("file://", "nullkeys", "db.nullable", &[]);
    let before = lake.judge.digest("db.nullable", &[Engine::Java]);

    lake.config(&lake.judge.uri, AT_ONCE).once("lake.db.nullable", &[]);

    assert_maintained(&lake, "db.nullable", 1);
    assert_eq!(lake.judge.digest("db.nullable", ALL), before);
}

#[test]
fn an_append_table_of_the_first_format_becomes_one_file_per_hour() {
    let lake = Lake::start();
    lake.fixture("file://", "append", "logs.old", &["format=1"]);
    let before = lake.judge.digest("logs.old", ALL);
    assert_eq!(lake.judge.files("logs.old").data_files(), 40);

    lake.config(&lake.judge.uri, AT_ONCE).once("lake.logs.old", &[]);

    assert_maintained(&lake, "logs.old", 4);
    assert_eq!(lake.judge.digest("logs.old", ALL), before);
}

#[test]
fn position_deletes_of_many_files_are_applied_and_leave() {
    let lake = Lake::start();
    lake.fixture("", "append", "logs.server", &["deletes=10"]);
    let before = lake.judge.digest("logs.server", ALL);
    assert_eq!((before.rows, lake.judge.files("logs.server").delete_files()), (18_000, 4));

    lake.config(&lake.judge.uri, AT_ONCE).once("lake.logs.server", &[]);

    assert_maintained(&lake, "logs.server", 4);
    assert_eq!(lake.judge.digest("logs.server", ALL), before);
}

#[test]
fn output_files_are_about_as_large_as_wanted() {
    const TARGET: u64 = 1 << 20;
    let lake = Lake::start();
    lake.fixture("file://", "append", "logs.sized", &["rows=4000"]);
    let before = lake.judge.digest("logs.sized", ALL);
    let policy = AT_ONCE.replace("64MiB", "1MiB");

    lake.config(&lake.judge.uri, &policy).once("lake.logs.sized", &[]);

    let files = lake.judge.files("logs.sized");
    let (partitions, sizes) = (files.partitions(), files.sizes());
    assert!(partitions.len() == 4 && partitions.iter().all(|(_, n)| (1..=2).contains(n)), "{partitions:?}");
    assert!(sizes.iter().all(|size| (TARGET / 4..TARGET * 3 / 2).contains(size)), "{sizes:?}");
    lake.judge.assert_storage_exact("logs.sized");
    assert_eq!(lake.judge.digest("logs.sized", ALL), before);
}

#[test]
fn tables_made_by_the_java_client_through_the_embedded_catalog_work() {
    let lake = Lake::start();
    lake.remote_fixture("upsert", "db.remote", &["commits=6"]);
    let before = lake.judge.digest("db.remote", &[Engine::Java, Engine::DuckDb]);

    lake.config(&lake.judge.uri, AT_ONCE).once("lake.db.remote", &[]);

    assert_maintained(&lake, "db.remote", 5);
    assert_eq!(lake.judge.digest("db.remote", ALL), before);
}

#[test]
fn a_table_without_news_is_left_alone() {
    let lake = Lake::start();
    lake.fixture("", "append", "logs.quiet", &["files=8", "rows=50"]);
    let config = lake.config(&lake.judge.uri, AT_ONCE);
    config.once("lake.logs.quiet", &[]);
    let first = assert_maintained(&lake, "logs.quiet", 4).snapshot_ids();

    config.once("lake.logs.quiet", &[]);

    assert_eq!(assert_maintained(&lake, "logs.quiet", 4).snapshot_ids(), first);
}

#[test]
fn the_snapshot_that_a_flink_job_resumes_from_survives() {
    let lake = Lake::start();
    lake.fixture("", "upsert", "db.flink", &["commits=5", "flink=1"]);
    let before = lake.judge.digest("db.flink", &[Engine::Java]);
    let newest_of_job = *lake.judge.files("db.flink").snapshot_ids().last().expect("a snapshot");

    lake.config(&lake.judge.uri, AT_ONCE).once("lake.db.flink", &[]);

    let files = lake.judge.files("db.flink");
    assert_eq!(files.snapshot_ids()[0], newest_of_job);
    assert_eq!(files.runs().iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    assert_eq!((files.data_files(), files.delete_files()), (5, 0));
    lake.judge.assert_storage_exact("db.flink");
    assert_eq!(lake.judge.digest("db.flink", ALL), before);
}

#[test]
fn clean_up_waits_for_the_delay() {
    let lake = Lake::start();
    lake.fixture("", "upsert", "db.waiting", &["commits=6"]);
    let before = lake.judge.digest("db.waiting", &[Engine::Java]);
    let old = lake.judge.files("db.waiting").snapshot_ids();
    let patient = lake.config(&lake.judge.uri, &delayed());

    patient.once("lake.db.waiting", &["--no-wait"]);
    let compacted = lake.judge.files("db.waiting");
    assert_eq!((compacted.data_files(), compacted.delete_files()), (5, 0));
    assert_eq!(&compacted.snapshot_ids()[..old.len()], &old[..], "expired before the delay");

    // Within the delay a second pass finds nothing that is due.
    patient.once("lake.db.waiting", &["--no-wait"]);
    assert_eq!(lake.judge.files("db.waiting").snapshot_ids(), compacted.snapshot_ids());

    // Another process, told of a shorter delay, takes the rest from where the table says it is.
    lake.config(&lake.judge.uri, AT_ONCE).once("lake.db.waiting", &["--no-wait"]);
    let cleaned = assert_maintained(&lake, "db.waiting", 5);
    assert_eq!(cleaned.snapshot_ids(), compacted.snapshot_ids()[old.len()..], "compacted again");
    assert_eq!(lake.judge.digest("db.waiting", ALL), before);
}

#[test]
fn orphans_go_by_proof_or_by_age() {
    let lake = Lake::start();
    lake.fixture("file://", "append", "logs.littered", &["files=8", "rows=50"]);
    let before = lake.judge.digest("logs.littered", ALL);
    let data = lake.table_dir("logs.littered").join("data");
    let hour = data.join("hour=2025-04-01+00");
    // One minute is the longest that a run may take in these tests.
    let [over, running] = [120_000, 0].map(|age| {
        let started = u64::try_from(SystemClock.now_ms() - age).expect("a time after 1970");
        let run = RunId(uuid::Builder::from_unix_timestamp_millis(started, &[7; 10]).into_uuid());
        hour.join(format!("00000-0-{}-00001.parquet", run.file_token()))
    });
    let young = hour.join("00000-7-0d1c9d5c-5f0e-4b43-8f39-0a6a1d8c4b7e-00001.parquet");
    let old = hour.join("00000-8-0d1c9d5c-5f0e-4b43-8f39-0a6a1d8c4b7e-00001.parquet");
    std::fs::create_dir_all(&hour).expect("make a partition's folder");
    for path in [&over, &running, &young, &old] {
        std::fs::write(path, "litter").expect("write litter");
    }
    // A run that has just written a file is not over, however long ago it began.
    for (path, seconds) in [(&old, 2 * 86_400), (&over, 110)] {
        let file = std::fs::File::options().write(true).open(path).expect("open litter");
        let written = file.metadata().and_then(|m| m.modified()).expect("a time");
        file.set_modified(written - Duration::from_secs(seconds)).expect("age litter");
    }
    // Beside the table, not in it.
    let neighbour = lake.table_dir("logs.littered-2").join("data/00000-0-x-00001.parquet");
    std::fs::create_dir_all(neighbour.parent().expect("a folder")).expect("make a folder");
    std::fs::write(&neighbour, "not of this table").expect("write a file");

    lake.config(&lake.judge.uri, &careful()).once("lake.logs.littered", &[]);

    assert!(!over.exists(), "left by a run of ours that is over");
    assert!(running.exists(), "another daemon may be at it");
    assert!(!old.exists(), "older than a day");
    assert!(young.exists(), "nothing proves that its writer has given up");
    assert!(neighbour.exists());
    let mut kept = [running, young].map(|path| path.display().to_string());
    kept.sort();
    assert_eq!(lake.judge.unreachable("logs.littered", |_| false), kept);
    assert_eq!(lake.judge.digest("logs.littered", ALL), before);
}
