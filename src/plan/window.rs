//! Local time for partition selection: which hour or day is over, and what time a partition value stands for.
//!
//! Every time here is civil: microseconds of a calendar without zone, counted from 1970-01-01 00:00 on that calendar.
//! Columns without zone (formatted text, `date`, `timestamp`) show the wall clock of the policy's zone; `timestamptz` and
//! its transforms count in UTC, so their partitions begin and end on UTC hours and days whatever the policy's zone is.

use jiff::civil::{DateTime, date};
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan, Zoned};

use crate::error::{Error, ErrorKind, Result};
use crate::policy::Window;

/// How finely something tells time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grain {
    Exact,
    Hour,
    Day,
    Month,
    Year,
}

/// A half-open range of civil time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CivilRange {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl CivilRange {
    pub(super) fn contains(self, civil: i64) -> bool {
        (self.from..self.to).contains(&civil)
    }
}

/// The hour or day before the current one on the clock of `zone`: the one that the instant just before the current hour's
/// first instant belongs to. When clocks are set back, the repeated hour is over only after its second pass; when they are
/// set forward, the hour that never was is passed over. So every hour is the previous one exactly once, and complete.
pub(super) fn previous(window: Window, now_ms: i64, zone: &TimeZone) -> Result<CivilRange> {
    let local = zoned(now_ms, zone)?.datetime();
    let (start, length) = match window {
        Window::PreviousHour => (truncate_to_hour(local), 1.hour()),
        Window::PreviousDay => (local.date().at(0, 0, 0, 0), 1.day()),
    };
    let first = start.to_zoned(zone.clone()).map_err(out_of_range)?;
    let before = first.timestamp().checked_sub(1.microsecond()).map_err(out_of_range)?;
    let last = before.to_zoned(zone.clone()).datetime();
    let from = match window {
        Window::PreviousHour => truncate_to_hour(last),
        Window::PreviousDay => last.date().at(0, 0, 0, 0),
    };
    let to = from.checked_add(length).map_err(out_of_range)?;
    Ok(CivilRange { from: micros(from)?, to: micros(to)? })
}

/// The wall clock of `zone` at an instant.
pub(super) fn civil_at(instant_ms: i64, zone: &TimeZone) -> Result<i64> {
    micros(zoned(instant_ms, zone)?.datetime())
}

/// The civil time of a text value, `None` if it does not have the format or names no time.
pub(super) fn parse(format: &str, text: &str) -> Option<i64> {
    let time = strtime::parse(format, text).ok()?.to_datetime().ok()?;
    micros(time).ok()
}

/// How finely a strftime format tells time. [`ErrorKind::Config`] if it does not even give a date.
pub(super) fn grain(format: &str) -> Result<Grain> {
    let bad = |why: String| {
        Error::new(
            ErrorKind::Config,
            format!(
                "partition format {format:?} {why}; it must give at least year, month and day, as %Y-%m-%d %H does"
            ),
        )
    };
    let probe = date(2031, 11, 23).at(21, 47, 0, 0);
    let text = strtime::format(format, probe).map_err(|e| bad(format!("cannot be used: {e}")))?;
    let parsed = strtime::parse(format, &text).and_then(|broken_down| broken_down.to_datetime());
    let back = parsed.map_err(|e| bad(format!("cannot be read back: {e}")))?;
    match back {
        time if time == probe => Ok(Grain::Exact),
        time if time == truncate_to_hour(probe) => Ok(Grain::Hour),
        time if time == probe.date().at(0, 0, 0, 0) => Ok(Grain::Day),
        _ => Err(bad(format!("reads {text:?} back as another time"))),
    }
}

/// So many units after the epoch, as the time transforms count them.
pub(super) fn since_epoch(grain: Grain, count: i64) -> Option<i64> {
    let span = match grain {
        Grain::Exact => return Some(count),
        Grain::Hour => Span::new().try_hours(count),
        Grain::Day => Span::new().try_days(count),
        Grain::Month => Span::new().try_months(count),
        Grain::Year => Span::new().try_years(count),
    };
    micros(date(1970, 1, 1).at(0, 0, 0, 0).checked_add(span.ok()?).ok()?).ok()
}

/// The number of a month written as `2025-04`.
pub(super) fn months_since_epoch(text: &str) -> Option<i32> {
    let first = strtime::parse("%Y-%m-%d", format!("{text}-01")).ok()?.to_date().ok()?;
    Some((i32::from(first.year()) - 1970) * 12 + i32::from(first.month()) - 1)
}

fn zoned(instant_ms: i64, zone: &TimeZone) -> Result<Zoned> {
    Ok(Timestamp::from_millisecond(instant_ms).map_err(out_of_range)?.to_zoned(zone.clone()))
}

fn truncate_to_hour(time: DateTime) -> DateTime {
    time.date().at(time.hour(), 0, 0, 0)
}

