//! The delivery of one event to one endpoint, and the rules of its attempts (spec §6.2). No I/O.

use std::{sync::Arc, time::Duration};

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EndpointId, EventId, MerchantId},
};
use sqlx::FromRow;
use uuid::Uuid;

use crate::event::EventType;

chassis::closed_list! {
    /// How far a delivery has come.
    pub enum Status: "a delivery's status" {
        /// The schedule goes on.
        Pending = "PENDING",
        /// The receiver answered with a 2xx.
        Delivered = "DELIVERED",
        /// The schedule ended without a 2xx.
        Exhausted = "EXHAUSTED",
    }
}

chassis::text_column!(Status);

#[derive(Clone, Debug, FromRow)]
pub struct Delivery {
    pub delivery_id: DeliveryId,
    pub merchant_id: MerchantId,
    pub event_id: EventId,
    /// As it was stored; a newer version may have written it.
    pub event_type: String,
    pub status: Status,
    pub attempts_count: i64,
    pub next_attempt_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// A delivery as it is created. Its first attempt is due now.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    pub delivery_id: DeliveryId,
    pub event_id: EventId,
    pub event_type: EventType,
    pub merchant_id: MerchantId,
    pub endpoint_id: EndpointId,
    /// If its first attempt starts at once: who runs it, and until when (real time).
    pub claim: Option<(Uuid, Timestamp)>,
}

/// One attempt to deliver, as it was recorded.
#[derive(Clone, Debug, FromRow)]
pub struct Attempt {
    pub number: i64,
    pub manual: bool,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub succeeded: bool,
    pub http_status: Option<i64>,
    pub error: Option<String>,
    pub duration_ms: i64,
    pub response_excerpt: Option<String>,
    /// As it was stored: a newer version may have written it, and an older one writes none.
    pub cause: Option<String>,
}

/// An event and what became of it.
#[derive(Clone, Debug)]
pub struct EventDelivery {
    pub event_id: EventId,
    /// As it was stored; a newer version may have written it.
    pub event_type: String,
    pub created_at: Timestamp,
    /// With its newest attempts. `None` if the merchant had no endpoint for the event.
    pub delivery: Option<(Delivery, Vec<Attempt>)>,
}

/// An attempt that has begun: it is on record, and the holder of `claim` ends it.
#[derive(Clone, Debug, FromRow)]
pub struct AttemptRun {
    pub delivery_id: DeliveryId,
    pub endpoint_id: EndpointId,
    pub merchant_id: MerchantId,
    pub event_id: EventId,
    /// Only for the trace: a newer version's event is sent like any other.
    pub event_type: String,
    pub status: Status,
    pub failures: i64,
    pub next_attempt_at: Option<Timestamp>,
    /// When this attempt was due.
    pub due_at: Timestamp,
    /// Number of this attempt.
    pub attempts_count: i64,
    pub manual_running: bool,
    pub claim: Uuid,
    pub body: String,
    pub traceparent: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOutcome {
    pub verdict: AttemptVerdict,
    pub http_status: Option<u16>,
    /// Why it failed, for people.
    pub error: Option<String>,
    pub cause: Option<Cause>,
    pub duration: Duration,
    pub response_excerpt: Option<String>,
    /// `None` if nothing was sent.
    pub sent: Option<Sent>,
}

/// What of a request is not the same in every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub url: String,
    pub signature: String,
}

chassis::closed_list! {
    /// Why an attempt failed.
    pub enum Cause: "why an attempt failed" {
        /// Answered, but not with a 2xx.
        Status = "STATUS",
        Timeout = "TIMEOUT",
        /// The name cannot be looked up.
        Dns = "DNS",
        /// No public address, or a URL that is not called.
        Address = "ADDRESS",
        Refused = "REFUSED",
        Tls = "TLS",
        /// The connection broke, or what came over it is not HTTP.
        Connection = "CONNECTION",
        /// It could not be signed.
        Unsigned = "UNSIGNED",
        /// Nobody knows what became of it.
        Interrupted = "INTERRUPTED",
    }
}

chassis::text_column!(Cause);

chassis::closed_list! {
    /// What became of an attempt.
    pub enum AttemptVerdict: "an attempt's verdict" {
        Succeeded = "succeeded",
        Failed = "failed",
        /// A crash or the end of its lease cut it off. Counts as failed, because nobody knows its
        /// result.
        Interrupted = "interrupted",
    }
}

/// The end of an attempt, and where it leaves the delivery.
#[derive(Clone, Debug)]
pub struct AttemptEnd {
    pub attempt: Arc<AttemptRun>,
    pub outcome: AttemptOutcome,
    pub state: DeliveryState,
    pub at: Timestamp,
}

impl AttemptEnd {
    pub fn is_success(&self) -> bool {
        self.outcome.verdict == AttemptVerdict::Succeeded
    }

    pub fn duration_ms(&self) -> i64 {
        i64::try_from(self.outcome.duration.as_millis()).unwrap_or(i64::MAX)
    }

    /// Where it went, if it was sent.
    pub fn url(&self) -> Option<String> {
        self.outcome.sent.as_ref().map(|sent| sent.url.clone())
    }

    /// The signature that it carried, if it was sent.
    pub fn signature(&self) -> Option<String> {
        let sent = self.outcome.sent.as_ref();
        sent.map(|sent| sent.signature.clone())
    }

    pub fn is_exhausting(&self) -> bool {
        self.attempt.status != Status::Exhausted && self.state.status == Status::Exhausted
    }
}

/// The state of a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryState {
    pub status: Status,
    pub failures: i64,
    pub next_attempt_at: Option<Timestamp>,
    /// The attempt was requested by hand and interrupted, so it is still owed.
    pub manual_owed: bool,
}

/// The delay after each failure, counted from the end of the failed attempt.
#[derive(Clone, Debug)]
pub struct Schedule(Vec<Duration>);

impl Schedule {
    pub fn new(delays: Vec<Duration>) -> Self {
        Self(delays)
    }

    /// Success ends the schedule. A failure advances it unless the attempt was requested by hand;
    /// the failure after the last delay exhausts the delivery.
    pub fn after(
        &self,
        attempt: &AttemptRun,
        verdict: AttemptVerdict,
        ended_at: Timestamp,
    ) -> DeliveryState {
        let unchanged = DeliveryState {
            status: attempt.status,
            failures: attempt.failures,
            next_attempt_at: attempt.next_attempt_at,
            manual_owed: false,
        };
        match verdict {
            AttemptVerdict::Succeeded => DeliveryState {
                status: Status::Delivered,
                next_attempt_at: None,
                ..unchanged
            },
            AttemptVerdict::Failed if attempt.manual_running => unchanged,
            AttemptVerdict::Interrupted if attempt.manual_running => DeliveryState {
                manual_owed: true,
                ..unchanged
            },
            AttemptVerdict::Failed | AttemptVerdict::Interrupted => {
                self.after_failure(unchanged, ended_at)
            }
        }
    }

    fn after_failure(&self, before: DeliveryState, ended_at: Timestamp) -> DeliveryState {
        let delay = usize::try_from(before.failures).ok();
        let delay = delay.and_then(|past| self.0.get(past));
        DeliveryState {
            status: if delay.is_some() {
                Status::Pending
            } else {
                Status::Exhausted
            },
            failures: before.failures + 1,
            next_attempt_at: delay.map(|delay| ended_at + *delay),
            ..before
        }
    }
}
