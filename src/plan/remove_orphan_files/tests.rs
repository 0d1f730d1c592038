use serde_json::json;
use uuid::Uuid;

use super::*;

const NOW: i64 = 1_800_000_000_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const OPERATION: &str = "0b9a9e3c-5d0f-4e5c-9d5e-123456789012";

const TABLE: Uuid = Uuid::from_u128(0x0b9a_9e3c_5d0f_4e5c_9d5e_aaaa_bbbb_cccc);

const RULES: OrphanRules =
    OrphanRules { now_ms: NOW, older_than_ms: 20 * MINUTE, unproven_min_age_ms: 24 * HOUR, run_timeout_ms: 6 * HOUR };

/// The id of a run that began at `started_ms`.
fn run_id(started_ms: i64) -> RunId {
    let bits = (u128::try_from(started_ms).expect("after the epoch") << 80) | (7 << 76) | (2 << 62) | 5;
    RunId(Uuid::from_u128(bits))
}

fn names() -> NamesInUse {
    NamesInUse {
        table: TABLE,
        flink_jobs: BTreeSet::from(["a1b2c3d4e5f60718293a4b5c6d7e8f90".to_owned()]),
        current_version: Some((true, 50)),
        oldest_version: Some(40),
        last_updated_ms: NOW - 3 * HOUR,
        oldest_logged_ms: NOW - 50 * HOUR,
        context: None,
    }
}

struct World {
    once: Vec<&'static str>,
    referenced: Vec<String>,
    active: Vec<RunId>,
    external: bool,
    checkpoints_known: bool,
    context: Option<&'static str>,
    /// What metadata files say about their age.
    last_updated_ms: Option<i64>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            once: vec![],
            referenced: vec![],
            active: vec![],
            external: false,
            checkpoints_known: true,
            context: None,
            last_updated_ms: None,
        }
    }
}

impl World {
    fn judge_at(&self, name: &str, last_modified_ms: Option<i64>) -> Verdict {
        let mut progress = WriterProgress::default();
        self.referenced.iter().for_each(|path| progress.note(path));
        let evidence = Evidence {
            names: &NamesInUse { context: self.context.map(str::to_owned), ..names() },
            progress: &progress,
            once_referenced: &|path| Ok(self.once.iter().any(|name| path.ends_with(name))),
            is_active: &|run| self.active.contains(&run),
            hidden: &|path| Ok(path.contains("/_") && !path.contains('=')),
            in_location: &|_| Ok(!self.external),
            last_updated_ms: &|_| self.last_updated_ms,
            checkpoints_known: self.checkpoints_known,
        };
        let file = ListedFile { path: format!("s3://b/db/t/{name}"), size: 10, last_modified_ms };
        judge(&file, &RULES, &evidence).expect("a comparable path")
    }

    fn judge(&self, name: &str, age_ms: i64) -> Verdict {
        self.judge_at(name, Some(NOW - age_ms))
    }
}

#[test]
fn without_proof_only_the_long_age_counts() {
    let world = World::default();
    assert_eq!(
        world.judge("data/x.parquet", 24 * HOUR),
        Verdict::Keep(Kept::Unproven),
        "exactly at the age is not past it"
    );
    assert_eq!(world.judge("data/x.parquet", 24 * HOUR + 1), Verdict::Remove(Garbage::Unproven));
    assert_eq!(world.judge("data/x.parquet", MINUTE), Verdict::Keep(Kept::Unproven));
}

#[test]
fn hidden_and_foreign_files_go_only_when_proven() {
    let world = World { once: vec!["proven.parquet", "proven.txt"], ..World::default() };
    for (name, verdict) in [
        ("data/_p=1/x.parquet", Verdict::Remove(Garbage::Unproven)),
        ("data/X.PARQUET", Verdict::Remove(Garbage::Unproven)),
        ("_checkpoints/x.parquet", Verdict::Keep(Kept::Hidden)),
        ("data/readme.txt", Verdict::Keep(Kept::Foreign)),
        ("data/noname", Verdict::Keep(Kept::Foreign)),
        ("backup.tar.gz", Verdict::Keep(Kept::Foreign)),
        ("data/dump.sql.gz", Verdict::Keep(Kept::Foreign)),
        (".backup.tar.gz.crc", Verdict::Keep(Kept::Foreign)),
        ("landing/2026-11-29/events.json.gz", Verdict::Keep(Kept::Foreign)),
        ("data/1a4-0_7_data.0.parq", Verdict::Remove(Garbage::Unproven)),
        ("_old/proven.parquet", Verdict::Remove(Garbage::OnceReferenced)),
        ("data/proven.txt", Verdict::Remove(Garbage::OnceReferenced)),
    ] {
        assert_eq!(world.judge(name, 25 * HOUR), verdict, "{name}");
    }
}

