//! Counts in fixed windows of time, within this process.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock::{Clock, Timestamp};

/// How often each key was counted in the current window. Earlier windows are forgotten.
#[derive(Debug)]
pub struct FixedWindow<K> {
    clock: Clock,
    length_ms: i64,
    keys_max: usize,
    counts: Mutex<Counts<K>>,
}

#[derive(Debug)]
struct Counts<K> {
    /// The number of the window, counted from 1970.
    window: i64,
    by_key: HashMap<K, u32>,
}

/// Whether one more may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub allowed: bool,
    /// How many more may pass in this window.
    pub remaining: u32,
    /// Whole seconds until the window ends, rounded up and at least 1: a request sent that many
    /// seconds later is in the next window.
    pub reset_seconds: u32,
}

impl<K: Eq + Hash> FixedWindow<K> {
    /// A window lasts at least a second and counts at most `keys_max` keys. Further keys pass
    /// uncounted.
    pub fn new(length: Duration, keys_max: usize, clock: Clock) -> Self {
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Self {
            clock,
            length_ms: length_ms.max(1_000),
            keys_max,
            counts: Mutex::new(Counts {
                window: 0,
                by_key: HashMap::new(),
            }),
        }
    }

    /// Counts one for each key that has a limit, unless any key has reached its own: then nothing
    /// is counted.
    pub fn take<const KEYS: usize>(&self, limited: [(K, Option<NonZeroU32>); KEYS]) -> Admission {
        let (mut counts, now) = self.current();
        let left = limited.iter().map(|(key, limit)| counts.left(key, *limit));
        let left = left.min().unwrap_or(u32::MAX);
        if left > 0 {
            for (key, _) in limited.into_iter().filter(|(_, limit)| limit.is_some()) {
                counts.add(key, self.keys_max);
            }
        }
        self.decision(left > 0, left.saturating_sub(1), now)
    }

    /// Whether this key may pass once more. Counts nothing.
    pub fn look(&self, key: &K, limit: Option<NonZeroU32>) -> Admission {
        let (counts, now) = self.current();
        let left = counts.left(key, limit);
        self.decision(left > 0, left, now)
    }

    /// Takes one count of each key back.
    pub fn give_back<const KEYS: usize>(&self, keys: [K; KEYS]) {
        let (mut counts, _) = self.current();
        for key in keys {
            if let Entry::Occupied(mut counted) = counts.by_key.entry(key) {
                *counted.get_mut() -= 1;
                // What nobody counts takes no place from others.
                if *counted.get() == 0 {
                    counted.remove();
                }
            }
        }
    }

    /// The current window's counts, and the time.
    fn current(&self) -> (MutexGuard<'_, Counts<K>>, Timestamp) {
        // No code panics while it holds the lock.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that a delayed caller does not bring an older window back.
        let now = self.clock.host_now();
        let window = now.unix_millis().div_euclid(self.length_ms);
        if counts.window != window {
            counts.window = window;
            counts.by_key = HashMap::new();
        }
        (counts, now)
    }

    fn decision(&self, allowed: bool, remaining: u32, now: Timestamp) -> Admission {
        let left_ms = self.length_ms - now.unix_millis().rem_euclid(self.length_ms);
        let left_seconds = u64::try_from(left_ms).unwrap_or(1).div_ceil(1_000);
        Admission {
            allowed,
            remaining,
            reset_seconds: u32::try_from(left_seconds).unwrap_or(u32::MAX),
        }
    }
}

impl<K: Eq + Hash> Counts<K> {
    fn left(&self, key: &K, limit: Option<NonZeroU32>) -> u32 {
        limit.map_or(u32::MAX, |limit| {
            let count = self.by_key.get(key).copied().unwrap_or_default();
            limit.get().saturating_sub(count)
        })
    }

