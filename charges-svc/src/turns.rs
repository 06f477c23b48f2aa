//! Whose turn it is to query a rail: its reconciler's, which asks about what waits in the store, or
//! a callback's, which may be asked about as soon as it is recorded.
//!
//! Promise: both together keep to the rail's budget. While charges wait for their turn, a callback
//! waits with them, and the reconciler takes the most overdue first: of callbacks, then of the
//! schedule.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chassis::clock::{Clock, Timestamp};
use rails::{RailName, Rails};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    budget::TokenBucket,
    charge::{Claim, Lease},
};

/// Most concurrent queries of one rail for callbacks, beside the reconciler's own; the budget bounds
/// how many there are in a second. A callback beyond them has its charge written twice more, and so
/// have those after it until the reconciler has caught up. So it is twice what admission lets a process
/// have in hand.
const CALLED_BACK_MAX: usize = 512;

/// Most looks at wallets at one rail at once. They have places of their own.
const LOOKS_MAX: usize = 16;

/// The turns at every rail.
#[derive(Clone, Debug)]
pub struct Turns(Vec<Arc<RailTurns>>);

/// The turns at one rail.
#[derive(Debug)]
pub struct RailTurns {
    rail: RailName,
    clock: Clock,
    places: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    budget: Mutex<Budget>,
}

#[derive(Debug)]
struct Budget {
    tokens: TokenBucket,
    /// Whether charges may wait for their turn in the store.
    is_behind: bool,
    /// Callbacks that are left to the reconciler although the budget had room. An estimate: the
    /// reconciler also asks about other charges, and other processes' ask about these.
    waiting: usize,
}

/// The turn to ask the rail once, for a callback or a look at a wallet. Once it is dropped its place
/// is free again, and so is its part of the budget unless it was [used](Turn::using).
#[derive(Debug)]
pub struct Turn {
    turns: Arc<RailTurns>,
    is_used: bool,
    _place: OwnedSemaphorePermit,
}

impl Turn {
    /// Queries the rail.
    pub async fn using<T>(mut self, query: impl Future<Output = T>) -> T {
        self.is_used = true;
        query.await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_used {
            self.turns.budget().tokens.give_back(1);
        }
    }
}

impl Turns {
    pub fn new(rails: &Rails, clock: &Clock) -> Self {
        let each = rails
            .each()
            .map(|rail| RailTurns::new(rail.name, rail.queries_per_second, clock))
            .map(Arc::new);
        Self(each.collect())
    }

    pub fn each(&self) -> impl Iterator<Item = &RailTurns> {
        self.0.iter().map(Arc::as_ref)
    }

    pub fn at(&self, rail: RailName) -> &Arc<RailTurns> {
        let turns = self.0.iter().find(|turns| turns.rail == rail);
        turns.expect("there is one of each rail")
    }
}

impl RailTurns {
    fn new(rail: RailName, per_second: NonZeroU32, clock: &Clock) -> Self {
        let tokens = TokenBucket::new(per_second, clock.now());
        Self {
            rail,
            clock: clock.clone(),
            places: Arc::new(Semaphore::new(CALLED_BACK_MAX)),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            budget: Mutex::new(Budget {
                tokens,
                is_behind: false,
                waiting: 0,
            }),
        }
    }

    pub fn rail(&self) -> RailName {
        self.rail
    }

    /// How many callbacks have their turn: they are being asked about, and what follows is written.
    pub fn called_back(&self) -> usize {
        CALLED_BACK_MAX - self.places.available_permits()
    }

    /// How many callbacks wait for this process, and not for the budget.
    pub fn waiting(&self) -> usize {
        self.budget().waiting
    }

