//! Fixed windows: which one a moment falls into and when it ends. Pure.

use std::time::Duration;

/// Length of a window (spec §8).
pub const WINDOW: Duration = Duration::from_secs(60);

/// [`WINDOW`] in milliseconds.
pub const WINDOW_MS: i64 = 60_000;

/// What the three buckets of spec §8 are called, in Redis and in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    Payments,
    Charge,
    ChargeStatus,
}

impl Bucket {
    pub fn name(self) -> &'static str {
        match self {
            Self::Payments => "payments",
            Self::Charge => "charge",
            Self::ChargeStatus => "charge:status",
        }
    }
}

/// What a count decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Requests left in this window.
    pub remaining: u32,
    /// Whole seconds until the window ends, rounded up, at least 1.
    pub reset_seconds: u32,
}

/// The number of the window that holds this moment (milliseconds since 1970).
pub fn window_of(now_ms: i64) -> i64 {
    now_ms.div_euclid(WINDOW_MS)
}

/// Whole seconds from this moment to its window's end, rounded up: a request sent that many seconds
/// later is in the next window.
pub fn reset_seconds(now_ms: i64) -> u32 {
    let left_ms = WINDOW_MS - now_ms.rem_euclid(WINDOW_MS);
    u32::try_from((left_ms + 999) / 1_000).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_the_told_seconds_is_in_the_next_window() {
        for now_ms in [
            0,
            1,
            999,
            1_000,
            59_000,
            59_001,
            59_999,
            60_000,
            1_700_000_012_345,
        ] {
            let later_ms = now_ms + i64::from(reset_seconds(now_ms)) * 1_000;
            assert_eq!(window_of(later_ms), window_of(now_ms) + 1, "{now_ms}");
            assert!((1..=60).contains(&reset_seconds(now_ms)));
        }
    }
}
