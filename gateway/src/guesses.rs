//! The guard against guessing API keys, callbacks' addresses and payments. It counts the wrong
//! guesses of each client address, and nothing else.
//!
//! Many clients may share one address: those of a carrier's or a company's network or, if
//! TRUSTED_PROXIES is wrong, the whole world. So wrong guesses of others at an address are no
//! reason to refuse a guess; the cost of a flood is bounded in other ways. Whatever does not have
//! the form of a key, a token or an id is never looked up. The rest is looked up, but past the
//! limit through a narrow queue that all such addresses share: a flood keeps [`LOOK_UPS_MAX`]
//! look-ups busy and no more. The queue is fair, and short so that it holds few of the places for
//! requests: a guess that finds no place in it is told to wait, without a look-up. A guess that was
//! right within the last hour bypasses it.

mod right;

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    net::IpAddr,
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use chassis::{clock::Clock, fixed_window::FixedWindow};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    backend::DEADLINE,
    client_address::network,
    error::Error,
    room::{RequestPlace, Room},
};
use right::RightGuesses;

/// Most addresses counted in one window; any more pass uncounted.
const ADDRESSES_MAX: usize = 100_000;

/// Most concurrent look-ups for addresses past their limit.
const LOOK_UPS_MAX: usize = 4;

/// Most guesses in the queue, including those being looked up. They are also at most 1/`LINE_SHARE`
/// of the requests that may run.
const LINE_MAX: usize = 128;
const LINE_SHARE: usize = 8;

/// One address may take 1/`ADDRESS_SHARE` of the queue.
const ADDRESS_SHARE: usize = 4;

/// How many wrong guesses one address may make in a window of real time.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// `None`: any number.
    pub most: Option<NonZeroU32>,
    pub window: Duration,
}

impl Limit {
    /// 0 means any number.
    pub fn per_minute(most: u32) -> Self {
        Self {
            most: NonZeroU32::new(most),
            window: Duration::from_secs(60),
        }
    }
}

/// Counts wrong guesses per address and window.
#[derive(Debug)]
pub struct Guesses {
    most: Option<NonZeroU32>,
    wrong: FixedWindow<IpAddr>,
    line: Arc<Room>,
    narrow: Semaphore,
    right: RightGuesses,
    hasher: RandomState,
}

impl Guesses {
    /// `requests_max`: how many requests may run at once at the public address that it guards.
    pub fn new(limit: Limit, requests_max: usize, clock: Clock) -> Self {
        let line_max = (requests_max / LINE_SHARE).clamp(1, LINE_MAX);
        Self {
            most: limit.most,
            wrong: FixedWindow::new(limit.window, ADDRESSES_MAX, clock),
            line: Arc::new(Room::new(line_max, line_max.div_ceil(ADDRESS_SHARE))),
            narrow: Semaphore::new(LOOK_UPS_MAX),
            right: RightGuesses::default(),
            hasher: RandomState::new(),
        }
    }

    /// Looks a guess up, at once or after waiting in the queue.
    ///
    /// # Errors
    /// Those of the look-up; [`Error::TooManyGuesses`] if the queue is full;
    /// [`Error::NothingStarted`] if its turn did not come in time.
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
            Ok(_) => self.right.remember(guess),
            Err(error) if error.status().is_client_error() => self.right.forget(guess),
            Err(_) => {}
        }
        found
    }

    /// Waits in the queue if the address is past its limit. Hold the result until the look-up is
    /// done.
    async fn turn(
        &self,
        address: IpAddr,
        guess: u64,
    ) -> Result<Option<(Arc<RequestPlace>, SemaphorePermit<'_>)>, Error> {
        let decision = self.wrong.look(&network(address), self.most);
        if decision.allowed || self.right.contains(guess) {
            return Ok(None);
        }
        let place = self.line.enter(address).ok_or(Error::TooManyGuesses {
            retry_after_seconds: decision.reset_seconds,
        })?;
        metrics::counter!("gateway_look_ups_queued_total").increment(1);
        let turn = tokio::time::timeout(DEADLINE, self.narrow.acquire());
        let turn = turn.await.map_err(|_| Error::NothingStarted)?;
        Ok(Some((place, turn.map_err(Error::internal)?)))
    }

    /// Counts a wrong guess. Returns `error`, or past the limit how long to wait.
    pub fn refuse(&self, address: IpAddr, error: Error) -> Error {
        let decision = self.wrong.take([(network(address), self.most)]);
        if decision.allowed {
            return error;
        }
        Error::TooManyGuesses {
            retry_after_seconds: decision.reset_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// A guard and its clock, which stands still until it is stepped.
    fn guard_of(per_minute: u32) -> (Guesses, Clock) {
        let start = "2026-01-31T09:00:18.500Z".parse().expect("a timestamp");
        let clock = Clock::simulated(start, 0, -1_000_000);
        let limit = Limit::per_minute(per_minute);
        (Guesses::new(limit, 1_024, clock.clone()), clock)
    }

    /// How long a wrong guess is told to wait.
    fn wait_after_a_guess(guard: &Guesses, from: &str) -> Option<u32> {
        match guard.refuse(address(from), Error::InvalidApiKey) {
            Error::TooManyGuesses {
                retry_after_seconds,
            } => Some(retry_after_seconds),
            _ => None,
        }
    }

    #[test]
    fn an_address_waits_for_the_minutes_end_once_its_guesses_are_used_up() {
        let (guard, clock) = guard_of(2);
        assert_eq!(wait_after_a_guess(&guard, "192.0.2.1"), None);
        assert_eq!(wait_after_a_guess(&guard, "::ffff:192.0.2.1"), None);
        assert_eq!(wait_after_a_guess(&guard, "192.0.2.1"), Some(42));
        assert_eq!(wait_after_a_guess(&guard, "192.0.2.2"), None);
        clock.step_host(41_500);
        assert_eq!(wait_after_a_guess(&guard, "192.0.2.1"), None);
    }

    #[test]
    fn zero_means_no_limit() {
        let (guard, _) = guard_of(0);
        for _ in 0..3 {
            assert_eq!(wait_after_a_guess(&guard, "192.0.2.1"), None);
        }
    }
}
