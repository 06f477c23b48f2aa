//! When something was sent for a charge, when the network can have taken it, and when the rail is
//! asked next.
//!
//! Promise: the moment from which the network's own clock for the payer runs is never put too
//! early, whoever dies when.

use std::time::Duration;

use chassis::clock::Timestamp;
use sqlx::FromRow;

use crate::{rail::RAIL_CALL_MAX, schedule::Timing};

/// This much real time after its record the rail is called no more: a repeated request may already
/// have been answered from the record.
pub const START_BY: Duration = Duration::from_secs(10);

/// A rail call that is written down before it is made is over this much later.
pub const CALL_OVER_BY: Duration = START_BY.saturating_add(RAIL_CALL_MAX);

/// The times that a charge runs by.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Timer {
    /// When the payment, or the latest code, went to the rail: its queries count from here.
    pub submitted_at: Timestamp,
    /// See [`Timer::taken_by`].
    pub taken_by: Option<Timestamp>,
    /// When the payment request went out once more, if it did.
    pub resent_at: Option<Timestamp>,
    pub otp_expires_at: Option<Timestamp>,
    /// When the rail is asked next by the schedule; callbacks make it be asked besides.
    pub next_query_at: Option<Timestamp>,
    /// Callbacks so far. A query that began before the latest one proves nothing about it.
    pub hints: i64,
}

impl Timer {
    /// Of a charge that is written `now`, before the rail is called.
    pub fn new(now: Timestamp, timing: Timing<'_>) -> Self {
        let taken_by = now + CALL_OVER_BY;
        Self {
            submitted_at: now,
            taken_by: Some(taken_by),
            resent_at: None,
            otp_expires_at: None,
            next_query_at: Some(timing.next_query(now, taken_by, now)),
            hints: 0,
        }
    }

    /// The latest moment at which the network can have taken the payment, or the latest code. Its
    /// own clock for the payer starts there at the latest.
    pub fn taken_by(&self) -> Timestamp {
        // A version that knows no such moment leaves none, or an old one, behind.
        let known = self.taken_by.filter(|taken| *taken >= self.submitted_at);
        known.unwrap_or(self.submitted_at + CALL_OVER_BY)
    }

    /// A code is about to be sent.
    pub fn begin_code(&mut self, now: Timestamp) {
        (self.submitted_at, self.taken_by) = (now, Some(now + CALL_OVER_BY));
    }

    /// The rail went on without a code: its queries count from when we learn it.
    pub fn go_on_without_code(&mut self, now: Timestamp) {
        (self.submitted_at, self.taken_by) = (now, Some(now));
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

    /// Whether the payer's time is over by the network's own clock.
    pub fn is_final(&self, now: Timestamp, timing: Timing<'_>) -> bool {
        now >= timing.final_at(self.taken_by())
    }
}