    fn add(&mut self, key: K, keys_max: usize) {
        if self.by_key.len() >= keys_max && !self.by_key.contains_key(&key) {
            return;
        }
        let count = self.by_key.entry(key).or_default();
        *count = count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const ONE: Option<NonZeroU32> = NonZeroU32::new(1);
    const TWO: Option<NonZeroU32> = NonZeroU32::new(2);
    const THREE: Option<NonZeroU32> = NonZeroU32::new(3);

    /// A clock that stands still until it is stepped.
    fn clock(unix_ms: i64) -> Clock {
        let start = Timestamp::from_unix_millis(unix_ms).unwrap();
        Clock::simulated(start, 0, -1_000_000)
    }

    fn window(clock: &Clock) -> FixedWindow<&'static str> {
        FixedWindow::new(MINUTE, usize::MAX, clock.clone())
    }

    #[test]
    fn exactly_the_limit_passes_in_a_window() {
        let clock = clock(18_500);
        let window = window(&clock);
        let decision = |allowed, remaining, reset_seconds| Admission {
            allowed,
            remaining,
            reset_seconds,
        };
        assert_eq!(window.take([("a", TWO)]), decision(true, 1, 42));
        assert_eq!(window.look(&"a", TWO), decision(true, 1, 42));
        assert_eq!(window.take([("a", TWO)]), decision(true, 0, 42));
        assert_eq!(window.take([("a", TWO)]), decision(false, 0, 42));
        assert_eq!(window.look(&"a", TWO), decision(false, 0, 42));
        assert!(window.take([("b", TWO)]).allowed);
        clock.step_host(41_500);
        assert_eq!(window.take([("a", TWO)]), decision(true, 1, 60));
    }

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
            let clock = clock(now_ms);
            let window = window(&clock);
            assert!(window.take([("a", ONE)]).allowed);
            let told = window.take([("a", ONE)]);
            assert!(!told.allowed);
            assert!((1..=60).contains(&told.reset_seconds));
            let later_ms = now_ms + i64::from(told.reset_seconds) * 1_000;
            assert_eq!(later_ms / 60_000, now_ms / 60_000 + 1, "{now_ms}");
            clock.step_host(later_ms - now_ms);
            assert!(window.take([("a", ONE)]).allowed, "{now_ms}");
        }
    }

    #[test]
    fn all_keys_are_counted_or_none() {
        let window = window(&clock(0));
        assert!(window.take([("a", ONE), ("b", THREE)]).allowed);
        assert!(!window.take([("a", ONE), ("b", THREE)]).allowed);
        assert_eq!(window.look(&"b", THREE).remaining, 2);
    }

    #[test]
    fn what_was_given_back_does_not_count() {
        let window = window(&clock(0));
        for _ in 0..10 {
            assert!(window.take([("a", ONE)]).allowed);
            window.give_back(["a"]);
        }
    }

    #[test]
    fn a_key_without_a_limit_passes_uncounted() {
        let window = window(&clock(0));
        for _ in 0..3 {
            assert!(window.take([("a", None), ("b", THREE)]).allowed);
        }
        assert!(!window.take([("a", None), ("b", THREE)]).allowed);
        assert!(window.take([("a", ONE)]).allowed);
    }

    #[test]
    fn more_keys_than_are_counted_pass() {
        let window = FixedWindow::new(MINUTE, 1, clock(0));
        assert!(window.take([("counted", ONE)]).allowed);
        assert!(window.take([("beyond", ONE)]).allowed);
        assert!(window.take([("beyond", ONE)]).allowed);
        assert!(!window.take([("counted", ONE)]).allowed);
    }

    #[test]
    fn what_was_given_back_takes_no_place_from_others() {
        let window = FixedWindow::new(MINUTE, 1, clock(0));
        window.take([("given back", ONE)]);
        window.give_back(["given back"]);
        assert!(window.take([("counted", ONE)]).allowed);
        assert!(!window.take([("counted", ONE)]).allowed);
    }
}
