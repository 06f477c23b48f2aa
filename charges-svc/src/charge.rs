//! What a charge is, and every way in which it can change. Pure: no I/O, and time is an argument.
//!
//! Promise: SETTLED, FAILED and VOID never change. Only the word of the rail or an operator, or
//! the certainty that nothing was sent, leads there.

use std::sync::Arc;

use chassis::clock::Timestamp;
use rails::RailName;
use sqlx::FromRow;

use crate::schedule::Timing;

mod claim;
mod facts;
mod progress;
mod shown;
mod timer;

pub use claim::{Claim, Lease};
pub use facts::{Facts, HostedPayment, METHOD, NewCharge};
pub use progress::{Event, IllegalTransition, OTP_TRIES_MAX, Progress, State};
pub use shown::{ShownCharge, Void};
pub use timer::{START_BY, Timer};

/// One attempt to debit a payer.
#[derive(Clone, Debug, FromRow)]
pub struct Charge {
    /// Shared, because a step is made of copies of its charge.
    #[sqlx(flatten, try_from = "Facts")]
    pub facts: Arc<Facts>,
    #[sqlx(flatten)]
    pub progress: Progress,
    #[sqlx(flatten)]
    pub timer: Timer,
    #[sqlx(flatten)]
    pub claim: Claim,
}

impl Charge {
    /// A new charge, which nobody holds yet.
    pub fn new(new: &NewCharge, rail: RailName, now: Timestamp, timing: Timing<'_>) -> Self {
        Self {
            facts: Arc::new(Facts::new(new, rail, now)),
            progress: Progress::new(now),
            timer: Timer::new(now, timing),
            claim: Claim::default(),
        }
    }

    /// What is set until the charge is recorded.
    pub fn facts_mut(&mut self) -> &mut Facts {
        Arc::make_mut(&mut self.facts)
    }

    /// This charge after `event`, with its timer set and nobody holding it.
    pub fn after(
        &self,
        event: Event,
        now: Timestamp,
        timing: Timing<'_>,
    ) -> Result<Self, IllegalTransition> {
        let mut after = Self {
            facts: Arc::clone(&self.facts),
            progress: self.progress.after(event, now)?,
            timer: self.timer,
            claim: Claim::default(),
        };
        match (event, self.progress.state, after.progress.state) {
            (Event::CodeSent, _, _) => after.timer.begin_code(now),
            (_, State::OtpRequired, State::Initiated) => after.timer.go_on_without_code(now),
            (_, _, State::OtpRequired) => {
                let expires_at = &mut after.timer.otp_expires_at;
                expires_at.get_or_insert(now + timing.otp_lifetime);
            }
            _ => {}
        }
        after.timer.next_query_at = match event {
            Event::Approved => Some(now),
            _ => after.query_after(now, timing),
        };
        Ok(after)
    }

    /// When the rail is queried next after `now`, unless something happens first.
    pub fn query_after(&self, now: Timestamp, timing: Timing<'_>) -> Option<Timestamp> {
        let timer = &self.timer;
        let scheduled = || timing.next_query(timer.submitted_at, timer.taken_by(), now);
        match self.progress.state {
            State::Submitting | State::Initiated | State::OtpSubmitting => Some(scheduled()),
            // The query schedule is suspended until the code expires.
            State::OtpRequired => match timer.otp_expires_at {
                Some(expires_at) if now < expires_at => Some(expires_at),
                Some(_) | None => Some(scheduled()),
            },
            State::Failed => Timing::query_after_failure(self.progress.updated_at, now),
            State::Settled | State::Void => None,
        }
    }

    /// Like [`Charge::query_after`], after a query at `now` that the rail did not answer.
    pub fn query_after_silence(&self, now: Timestamp, timing: Timing<'_>) -> Option<Timestamp> {
        let failed_at = self.progress.updated_at;
        match self.progress.state {
            State::Failed => Some(Timing::query_after_unanswered_look(failed_at, now)),
            _ => self.query_after(now, timing),
        }
    }

    /// Whether the payment request may go out once more if the network says that it has none:
    /// whoever was to send it is gone, and the payer is still there to approve it.
    pub fn may_be_resent(&self, now: Timestamp, timing: Timing<'_>) -> bool {
        let age = now.since(self.facts.created_at);
        // A version that did not record this moment may have told its caller that nothing was
        // started.
        let is_ours = self.timer.taken_by.is_some();
        is_ours
            && self.progress.state == State::Submitting
            && self.timer.resent_at.is_none()
            && !self.progress.seen_at_rail
            && timing.resend_within.is_some_and(|within| age < within)
    }
}

#[cfg(test)]
pub mod tests;
