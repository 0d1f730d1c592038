//! Numbers as people read them.

use std::collections::BTreeMap;

use crate::clean::Tally;
use crate::plan::Skipped;

/// Labelled values, one per line.
pub type LabelledLines = Vec<(String, String)>;

/// `1536` as `1.5 KiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1 commit`, `2 commits`.
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The sum over all kinds.
pub(super) fn total<K>(tallies: &BTreeMap<K, Tally>) -> Tally {
    let mut sum = Tally::default();
    tallies.values().for_each(|tally| sum.absorb(*tally));
    sum
}

/// Files that a plan leaves alone, by reason.
pub(super) fn skipped_lines(skipped: &[Skipped]) -> impl Iterator<Item = (String, String)> {
    let line = |skip: &Skipped| {
        let files = count(skip.files, "file");
        (format!("  left alone ({})", skip.reason), format!("{files}: {}", skip.detail))
    };
    skipped.iter().map(line)
}

/// Files that nothing needs and that stay all the same, by reason, and those that could not be deleted.
pub(super) fn file_lines(kept: &BTreeMap<impl serde::Serialize, Tally>, failures: &[String]) -> LabelledLines {
    let kept = kept.iter().map(|(reason, tally)| {
        // The name that it has in JSON.
        let reason = serde_json::to_value(reason).unwrap_or_default();
        let files = format!("{}, {}", count(tally.files, "file"), bytes(tally.bytes));
        (format!("  kept ({})", reason.as_str().unwrap_or_default()), files)
    });
    kept.chain(failures.iter().map(|failure| ("  not deleted".to_owned(), failure.clone()))).collect()
}
