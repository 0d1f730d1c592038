use proptest::prelude::*;

use super::*;
use crate::run_id::RunId;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// 2026-06-01 05:00 UTC, so that half past is 05:30.
const NOW: i64 = 1_780_290_000_000;
const DELAY: Duration = Duration::from_secs(30 * 60);

fn every(minutes: u64) -> TablePolicy {
    TablePolicy { schedule: Schedule::Every(Duration::from_secs(minutes * 60)), ..TablePolicy::default() }
}

fn cron(text: &str) -> TablePolicy {
    TablePolicy { schedule: Schedule::cron(text).expect("a cron expression"), ..TablePolicy::default() }
}

fn own(started_ms: i64, committed_ms: i64, complete: bool) -> OwnRun {
    let run_id = uuid::Builder::from_unix_timestamp_millis(started_ms.unsigned_abs(), &[7; 10]).into_uuid();
    OwnRun { run_id: RunId(run_id), snapshot_id: 1, committed_ms, complete }
}

fn first(own: Option<&OwnRun>, policy: &TablePolicy, now_ms: i64) -> (RunStep, i64, i64) {
    let Standing { next, since_ms } = first_step(own, policy, DELAY, now_ms).expect("a valid policy");
    (next.step, next.at_ms - now_ms, since_ms)
}

#[test]
fn a_table_never_maintained_begins_at_once_or_when_cron_says() {
    assert_eq!(first(None, &every(60), NOW), (RunStep::FIRST, 0, NOW));
    let half_past = cron("30 * * * *");
    let daily = cron("30 4 * * *");
    let since = NOW - HOUR;
    assert_eq!(first(None, &half_past, NOW), (RunStep::FIRST, 0, since), "missed by half an hour");
    assert_eq!(first(None, &daily, NOW), (RunStep::FIRST, 0, since), "missed by half an hour");
    // 05:30 exactly, 05:29, and more than an hour late.
    let due = NOW + 30 * MINUTE;
    assert_eq!(first(None, &cron("30 5 * * *"), due).1, 0, "due this very moment");
    assert_eq!(first(None, &cron("30 5 * * *"), due - MINUTE).1, MINUTE);
    assert_eq!(first(None, &daily, NOW + 31 * MINUTE).1, 22 * HOUR + 59 * MINUTE);
    assert_eq!(first_step(None, &daily, DELAY, NOW + 31 * MINUTE).expect("valid").next.why, "schedule");
}

#[test]
fn a_restart_goes_on_where_the_last_process_stopped() {
    let policy = every(60);
    let started = NOW - 20 * MINUTE;
    // Committed 10 min ago: 20 min of the delay are left.
    let in_delay = own(started, NOW - 10 * MINUTE, true);
    assert_eq!(first(Some(&in_delay), &policy, NOW), (RunStep::LAST, 20 * MINUTE, started));
    let just_now = own(started, NOW, true);
    assert_eq!(first(Some(&just_now), &policy, NOW), (RunStep::LAST, 30 * MINUTE, started));
    let delay_over = own(NOW - 50 * MINUTE, NOW - 40 * MINUTE, true);
    assert_eq!(first(Some(&delay_over), &policy, NOW), (RunStep::LAST, 0, NOW - 50 * MINUTE));
    let both_due = own(NOW - 90 * MINUTE, NOW - 80 * MINUTE, true);
    let (step, wait, since) = first(Some(&both_due), &policy, NOW);
    assert_eq!((step, wait, since), (RunStep::LAST, 0, NOW - 90 * MINUTE));
    assert_eq!(after_clean_up(since, &policy, NOW + SECOND).expect("valid").at_ms, NOW + SECOND, "and then at once");
    for committed in [NOW - 80 * MINUTE, NOW] {
        let cut_short = own(NOW - 90 * MINUTE, committed, false);
        assert_eq!(first(Some(&cut_short), &policy, NOW), (RunStep::FIRST, 0, NOW - 90 * MINUTE));
    }
}

