//! What this process knows of the endpoints' queues, so that it asks the store only for what it
//! cannot know.
//!
//! A merchant has one endpoint, so queues go by merchant. Everything here is a hint: the store decides
//! what is claimed, and a look at it, at the start, after a failure and once a second, finds what is
//! missing here.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chassis::{
    clock::{Alarm, Clock, Timestamp},
    ids::MerchantId,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most queues that are remembered. The looks find the others.
const QUEUES_MAX: usize = 10_000;

/// How many endpoints one claim is made for.
const CANDIDATES_MAX: usize = 64;

/// The queues, and the places in which this process runs attempts. Clones share them.
#[derive(Clone, Debug)]
pub struct Queues {
    state: Arc<Mutex<State>>,
    places: Arc<Semaphore>,
    /// Most attempts that run to one endpoint.
    per_endpoint_max: usize,
    clock: Clock,
    alarm: Alarm,
}

#[derive(Debug, Default)]
struct State {
    /// Those in which something may be due that nobody has claimed.
    queues: HashMap<MerchantId, Queue>,
    /// Attempts that run here.
    running: HashMap<MerchantId, usize>,
    /// A queue waits for a place.
    is_short: bool,
    /// When something is due next, in queues that are not here.
    due: Option<Timestamp>,
    /// The last look did not find everything.
    is_partial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// May be claimed from.
    Ready,
    /// As much as its endpoint may have runs. The end of one of ours makes it ready.
    Full,
    Claiming {
        /// Something happened meanwhile that the claim may have missed.
        missed: bool,
    },
}

/// A queue to claim from, and places for what is claimed.
#[derive(Debug)]
pub struct Candidate {
    pub merchant_id: MerchantId,
    pub places: Vec<Place>,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointClaimed {
    /// All there was.
    Drained,
    /// As much as the endpoint may have, here and elsewhere.
    Full,
    /// Less than there may be: there were too few places, somebody else had the endpoint locked, or
    /// the store failed.
    Again,
    /// Nothing, because the endpoint is switched off.
    SwitchedOff,
}

impl Queues {
    pub fn new(places: usize, per_endpoint_max: usize, clock: &Clock, alarm: Alarm) -> Self {
        Self {
            state: Arc::default(),
            places: Arc::new(Semaphore::new(places)),
            per_endpoint_max,
            clock: clock.clone(),
            alarm,
        }
    }

    /// Whether a new delivery may start before anything in a queue does: nobody waits for a place,
    /// and nothing waits for its endpoint, as far as this process knows.
    pub fn may_start(&self, merchant_id: MerchantId) -> bool {
        let state = self.state();
        !state.is_short && !state.queues.contains_key(&merchant_id)
    }

    /// A place for an attempt, if one is free.
    pub fn place(&self, merchant_id: MerchantId) -> Option<Place> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        Some(Place {
            queues: self.clone(),
            merchant_id,
            permit: Some(permit),
            is_running: false,
        })
    }

    /// Something of this merchant is due now.
    pub fn tell(&self, merchant_id: MerchantId) {
        let mut state = self.state();
        let has_room = state.queues.len() < QUEUES_MAX;
        let is_ready = match state.queues.entry(merchant_id) {
            Entry::Occupied(mut queue) => {
                if let Queue::Claiming { missed } = queue.get_mut() {
                    *missed = true;
                }
                *queue.get() != Queue::Full
            }
            Entry::Vacant(queue) => {
                if has_room {
                    queue.insert(Queue::Ready);
                }
                has_room
            }
        };
        drop(state);
        if is_ready {
            self.alarm.ring_at(self.clock.now());
        }
    }

    /// Something is due at this time.
    pub fn tell_later(&self, at: Timestamp) {
        let mut state = self.state();
        state.due = Some(state.due.map_or(at, |due| due.min(at)));
        drop(state);
        self.alarm.ring_at(at);
    }

