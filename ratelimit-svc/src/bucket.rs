//! What is counted together, and for how long (spec §8).

use std::time::Duration;

/// Length of a window.
pub const WINDOW: Duration = Duration::from_secs(60);

/// [`WINDOW`] in milliseconds.
pub const WINDOW_MS: i64 = 60_000;

/// What the three buckets are called, in Redis and in metrics.
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
