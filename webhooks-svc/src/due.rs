//! Begins the attempts that are due: claims them, a few per endpoint, for many endpoints at once.
//!
//! An endpoint that hangs takes up only its own few places, and is not asked about while it has them
//! all.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::clock::{Term, Timestamp};
use db::{
    Db, Result,
    work::{Claimed, TaskSet, Work},
};
use tokio::time::Instant;

use crate::{
    attempts::AttemptRunner,
    queues::{Candidate, EndpointClaimed, Place},
    store::attempts::{self, ClaimRequest, ENDPOINTS_FOUND, EndpointClaim},
};

/// How often expired leases are looked for: not on every pass, because every replica does it.
const LOOK_FOR_EXPIRED: Duration = Duration::from_secs(5);

/// How soon an endpoint that somebody else had locked is tried again. A set is written in less.
const LOCKED_AGAIN: Duration = Duration::from_millis(5);

/// The work that begins what is due.
#[derive(Debug)]
pub struct DueAttempts {
    db: Db,
    runner: Arc<AttemptRunner>,
    looked_for_expired: Option<Instant>,
}

impl Work for DueAttempts {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let looked = self.look_for_all().await;
        looked.context("deliveries cannot be read")?;
        Ok(self.runner.queues.next_due(self.runner.clock.now()))
    }

    async fn claim(&mut self, _tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let claimed = self.begin_due().await;
        claimed.context("deliveries are not started")
    }
}

impl DueAttempts {
    pub fn new(db: Db, runner: Arc<AttemptRunner>) -> Self {
        Self {
            db,
            runner,
            looked_for_expired: None,
        }
    }

    async fn look_for_all(&mut self) -> Result<()> {
        let looked = self.looked_for_expired;
        if looked.is_none_or(|then| then.elapsed() >= LOOK_FOR_EXPIRED) {
            let now = self.runner.clock.real_now();
            let expired = attempts::expired(&self.db, now).await?;
            self.runner.end_interrupted(expired).await;
            self.looked_for_expired = Some(Instant::now());
        }
        self.look().await
    }

    /// Looks for what this process has not been told.
    async fn look(&self) -> Result<()> {
        let queues = &self.runner.queues;
        let now = self.runner.clock.now();
        queues.begin_look();
        let most = self.runner.limits.running_per_endpoint_max;
        let found = attempts::waiting(&self.db, most, now).await?;
        let is_partial = i64::try_from(found.len()).is_ok_and(|found| found >= ENDPOINTS_FOUND);
        let due = found.iter().filter(|queue| queue.due_at <= now);
        let later = found.iter().filter(|queue| queue.due_at > now);
        queues.found(
            due.map(|queue| queue.merchant_id),
            later.map(|queue| queue.due_at).min(),
            is_partial,
        );
        Ok(())
    }

    async fn begin_due(&mut self) -> Result<Claimed> {
        if self.runner.queues.needs_look(self.runner.clock.now()) {
            self.look().await?;
        }
        loop {
            let candidates = self.runner.queues.candidates();
            if candidates.is_empty() {
                return Ok(Claimed::All);
            }
            if self.begin(candidates).await? {
                return Ok(Claimed::Part(self.runner.clock.now() + LOCKED_AGAIN));
            }
        }
    }

    /// Begins what is due for these endpoints. Returns whether one of them was locked.
    async fn begin(&self, candidates: Vec<Candidate>) -> Result<bool> {
        let queues = &self.runner.queues;
        let term = self.runner.clock.term(self.runner.limits.lease);
        let request = ClaimRequest {
            endpoints: candidates
                .iter()
                .map(|candidate| (candidate.merchant_id, candidate.places.len()))
                .collect(),
            running_max: self.runner.limits.running_per_endpoint_max,
            now: self.runner.clock.now(),
            lease_until: term.until,
        };
        let claimed = attempts::begin(&self.db, &request).await;
        let (mut claims, failed) = match claimed {
            Ok(claims) => (claims, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut is_locked = false;
        for Candidate {
            merchant_id,
            places,
        } in candidates
        {
            let found = claims
                .iter()
                .position(|claim| claim.endpoint.merchant_id == merchant_id);
            let claimed = match found.map(|index| claims.swap_remove(index)) {
                Some(claim) => self.start(claim, places, term),
                None => {
                    is_locked = true;
                    EndpointClaimed::Again
                }
            };
            queues.settle(merchant_id, claimed);
        }
        failed.map_or(Ok(is_locked), Err)
    }

    fn start(&self, claim: EndpointClaim, places: Vec<Place>, term: Term) -> EndpointClaimed {
        let running = claim.running + claim.attempts.len();
        let is_drained = claim.attempts.len() < places.len();
        let is_enabled = claim.endpoint.enabled;
        let endpoint = Arc::new(claim.endpoint);
        for (attempt, place) in claim.attempts.into_iter().zip(places) {
            self.runner.start(attempt, endpoint.clone(), term, place);
        }
        if !is_enabled {
            EndpointClaimed::SwitchedOff
        } else if running >= self.runner.limits.running_per_endpoint_max {
            EndpointClaimed::Full
        } else if is_drained {
            EndpointClaimed::Drained
        } else {
            EndpointClaimed::Again
        }
    }
}
