//! The guard against guessing, of keys, of callbacks' addresses and of payments: it counts the wrong
//! guesses of each client address, and nothing else.
//!
//! Behind one address may sit many: a carrier's or a company's network, or, where TRUSTED_PROXIES is
//! wrong, all the world. So the guard never refuses a guess for what others at its address guessed
//! wrong. What a flood can cost is bounded otherwise. What has not the form of a key, a token or an
//! id is never looked up. The rest is looked up, but past the limit in a narrow line that all such
//! addresses share: a flood keeps [`LOOK_UPS_MAX`] look-ups busy and no more. The line is fair and
//! short, so that it holds few of the places for requests: who finds no place in it is told to wait,
//! unseen. What was right within the last hour passes it by.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, RandomState},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chassis::clock::{Clock, Timestamp};
use moka::future::Cache;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    backend::DEADLINE,
    client_address::network,
    error::Error,
    room::{Place, Room},
};

/// Addresses counted in one window; more than that are let pass uncounted.
const ADDRESSES_MAX: usize = 100_000;

/// Look-ups at once for addresses past their limit.
const LOOK_UPS_MAX: usize = 4;

/// Guesses in the line, those that are looked up included, and the part of the requests that may
/// run which they are at most.
const LINE_MAX: usize = 128;
const LINE_SHARE: usize = 8;

/// The part of the line that one address may have.
const ADDRESS_SHARE: usize = 4;

/// How long, and how many, right guesses are remembered.
const RIGHT_FOR: Duration = Duration::from_secs(60 * 60);
const RIGHT_MAX: u64 = 100_000;

/// How many wrong guesses one address may make in a window of real time; 0: as many as it likes.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub most: u32,
    pub window: Duration,
}

impl Limit {
    pub fn per_minute(most: u32) -> Self {
        Self {
            most,
            window: Duration::from_secs(60),
        }
    }

    fn window_seconds(&self) -> i64 {
        let seconds = i64::try_from(self.window.as_secs());
        seconds.unwrap_or(i64::MAX).max(1)
    }
}

/// Counts wrong guesses per address and window.
#[derive(Debug)]
pub struct Guesses {
    limit: Limit,
    clock: Clock,
    window: Mutex<Window>,
    line: Arc<Room>,
    narrow: Semaphore,
    /// Hashes of guesses.
    right: Cache<u64, ()>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Window {
    /// Which it is, counted from 1970.
    number: i64,
    wrong: HashMap<IpAddr, u32>,
}

impl Guesses {
    /// For an address where so many requests may run at once.
    pub fn new(limit: Limit, requests_max: usize, clock: Clock) -> Self {
        let line_max = (requests_max / LINE_SHARE).clamp(1, LINE_MAX);
        Self {
            limit,
            clock,
            window: Mutex::default(),
            line: Arc::new(Room::new(line_max, line_max.div_ceil(ADDRESS_SHARE))),
            narrow: Semaphore::new(LOOK_UPS_MAX),
            right: Cache::builder()
                .max_capacity(RIGHT_MAX)
                .time_to_live(RIGHT_FOR)
                .build(),
            hasher: RandomState::new(),
        }
    }

    /// Looks a guess up, at once or in its turn.
    ///
    /// # Errors
    /// Those of the look-up; [`Error::TooManyGuesses`]: the line is full;
    /// [`Error::NothingStarted`]: its turn did not come in time.
    pub async fn look_up<T>(
        &self,
        address: IpAddr,
        guess: impl Hash,
        look_up: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let guess = self.hasher.hash_one(guess);
        let _turn = self.turn(address, guess).await?;
        let found = look_up.await;
        match &found {
            Ok(_) => self.right.insert(guess, ()).await,
            Err(error) if error.status().is_client_error() => self.right.invalidate(&guess).await,
            Err(_) => {}
        }
        found
    }

    /// Waits in the line where that is to be. Keep what it returns until the look-up is done.
    async fn turn(
        &self,
        address: IpAddr,
        guess: u64,
    ) -> Result<Option<(Arc<Place>, SemaphorePermit<'_>)>, Error> {
        let wait = self.wait_seconds(address, self.clock.host_now());
        let Some(retry_after_seconds) = wait.filter(|_| !self.right.contains_key(&guess)) else {
            return Ok(None);
        };
        let place = self.line.enter(address).ok_or(Error::TooManyGuesses {
            retry_after_seconds,
        })?;
        metrics::counter!("gateway_look_ups_queued_total").increment(1);
        let turn = tokio::time::timeout(DEADLINE, self.narrow.acquire());
        let turn = turn.await.map_err(|_| Error::NothingStarted)?;
        Ok(Some((place, turn.map_err(Error::internal)?)))
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
        if self.limit.most == 0 {
            return None;
        }
        let wrong = self.window(now).wrong.get(&network(address)).copied();
        let length = self.limit.window_seconds();
        let left = length - now.unix_seconds().rem_euclid(length);
        wrong
            .filter(|wrong| *wrong >= self.limit.most)
            .map(|_| u32::try_from(left).unwrap_or(u32::MAX))
    }

    fn count(&self, address: IpAddr, now: Timestamp) {
        if self.limit.most == 0 {
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

    /// The window of now.
    fn window(&self, now: Timestamp) -> MutexGuard<'_, Window> {
        // No code panics while it holds the lock.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let number = now.unix_seconds().div_euclid(self.limit.window_seconds());
        if window.number != number {
            window.number = number;
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

    fn guard_of(per_minute: u32) -> Guesses {
        Guesses::new(Limit::per_minute(per_minute), 1_024, Clock::system())
    }

    #[test]
    fn an_address_waits_for_the_minutes_end_once_its_guesses_are_used_up() {
        let guard = guard_of(2);
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
        let guard = guard_of(0);
        let now = at("2026-01-31T09:00:18.500Z");
        guard.count(address("192.0.2.1"), now);
        assert_eq!(guard.wait_seconds(address("192.0.2.1"), now), None);
    }
}