#[test]
fn in_a_hidden_place_no_proof_by_name_counts() {
    let names = [
        format!("00000-1-{}-00001.parquet", run_id(NOW - 48 * HOUR).file_token()),
        format!("00001-7-{OPERATION}-00001.parquet"),
        format!("00001-{OPERATION}.metadata.json"),
    ];
    let referenced = vec![format!("s3://b/db/t/data/00001-7-{OPERATION}-00002.parquet")];
    let world = World { referenced, ..World::default() };
    for name in names {
        assert!(matches!(world.judge(&format!("data/{name}"), 48 * HOUR), Verdict::Remove(_)), "{name}");
        assert_eq!(world.judge(&format!("_backup/data/{name}"), 48 * HOUR), Verdict::Keep(Kept::Hidden), "{name}");
    }
}

#[test]
fn a_file_of_unknown_age_stays_whatever_is_proven() {
    let world = World { once: vec!["x.parquet"], ..World::default() };
    assert_eq!(world.judge("data/x.parquet", HOUR), Verdict::Remove(Garbage::OnceReferenced));
    for unknown in [None, Some(0), Some(-5), Some(NOW + 1), Some(NOW + 24 * HOUR)] {
        assert_eq!(world.judge_at("data/x.parquet", unknown), Verdict::Keep(Kept::UnknownAge), "{unknown:?}");
        assert_eq!(world.judge_at("data/y.parquet", unknown), Verdict::Keep(Kept::UnknownAge), "{unknown:?}");
    }
}

#[test]
fn a_run_is_over_only_after_its_timeout_and_when_not_active() {
    let (over, recent) = (run_id(NOW - 7 * HOUR), run_id(NOW - 5 * HOUR));
    let name = |run: RunId| format!("data/00000-1-{}-00001.parquet", run.file_token());
    let world = World::default();
    assert_eq!(world.judge(&name(over), HOUR), Verdict::Remove(Garbage::RunOver));
    assert_eq!(world.judge(&name(over), 10 * MINUTE), Verdict::Keep(Kept::TooYoung));
    assert_eq!(world.judge(&name(recent), HOUR), Verdict::Keep(Kept::ActiveRun), "another replica may be at it");
    assert_eq!(world.judge(&name(run_id(NOW + HOUR)), 48 * HOUR), Verdict::Keep(Kept::ActiveRun), "clocks differ");
    let export = format!("logs/{}.log.gz", over.file_token());
    assert_eq!(world.judge(&export, 48 * HOUR), Verdict::Keep(Kept::Foreign), "runs make no such files");
    let unfinished = format!("data/.00000-1-{}-00001.parquet.{OPERATION}.tmp", over.file_token());
    assert_eq!(world.judge(&unfinished, HOUR), Verdict::Remove(Garbage::RunOver));
    let active = World { active: vec![over], ..World::default() };
    assert_eq!(active.judge(&name(over), 48 * HOUR), Verdict::Keep(Kept::ActiveRun));
}

#[test]
fn what_was_referenced_once_goes_at_the_short_age() {
    let world = World { once: vec!["x.parquet"], ..World::default() };
    assert_eq!(world.judge("data/x.parquet", 20 * MINUTE), Verdict::Keep(Kept::TooYoung));
    assert_eq!(world.judge("data/x.parquet", 20 * MINUTE + 1), Verdict::Remove(Garbage::OnceReferenced));
    assert_eq!(world.judge("data/.x.parquet.crc", 21 * MINUTE), Verdict::Remove(Garbage::OnceReferenced));
}

