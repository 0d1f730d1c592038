//! When runs are due. Pure: `now` comes in as a parameter.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::{Schedule, TablePolicy};
use crate::error::{Context, Error, ErrorKind, Result};

/// A time zone by its IANA name. [`ErrorKind::Config`] if there is none.
pub fn time_zone(name: &str) -> Result<TimeZone> {
    TimeZone::get(name).map_err(|_| Error::new(ErrorKind::Config, format!("there is no time zone `{name}`")))
}

impl Schedule {
    /// Reads a cron expression of five fields (minute, hour, day of month, month, day of week).
    /// [`ErrorKind::Config`] if it is malformed or names a time that never comes.
    pub fn cron(text: &str) -> Result<Self> {
        let cron = parse_cron(text)?;
        // Every calendar repeats within 400 years; a leap day on a given weekday comes within 40.
        let start = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        cron.find_next_occurrence(&start, false).map_err(|_| {
            Error::new(ErrorKind::Config, format!("the cron expression `{text}` names a time that never comes"))
        })?;
        Ok(Self::Cron(text.to_owned()))
    }

    /// The first due time after `now_ms` (milliseconds since the epoch). For [`Schedule::Every`] `now_ms` is the time of
    /// the last run. A cron time that the clock skips falls due when the clock has jumped; one that comes twice, once.
    /// [`ErrorKind::Config`] for an expression that [`Schedule::cron`] would refuse.
    pub fn next_after(&self, now_ms: i64, zone: &TimeZone) -> Result<i64> {
        match self {
            Self::Every(every) => {
                let every_ms = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
                Ok(now_ms.saturating_add(every_ms))
            }
            Self::Cron(text) => {
                let start = zoned(now_ms, zone)?;
                let next = parse_cron(text)?
                    .find_next_occurrence(&start, false)
                    .map_err(|e| Error::new(ErrorKind::Config, e.to_string()))
                    .context(|| format!("find when `{text}` is due next"))?;
                Ok(next.timestamp().as_millisecond())
            }
        }
    }

    /// The time between two runs: of a cron expression, between the next two due times after `now_ms`.
    pub fn period(&self, now_ms: i64, zone: &TimeZone) -> Result<Duration> {
        let next = self.next_after(now_ms, zone)?;
        let after = self.next_after(next, zone)?;
        Ok(Duration::from_millis(u64::try_from(after.saturating_sub(next)).unwrap_or(0)))
    }
}

impl TablePolicy {
    /// The policy's time zone.
    pub fn zone(&self) -> Result<TimeZone> {
        time_zone(&self.time_zone)
    }
}

fn zoned(ms: i64, zone: &TimeZone) -> Result<Zoned> {
    let time = Timestamp::from_millisecond(ms).map_err(|e| Error::invalid(format!("time out of range: {e}")))?;
    Ok(time.to_zoned(zone.clone()))
}

fn parse_cron(text: &str) -> Result<Cron> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|e| {
        Error::new(ErrorKind::Config, format!("`{text}` is no cron expression of five fields: {}", decapitalised(&e)))
    })
}

