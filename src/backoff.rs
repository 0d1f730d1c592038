//! Waits between tries.

use std::time::Duration;

/// The wait after so many `doublings` of the first one, at most the longest.
pub fn doubled(first: Duration, longest: Duration, doublings: u32) -> Duration {
    first.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(longest)
}