    /// When to claim next: now, if something is ready for which there is a place.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let mut state = self.state();
        let is_ready = state.queues.values().any(|queue| *queue == Queue::Ready);
        if is_ready && self.places.available_permits() > 0 {
            return Some(now);
        }
        // The end of an attempt tells.
        state.is_short |= is_ready;
        state.due
    }

    /// Whether only a look tells whose turn it is.
    pub fn needs_look(&self, now: Timestamp) -> bool {
        let state = self.state();
        state.due.is_some_and(|due| due <= now)
            || (state.is_partial && !state.queues.values().any(|queue| *queue == Queue::Ready))
    }

    /// Expects [`Self::found`]. After a failure the next look finds what this one was for.
    pub fn begin_look(&self) {
        self.state().due = None;
    }

    /// What a look has found: who has something due, and when the next is due of the others.
    pub fn found(
        &self,
        due: impl Iterator<Item = MerchantId>,
        next: Option<Timestamp>,
        is_partial: bool,
    ) {
        let mut state = self.state();
        for merchant_id in due {
            state.queues.insert(merchant_id, Queue::Ready);
        }
        state.due = state.due.into_iter().chain(next).min();
        state.is_partial = is_partial;
    }

    /// Queues to claim from now, those with the fewest running attempts first, as far as there are
    /// places. Expects [`Self::settle`] for each.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut state = self.state();
        let running = |state: &State, merchant_id: &MerchantId| {
            state.running.get(merchant_id).copied().unwrap_or_default()
        };
        let ready = state.queues.iter();
        let ready = ready.filter(|(_, queue)| **queue == Queue::Ready);
        let mut ready: Vec<(usize, MerchantId)> = ready
            .map(|(merchant_id, _)| (running(&state, merchant_id), *merchant_id))
            .collect();
        ready.sort_unstable_by_key(|(running, _)| *running);
        ready.truncate(CANDIDATES_MAX);
        let mut candidates: Vec<(usize, Candidate)> = Vec::with_capacity(ready.len());
        for (running, merchant_id) in ready {
            if running >= self.per_endpoint_max {
                state.queues.insert(merchant_id, Queue::Full);
            } else {
                let places = Vec::new();
                candidates.push((
                    running,
                    Candidate {
                        merchant_id,
                        places,
                    },
                ));
            }
        }
        state.is_short = !self.share_places(&mut candidates);
        let candidates = candidates.into_iter().map(|(_, candidate)| candidate);
        let candidates = candidates.filter(|candidate| !candidate.places.is_empty());
        let candidates: Vec<Candidate> = candidates.collect();
        for candidate in &candidates {
            let claiming = Queue::Claiming { missed: false };
            state.queues.insert(candidate.merchant_id, claiming);
        }
        candidates
    }

    /// Gives each a place, then each another. Returns false if there were too few for each to have
    /// one.
    fn share_places(&self, candidates: &mut [(usize, Candidate)]) -> bool {
        for round in 0..self.per_endpoint_max {
            for (running, candidate) in &mut *candidates {
                if *running + round >= self.per_endpoint_max {
                    continue;
                }
                let Some(place) = self.place(candidate.merchant_id) else {
                    return round > 0;
                };
                candidate.places.push(place);
            }
        }
        true
    }

    /// Remembers what became of a claim, once what it claimed has started.
    pub fn settle(&self, merchant_id: MerchantId, claimed: EndpointClaimed) {
        let mut state = self.state();
        let missed = matches!(
            state.queues.get(&merchant_id),
            Some(Queue::Claiming { missed: true })
        );
        let is_running = state.running.contains_key(&merchant_id);
        let queue = match claimed {
            EndpointClaimed::Again => Some(Queue::Ready),
            EndpointClaimed::Drained | EndpointClaimed::Full if missed => Some(Queue::Ready),
            EndpointClaimed::Full if is_running => Some(Queue::Full),
            // Of one that others keep busy, a look finds what they leave.
            EndpointClaimed::Drained | EndpointClaimed::Full | EndpointClaimed::SwitchedOff => None,
        };
        match queue {
            Some(queue) => state.queues.insert(merchant_id, queue),
            None => state.queues.remove(&merchant_id),
        };
    }

    fn begin(&self, merchant_id: MerchantId) {
        *self.state().running.entry(merchant_id).or_default() += 1;
    }

    /// An attempt has ended, and its place is free.
    fn end(&self, merchant_id: MerchantId) {
        let mut state = self.state();
        if let Entry::Occupied(mut running) = state.running.entry(merchant_id) {
            *running.get_mut() = running.get().saturating_sub(1);
            if *running.get() == 0 {
                running.remove();
            }
        }
        let mut is_awaited = state.is_short;
        match state.queues.get_mut(&merchant_id) {
            Some(queue @ Queue::Full) => {
                *queue = Queue::Ready;
                is_awaited = true;
            }
            Some(Queue::Claiming { missed }) => *missed = true,
            Some(Queue::Ready) | None => {}
        }
        drop(state);
        if is_awaited {
            self.alarm.ring_at(self.clock.now());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in which an attempt runs. Free again once this is dropped.
#[derive(Debug)]
pub struct Place {
    queues: Queues,
    merchant_id: MerchantId,
    /// `None` once it is free.
    permit: Option<OwnedSemaphorePermit>,
    is_running: bool,
}

impl Place {
    /// An attempt begins in it.
    pub fn begin(&mut self) {
        self.is_running = true;
        self.queues.begin(self.merchant_id);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permit = None;
        if self.is_running {
            self.queues.end(self.merchant_id);
        }
    }
}
