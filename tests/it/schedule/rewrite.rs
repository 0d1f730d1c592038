//! One compaction: what is committed, what is deleted, and that every group is accounted for.

use std::sync::Arc;

use futures::FutureExt;
use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat, Literal, Snapshot};
use icewright::action::Outcome;
use icewright::actions::rewrite_data_files::RewriteReport;
use icewright::storage::Store;
use icewright::testing::{Answer, CommitFault, Delivery, Operation, StoreFault};

use super::world::{HOUR, Lake, POLICY, ident};

fn partial(max_commits: usize, more: &str) -> String {
    POLICY.replace(
        "rewrite-all = true",
        &format!("rewrite-all = true\npartial-progress = {{ enabled = true, max-commits = {max_commits}{more} }}"),
    )
}

/// Planned, committed, failed, conflicted, abandoned; the first must be the sum of the others.
fn groups(report: &RewriteReport) -> [usize; 5] {
    let parts = [report.committed_groups, report.failed_groups, report.conflicted_groups, report.abandoned_groups];
    assert_eq!(report.planned_groups, parts.iter().sum::<usize>(), "{report:?}");
    [report.planned_groups, parts[0], parts[1], parts[2], parts[3]]
}

/// Table `t` with two files in each of so many partitions.
async fn lake(partitions: i64) -> Lake {
    let lake = Lake::new();
    lake.create("t");
    lake.append("t", 0..partitions).await;
    lake.append("t", 0..partitions).await;
    lake
}

/// Lets every read of files below these partitions fail.
fn break_partitions(lake: &Lake, parts: &[i64]) {
    for part in parts {
        for operation in [Operation::Read, Operation::ReadRange] {
            lake.faulty.inject_on(&format!("/data/part={part}/"), operation, 0..usize::MAX, StoreFault::fail());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn everything_goes_in_one_commit_and_an_unchanged_table_is_left_alone() {
    let lake = lake(3).await;
    let before = lake.rows("t").await;
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Success, [3, 3, 0, 0, 0]));
    assert_eq!((report.rewritten_data_files, report.added_data_files, report.commits), (6, 3, 1));
    assert_eq!((report.input_rows, report.deleted_rows, report.output_rows), (60, 0, 60));
    assert_eq!(report.last_commit_ms, Some(lake.newest_ms("t").await));
    assert_eq!((lake.files("t").await.len(), lake.rows("t").await), (3, before.clone()));
    assert_eq!(lake.own_snapshots("t").await.iter().map(|s| s.1.as_str()).collect::<Vec<_>>(), ["true"]);

    let commits = lake.catalog.commits();
    let again = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((again.outcome, groups(&again)), (Outcome::Skipped, [0; 5]));
    assert_eq!(again.reason.as_deref(), Some("no new snapshot since the last compaction"));
    assert_eq!(lake.catalog.commits(), commits);

    lake.append("t", 1..2).await;
    let news = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((news.outcome, groups(&news), news.rewritten_data_files), (Outcome::Success, [1, 1, 0, 0, 0], 2));
    assert_eq!(lake.rows("t").await.len(), before.len() + 10);
}

#[tokio::test(start_paused = true)]
async fn partial_progress_commits_in_even_batches_and_says_complete_with_the_last() {
    let lake = lake(70).await;
    let before = lake.rows("t").await;
    let report = lake.compact(&lake.env(), "t", &partial(20, "")).await;
    assert_eq!((report.outcome, groups(&report), report.commits), (Outcome::Success, [70, 70, 0, 0, 0], 18));
    let own = lake.own_snapshots("t").await;
    assert_eq!(own.len(), 18);
    assert!(own[..17].iter().all(|(_, complete)| complete == "false") && own[17].1 == "true");
    assert!(own.iter().all(|(run, _)| *run == own[0].0), "one run");
    assert_eq!((lake.files("t").await.len(), lake.rows("t").await), (70, before));
}

#[tokio::test(start_paused = true)]
async fn a_plan_cut_by_max_files_goes_on_in_the_next_run() {
    let lake = lake(4).await;
    let policy = POLICY.replace("rewrite-all = true", "rewrite-all = true\nmax-files-to-rewrite = 4");
    let counts = |report: &RewriteReport| (report.outcome, report.rewritten_data_files);
    assert_eq!(counts(&lake.compact(&lake.env(), "t", &policy).await), (Outcome::Success, 4));
    assert_eq!(counts(&lake.compact(&lake.env(), "t", &policy).await), (Outcome::Success, 4));
    assert_eq!(lake.files("t").await.len(), 4);
    assert_eq!(counts(&lake.compact(&lake.env(), "t", &policy).await), (Outcome::Skipped, 0));
}

#[tokio::test(start_paused = true)]
async fn without_partial_progress_a_failing_group_is_left_out_and_the_others_are_committed_at_once() {
    let lake = lake(8).await;
    let before = lake.rows("t").await;
    break_partitions(&lake, &[5]);
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, groups(&report), report.commits), (Outcome::Failed, [8, 7, 1, 0, 0], 1));
    assert!(report.errors[0].contains("injected fault"), "{:?}", report.errors);
    assert_eq!(report.reason.as_ref(), report.errors.first());
    assert_eq!(lake.left_outputs("t").await, [""; 0]);
    assert_eq!((lake.files("t").await.len(), lake.rows("t").await), (7 + 2, before));
    assert_eq!(lake.own_snapshots("t").await[0].1, "false", "the next run takes up what is left");
    let again = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((again.outcome, groups(&again), again.commits), (Outcome::Failed, [1, 0, 1, 0, 0], 0));
}

