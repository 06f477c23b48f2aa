//! How often a rail is queried: a token bucket. Pure: time is an argument.
//!
//! Promise: no second sees more queries than the budget plus what was saved before it, which is at
//! most a tenth of the budget, or one query if that is more. The rest wait.

use std::{num::NonZeroU32, time::Duration};

use chassis::clock::Timestamp;

/// One token, in thousandths, so that a millisecond earns `per_second` of them.
const TOKEN: u64 = 1_000;

/// The queries that a rail may still be sent. Each costs one token.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    per_second: u64,
    saved: u64,
    as_of: Timestamp,
}

impl TokenBucket {
    pub fn new(per_second: NonZeroU32, now: Timestamp) -> Self {
        Self {
            per_second: per_second.get().into(),
            saved: TOKEN,
            as_of: now,
        }
    }

    /// How many queries may be made now.
    pub fn available(&mut self, now: Timestamp) -> u64 {
        let passed = now.since(self.as_of).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let earned = passed.saturating_mul(self.per_second);
        // A slow rail gets one query at a time. A clock that was set back earns nothing.
        let most = (self.per_second * TOKEN / 10).max(TOKEN);
        self.saved = self.saved.saturating_add(earned).min(most);
        self.as_of = now;
        self.saved / TOKEN
    }

    /// Spends the tokens of queries that are made.
    pub fn spend(&mut self, queries: u64) {
        self.saved = self.saved.saturating_sub(queries.saturating_mul(TOKEN));
    }

    /// Takes back tokens of queries that were not made after all.
    pub fn give_back(&mut self, queries: u64) {
        self.saved = self.saved.saturating_add(queries.saturating_mul(TOKEN));
    }

    /// When the next query may be made.
    pub fn next_at(&self) -> Timestamp {
        let missing = TOKEN.saturating_sub(self.saved);
        self.as_of + Duration::from_millis(missing.div_ceil(self.per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        "2026-01-31T09:00:00.000Z".parse().expect("a timestamp")
    }

    /// Makes every query as soon as it may be made, and returns when each was.
    fn spend_all(per_second: u32, length: Duration) -> Vec<Duration> {
        let rate = NonZeroU32::new(per_second).expect("more than none");
        let (mut now, mut made) = (start(), Vec::new());
        let mut bucket = TokenBucket::new(rate, now);
        while now.since(start()) < length {
            let available = bucket.available(now);
            bucket.spend(available);
            made.extend((0..available).map(|_| now.since(start())));
            now = bucket.next_at();
        }
        made
    }

    #[test]
    fn no_second_sees_more_than_the_budget_and_its_tenth() {
        for per_second in [1, 2, 3, 7, 10, 25, 300, 1_000, 5_000] {
            let made = spend_all(per_second, Duration::from_secs(5));
            let rate = usize::try_from(per_second).expect("small");
            let most = rate + (rate / 10).max(1);
            for (index, begin) in made.iter().enumerate() {
                let end = *begin + Duration::from_secs(1);
                let seen = made.iter().skip(index).take_while(|at| **at < end).count();
                assert!(seen <= most, "{per_second}: {seen}");
            }
            assert!(made.len() >= rate * 5 - 5, "{per_second}: {}", made.len());
        }
    }

    #[test]
    fn what_was_not_used_is_saved_for_a_moment_only() {
        let mut bucket = TokenBucket::new(NonZeroU32::new(40).expect("more than none"), start());
        assert_eq!(bucket.available(start()), 1);
        let later = start() + Duration::from_secs(86_400);
        assert_eq!(bucket.available(later), 4);
        bucket.spend(4);
        assert_eq!(bucket.available(later), 0);
        assert_eq!(bucket.next_at().since(later), Duration::from_millis(25));
    }

    #[test]
    fn a_clock_that_was_put_back_stops_nothing() {
        let now = start() + Duration::from_secs(3_600);
        let mut bucket = TokenBucket::new(NonZeroU32::new(10).expect("more than none"), now);
        bucket.spend(1);
        assert_eq!(bucket.available(start()), 0);
        assert_eq!(bucket.next_at().since(start()), Duration::from_millis(100));
    }
}