#[test]
fn a_cron_time_missed_for_long_while_the_process_was_down_is_left_to_the_next() {
    let policy = cron("30 3 * * *");
    // 03:30 today was missed by an hour and a half.
    let last = own(NOW - 26 * HOUR, NOW - 25 * HOUR, true);
    let (step, wait, since) = first(Some(&last), &policy, NOW);
    assert_eq!((step, wait), (RunStep::LAST, 0));
    let next = after_clean_up(since, &policy, NOW).expect("valid");
    assert_eq!(next.at_ms, NOW + 22 * HOUR + 30 * MINUTE);
    // Missed by half an hour.
    let (_, _, since) = first(Some(&last), &policy, NOW - HOUR);
    assert_eq!(after_clean_up(since, &policy, NOW - HOUR).expect("valid").at_ms, NOW - HOUR);
    // Not missed at all: this run began after it.
    let today = own(NOW - 80 * MINUTE, NOW - 70 * MINUTE, true);
    let (_, _, since) = first(Some(&today), &policy, NOW);
    assert_eq!(after_clean_up(since, &policy, NOW).expect("valid").at_ms, NOW + 22 * HOUR + 30 * MINUTE);
}

#[test]
fn clean_up_waits_for_the_delay_after_the_last_own_commit() {
    let after = |committed| after_rewrite(committed, DELAY, NOW).at_ms - NOW;
    assert_eq!(after(None), 0, "nothing of ours in the table");
    assert_eq!(after(Some(NOW)), 30 * MINUTE);
    assert_eq!(after(Some(NOW - HOUR)), 0, "nothing was rewritten now");
    assert_eq!(after_rewrite(Some(NOW), Duration::MAX, NOW).at_ms, i64::MAX);
}

#[test]
fn the_schedule_counts_from_the_start_of_the_run() {
    let at = |since, now| after_clean_up(since, &every(60), now).expect("valid").at_ms;
    assert_eq!(at(NOW, NOW + 10 * MINUTE), NOW + HOUR);
    assert_eq!(at(NOW, NOW + 2 * HOUR), NOW + 2 * HOUR, "late: at once");
    let unknown_zone = TablePolicy { time_zone: "Mars/Base".into(), ..every(60) };
    assert!(after_clean_up(NOW, &unknown_zone, NOW).is_err());
}