fn micros(time: DateTime) -> Result<i64> {
    Ok(time.to_zoned(TimeZone::UTC).map_err(out_of_range)?.timestamp().as_microsecond())
}

fn out_of_range(error: jiff::Error) -> Error {
    Error::invalid(format!("a partition time is out of range: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(which: Window, now: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).expect("zone");
        let now: Timestamp = now.parse().expect("timestamp");
        let range = previous(which, now.as_millisecond(), &zone).expect("range");
        let text = |civil| Timestamp::from_microsecond(civil).expect("time").strftime("%d %H").to_string();
        format!("{}..{}", text(range.from), text(range.to))
    }

    #[test]
    fn hours_in_seoul_are_nine_ahead() {
        assert_eq!(window(Window::PreviousHour, "2025-04-01T07:10:00Z", "Asia/Seoul"), "01 15..01 16");
        assert_eq!(window(Window::PreviousHour, "2025-04-01T15:00:00Z", "Asia/Seoul"), "01 23..02 00");
        assert_eq!(window(Window::PreviousHour, "2025-04-01T14:59:59.999Z", "Asia/Seoul"), "01 22..01 23");
        assert_eq!(window(Window::PreviousDay, "2025-04-01T21:00:00Z", "Asia/Seoul"), "01 00..02 00");
        assert_eq!(window(Window::PreviousDay, "2025-04-01T14:00:00Z", "Asia/Seoul"), "31 00..01 00");
    }

    #[test]
    fn clocks_set_forward_skip_the_hour_that_never_was() {
        // 2025-03-30 in Berlin: 01:59 CET is followed by 03:00 CEST.
        assert_eq!(window(Window::PreviousHour, "2025-03-30T00:30:00Z", "Europe/Berlin"), "30 00..30 01");
        assert_eq!(window(Window::PreviousHour, "2025-03-30T01:30:00Z", "Europe/Berlin"), "30 01..30 02");
        assert_eq!(window(Window::PreviousHour, "2025-03-30T02:30:00Z", "Europe/Berlin"), "30 03..30 04");
        assert_eq!(window(Window::PreviousDay, "2025-03-30T22:30:00Z", "Europe/Berlin"), "30 00..31 00");
    }

    #[test]
    fn clocks_set_back_close_the_repeated_hour_once() {
        // 2025-10-26 in Berlin: 02:59 CEST is followed by 02:00 CET.
        assert_eq!(window(Window::PreviousHour, "2025-10-26T00:30:00Z", "Europe/Berlin"), "26 01..26 02");
        assert_eq!(window(Window::PreviousHour, "2025-10-26T01:30:00Z", "Europe/Berlin"), "26 01..26 02");
        assert_eq!(window(Window::PreviousHour, "2025-10-26T02:30:00Z", "Europe/Berlin"), "26 02..26 03");
    }

    #[test]
    fn half_hour_changes_lose_no_hour() {
        // 2025-10-05 on Lord Howe: 01:59 is followed by 02:30 (15:30 UTC the day before).
        for (now, expected) in [
            ("2025-10-04T15:40:00Z", "05 01..05 02"),
            ("2025-10-04T16:10:00Z", "05 02..05 03"),
            ("2025-10-04T16:50:00Z", "05 02..05 03"),
        ] {
            assert_eq!(window(Window::PreviousHour, now, "Australia/Lord_Howe"), expected, "{now}");
        }
    }

    #[test]
    fn formats_tell_their_grain_or_are_refused() {
        assert_eq!(grain("%Y-%m-%d %H").expect("hour"), Grain::Hour);
        assert_eq!(grain("%Y%m%d").expect("day"), Grain::Day);
        assert_eq!(grain("%Y-%m-%dT%H:%M").expect("minute"), Grain::Exact);
        assert_eq!(grain("%Y-%m-%d %I %p").expect("twelve hours"), Grain::Hour);
        for format in ["%H", "%Y-%m", "%Y-%m-%d %z", "%Q!", "hour"] {
            assert_eq!(grain(format).expect_err(format).kind(), ErrorKind::Config);
        }
        assert_eq!(parse("%Y-%m-%d %H", "1970-01-02 01"), Some(25 * 3_600_000_000));
        assert_eq!(parse("%Y-%m-%d %H", "1970-01-02"), None);
        assert_eq!(parse("%Y-%m-%d %H", "unknown"), None);
    }

    #[test]
    fn transforms_count_from_the_epoch() {
        let day = 86_400_000_000;
        assert_eq!(since_epoch(Grain::Hour, -1), Some(-3_600_000_000));
        assert_eq!(since_epoch(Grain::Day, 2), Some(2 * day));
        assert_eq!(since_epoch(Grain::Month, 14), Some((365 + 31 + 28) * day));
        assert_eq!(since_epoch(Grain::Year, -1), Some(-365 * day));
        assert_eq!(since_epoch(Grain::Year, i64::MAX), None);
    }
}
