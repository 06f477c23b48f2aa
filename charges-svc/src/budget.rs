//! How often a rail is asked. Pure: time is an argument.
//!
//! Promise: a second sees no more queries than the budget, and those that were saved up before it,
//! a tenth of the budget at most. What exceeds it waits.

use std::{num::NonZeroU32, time::Duration};

use chassis::clock::Timestamp;

/// What one query costs; a millisecond earns as much as the queries of a second.
const QUERY: u64 = 1_000;

/// Queries that one rail may still be asked.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    per_second: u64,
    saved: u64,
    as_of: Timestamp,
}

impl Budget {
    pub fn new(per_second: NonZeroU32, now: Timestamp) -> Self {
        Self {
            per_second: per_second.get().into(),
            saved: QUERY,
            as_of: now,
        }
    }

    /// How many queries may be made now.
    pub fn room(&mut self, now: Timestamp) -> u64 {
        let passed = now.since(self.as_of).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let earned = passed.saturating_mul(self.per_second);
        // A slow rail is asked one at a time; a clock that was put back earns nothing.
        let most = (self.per_second * QUERY / 10).max(QUERY);
        self.saved = self.saved.saturating_add(earned).min(most);
        self.as_of = now;
        self.saved / QUERY
    }

    /// They are made.
    pub fn spend(&mut self, queries: u64) {
        self.saved = self.saved.saturating_sub(queries.saturating_mul(QUERY));
    }

    /// When the next query may be made.
    pub fn next(&self) -> Timestamp {
        let missing = QUERY.saturating_sub(self.saved);
        self.as_of + Duration::from_millis(missing.div_ceil(self.per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        "2026-01-31T09:00:00.000Z".parse().expect("a timestamp")
    }

    /// Makes every query that may be made from the start on; returns when.
    fn spend_all(per_second: u32, length: Duration) -> Vec<Duration> {
        let rate = NonZeroU32::new(per_second).expect("more than none");
        let (mut now, mut made) = (start(), Vec::new());
        let mut budget = Budget::new(rate, now);
        while now.since(start()) < length {
            let room = budget.room(now);
            budget.spend(room);
            made.extend((0..room).map(|_| now.since(start())));
            now = budget.next();
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
        let mut budget = Budget::new(NonZeroU32::new(40).expect("more than none"), start());
        assert_eq!(budget.room(start()), 1);
        let later = start() + Duration::from_secs(86_400);
        assert_eq!(budget.room(later), 4);
        budget.spend(4);
        assert_eq!(budget.room(later), 0);
        assert_eq!(budget.next().since(later), Duration::from_millis(25));
    }

    #[test]
    fn a_clock_that_was_put_back_stops_nothing() {
        let now = start() + Duration::from_secs(3_600);
        let mut budget = Budget::new(NonZeroU32::new(10).expect("more than none"), now);
        budget.spend(1);
        assert_eq!(budget.room(start()), 0);
        assert_eq!(budget.next().since(start()), Duration::from_millis(100));
    }
}