#[tokio::test(start_paused = true)]
async fn a_missing_and_a_damaged_file_stop_their_groups_and_no_other() {
    let lake = lake(4).await;
    let files = lake.files("t").await;
    let of = |part: i64| files.iter().find(|path| path.contains(&format!("part={part}/"))).expect("a file");
    assert!(lake.store.delete_batch(&[of(1).clone()]).await[0].is_ok());
    lake.store.put(of(2), "no Parquet");
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, groups(&report), report.commits), (Outcome::Failed, [4, 2, 2, 0, 0], 1));
    assert!(!report.metadata_invalid, "the table is not given up for it");
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_live_twice_leaves_the_other_partitions_to_be_compacted() {
    let lake = lake(3).await;
    let file = lake.data_file("t", 1).await;
    lake.add("t", vec![file.clone()]).await;
    lake.add("t", vec![file]).await;
    let before = lake.rows("t").await;
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, report.refused, groups(&report)), (Outcome::Success, true, [2, 2, 0, 0, 0]));
    let skipped: Vec<_> = report.skipped.iter().map(|line| (line.reason, line.files)).collect();
    assert_eq!(skipped, [("duplicate_path", 4)]);
    assert_eq!((lake.files("t").await.len(), lake.rows("t").await), (2 + 4, before));
}

#[tokio::test(start_paused = true)]
async fn a_delete_file_that_applies_to_nothing_leaves_though_no_group_is_planned() {
    let lake = Lake::new();
    lake.create("t");
    let mut delete = DataFileBuilder::default();
    delete.content(DataContentType::EqualityDeletes).file_path("s3://b/db/t/data/d.parquet".into());
    delete.file_format(DataFileFormat::Parquet).equality_ids(Some(vec![1])).partition_spec_id(0);
    delete.partition(std::iter::once(Some(Literal::long(0))).collect()).record_count(1).file_size_in_bytes(9);
    lake.add("t", vec![delete.build().expect("a delete file")]).await;
    lake.append("t", 0..1).await;
    lake.catalog.script([CommitFault::Refused]);
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, report.commits, groups(&report)), (Outcome::Failed, 0, [0; 5]));
    assert!(report.reason.is_some());
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, report.commits, groups(&report)), (Outcome::Success, 1, [0; 5]));
    assert_eq!((report.removed_delete_files, report.rewritten_data_files), (1, 0));
    assert_eq!(report.last_commit_ms, Some(lake.newest_ms("t").await));
    assert_eq!((lake.files("t").await.len(), lake.rows("t").await.len()), (1, 10));
    let again = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((again.outcome, again.commits), (Outcome::Skipped, 0));
}

#[tokio::test(start_paused = true)]
async fn with_partial_progress_failed_groups_are_counted_and_the_others_are_committed() {
    let lake = lake(10).await;
    let before = lake.rows("t").await;
    break_partitions(&lake, &[0, 4, 9]);
    let report = lake.compact(&lake.env(), "t", &partial(10, "")).await;
    assert_eq!((report.outcome, groups(&report), report.commits), (Outcome::Failed, [10, 7, 3, 0, 0], 7));
    assert!(!report.metadata_invalid);
    assert!(lake.own_snapshots("t").await.iter().all(|(_, complete)| complete == "false"));
    assert_eq!(lake.left_outputs("t").await, [""; 0]);
    assert_eq!((lake.files("t").await.len(), lake.rows("t").await), (7 + 6, before));
}

