//! Which requests are counted together, and for how long (spec §8).

use std::time::Duration;

/// Length of a window.
pub const WINDOW: Duration = Duration::from_secs(60);

/// [`WINDOW`] in milliseconds.
pub const WINDOW_MS: i64 = 60_000;

chassis::closed_list! {
    /// The three buckets, as they are called in Redis and in metrics.
    pub enum Bucket: "a bucket" {
        Payments = "payments",
        Charge = "charge",
        ChargeStatus = "charge:status",
    }
}
