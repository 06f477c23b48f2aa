//! The guard against guessing: how many bad keys came from one address in this minute.
//!
//! Past the limit an address is told to wait instead of being looked up, so that a flood of
//! invented keys costs merchants-svc nothing. Keys that were good a moment ago still pass.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chassis::clock::Timestamp;

use crate::client_address::network;

/// Addresses counted in one minute; more than that are let pass uncounted.
const ADDRESSES_MAX: usize = 100_000;

const SECONDS_PER_MINUTE: i64 = 60;

/// Counts failed keys per address and UTC minute of the host.
#[derive(Debug)]
pub struct FailedKeys {
    /// Failures that one address may have per minute; 0: as many as it likes.
    per_minute: u32,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    minute: i64,
    failures: HashMap<IpAddr, u32>,
}

impl FailedKeys {
    pub fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            window: Mutex::default(),
        }
    }

    /// Whether the address has used up its failures: how many seconds it has to wait.
    pub fn wait_seconds(&self, address: IpAddr, now: Timestamp) -> Option<u32> {
        if self.per_minute == 0 {
            return None;
        }
        let failures = self.window(now).failures.get(&network(address)).copied();
        let left = SECONDS_PER_MINUTE - now.unix_seconds().rem_euclid(SECONDS_PER_MINUTE);
        failures
            .filter(|failures| *failures >= self.per_minute)
            .and_then(|_| u32::try_from(left).ok())
    }

    pub fn count(&self, address: IpAddr, now: Timestamp) {
        if self.per_minute == 0 {
            return;
        }
        let mut window = self.window(now);
        let address = network(address);
        let is_full = window.failures.len() >= ADDRESSES_MAX;
        if is_full && !window.failures.contains_key(&address) {
            return;
        }
        let failures = window.failures.entry(address).or_default();
        *failures = failures.saturating_add(1);
    }

    /// The window of this minute.
    fn window(&self, now: Timestamp) -> MutexGuard<'_, Window> {
        // No code panics while it holds the lock.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = now.unix_seconds().div_euclid(SECONDS_PER_MINUTE);
        if window.minute != minute {
            window.minute = minute;
            window.failures.clear();
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    #[test]
    fn an_address_waits_for_the_minutes_end_once_its_failures_are_used_up() {
        let guard = FailedKeys::new(2);
        let now = at("2026-01-31T09:00:18.500Z");
        guard.count(address("192.0.2.1"), now);
        assert_eq!(guard.wait_seconds(address("192.0.2.1"), now), None);
        guard.count(address("::ffff:192.0.2.1"), now);
        assert_eq!(guard.wait_seconds(address("192.0.2.1"), now), Some(42));
        assert_eq!(guard.wait_seconds(address("192.0.2.2"), now), None);
        let next_minute = at("2026-01-31T09:01:00.000Z");
        assert_eq!(guard.wait_seconds(address("192.0.2.1"), next_minute), None);
    }

    #[test]
    fn zero_means_no_limit() {
        let guard = FailedKeys::new(0);
        let now = at("2026-01-31T09:00:18.500Z");
        guard.count(address("192.0.2.1"), now);
        assert_eq!(guard.wait_seconds(address("192.0.2.1"), now), None);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        assert_eq!(
            network(address("2001:db8::1")),
            network(address("2001:db8::ffff"))
        );
        assert_ne!(
            network(address("2001:db8::1")),
            network(address("2001:db8:0:1::1"))
        );
    }
}
