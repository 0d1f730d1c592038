//! Lengths of time for people. Machines get numbers.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// `1 h 30 m`: the largest unit that is not zero and the next one, without what is finer.
pub fn human_duration(length: Duration) -> String {
    let total = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let first = UNITS.iter().position(|(_, ms)| total >= *ms);
    let Some((first, (unit, ms))) = first.map(|at| (at, UNITS[at])) else { return "0 s".to_owned() };
    let rest = UNITS.get(first + 1).map(|(unit, ms_of_next)| (unit, total % ms / ms_of_next));
    match rest {
        Some((next, count)) if count > 0 => format!("{} {unit} {count} {next}", total / ms),
        _ => format!("{} {unit}", total / ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_at_most() {
        for (ms, text) in [
            (0, "0 s"),
            (1, "1 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (1500, "1 s 500 ms"),
            (59_999, "59 s 999 ms"),
            (60_000, "1 m"),
            (90_000, "1 m 30 s"),
            (5_400_000, "1 h 30 m"),
            (5_401_000, "1 h 30 m"),
            (3_601_000, "1 h"),
            (86_400_000, "1 d"),
            (90_000_000, "1 d 1 h"),
            (14 * 86_400_000, "14 d"),
        ] {
            assert_eq!(human_duration(Duration::from_millis(ms)), text, "{ms}");
        }
        assert!(human_duration(Duration::MAX).ends_with('h') || human_duration(Duration::MAX).ends_with('d'));
    }
}