#[tokio::test(start_paused = true)]
async fn when_all_groups_fail_the_run_failed() {
    let lake = lake(3).await;
    break_partitions(&lake, &[0, 1, 2]);
    let report = lake.compact(&lake.env(), "t", &partial(3, "")).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Failed, [3, 0, 3, 0, 0]));
    assert!(report.reason.is_some_and(|reason| reason.contains("injected fault")));
}

/// Another writer's snapshot takes the place of the request.
fn rival(lake: &Lake) -> CommitFault {
    let catalog = lake.catalog.clone();
    CommitFault::After(Arc::new(move || {
        catalog.tamper(&ident("t"), |m| {
            let head = m.current_snapshot().cloned().expect("a head");
            let snapshot = Snapshot::builder()
                .with_snapshot_id(4711 + m.last_sequence_number())
                .with_parent_snapshot_id(Some(head.snapshot_id()))
                .with_sequence_number(m.next_sequence_number())
                .with_timestamp_ms(m.last_updated_ms())
                .with_manifest_list(head.manifest_list())
                .with_summary(head.summary().clone())
                .with_schema_id(0)
                .build();
            let builder = m.into_builder(None).set_branch_snapshot(snapshot, "main").expect("valid");
            builder.build().expect("valid").metadata
        });
        Box::pin(async {})
    }))
}

#[tokio::test(start_paused = true)]
async fn outputs_of_a_commit_that_has_lost_go() {
    let lake = lake(3).await;
    let before = lake.rows("t").await;
    // Five attempts, all of which somebody else was faster than.
    lake.catalog.script((0..5).map(|_| rival(&lake)));
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Conflict, [3, 0, 0, 3, 0]));
    assert!(report.conflicts > 0);
    assert_eq!(lake.left_outputs("t").await, [""; 0]);
    assert_eq!(lake.rows("t").await, before);
}

/// Whatever the answer says, the request may have been delivered twice.
#[tokio::test(start_paused = true)]
async fn outputs_of_a_refused_commit_that_may_still_come_stay_and_are_found_if_it_did() {
    for (answer, attempts) in [(Answer::Refused, 1), (Answer::Conflict, 5)] {
        let lake = lake(3).await;
        let before = lake.rows("t").await;
        let told = |delivery| CommitFault::Told(delivery, answer, Arc::new(|| Box::pin(async {})));
        lake.catalog.script(vec![told(Delivery::Late); attempts]);
        let report = lake.compact(&lake.env(), "t", POLICY).await;
        assert!(report.outcome.is_failure() || report.outcome == Outcome::Conflict, "{report:?}");
        assert_eq!((report.commits, lake.left_outputs("t").await.len()), (0, 3));
        assert_eq!(lake.catalog.deliver_late().await.expect("a store that works"), 1);
        assert_eq!((lake.left_outputs("t").await.len(), lake.rows("t").await), (0, before.clone()));
        lake.append("t", 0..3).await;
        let (before, appended) = (lake.rows("t").await, lake.catalog.commits());
        lake.catalog.script([told(Delivery::Applied)]);
        let report = lake.compact(&lake.env(), "t", POLICY).await;
        assert_eq!((report.outcome, report.commits, lake.catalog.commits() - appended), (Outcome::Success, 1, 1));
        let left = lake.left_outputs("t").await.len();
        assert_eq!((left, lake.rows("t").await), (3, before), "those of the run before, which have been replaced");
    }
}