#[test]
fn a_writer_that_went_on_leaves_garbage() {
    let path = |count: u32| format!("data/p=1/00002-0-{OPERATION}-{count:05}.parquet");
    let world = World { referenced: vec![path(7)], ..World::default() };
    assert_eq!(world.judge(&path(6), HOUR), Verdict::Remove(Garbage::WriterCommittedPast));
    assert_eq!(world.judge(&path(8), HOUR), Verdict::Keep(Kept::Unproven));
    assert_eq!(world.judge(&path(6), 19 * MINUTE), Verdict::Keep(Kept::TooYoung));
}

#[test]
fn metadata_files_go_only_when_the_log_has_passed_them() {
    let world = World::default();
    let name = |version: u64| format!("metadata/{version:05}-{OPERATION}.metadata.json");
    assert_eq!(world.judge(&name(39), HOUR), Verdict::Remove(Garbage::FellOutOfMetadataLog));
    assert_eq!(world.judge(&name(39), MINUTE), Verdict::Keep(Kept::TooYoung));
    assert_eq!(world.judge(&name(45), HOUR), Verdict::Keep(Kept::Unproven), "an attempt that lost");
    assert_eq!(world.judge(&name(45), 25 * HOUR), Verdict::Remove(Garbage::Unproven));
    for version in [50, 51, 99] {
        assert_eq!(world.judge(&name(version), 999 * HOUR), Verdict::Keep(Kept::NewerMetadata), "{version}");
    }
    for unknown in ["metadata/v3.metadata.json".to_owned(), format!("metadata/{OPERATION}.metadata.json")] {
        assert_eq!(world.judge(&unknown, 999 * HOUR), Verdict::Keep(Kept::MetadataVersionUnknown), "{unknown}");
    }
    let once = World { once: vec!["12.metadata.json"], ..World::default() };
    assert_eq!(once.judge("metadata/12.metadata.json", HOUR), Verdict::Remove(Garbage::OnceReferenced));
}

#[test]
fn some_names_go_at_no_age() {
    let world = World { once: vec!["text", "avro", "/"], ..World::default() };
    for (name, kept) in [
        ("metadata/version-hint.text", Kept::VersionHint),
        ("metadata/.version-hint.text.crc", Kept::VersionHint),
        ("metadata/a1b2c3d4e5f60718293a4b5c6d7e8f90-00000-0-12-00001.avro", Kept::FlinkCheckpoint),
        ("data/", Kept::DirectoryMarker),
    ] {
        assert_eq!(world.judge(name, 999 * HOUR), Verdict::Keep(kept), "{name}");
    }
    let unknown_job =
        World::default().judge("metadata/ffffc3d4e5f60718293a4b5c6d7e8f90-00000-0-12-00001.avro", 999 * HOUR);
    assert_eq!(unknown_job, Verdict::Remove(Garbage::Unproven));
}

#[test]
fn a_shared_directory_needs_proof_that_names_this_table() {
    let world = World { external: true, once: vec!["x.parquet"], ..World::default() };
    assert_eq!(world.judge("data/y.parquet", 999 * HOUR), Verdict::Keep(Kept::ExternalDirectory));
    assert_eq!(world.judge("data/x.parquet", HOUR), Verdict::Remove(Garbage::OnceReferenced));
}

#[test]
fn what_a_run_left_in_an_external_directory_goes_at_the_long_age() {
    let run = run_id(NOW - 48 * HOUR);
    let name = format!("data/00000-1-{}-00001.parquet", run.file_token());
    let world = World { external: true, ..World::default() };
    assert_eq!(world.judge(&name, 25 * HOUR), Verdict::Remove(Garbage::RunOver));
    assert_eq!(world.judge(&name, 23 * HOUR), Verdict::Keep(Kept::Unproven));
    let active = World { external: true, active: vec![run], ..World::default() };
    assert_eq!(active.judge(&name, 25 * HOUR), Verdict::Keep(Kept::ActiveRun));
}