#[test]
fn back_off_grows_from_a_minute_to_an_hour() {
    let minutes: Vec<u64> = (0..9).map(|failures| backoff(failures).as_secs() / 60).collect();
    assert_eq!(minutes, [1, 1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(backoff(u32::MAX), Duration::from_secs(3600));
}

fn clean_up_at(at_ms: i64) -> NextStep {
    NextStep::new(RunStep::LAST, at_ms, "test")
}

fn rewrite_at(at_ms: i64) -> NextStep {
    NextStep::new(RunStep::FIRST, at_ms, "test")
}

#[test]
fn a_failed_compaction_is_tried_again_after_the_clean_ups_whatever_the_schedule_says() {
    let mut failures = Failures::default();
    for (nth, wait) in [(1, MINUTE), (2, 2 * MINUTE), (3, 4 * MINUTE)] {
        let next = failures.after(RunStep::FIRST, StepEnd::Failed, clean_up_at(NOW + 5), NOW);
        assert_eq!((next.step, next.at_ms), (RunStep::LAST, NOW + 5));
        for schedule in [NOW, NOW + 12 * HOUR] {
            let next = failures.after(RunStep::LAST, StepEnd::Well, rewrite_at(schedule), NOW);
            assert_eq!((next.step, next.at_ms), (RunStep::FIRST, NOW + wait));
        }
        assert_eq!((failures.of(RunStep::FIRST), failures.of(RunStep::LAST), failures.most()), (nth, 0, nth));
    }
    failures.after(RunStep::FIRST, StepEnd::Well, clean_up_at(NOW), NOW);
    let next = failures.after(RunStep::LAST, StepEnd::Well, rewrite_at(NOW + HOUR), NOW);
    assert_eq!((next.at_ms, failures), (NOW + HOUR, Failures::default()));
}

#[test]
fn a_failed_clean_up_is_tried_again_until_the_next_compaction_is_due() {
    let mut failures = Failures::default();
    let mut after = |schedule| failures.after(RunStep::LAST, StepEnd::Failed, rewrite_at(schedule), NOW);
    assert_eq!((after(NOW + HOUR).step, after(NOW + HOUR).at_ms), (RunStep::LAST, NOW + 2 * MINUTE));
    assert_eq!(after(NOW + 3 * MINUTE), rewrite_at(NOW + 3 * MINUTE));
    assert_eq!(failures.of(RunStep::LAST), 3);
}

#[test]
fn a_clean_up_that_was_refused_without_an_answer_is_tried_again_less_and_less_and_is_no_failure() {
    let mut failures = Failures::default();
    for minutes in [15, 30, 60, 120, 240, 240] {
        let next = failures.after(RunStep::LAST, StepEnd::Refused, rewrite_at(NOW + 24 * HOUR), NOW);
        assert_eq!((next.step, next.at_ms, next.is_backoff()), (RunStep::LAST, NOW + minutes * MINUTE, false));
        assert_eq!(failures.most(), 0);
    }
    let rewrite = rewrite_at(NOW + 3 * HOUR);
    assert_eq!(failures.after(RunStep::LAST, StepEnd::Refused, rewrite.clone(), NOW), rewrite, "it comes first");
    failures.after(RunStep::FIRST, StepEnd::Well, clean_up_at(NOW), NOW);
    assert_eq!(failures.after(RunStep::LAST, StepEnd::Refused, rewrite_at(NOW + 24 * HOUR), NOW).at_ms, NOW + 4 * HOUR);
    failures.after(RunStep::LAST, StepEnd::Well, rewrite, NOW);
    assert_eq!(failures, Failures::default());
}

#[test]
fn a_stuck_table_does_nothing_but_try_the_same_again() {
    let mut failures = Failures::default();
    for wait in [MINUTE, 2 * MINUTE] {
        let next = failures.after(RunStep::FIRST, StepEnd::Stuck, clean_up_at(NOW), NOW);
        assert_eq!((next.step, next.at_ms), (RunStep::FIRST, NOW + wait));
    }
    let next = failures.after(RunStep::LAST, StepEnd::Stuck, rewrite_at(NOW), NOW);
    assert_eq!((next.step, next.at_ms), (RunStep::LAST, NOW + MINUTE));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// However long the delay, however steps end and whenever the process is restarted: both steps keep being done, and a
    /// step never comes before it is due.
    #[test]
    fn neither_step_starves(
        period_min in 1u64..180,
        delay_min in 0u64..360,
        steps in prop::collection::vec((0u8..4, 1i64..600, any::<bool>()), 60..120),
    ) {
        let policy = every(period_min);
        let delay = Duration::from_secs(delay_min * 60);
        let mut now = NOW;
        let mut newest: Option<OwnRun> = None;
        let mut failures = Failures::default();
        let mut standing = first_step(None, &policy, delay, now).expect("valid");
        let mut last_done = [(RunStep::FIRST, now), (RunStep::LAST, now)];
        // The longest back-off, a whole round, and the steps' own time.
        let bound = 2 * HOUR + (period_min + delay_min) as i64 * MINUTE + 40 * MINUTE;
        for (ended, seconds, restart) in steps {
            let NextStep { step, at_ms, .. } = standing.next;
            prop_assert!(at_ms >= now, "{at_ms} lies before {now}");
            now = at_ms + seconds * SECOND;
            for (which, at) in &mut last_done {
                if *which == step {
                    *at = now;
                }
                prop_assert!(now - *at <= bound, "{which:?} was not done for {} min", (now - *at) / MINUTE);
            }
            let ended = match ended {
                0 => StepEnd::Failed,
                1 => StepEnd::Refused,
                _ => StepEnd::Well,
            };
            let other = match step {
                RunStep::FIRST => {
                    standing.since_ms = at_ms;
                    if ended == StepEnd::Well {
                        newest = Some(own(at_ms, now, true));
                    }
                    after_rewrite(newest.as_ref().map(|own| own.committed_ms), delay, now)
                }
                _ => {
                    let committed = newest.as_ref().map_or(i64::MIN, |own| own.committed_ms);
                    prop_assert!(at_ms >= committed.saturating_add(millis(delay)), "before the delay was over");
                    after_clean_up(standing.since_ms, &policy, now).expect("valid")
                }
            };
            standing.next = failures.after(step, ended, other, now);
            if restart && newest.is_some() {
                failures = Failures::default();
                standing = first_step(newest.as_ref(), &policy, delay, now).expect("valid");
            }
        }
    }
}

#[test]
fn what_the_policy_disables_is_not_announced() {
    let next = |step, at_ms| NextStep::new(step, at_ms, "schedule");
    let with = |rewrite, expire, orphans| {
        let mut policy = TablePolicy::default();
        policy.rewrite_data_files.enabled = rewrite;
        policy.expire_snapshots.enabled = expire;
        policy.remove_orphan_files.enabled = orphans;
        policy
    };
    let (rewrite, clean_up) = (RunStep::FIRST, RunStep::LAST);
    for (step, at_ms, policy, text) in [
        (rewrite, 0, with(true, true, true), "rewrite-data-files now (schedule)"),
        (rewrite, 5_400_000, with(true, false, false), "rewrite-data-files in 1 h 30 m (schedule)"),
        (rewrite, 0, with(false, false, true), "clean-up now (rewrite-data-files is disabled by the policy)"),
        (clean_up, 1, with(false, true, false), "clean-up in 1 s (schedule)"),
        (clean_up, 1, with(true, false, false), "rewrite-data-files in 1 s (clean-up is disabled by the policy)"),
        (rewrite, 0, with(false, false, false), "nothing: the policy disables all three actions"),
    ] {
        assert_eq!(describe(&next(step, at_ms), &policy, 0), text);
    }
}

#[test]
fn a_new_policy_moves_what_is_to_come_and_nothing_that_is_due() {
    let wait = |step, at_ms| NextStep { step, at_ms, why: "before" };
    let policy = every(120);
    let after = |waiting: &NextStep, failing, committed| {
        let next = after_change(waiting, failing, NOW - HOUR, committed, &policy, DELAY, NOW).expect("a valid policy");
        (next.step, next.at_ms - NOW)
    };
    let (rewrite, clean_up) = (wait(RunStep::FIRST, NOW + 5 * HOUR), wait(RunStep::LAST, NOW + 5 * HOUR));
    assert_eq!(after(&rewrite, false, None), (RunStep::FIRST, HOUR), "two hours after the last run's start");
    assert_eq!(after(&clean_up, false, Some(NOW - 10 * MINUTE)), (RunStep::LAST, 20 * MINUTE), "the new delay");
    assert_eq!(after(&clean_up, false, Some(NOW - HOUR)), (RunStep::LAST, 0), "the new delay is over");
    for waiting in [rewrite, clean_up] {
        assert_eq!(after(&waiting, true, Some(NOW)), (waiting.step, 5 * HOUR), "a back-off goes on");
    }
    for step in [RunStep::FIRST, RunStep::LAST] {
        assert_eq!(after(&wait(step, NOW), false, Some(NOW)), (step, 0), "due already");
    }
}

#[test]
fn a_run_from_the_future_makes_nobody_wait_for_its_time() {
    let policy = every(60);
    for ahead in [11 * MINUTE, 48 * HOUR] {
        let ahead_run = own(NOW + ahead - MINUTE, NOW + ahead, true);
        assert_eq!(first(Some(&ahead_run), &policy, NOW), (RunStep::LAST, 0, NOW));
        assert_eq!(after_rewrite(Some(NOW + ahead), DELAY, NOW).at_ms, NOW);
        let next = after_clean_up(NOW + ahead, &policy, NOW).expect("valid");
        assert_eq!(next.at_ms, NOW + HOUR, "a period from now on");
        let cron = after_clean_up(NOW + ahead, &cron("30 5 * * *"), NOW).expect("valid");
        assert_eq!(cron.at_ms, NOW + 30 * MINUTE);
    }
    // Clocks of catalog and daemon differ a little all the time.
    assert_eq!(after_rewrite(Some(NOW + MINUTE), DELAY, NOW).at_ms, NOW + 31 * MINUTE);
}
