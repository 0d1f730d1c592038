//! `partitions` of a rewrite: all, one window of time, or conditions on partition values.

use jiff::civil::{DateTime, date};
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Zoned};
use toml::de::DeValue;

use super::problem::Diagnostics;
use super::reader::{Section, TomlValue};
use crate::policy::{
    PartitionCondition, PartitionSelection, PartitionTest, Placed, SettingReader, Severity, Span, Window,
};

const FORMS: &str = "write \"all\", { column = \"hour\", window = \"previous-hour\", format = \"%Y-%m-%d %H\" }, \
                     or a list of { column = \"dt\", older = \"7d\", format = \"%Y-%m-%d\" } with equal, older or newer";

pub(super) fn read_partitions(item: &TomlValue<'_>) -> Option<PartitionSelection> {
    match item.value {
        DeValue::String(text) if text == "all" => Some(PartitionSelection::All),
        DeValue::Table(_) => read_window(item.section()?),
        DeValue::Array(_) => {
            let elements = item.elements()?;
            if elements.is_empty() {
                item.error("has no condition", FORMS);
            }
            let mut conditions = Vec::new();
            for element in elements {
                let Some(section) = element.section() else { continue };
                let read = read_condition(section);
                conditions.extend(read.map(|value| Placed { value, place: element.place() }));
            }
            check_contradictions(item.diagnostics, &item.path, &conditions);
            Some(PartitionSelection::Conditions(conditions.into_iter().map(|placed| placed.value).collect()))
        }
        _ => item.refuse("is no selection of partitions", FORMS),
    }
}

fn read_column(section: &mut Section<'_>) -> Option<String> {
    let cure = "add column = \"...\": a partition field or its source column";
    section.required("column", cure, TomlValue::string).map(|placed| placed.value)
}

fn read_window(mut section: Section<'_>) -> Option<PartitionSelection> {
    let column = read_column(&mut section);
    let cure = "add window = \"previous-hour\" or \"previous-day\"";
    let window = section.required("window", cure, |item| item.one_of(Window::WORDS)).map(|placed| placed.value);
    let format = section.get("format", |item| {
        let format = item.string()?;
        let problem = window.and_then(|window| window_format_problem(window, &format));
        if let Some((message, cure)) = problem {
            item.error(message, cure);
        }
        Some(format)
    });
    section.finish();
    Some(PartitionSelection::Window { column: column?, window: window?, format })
}

fn read_condition(mut section: Section<'_>) -> Option<PartitionCondition> {
    let column = read_column(&mut section);
    let equal = section.get("equal", values);
    let older = section.get("older", TomlValue::span);
    let newer = section.get("newer", TomlValue::span);
    let given: Vec<&str> = ["equal", "older", "newer"].into_iter().filter(|key| section.has(key)).collect();
    let mut format = None;
    if given.as_slice() != ["equal"] {
        format = section.get("format", |item| {
            let format = item.string()?;
            if let Some((message, cure)) = readable_format_problem(&format) {
                item.error(message, cure);
            }
            Some(format)
        });
    }
    let (diagnostics, place, path) = (section.diagnostics, section.place(), section.path.clone());
    section.finish();
    if given.len() != 1 {
        let message = "needs exactly one of `equal`, `older` and `newer`";
        diagnostics.error(place, &path, message, "write one condition per element; all must hold");
        return None;
    }
    let test = match (equal, older, newer) {
        (Some(equal), _, _) => PartitionTest::Equal(equal),
        (_, Some(than), _) => PartitionTest::Older { than, format },
        (_, _, Some(than)) => PartitionTest::Newer { than, format },
        (None, None, None) => return None,
    };
    Some(PartitionCondition { column: column?, test })
}

/// A value, or several of which one must be equal.
fn values(item: &TomlValue<'_>) -> Option<Vec<String>> {
    match item.value {
        DeValue::Array(_) => {
            let elements = item.elements()?;
            if elements.is_empty() {
                item.error("no value is equal to one of none", "add a value");
            }
            elements.iter().map(|element| value(element)).collect()
        }
        _ => value(item).map(|text| vec![text]),
    }
}

fn value(item: &TomlValue<'_>) -> Option<String> {
    match item.value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Array(_) | DeValue::Table(_) => {
            let cure = "write a string, a decimal whole number, true, false, or a date";
            item.refuse("cannot be compared with a partition value", cure)
        }
    }
}