#[test]
fn what_a_run_made_for_another_table_is_no_garbage_of_this_one() {
    let run = run_id(NOW - 48 * HOUR);
    let name = |table| format!("data/00000-1-{}-00001.parquet", run.table_token(table));
    let other = name(Uuid::from_u128(TABLE.as_u128() + 1));
    let external = World { external: true, ..World::default() };
    assert_eq!(external.judge(&other, 999 * HOUR), Verdict::Keep(Kept::ExternalDirectory));
    assert_eq!(external.judge(&name(TABLE), 25 * HOUR), Verdict::Remove(Garbage::RunOver));
    assert_eq!(World::default().judge(&other, 23 * HOUR), Verdict::Keep(Kept::Unproven), "no proof in its own place");
    assert_eq!(World::default().judge(&name(TABLE), HOUR), Verdict::Remove(Garbage::RunOver));
}

#[test]
fn in_the_layout_for_object_storage_an_external_path_must_name_the_table() {
    let name = format!("00000-1-{}-00001.parquet", run_id(NOW - 48 * HOUR).file_token());
    let world = World { external: true, context: Some("db/t"), ..World::default() };
    assert_eq!(world.judge(&format!("0101/1010/0/1/db/t/{name}"), 25 * HOUR), Verdict::Remove(Garbage::RunOver));
    // The test's own prefix is s3://b/db/t/.
    let other = World { external: true, context: Some("db/other"), ..World::default() };
    assert_eq!(other.judge(&format!("0101/{name}"), 999 * HOUR), Verdict::Keep(Kept::ExternalDirectory));
}

#[test]
fn metadata_files_without_a_version_go_by_what_they_say() {
    let name = format!("metadata/{OPERATION}.metadata.json");
    let at = |last_updated_ms: i64, age_ms: i64| {
        World { last_updated_ms: Some(last_updated_ms), ..World::default() }.judge(&name, age_ms)
    };
    assert_eq!(at(NOW - 51 * HOUR, HOUR), Verdict::Remove(Garbage::FellOutOfMetadataLog));
    assert_eq!(at(NOW - 51 * HOUR, 19 * MINUTE), Verdict::Keep(Kept::TooYoung));
    assert_eq!(at(NOW - 50 * HOUR, HOUR), Verdict::Keep(Kept::Unproven), "as old as the log, or an attempt that lost");
    assert_eq!(at(NOW - 4 * HOUR, 25 * HOUR), Verdict::Remove(Garbage::Unproven));
    for ahead in [NOW - 3 * HOUR, NOW] {
        assert_eq!(at(ahead, 999 * HOUR), Verdict::Keep(Kept::NewerMetadata));
    }
}

#[test]
fn unread_checkpoints_hold_back_what_is_not_proven() {
    let world = World { checkpoints_known: false, once: vec!["x.parquet"], ..World::default() };
    assert_eq!(world.judge("data/y.parquet", 999 * HOUR), Verdict::Keep(Kept::FlinkCheckpointUnreadable));
    assert_eq!(world.judge("data/x.parquet", HOUR), Verdict::Remove(Garbage::OnceReferenced));
}

#[test]
fn the_log_gives_the_range_of_versions() {
    let file = |n: u64| format!("s3://b/db/t/metadata/{n:05}-{OPERATION}.metadata.json");
    let log: Vec<_> = [41, 42].map(|n| json!({"metadata-file": file(n), "timestamp-ms": 1})).into();
    let metadata = json!({
        "format-version": 2, "table-uuid": OPERATION, "location": "s3://b/db/t", "last-sequence-number": 0,
        "last-updated-ms": 1, "last-column-id": 1, "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": false, "type": "long"}]}],
        "partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0, "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0, "properties": {}, "refs": {},
        "snapshots": [], "snapshot-log": [], "metadata-log": log,
    });
    let names = NamesInUse::of(&LoadedTable::from_metadata_json(file(43), &metadata).expect("valid")).expect("located");
    assert_eq!((names.current_version, names.oldest_version), (Some((true, 43)), Some(41)));
    let nowhere = LoadedTable::from_metadata_json(String::new(), &metadata).expect("valid");
    assert!(NamesInUse::of(&nowhere).is_err(), "a table that does not say where its metadata lies is left alone");
}
