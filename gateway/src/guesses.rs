//! The guard against guessing, of keys and of callbacks' addresses: it counts the wrong guesses of
//! each client address in a minute, and nothing else.
//!
//! Behind one address may sit many: a company's network, or, where TRUSTED_PROXIES is wrong, all
//! the world. So the guard never refuses a guess before it was looked up: that would refuse the
//! good ones of everybody else there. What a flood can cost is bounded otherwise. What has not the
//! form of a key or a token is never looked up. The rest is looked up, but past the limit in a
//! narrow queue that all such addresses share: a flood keeps [`LOOK_UPS_MAX`] look-ups busy and no
//! more, and a good guess among it waits its turn. The queue is fair and no longer than
//! REQUESTS_MAX, some hundred milliseconds while look-ups take one or two; only where they hang is
//! it given up as [`Error::NothingStarted`], like any call to a service that hangs. Keys that were
//! good a moment ago are not looked up, and so do not wait.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chassis::clock::{Clock, Timestamp};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{backend::DEADLINE, client_address::network, error::Error};

/// Addresses counted in one minute; more than that are let pass uncounted.
const ADDRESSES_MAX: usize = 100_000;

/// Look-ups at once for addresses past their limit.
const LOOK_UPS_MAX: usize = 4;

const SECONDS_PER_MINUTE: i64 = 60;

/// Counts wrong guesses per address and UTC minute of real time.
#[derive(Debug)]
pub struct Guesses {
    /// Wrong ones that one address may make per minute; 0: as many as it likes.
    per_minute: u32,
    clock: Clock,
    window: Mutex<Window>,
    narrow: Semaphore,
}

#[derive(Debug, Default)]
struct Window {
    minute: i64,
    wrong: HashMap<IpAddr, u32>,
}

impl Guesses {
    pub fn new(per_minute: u32, clock: Clock) -> Self {
        Self {
            per_minute,
            clock,
            window: Mutex::default(),
            narrow: Semaphore::new(LOOK_UPS_MAX),
        }
    }

    /// Lets a guess be looked up, at once or in its turn. Keep what it returns until that is done.
    ///
    /// # Errors
    /// [`Error::NothingStarted`]: its turn did not come in time.
    pub async fn enter(&self, address: IpAddr) -> Result<Option<SemaphorePermit<'_>>, Error> {
        if self.wait_seconds(address, self.clock.host_now()).is_none() {
            return Ok(None);
        }
        metrics::counter!("gateway_look_ups_queued_total").increment(1);
        let turn = tokio::time::timeout(DEADLINE, self.narrow.acquire());
        let turn = turn.await.map_err(|_| Error::NothingStarted)?;
        Ok(Some(turn.map_err(Error::internal)?))
    }

    /// Counts a wrong guess. Returns how it is answered: by `error`, or past the limit by the wait.
    pub fn refuse(&self, address: IpAddr, error: Error) -> Error {
        let now = self.clock.host_now();
        if let Some(retry_after_seconds) = self.wait_seconds(address, now) {
            return Error::TooManyGuesses {
                retry_after_seconds,
            };
        }
        self.count(address, now);
        error
    }

    /// Whether the address has used up its guesses: how many seconds it has to wait.
    fn wait_seconds(&self, address: IpAddr, now: Timestamp) -> Option<u32> {
        if self.per_minute == 0 {
            return None;
        }
        let wrong = self.window(now).wrong.get(&network(address)).copied();
        let left = SECONDS_PER_MINUTE - now.unix_seconds().rem_euclid(SECONDS_PER_MINUTE);
        wrong
            .filter(|wrong| *wrong >= self.per_minute)
            .and_then(|_| u32::try_from(left).ok())
    }

    fn count(&self, address: IpAddr, now: Timestamp) {
        if self.per_minute == 0 {
            return;
        }
        let mut window = self.window(now);
        let address = network(address);
        let is_full = window.wrong.len() >= ADDRESSES_MAX;
        if is_full && !window.wrong.contains_key(&address) {
            return;
        }
        let wrong = window.wrong.entry(address).or_default();
        *wrong = wrong.saturating_add(1);
    }

    /// The window of this minute.
    fn window(&self, now: Timestamp) -> MutexGuard<'_, Window> {
        // No code panics while it holds the lock.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = now.unix_seconds().div_euclid(SECONDS_PER_MINUTE);
        if window.minute != minute {
            window.minute = minute;
            window.wrong.clear();
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
    fn an_address_waits_for_the_minutes_end_once_its_guesses_are_used_up() {
        let guard = Guesses::new(2, Clock::system());
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
        let guard = Guesses::new(0, Clock::system());
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