    /// A turn to query the rail, by this lease, about a charge that it has just called back about.
    /// `None` if somebody else holds the charge, or others wait for their turn.
    pub fn take(self: &Arc<Self>, held: Claim, lease: Lease) -> Option<Turn> {
        let now = self.clock.real_now();
        let is_free = held.lease_until.is_none_or(|until| until <= now);
        // An earlier try has taken it, and the answer to its commit was lost.
        let is_ours = held.fence == Some(lease.fence);
        if !is_free && !is_ours {
            return None;
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let mut budget = self.budget();
        let has_token = budget.tokens.available(self.clock.now()) > 0;
        match place {
            Ok(place) if has_token && !budget.is_behind => {
                budget.tokens.spend(1);
                Some(Turn {
                    turns: Arc::clone(self),
                    is_used: false,
                    _place: place,
                })
            }
            Ok(_) | Err(_) => {
                // The reconciler finds it.
                budget.is_behind = true;
                None
            }
        }
    }

    /// A turn to look at a wallet. `None` if there is no room for it, or others wait for their turn.
    pub fn take_look(self: &Arc<Self>) -> Option<Turn> {
        let place = Arc::clone(&self.looks).try_acquire_owned().ok()?;
        let mut budget = self.budget();
        let has_token = budget.tokens.available(self.clock.now()) > 0;
        if !has_token || budget.is_behind {
            return None;
        }
        budget.tokens.spend(1);
        Some(Turn {
            turns: Arc::clone(self),
            is_used: false,
            _place: place,
        })
    }

    /// A callback is recorded and left to the reconciler.
    pub fn leave(&self) {
        let mut budget = self.budget();
        let has_token = budget.tokens.available(self.clock.now()) > 0;
        budget.waiting += usize::from(has_token);
    }

    /// Up to `most` turns, for the reconciler.
    pub fn take_many(&self, most: u64) -> u64 {
        let mut budget = self.budget();
        let taken = budget.tokens.available(self.clock.now()).min(most);
        budget.tokens.spend(taken);
        budget.is_behind |= taken == 0;
        taken
    }

    /// The reconciler has looked for what is due: it took `taken` turns and used `used`.
    /// `is_behind`: more may be due.
    pub fn looked(&self, taken: u64, used: u64, is_behind: bool) {
        let mut budget = self.budget();
        budget.tokens.give_back(taken.saturating_sub(used));
        budget.is_behind = is_behind;
        let used = usize::try_from(used).unwrap_or(usize::MAX);
        let waiting = budget.waiting.saturating_sub(used);
        budget.waiting = if is_behind { waiting } else { 0 };
    }

    /// The reconciler could not look: nobody knows what is due.
    pub fn give_back(&self, taken: u64) {
        self.looked(taken, 0, true);
    }

    /// When the next query may be made.
    pub fn next_at(&self) -> Timestamp {
        self.budget().tokens.next_at()
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        // No code panics while it holds the lock.
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn turns(per_second: u32) -> (Arc<RailTurns>, Clock) {
        let clock = Clock::system();
        let rate = NonZeroU32::new(per_second).expect("more than none");
        let turns = RailTurns::new(RailName::Momo, rate, &clock);
        (Arc::new(turns), clock)
    }

    #[test]
    fn a_callback_waits_with_those_that_came_before_it() {
        let (turns, clock) = turns(1);
        let take = || turns.take(Claim::default(), Lease::new(&clock, LEASE));
        let first = take();
        assert!(first.is_some(), "nobody waits");
        assert!(take().is_none(), "the budget is spent");
        turns.leave();
        assert_eq!(turns.waiting(), 0, "that one waits for the budget");
        turns.budget().tokens.give_back(1);
        assert!(take().is_none(), "the one before it waits");
        assert_eq!(turns.take_many(9), 1);
        turns.give_back(1);
        assert!(take().is_none(), "there may be more");
        turns.looked(0, 0, false);
        assert!(take().is_some(), "all had their turn");
    }

    #[test]
    fn a_callback_without_a_place_waits() {
        let (turns, clock) = turns(1_000_000);
        let take = || turns.take(Claim::default(), Lease::new(&clock, LEASE));
        turns.looked(1_000, 0, false);
        let taken: Vec<_> = (0..CALLED_BACK_MAX).map(|_| take()).collect();
        assert!(taken.iter().all(Option::is_some));
        assert_eq!(turns.called_back(), CALLED_BACK_MAX);
        assert!(take().is_none());
        turns.leave();
        turns.leave();
        assert_eq!(turns.waiting(), 2);
        drop(taken);
        assert_eq!(turns.take_many(9), 9);
        turns.looked(9, 1, true);
        assert_eq!(turns.waiting(), 1);
        turns.looked(0, 0, false);
        assert_eq!(turns.waiting(), 0);
        assert!(take().is_some());
    }

    #[test]
    fn a_look_at_a_wallet_makes_no_callback_wait() {
        let (turns, clock) = turns(1_000_000);
        let take = || turns.take(Claim::default(), Lease::new(&clock, LEASE));
        turns.looked(1_000, 0, false);
        let looks: Vec<_> = (0..=LOOKS_MAX).map(|_| turns.take_look()).collect();
        assert_eq!(looks.iter().flatten().count(), LOOKS_MAX);
        let taken: Vec<_> = (0..CALLED_BACK_MAX).map(|_| take()).collect();
        assert!(taken.iter().all(Option::is_some), "places of their own");
        drop(looks);
        assert!(turns.take_look().is_some());
        turns.looked(0, 0, true);
        assert!(turns.take_look().is_none(), "charges wait for their turn");
    }

    #[test]
    fn a_charge_that_somebody_holds_is_left_to_them() {
        let (turns, clock) = turns(1_000_000);
        turns.looked(1_000, 0, false);
        let (ours, others) = (Lease::new(&clock, LEASE), Lease::new(&clock, LEASE));
        let over = Lease::new(&clock, Duration::ZERO);
        assert!(turns.take(others.into(), ours).is_none());
        assert!(turns.take(over.into(), ours).is_some());
        assert!(turns.take(ours.into(), ours).is_some(), "taken before");
    }
}
