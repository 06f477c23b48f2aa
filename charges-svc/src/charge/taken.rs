//! When the network can have taken a payment: its own clock for the payer starts there.
//!
//! Promise: that moment is never put too early, whoever dies when.

use std::time::Duration;

use chassis::clock::Timestamp;

use super::{Charge, State};
use crate::{rail::RAIL_CALL_MAX, rail_call::START_BY, schedule::Timing};

/// A rail call that is written down before it is made is over this much later.
pub const CALL_OVER_BY: Duration = START_BY.saturating_add(RAIL_CALL_MAX);

impl Charge {
    /// The latest moment at which the network can have taken the payment, or the latest code. Its
    /// own clock for the payer starts there at the latest.
    pub fn taken_by(&self) -> Timestamp {
        // A version that knows no such moment leaves none, or an old one, behind.
        let known = self.taken_by.filter(|taken| *taken >= self.submitted_at);
        known.unwrap_or(self.submitted_at + CALL_OVER_BY)
    }

    /// The call that hands over the payment or a code has ended: what the network has not taken
    /// by `now` it did not get. Says nothing about a request that went out once more.
    pub fn end_call(&mut self, now: Timestamp) {
        if self.resent_at.is_none() {
            self.taken_by = Some(self.taken_by().min(now));
        }
    }

    /// The payment request is about to go out once more, as soon as that is committed.
    pub fn begin_resend(&mut self, now: Timestamp) {
        self.resent_at = Some(now);
        self.taken_by = Some(self.taken_by().max(now + CALL_OVER_BY));
    }

    /// Whether the payment request may go out once more, where the network says that it has none:
    /// whoever was to send it is gone, and there is still somebody to approve it.
    pub fn may_be_resent(&self, now: Timestamp, timing: Timing<'_>) -> bool {
        let age = now.since(self.created_at);
        // A version that noted no such moment may have told its caller that nothing was started.
        let is_ours = self.taken_by.is_some();
        is_ours
            && self.state == State::Submitting
            && self.resent_at.is_none()
            && !self.seen_at_rail
            && timing.resend_within.is_some_and(|within| age < within)
    }

    /// Whether the payer's time is over by the network's own clock.
    pub fn is_final(&self, now: Timestamp, timing: Timing<'_>) -> bool {
        now >= timing.final_at(self.taken_by())
    }
}
