//! How often payers may try, so that nobody can be flooded with prompts.
//!
//! Fixed windows in this process: each replica of the gateway counts for itself, so that the real
//! limit is at most the configured one times the replicas. 0 switches a limit off.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use chassis::{clock::Timestamp, config::Refusals, ids::SessionId, phone::Phone};
use clap::Args;

use crate::{client_address::network, guesses::Limit};

/// Entries that one window holds; beyond them nothing new is counted.
const ENTRIES_MAX: usize = 100_000;

/// The settings.
#[derive(Clone, Copy, Debug, Args)]
pub struct AbuseLimits {
    /// Payments that may be tried for one session in a window; 0: any number. Each replica of the
    /// gateway counts for itself: of N replicas, up to N times as many pass.
    #[arg(long, env = "CHECKOUT_TRIES_PER_SESSION", default_value_t = 5)]
    pub checkout_tries_per_session: u32,

    /// Payments that may be tried from one client address in a window; 0: any number. Each
    /// replica counts for itself. Many, because a carrier's customers may all have one address:
    /// what one person may try is limited by session and by number.
    #[arg(long, env = "CHECKOUT_TRIES_PER_ADDRESS", default_value_t = 1000)]
    pub checkout_tries_per_address: u32,

    /// Payments that may be tried from one phone number in a window, at all merchants together;
    /// 0: any number. Each replica counts for itself.
    #[arg(long, env = "CHECKOUT_TRIES_PER_NUMBER", default_value_t = 3)]
    pub checkout_tries_per_number: u32,

    /// Addresses of payments that do not exist, which one client address may open in a window;
    /// 0: any number. Each replica counts for itself. Beyond it such an address is answered 429;
    /// payments that exist are shown all the same.
    #[arg(long, env = "CHECKOUT_UNKNOWN_PER_ADDRESS", default_value_t = 60)]
    pub checkout_unknown_per_address: u32,

    /// The length of these windows.
    #[arg(long, env = "CHECKOUT_LIMIT_WINDOW", default_value = "10m", value_parser = chassis::config::duration)]
    pub checkout_limit_window: Duration,
}

impl AbuseLimits {
    /// How many payments that do not exist an address may open.
    pub fn unknown(&self) -> Limit {
        Limit {
            most: self.checkout_unknown_per_address,
            window: self.checkout_limit_window,
        }
    }

    pub fn check(&self, refusals: &mut Refusals) {
        let limits = [
            (
                "CHECKOUT_TRIES_PER_SESSION",
                self.checkout_tries_per_session,
            ),
            (
                "CHECKOUT_TRIES_PER_ADDRESS",
                self.checkout_tries_per_address,
            ),
            ("CHECKOUT_TRIES_PER_NUMBER", self.checkout_tries_per_number),
            (
                "CHECKOUT_UNKNOWN_PER_ADDRESS",
                self.checkout_unknown_per_address,
            ),
        ];
        for (variable, limit) in limits {
            refusals.in_production(limit > 0, variable, "a limit");
        }
        let window = self.checkout_limit_window >= Duration::from_secs(1);
        refusals.unless(window, "CHECKOUT_LIMIT_WINDOW", "at least 1s");
    }
}

/// Who tries to pay what.
#[derive(Clone, Debug)]
pub struct Try {
    pub session: SessionId,
    pub address: IpAddr,
    pub number: Phone,
}

/// The counts of this process.
#[derive(Debug)]
pub struct Abuse {
    limits: AbuseLimits,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// Which window it is, counted from 1970.
    number: i64,
    sessions: HashMap<SessionId, u32>,
    addresses: HashMap<IpAddr, u32>,
    numbers: HashMap<String, u32>,
}

impl Abuse {
    pub fn new(limits: AbuseLimits) -> Self {
        Self {
            limits,
            window: Mutex::default(),
        }
    }

    /// Counts a try.
    ///
    /// # Errors
    /// The wait until the next window, where a limit is reached; then nothing is counted.
    pub fn take(&self, tried: &Try, now: Timestamp) -> Result<(), Duration> {
        let limits = &self.limits;
        let address = network(tried.address);
        self.with_window(now, |window| {
            let number = tried.number.as_e164().to_owned();
            let is_free = has_room(
                &window.sessions,
                &tried.session,
                limits.checkout_tries_per_session,
            ) && has_room(
                &window.addresses,
                &address,
                limits.checkout_tries_per_address,
            ) && has_room(&window.numbers, &number, limits.checkout_tries_per_number);
            if is_free {
                count(&mut window.sessions, tried.session);
                count(&mut window.addresses, address);
                count(&mut window.numbers, number);
            }
            is_free
        })
    }

    /// A try that sent nothing to anyone does not count.
    pub fn give_back(&self, tried: &Try, now: Timestamp) {
        let given_back = self.with_window(now, |window| {
            discount(&mut window.sessions, &tried.session);
            discount(&mut window.addresses, &network(tried.address));
            discount(&mut window.numbers, tried.number.as_e164());
            true
        });
        debug_assert!(given_back.is_ok());
    }

