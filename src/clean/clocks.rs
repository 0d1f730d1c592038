//! Whether ages mean anything. They are the difference between this machine's clock and the dates of files, which the store
//! gives, and of snapshots, which their writers give; with a wrong clock what was written a moment ago looks a day old.

use std::time::Duration;

use crate::catalog::TableHandle;
use crate::policy::human_duration;
use crate::table::references::CLOCK_SKEW_LIMIT_MS;

/// Compares this machine's clock, which shows `now_ms`, with those of the table's catalog and store. What to say if it is more
/// than ten minutes beside one of them. One that does not tell its time refuses nothing.
pub async fn clock_apart(table: &TableHandle, now_ms: i64) -> Option<String> {
    let store_ms = table.store.time_ms(&table.loaded.metadata_location).await.unwrap_or_else(|error| {
        tracing::debug!(table = %table.name(), %error, "the store's clock is not known");
        None
    });
    let catalog_ms = table.catalog.time_ms();
    if store_ms.is_none() && catalog_ms.is_none() {
        tracing::warn!(table = %table.name(), "neither catalog nor store tells its time; this machine's clock is trusted");
    }
    apart("store", store_ms, now_ms).or_else(|| apart("catalog", catalog_ms, now_ms))
}

/// The same with one of them alone: the catalog by what it told last, or the store if the catalog never told its time, since
/// that costs a request.
pub async fn clock_apart_from_one(table: &TableHandle, now_ms: i64) -> Option<String> {
    match table.catalog.time_ms() {
        None => clock_apart(table, now_ms).await,
        told => apart("catalog", told, now_ms),
    }
}

fn apart(whose: &str, their_ms: Option<i64>, now_ms: i64) -> Option<String> {
    let ahead_ms = now_ms.saturating_sub(their_ms?);
    if ahead_ms.saturating_abs() <= CLOCK_SKEW_LIMIT_MS {
        return None;
    }
    let difference = human_duration(Duration::from_secs(ahead_ms.unsigned_abs() / 1000));
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Some(format!("this machine's clock is {difference} {side} the {whose}'s: set the clocks right"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_in_either_direction_are_borne_and_no_more() {
        let now = 1_800_000_000_000;
        assert_eq!(apart("store", None, now), None);
        for side in [-1, 1] {
            assert_eq!(apart("store", Some(now + side * 600_000), now), None);
            assert!(apart("store", Some(now + side * 600_001), now).is_some());
        }
        let day = 25 * 3_600_000;
        let told = apart("store", Some(now - day), now).expect("apart");
        assert_eq!(told, "this machine's clock is 1 d 1 h ahead of the store's: set the clocks right");
        let told = apart("catalog", Some(now + day), now).expect("apart");
        assert_eq!(told, "this machine's clock is 1 d 1 h behind the catalog's: set the clocks right");
        assert!(apart("store", Some(i64::MIN), now).is_some());
    }
}
