//! The table in this process: for the local stack, and while Redis is away.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use chassis::clock::Clock;

use crate::window::{Bucket, Decision, reset_seconds, window_of};

/// Counts of the current window. Older ones are dropped when a window begins, so the table holds
/// at most three entries for each merchant that is active in one minute.
#[derive(Debug)]
pub struct Table {
    clock: Clock,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    window: i64,
    by_bucket: HashMap<(String, Bucket), u32>,
}

impl Table {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            counts: Mutex::default(),
        }
    }

    /// Counts one request, unless the bucket is full.
    pub fn check(&self, merchant_id: &str, bucket: Bucket, limit: u32) -> Decision {
        // No code panics while it holds the lock.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that windows only ever go forward.
        let now_ms = self.clock.host_now().unix_millis();
        let window = window_of(now_ms);
        if counts.window != window {
            *counts = Counts {
                window,
                by_bucket: HashMap::new(),
            };
        }
        let count = counts
            .by_bucket
            .entry((merchant_id.to_owned(), bucket))
            .or_default();
        let allowed = *count < limit;
        if allowed {
            *count += 1;
        }
        Decision {
            allowed,
            remaining: limit.saturating_sub(*count),
            reset_seconds: reset_seconds(now_ms),
        }
    }
}