    /// Runs `decide` on the window of now; false becomes the wait until the next.
    fn with_window(
        &self,
        now: Timestamp,
        decide: impl FnOnce(&mut Window) -> bool,
    ) -> Result<(), Duration> {
        let length = i64::try_from(self.limits.checkout_limit_window.as_secs()).unwrap_or(i64::MAX);
        let length = length.max(1);
        // No code panics while it holds the lock.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let number = now.unix_seconds().div_euclid(length);
        if window.number != number {
            *window = Window {
                number,
                ..Window::default()
            };
        }
        if decide(&mut window) {
            return Ok(());
        }
        let left = length - now.unix_seconds().rem_euclid(length);
        Err(Duration::from_secs(u64::try_from(left).unwrap_or(1)))
    }
}

fn has_room<K: Eq + Hash>(counts: &HashMap<K, u32>, key: &K, most: u32) -> bool {
    most == 0 || counts.get(key).copied().unwrap_or_default() < most
}

fn count<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: K) {
    if counts.len() >= ENTRIES_MAX && !counts.contains_key(&key) {
        return;
    }
    let entry = counts.entry(key).or_default();
    *entry = entry.saturating_add(1);
}

fn discount<K, Q>(counts: &mut HashMap<K, u32>, key: &Q)
where
    K: Eq + Hash + std::borrow::Borrow<Q>,
    Q: Eq + Hash + ?Sized,
{
    if let Some(entry) = counts.get_mut(key) {
        *entry = entry.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    const LIMITS: AbuseLimits = AbuseLimits {
        checkout_tries_per_session: 5,
        checkout_tries_per_address: 10,
        checkout_tries_per_number: 3,
        checkout_unknown_per_address: 2,
        checkout_limit_window: Duration::from_secs(600),
    };

    #[derive(clap::Parser)]
    struct Defaults {
        #[command(flatten)]
        limits: AbuseLimits,
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_millis(seconds * 1_000).expect("a moment")
    }

    fn tried(session: SessionId, number: &str) -> Try {
        Try {
            session,
            address: "192.0.2.1".parse().expect("an address"),
            number: Phone::parse_ghana_mobile(number).expect("a number"),
        }
    }

    #[test]
    fn a_number_is_left_alone_after_three_tries_whatever_the_session() {
        let abuse = Abuse::new(LIMITS);
        for _ in 0..3 {
            assert_eq!(
                abuse.take(&tried(SessionId::new(), "0241234567"), at(1_200)),
                Ok(())
            );
        }
        let fourth = tried(SessionId::new(), "+233241234567");
        let wait = Duration::from_secs(600);
        assert_eq!(abuse.take(&fourth, at(1_200)), Err(wait));
        assert_eq!(
            abuse.take(&tried(SessionId::new(), "0241234568"), at(1_200)),
            Ok(())
        );
        assert_eq!(abuse.take(&fourth, at(1_800)), Ok(()), "in the next window");
    }

    #[test]
    fn sessions_and_addresses_have_their_limits() {
        let abuse = Abuse::new(LIMITS);
        let session = SessionId::new();
        let number = |n| format!("02412345{n:02}");
        for n in 0..5 {
            assert_eq!(abuse.take(&tried(session, &number(n)), at(0)), Ok(()));
        }
        assert!(abuse.take(&tried(session, &number(5)), at(0)).is_err());
        for n in 5..10 {
            assert_eq!(
                abuse.take(&tried(SessionId::new(), &number(n)), at(0)),
                Ok(())
            );
        }
        assert!(
            abuse
                .take(&tried(SessionId::new(), &number(10)), at(0))
                .is_err()
        );
    }

    #[test]
    fn what_one_person_tries_stops_nobody_else_at_the_address() {
        let abuse = Abuse::new(Defaults::parse_from(["test"]).limits);
        let mut tries = 0;
        for number in 0..20 {
            let session = SessionId::new();
            let number = format!("02412345{number:02}");
            while abuse.take(&tried(session, &number), at(0)).is_ok() {
                tries += 1;
            }
        }
        assert_eq!(tries, 20 * 3, "each number is prompted three times");
        assert_eq!(
            abuse.take(&tried(SessionId::new(), "0209999999"), at(0)),
            Ok(())
        );
    }

    #[test]
    fn what_was_given_back_does_not_count() {
        let abuse = Abuse::new(LIMITS);
        let tried = tried(SessionId::new(), "0241234567");
        for _ in 0..10 {
            assert_eq!(abuse.take(&tried, at(0)), Ok(()));
            abuse.give_back(&tried, at(0));
        }
    }

    #[test]
    fn one_user_of_ipv6_is_one_address() {
        let abuse = Abuse::new(LIMITS);
        let address = |n: u32| format!("2001:db8::{n:x}").parse().expect("an address");
        for n in 0..10 {
            let mut tried = tried(SessionId::new(), &format!("02412345{n:02}"));
            tried.address = address(n);
            assert_eq!(abuse.take(&tried, at(0)), Ok(()));
        }
        let mut eleventh = tried(SessionId::new(), "0241234599");
        eleventh.address = address(99);
        assert!(abuse.take(&eleventh, at(0)).is_err());
    }
}
