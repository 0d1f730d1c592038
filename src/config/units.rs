//! Values with units: sizes (`"256MiB"`), durations (`"1h 30m"`), spans (`"3x"`). Pure.

use std::time::Duration;

use crate::policy::Span;

/// What a size looks like, for messages.
pub const SIZE_FORM: &str = "a size with a unit, such as \"256MiB\" (B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB)";
/// What a duration looks like, for messages.
pub const DURATION_FORM: &str = "a duration with units, such as \"10m\" or \"1h 30m\" (ms, s, m, h, d, w)";
/// What a span looks like, for messages.
pub const SPAN_FORM: &str = "a duration such as \"30m\", or a multiple of the commit interval such as \"3x\"";

/// Commit intervals that a span lasts at most.
const INTERVALS_MAX: f64 = 1_000_000.0;

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

const DURATION_UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a size in bytes. The error says what is wrong and, where it can be told, what was meant.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text.trim())?;
    let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let meant = match unit.to_ascii_lowercase().as_str() {
            "" => return Err("it has no unit".into()),
            "k" | "kb" => "KiB (1024) or kB (1000)",
            "m" | "mb" => "MiB (1024 x 1024) or MB (1000 x 1000)",
            "g" | "gb" => "GiB (1024^3) or GB (1000^3)",
            "t" | "tb" => "TiB (1024^4) or TB (1000^4)",
            "kib" => "KiB",
            "mib" => "MiB",
            "gib" => "GiB",
            "tib" => "TiB",
            "b" => "B",
            _ => return Err(format!("`{unit}` is no unit of size")),
        };
        return Err(format!("`{unit}` is no unit of size; write {meant}"));
    };
    number.checked_mul(*factor).filter(|bytes| *bytes <= i64::MAX as u64).ok_or_else(|| "it is too large".into())
}

/// Reads a duration: numbers with units, largest first, each unit once.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut previous = u64::MAX;
    if rest.is_empty() {
        return Err("it is empty".into());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_end = rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |i| digits + i);
        let (number, unit) = split_number(&rest[..unit_end])?;
        let Some((_, factor)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(match unit {
                "" if rest.len() > unit_end => format!("`{}` is not expected here", &rest[unit_end..]),
                "" => "it has no unit".into(),
                "x" => "a multiple of the commit interval is not possible here".into(),
                _ => format!("`{unit}` is no unit of time"),
            });
        };
        if *factor >= previous {
            return Err("each unit may stand once, the largest first".into());
        }
        previous = *factor;
        total = number.checked_mul(*factor).and_then(|ms| total.checked_add(ms)).ok_or("it is too long")?;
        rest = rest[unit_end..].trim_start();
    }
    // A thousand years, so that adding durations to times never overflows.
    if total > 1000 * 366 * 86_400_000 {
        return Err("it is too long".into());
    }
    Ok(Duration::from_millis(total))
}

/// Reads a duration or a multiple of the commit interval.
pub fn parse_span(text: &str) -> Result<Span, String> {
    let Some(number) = text.trim().strip_suffix('x') else {
        return parse_duration(text).map(Span::Fixed);
    };
    let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    match number.parse::<f64>() {
        Ok(times) if plain && times <= INTERVALS_MAX => Ok(Span::Intervals(times)),
        Ok(_) if plain => Err(format!("it is too large: at most {INTERVALS_MAX} commit intervals are possible")),
        _ => Err(format!("`{number}` is not a number of commit intervals")),
    }
}

/// A leading whole number, and the unit after it.
fn split_number(text: &str) -> Result<(u64, &str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 {
        return Err("it does not start with a whole number".into());
    }
    let number = text[..digits].parse().map_err(|_| "it is too large".to_owned())?;
    let unit = text[digits..].trim_start();
    if unit.starts_with(['.', ',']) {
        return Err("only whole numbers are read; take a smaller unit".into());
    }
    Ok((number, unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size(" 4 GiB "), Ok(4 << 30));
        assert_eq!(parse_size("5MB"), Ok(5_000_000));
        assert_eq!(parse_size("0B"), Ok(0));
        for (text, why) in [
            ("256", "no unit"),
            ("256M", "write MiB (1024 x 1024) or MB"),
            ("256mib", "write MiB"),
            ("1.5GiB", "only whole numbers"),
            ("MiB", "whole number"),
            ("-1MiB", "whole number"),
            ("10m", "write MiB"),
            ("10 parsecs", "no unit of size"),
            ("99999999TiB", "too large"),
            ("99999999999999999999B", "too large"),
            ("", "whole number"),
        ] {
            let error = parse_size(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn durations_and_spans() {
        assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("2w"), Ok(Duration::from_secs(14 * 86400)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_span("3x"), Ok(Span::Intervals(3.0)));
        assert_eq!(parse_span("2.5x"), Ok(Span::Intervals(2.5)));
        assert_eq!(parse_span("0s"), Ok(Span::Fixed(Duration::ZERO)));
        for (text, why) in [
            ("10", "no unit"),
            ("10min", "`min` is no unit"),
            ("3x", "not possible here"),
            ("30m 1h", "largest first"),
            ("1h 1h", "largest first"),
            ("1h, 30m", "whole number"),
            ("1.5h", "not expected"),
            ("h", "whole number"),
            ("", "empty"),
            ("999999999999d", "too long"),
            ("10é", "not expected"),
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        for text in ["x", "-1x", "1e9x", "infx", "nanx", "3 xx", "99999999x"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
        let error = parse_span("999999999x").expect_err("too large");
        assert_eq!(error, "it is too large: at most 1000000 commit intervals are possible");
    }

    proptest! {
        #[test]
        fn every_unit_counts(number in 0u64..8_000_000, weeks in 0u64..9, ms in 0u64..1000) {
            for (unit, factor) in SIZE_UNITS {
                prop_assert_eq!(parse_size(&format!("{number}{unit}")), Ok(number * factor));
            }
            let length = Duration::from_millis(weeks * 604_800_000 + ms);
            prop_assert_eq!(parse_span(&format!("{weeks}w {ms}ms")), Ok(Span::Fixed(length)));
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in ".{0,12}") {
            let _ = (parse_size(&text), parse_duration(&text), parse_span(&text));
        }
    }
}