#[tokio::test(start_paused = true)]
async fn more_failed_commits_than_allowed_end_the_run() {
    let lake = lake(6).await;
    lake.catalog.script(vec![CommitFault::Refused; 2]);
    let policy = partial(6, ", max-failed-commits = 1")
        .replace("rewrite-all = true", "rewrite-all = true\nmax-concurrent-file-group-rewrites = 1");
    let commits = lake.catalog.commits();
    let report = lake.compact(&lake.env(), "t", &policy).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Failed, [6, 0, 2, 0, 4]));
    assert_eq!(lake.catalog.commits() - commits, 2, "no third attempt");
    assert_eq!(lake.left_outputs("t").await.len(), 2, "the refused ones may still come");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_commit_ends_the_run_and_deletes_nothing_of_it() {
    // With one group at a time the second batch is never begun; with five it is finished when the first gets no answer.
    for concurrency in [1, 5] {
        let lake = lake(4).await;
        let before = lake.rows("t").await;
        // The first batch of two groups arrives late, after all attempts have been given up.
        lake.catalog.script(vec![CommitFault::UnknownLate; 5]);
        let options = format!("rewrite-all = true\nmax-concurrent-file-group-rewrites = {concurrency}");
        let report = lake.compact(&lake.env(), "t", &partial(2, "").replace("rewrite-all = true", &options)).await;
        assert_eq!((report.outcome, groups(&report)), (Outcome::Unknown, [4, 0, 2, 0, 2]));
        assert_eq!((report.unsettled_commits, report.commits), (1, 0));
        assert_eq!(lake.left_outputs("t").await.len(), 2, "what may be in the table stays, and nothing else");
        assert_eq!(lake.rows("t").await, before);
        assert_eq!(lake.catalog.deliver_late().await.expect("a store that works"), 1);
        assert_eq!(lake.left_outputs("t").await, [""; 0], "now they are in the table");
        assert_eq!((lake.files("t").await.len(), lake.rows("t").await), (2 + 4, before));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_commit_after_others_neither_takes_them_back_nor_deletes_what_may_come() {
    let lake = lake(5).await;
    let before = lake.rows("t").await;
    let proper = || CommitFault::After(Arc::new(|| Box::pin(async {})));
    lake.catalog.script([proper(), proper()].into_iter().chain(vec![CommitFault::UnknownLate; 5]));
    let policy =
        partial(5, "").replace("rewrite-all = true", "rewrite-all = true\nmax-concurrent-file-group-rewrites = 5");
    let report = lake.compact(&lake.env(), "t", &policy).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Unknown, [5, 2, 1, 0, 2]));
    assert_eq!((lake.left_outputs("t").await.len(), lake.rows("t").await), (1, before.clone()));
    assert_eq!(lake.catalog.deliver_late().await.expect("a store that works"), 1);
    assert_eq!((lake.left_outputs("t").await.len(), lake.rows("t").await), (0, before));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_that_is_settled_is_a_success() {
    let lake = lake(2).await;
    let before = lake.rows("t").await;
    lake.catalog.script([CommitFault::UnknownApplied]);
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Success, [2, 2, 0, 0, 0]));
    assert_eq!((report.unknown_commits, report.unsettled_commits), (1, 0));
    assert_eq!((lake.left_outputs("t").await.len(), lake.rows("t").await), (0, before));
}

#[tokio::test(start_paused = true)]
async fn outputs_of_a_cancelled_run_go() {
    let lake = lake(6).await;
    let before = lake.rows("t").await;
    let env = lake.env();
    let cancel = env.cancel.clone();
    let stop = move || {
        cancel.cancel();
        async {}.boxed()
    };
    // While the third output is about to be written.
    lake.faulty.inject_on("/data/", Operation::Create, 2..3, StoreFault::After(Arc::new(stop)));
    let report = lake.compact(&env, "t", POLICY).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Cancelled, [6, 0, 0, 0, 6]));
    assert_eq!(lake.left_outputs("t").await, [""; 0]);
    assert_eq!(lake.rows("t").await, before);
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_before_its_time_is_up() {
    let lake = lake(2).await;
    let slow = || tokio::time::sleep(24 * HOUR).boxed();
    lake.faulty.inject_on("/metadata/", Operation::Read, 0..1, StoreFault::After(Arc::new(slow)));
    let before = lake.clock.now_ms();
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(report.reason.as_deref().is_some_and(|reason| reason.contains("run-timeout")), "{report:?}");
    let spent = lake.clock.now_ms() - before;
    assert!((5 * 3_600_000..6 * 3_600_000).contains(&spent), "{spent} ms");
}

/// By then another process may have taken the run's files for garbage.
#[tokio::test(start_paused = true)]
async fn a_commit_held_up_beyond_the_run_timeout_is_not_sent() {
    let lake = lake(3).await;
    let before = (lake.rows("t").await, lake.catalog.commits());
    let held_up = || async { tokio::time::sleep(6 * HOUR).await }.boxed();
    lake.faulty.inject_on("/snap-", Operation::Close, 0..1, StoreFault::After(Arc::new(held_up)));
    let report = lake.compact(&lake.env(), "t", POLICY).await;
    assert_eq!((report.outcome, groups(&report)), (Outcome::Failed, [3, 0, 3, 0, 0]));
    assert!(report.reason.as_deref().is_some_and(|reason| reason.contains("limits.run-timeout")), "{report:?}");
    assert_eq!((lake.rows("t").await, lake.catalog.commits()), before);
    assert_eq!(lake.left_outputs("t").await, [""; 0]);
}
