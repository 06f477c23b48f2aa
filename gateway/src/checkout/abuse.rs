//! Limits how often payers may try, so that nobody can be flooded with prompts.
//!
//! Fixed windows in this process. Each replica of the gateway counts for itself, so the real limit
//! is at most the configured one times the number of replicas. 0 switches a limit off.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use chassis::{
    clock::Clock, config::Refusals, fixed_window::FixedWindow, ids::SessionId, phone::Phone,
};
use clap::Args;

use crate::{client_address::network, guesses::Limit};

/// Most sessions, addresses and numbers counted in one window; any more pass uncounted.
const SUBJECTS_MAX: usize = 300_000;

/// The settings.
#[derive(Clone, Copy, Debug, Args)]
pub struct AbuseLimits {
    /// Most tries to pay for one session in a window; 0 is no limit. Each replica of the gateway
    /// counts for itself, so N replicas let up to N times as many pass.
    #[arg(long, env = "CHECKOUT_TRIES_PER_SESSION", default_value_t = 5)]
    checkout_tries_per_session: u32,

    /// Most tries to pay from one client address in a window; 0 is no limit. Each replica counts
    /// for itself. High, because a carrier's customers may all share one address: the limits per
    /// session and per number hold back one person.
    #[arg(long, env = "CHECKOUT_TRIES_PER_ADDRESS", default_value_t = 1000)]
    checkout_tries_per_address: u32,

    /// Most tries to pay with one phone number in a window, at all merchants together; 0 is no
    /// limit. Each replica counts for itself.
    #[arg(long, env = "CHECKOUT_TRIES_PER_NUMBER", default_value_t = 3)]
    checkout_tries_per_number: u32,

    /// Most links to payments that do not exist that one client address may open in a window; 0 is
    /// no limit. Each replica counts for itself. Any more get 429; payments that exist are still
    /// shown.
    #[arg(long, env = "CHECKOUT_UNKNOWN_PER_ADDRESS", default_value_t = 60)]
    checkout_unknown_per_address: u32,

    /// How long these windows are.
    #[arg(long, env = "CHECKOUT_LIMIT_WINDOW", default_value = "10m", value_parser = chassis::config::duration)]
    checkout_limit_window: Duration,
}

impl AbuseLimits {
    /// How many addresses of nonexistent payments one client address may open.
    pub fn unknown(&self) -> Limit {
        Limit {
            most: NonZeroU32::new(self.checkout_unknown_per_address),
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

/// A try to pay, by what identifies it.
#[derive(Clone, Debug)]
pub struct PaymentTry {
    pub session: SessionId,
    pub address: IpAddr,
    pub number: Phone,
}

/// What tries are counted by.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Subject {
    Session(SessionId),
    Address(IpAddr),
    Number(Phone),
}

/// This process's counts of tries.
#[derive(Debug)]
pub struct Abuse {
    limits: AbuseLimits,
    window: FixedWindow<Subject>,
}

impl Abuse {
    pub fn new(limits: AbuseLimits, clock: Clock) -> Self {
        Self {
            limits,
            window: FixedWindow::new(limits.checkout_limit_window, SUBJECTS_MAX, clock),
        }
    }

    /// Counts a try.
    ///
    /// # Errors
    /// The wait until the next window if a limit is reached. Then nothing is counted.
    pub fn take(&self, tried: &PaymentTry) -> Result<(), Duration> {
        let [session, address, number] = subjects(tried);
        let decision = self.window.take([
            (
                session,
                NonZeroU32::new(self.limits.checkout_tries_per_session),
            ),
            (
                address,
                NonZeroU32::new(self.limits.checkout_tries_per_address),
            ),
            (
                number,
                NonZeroU32::new(self.limits.checkout_tries_per_number),
            ),
        ]);
        let wait = Duration::from_secs(decision.reset_seconds.into());
        if decision.allowed { Ok(()) } else { Err(wait) }
    }

    /// Uncounts a try that sent nothing to anyone.
    pub fn give_back(&self, tried: &PaymentTry) {
        self.window.give_back(subjects(tried));
    }
}

fn subjects(tried: &PaymentTry) -> [Subject; 3] {
    [
        Subject::Session(tried.session),
        Subject::Address(network(tried.address)),
        Subject::Number(tried.number.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use chassis::clock::Timestamp;
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

    /// A clock that stands still at the start of a window until it is stepped.
    fn clock() -> Clock {
        let start = Timestamp::from_unix_millis(1_200_000).expect("a moment");
        Clock::simulated(start, 0, -1_000_000)
    }

    fn abuse() -> Abuse {
        Abuse::new(LIMITS, clock())
    }

    fn tried(session: SessionId, number: &str) -> PaymentTry {
        PaymentTry {
            session,
            address: "192.0.2.1".parse().expect("an address"),
            number: Phone::parse_ghana_mobile(number).expect("a number"),
        }
    }

    #[test]
    fn a_number_is_left_alone_after_three_tries_whatever_the_session() {
        let clock = clock();
        let abuse = Abuse::new(LIMITS, clock.clone());
        for _ in 0..3 {
            assert_eq!(abuse.take(&tried(SessionId::new(), "0241234567")), Ok(()));
        }
        let fourth = tried(SessionId::new(), "+233241234567");
        let wait = Duration::from_secs(600);
        assert_eq!(abuse.take(&fourth), Err(wait));
        assert_eq!(abuse.take(&tried(SessionId::new(), "0241234568")), Ok(()));
        clock.step_host(600_000);
        assert_eq!(abuse.take(&fourth), Ok(()), "in the next window");
    }

    #[test]
    fn sessions_and_addresses_have_their_limits() {
        let abuse = abuse();
        let session = SessionId::new();
        let number = |n| format!("02412345{n:02}");
        for n in 0..5 {
            assert_eq!(abuse.take(&tried(session, &number(n))), Ok(()));
        }
        assert!(abuse.take(&tried(session, &number(5))).is_err());
        for n in 5..10 {
            assert_eq!(abuse.take(&tried(SessionId::new(), &number(n))), Ok(()));
        }
        assert!(abuse.take(&tried(SessionId::new(), &number(10))).is_err());
    }

    #[test]
    fn what_one_person_tries_stops_nobody_else_at_the_address() {
        let abuse = Abuse::new(Defaults::parse_from(["test"]).limits, clock());
        let mut tries = 0;
        for number in 0..20 {
            let session = SessionId::new();
            let number = format!("02412345{number:02}");
            while abuse.take(&tried(session, &number)).is_ok() {
                tries += 1;
            }
        }
        assert_eq!(tries, 20 * 3, "each number is prompted three times");
        assert_eq!(abuse.take(&tried(SessionId::new(), "0209999999")), Ok(()));
    }

    #[test]
    fn what_was_given_back_does_not_count() {
        let abuse = abuse();
        let tried = tried(SessionId::new(), "0241234567");
        for _ in 0..10 {
            assert_eq!(abuse.take(&tried), Ok(()));
            abuse.give_back(&tried);
        }
    }

    #[test]
    fn one_user_of_ipv6_is_one_address() {
        let abuse = abuse();
        let address = |n: u32| format!("2001:db8::{n:x}").parse().expect("an address");
        for n in 0..10 {
            let mut tried = tried(SessionId::new(), &format!("02412345{n:02}"));
            tried.address = address(n);
            assert_eq!(abuse.take(&tried), Ok(()));
        }
        let mut eleventh = tried(SessionId::new(), "0241234599");
        eleventh.address = address(99);
        assert!(abuse.take(&eleventh).is_err());
    }
}