/// A column that must be newer than it is old selects nothing.
fn check_contradictions(diagnostics: &Diagnostics<'_>, path: &str, conditions: &[Placed<PartitionCondition>]) {
    for older in conditions {
        let PartitionTest::Older { than: older_than, .. } = &older.value.test else { continue };
        for newer in conditions.iter().filter(|newer| newer.value.column == older.value.column) {
            let PartitionTest::Newer { than: newer_than, .. } = &newer.value.test else { continue };
            let never = match (older_than, newer_than) {
                (Span::Fixed(a), Span::Fixed(b)) => a >= b,
                (Span::Intervals(a), Span::Intervals(b)) => a >= b,
                (Span::Fixed(_), Span::Intervals(_)) | (Span::Intervals(_), Span::Fixed(_)) => false,
            };
            if never {
                let related = vec![(newer.place, "the other condition".to_owned())];
                let message = "both conditions never hold for the same value".to_owned();
                let cure = "`older` must be the shorter of the two".to_owned();
                diagnostics.push(Severity::Error, older.place, path, message, cure, related);
            }
        }
    }
}

type FormatProblem = (String, String);

/// A time with no field alike, so that swapped fields show.
fn sample() -> DateTime {
    date(2026, 11, 29).at(13, 0, 0, 0)
}

fn formatted(format: &str, time: DateTime) -> Result<String, FormatProblem> {
    let wrong = |e: jiff::Error| {
        (format!("\"{format}\" is no time format: {e}"), "use strftime directives such as %Y-%m-%d %H".to_owned())
    };
    let zoned: Zoned = time.to_zoned(TimeZone::UTC).map_err(wrong)?;
    strtime::format(format, &zoned).map_err(wrong)
}

/// A format that names a window must tell it from its neighbours, and must not tell apart what lies in it.
fn window_format_problem(window: Window, format: &str) -> Option<FormatProblem> {
    let (word, length, within) = match window {
        Window::PreviousHour => ("hour", SignedDuration::from_hours(1), SignedDuration::from_mins(1)),
        Window::PreviousDay => ("day", SignedDuration::from_hours(24), SignedDuration::from_hours(1)),
    };
    let text_after = |offset: SignedDuration| formatted(format, sample().saturating_add(offset));
    let here = match text_after(SignedDuration::ZERO) {
        Ok(text) => text,
        Err(problem) => return Some(problem),
    };
    // The next window, and windows half a day (hours only), a day, a week, a month and a year away.
    let hours_away: [i64; 7] = [-12, 12, 24, 24 * 7, 24 * 30, 24 * 365, -24 * 365];
    let far = hours_away.into_iter().map(SignedDuration::from_hours).filter(|offset| offset.abs() >= length);
    if std::iter::once(length).chain(far).any(|offset| text_after(offset).as_ref() == Ok(&here)) {
        let cure = "name year, month, day and, for hours, the hour: \"%Y-%m-%d %H\"".to_owned();
        return Some((format!("format \"{format}\" gives several {word}s the same text (\"{here}\")"), cure));
    }
    if text_after(within).as_ref() != Ok(&here) {
        let cure = format!("leave out what is finer than the {word}");
        return Some((format!("format \"{format}\" splits one {word} into several texts"), cure));
    }
    None
}

/// A format whose texts are read back must hold a whole date.
fn readable_format_problem(format: &str) -> Option<FormatProblem> {
    let text = match formatted(format, sample()) {
        Ok(text) => text,
        Err(problem) => return Some(problem),
    };
    let read = strtime::parse(format, &text).and_then(|parsed| parsed.to_datetime());
    match read {
        Ok(time) if time.date() == sample().date() => None,
        _ => Some((
            format!("a time cannot be read back from \"{text}\" by format \"{format}\""),
            "name year, month and day, such as \"%Y-%m-%d\"".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_format_tells_windows_apart_and_nothing_else() {
        assert_eq!(window_format_problem(Window::PreviousHour, "%Y-%m-%d %H"), None);
        assert_eq!(window_format_problem(Window::PreviousDay, "%Y%m%d"), None);
        for (window, format, why) in [
            (Window::PreviousHour, "%Y-%m-%d", "several hours"),
            (Window::PreviousHour, "%H", "several hours"),
            (Window::PreviousHour, "%Y-%m-%d %I", "several hours"),
            (Window::PreviousHour, "%Y-%m-%d %H:%M", "splits one hour"),
            (Window::PreviousDay, "%Y-%m-%d %H", "splits one day"),
            (Window::PreviousDay, "%m-%d", "several days"),
            (Window::PreviousDay, "plain", "several days"),
            (Window::PreviousDay, "%Y-%!", "no time format"),
        ] {
            let (message, _) = window_format_problem(window, format).expect(format);
            assert!(message.contains(why), "{format}: {message}");
        }
    }

    #[test]
    fn a_readable_format_holds_a_date() {
        assert_eq!(readable_format_problem("%Y-%m-%d"), None);
        assert_eq!(readable_format_problem("%Y-%m-%d %H"), None);
        assert_eq!(readable_format_problem("%Y-%j"), None);
        for format in ["%Y-%m", "%H", "x", "%E"] {
            assert!(readable_format_problem(format).is_some(), "{format}");
        }
    }
}
