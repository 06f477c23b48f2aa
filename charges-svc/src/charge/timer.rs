//! When something was sent for a charge, by when the network can have taken it, and when the rail
//! is queried next.
//!
//! Promise: the start of the network's own clock for the payer is never assumed too early, whoever
//! crashes when.

use std::time::Duration;

use chassis::clock::Timestamp;
use sqlx::FromRow;

use rails::RAIL_CALL_MAX;

use crate::schedule::Timing;

/// Longest real time from a charge's record to its rail call. Later the rail is not called: a
/// repeated request may already have been answered from the record.
pub const START_BY: Duration = Duration::from_secs(10);

/// A rail call is over this long after it was recorded, which happens before it is made.
pub const CALL_OVER_BY: Duration = START_BY.saturating_add(RAIL_CALL_MAX);

/// The times that decide what happens to a charge and when.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Timer {
    /// When the payment, or the latest code, went to the rail. The query schedule counts from
    /// here.
    pub submitted_at: Timestamp,
    /// See [`Timer::taken_by`].
    pub taken_by: Option<Timestamp>,
    /// When the payment request went out a second time, if it did.
    pub resent_at: Option<Timestamp>,
    pub otp_expires_at: Option<Timestamp>,
    /// When the schedule queries the rail next. Callbacks cause queries of their own.
    pub next_query_at: Option<Timestamp>,
    /// Callbacks so far. A query that began before the latest one proves nothing about it.
    pub hints: i64,
}

impl Timer {
    /// The timer of a charge that is recorded `now`, before the rail is called.
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
    /// own clock for the payer starts then at the latest.
    pub fn taken_by(&self) -> Timestamp {
        // A version that does not know this moment leaves it unset or outdated.
        let known = self.taken_by.filter(|taken| *taken >= self.submitted_at);
        known.unwrap_or(self.submitted_at + CALL_OVER_BY)
    }

    /// A code is about to be sent.
    pub fn begin_code(&mut self, now: Timestamp) {
        (self.submitted_at, self.taken_by) = (now, Some(now + CALL_OVER_BY));
    }

    /// The rail went on without a code. The query schedule counts from when we learned it.
    pub fn go_on_without_code(&mut self, now: Timestamp) {
        (self.submitted_at, self.taken_by) = (now, Some(now));
    }

    /// The call that hands over the payment or a code has ended: what the network has not taken by
    /// `now` never reached it. Changes nothing once the request went out a second time.
    pub fn end_call(&mut self, now: Timestamp) {
        if self.resent_at.is_none() {
            self.taken_by = Some(self.taken_by().min(now));
        }
    }

    /// The payment request is about to go out a second time, once this is committed.
    pub fn begin_resend(&mut self, now: Timestamp) {
        self.resent_at = Some(now);
        self.taken_by = Some(self.taken_by().max(now + CALL_OVER_BY));
    }

    /// Whether the payer's time is over by the network's own clock.
    pub fn is_final(&self, now: Timestamp, timing: Timing<'_>) -> bool {
        now >= timing.final_at(self.taken_by())
    }
}