fn decapitalised(error: &croner::errors::CronError) -> String {
    let text = error.to_string();
    let mut chars = text.trim_end_matches('.').chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().expect(text).as_millisecond()
    }

    #[test]
    fn the_period_is_the_time_between_the_next_two_runs() {
        let (hour, noon) = (Duration::from_secs(3600), at("2026-03-01T12:00:00Z"));
        let period = |schedule: &Schedule| schedule.period(noon, &TimeZone::UTC).expect("a period");
        assert_eq!(period(&Schedule::Every(hour)), hour);
        assert_eq!(period(&Schedule::cron("0 6,18 * * *").expect("cron")), 12 * hour);
        assert_eq!(period(&Schedule::cron("0 17,18 * * *").expect("cron")), hour);
    }

    fn next(cron: &str, zone: &str, from: &str) -> String {
        let zone = time_zone(zone).expect("zone");
        let ms = Schedule::cron(cron).expect(cron).next_after(at(from), &zone).expect("next");
        Timestamp::from_millisecond(ms).expect("in range").to_string()
    }

    /// The last time before `ms` at which the expression was due.
    fn previous(cron: &str, zone: &TimeZone, ms: i64) -> i64 {
        // The search counts whole seconds, so a started second must count as over.
        let seconds = ms.div_euclid(1000) + i64::from(ms.rem_euclid(1000) > 0);
        let start = zoned(seconds * 1000, zone).expect("in range");
        let found = parse_cron(cron).expect(cron).find_previous_occurrence(&start, false);
        found.expect("found").timestamp().as_millisecond()
    }

    #[test]
    fn cron_counts_in_the_policys_zone() {
        assert_eq!(next("0 6,18 * * *", "Asia/Seoul", "2026-11-29T00:00:00Z"), "2026-11-29T09:00:00Z");
        assert_eq!(next("0 6,18 * * *", "UTC", "2026-11-29T00:00:00Z"), "2026-11-29T06:00:00Z");
        assert_eq!(next("0 6 * * *", "UTC", "2026-11-29T06:00:00Z"), "2026-11-30T06:00:00Z", "after, not at");
        assert_eq!(next("0 6 * * *", "UTC", "2026-11-29T05:59:59.999Z"), "2026-11-29T06:00:00Z");
    }

    #[test]
    fn a_skipped_time_runs_at_the_jump_and_a_repeated_time_runs_once() {
        // Berlin: 2026-03-29 02:00 -> 03:00, 2026-10-25 03:00 -> 02:00.
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z"), "2026-03-29T01:00:00Z");
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z");
        // An hourly schedule runs in both of the repeated hours.
        assert_eq!(next("0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z"), "2026-10-25T01:00:00Z");
    }

    #[test]
    fn malformed_and_impossible_expressions_are_refused() {
        for text in ["", "* * * *", "0 0 * * * *", "61 * * * *", "0 0 30 2 *", "x * * * *"] {
            assert_eq!(Schedule::cron(text).expect_err(text).kind(), ErrorKind::Config);
        }
        assert!(Schedule::cron("0 0 29 2 *").is_ok(), "leap days come");
    }

    #[test]
    fn every_counts_from_the_last_run() {
        let every = Schedule::Every(Duration::from_secs(60));
        assert_eq!(every.next_after(5, &TimeZone::UTC).expect("sum"), 60_005);
        assert_eq!(Schedule::Every(Duration::MAX).next_after(5, &TimeZone::UTC).expect("sum"), i64::MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Going back from any time and forth again finds no due time in between, also around clock changes.
        #[test]
        fn previous_and_next_agree(
            ms in 1_760_000_000_000i64..1_830_000_000_000,
            near_change in prop::option::of((0usize..4, -7_500_000i64..7_500_000)),
            cron in prop::sample::select(vec![
                "0 6,18 * * *", "30 2 * * *", "*/15 * * * *", "5 1-3 * * *", "0 0 * * MON", "15 2 29 * *", "0 3 1 */2 *",
            ]),
            zone in prop::sample::select(vec![
                "UTC", "Asia/Seoul", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
            ]),
        ) {
            let changes = ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T15:00:00Z"];
            let ms = near_change.map_or(ms, |(which, off)| at(changes[which]) + off);
            let zone = time_zone(zone).expect("zone");
            let schedule = Schedule::cron(cron).expect("cron");
            let next = schedule.next_after(ms, &zone).expect("next");
            prop_assert!(next > ms);
            prop_assert_eq!(next % 1000, 0);
            let previous = previous(cron, &zone, ms);
            prop_assert!(previous < ms);
            prop_assert!(schedule.next_after(previous, &zone).expect("next") >= ms, "a due time was skipped");
            prop_assert_eq!(schedule.next_after(previous - 1, &zone).expect("next"), previous);
        }
    }
}
