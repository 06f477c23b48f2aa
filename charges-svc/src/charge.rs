//! What a charge is, and every way in which it may change. Pure: no I/O, and time is an argument.
//!
//! Promise: SETTLED, FAILED and VOID never change, and only what the rail or an operator said, or
//! the certainty that nothing was sent, leads there.

use std::{str::FromStr, time::Duration};

use chassis::{
    clock::{Clock, Term, Timestamp},
    ids::{ChargeId, MerchantId, RailReference, Reference, SessionId, TxIdDisplay},
    money::{Currency, Money},
    phone::Phone,
    provider::Provider,
};
use rails::RailName;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{failure::FailureReason, schedule::Timing};

mod taken;

use taken::CALL_OVER_BY;

/// Codes that a payer may try (design: "OTP").
pub const OTP_TRIES_MAX: i64 = 3;

/// What a merchant is told is the way to pay.
pub const METHOD: &str = "MOBILE_MONEY";

/// Where a charge stands inside this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Written down; the rail may have been called, and its reply is not here.
    Submitting,
    /// The payer has the prompt, or may have it.
    Initiated,
    /// The rail waits for a code from the payer.
    OtpRequired,
    /// A code is on its way to the rail; its reply is not here.
    OtpSubmitting,
    /// The payer was debited.
    Settled,
    /// The rail says that it ends without a debit.
    Failed,
    /// Nothing was ever sent. Never shown.
    Void,
}

/// A charge's status as merchants see it (spec §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Initiated,
    OtpRequired,
    Settled,
    Failed,
}

/// What may happen to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing was sent and nothing will be.
    Withdrawn,
    /// The rail has the payment, or its code, and waits for the payer.
    Accepted,
    /// The rail says, in its reply, that the payer was debited: it is asked at once.
    Approved,
    /// The payment request may have reached the rail: only a query can tell.
    Unanswered,
    /// The rail refuses the reference because it has it already: only a query can tell the rest.
    AlreadyKnown,
    /// The rail waits for a code.
    CodeWanted,
    /// A code is about to be sent to the rail.
    CodeSent,
    /// The rail says that the code was wrong.
    CodeWrong,
    /// The code did not leave us after all.
    CodeNotSent,
    /// The rail says that the payer was debited what we asked for.
    Settled,
    /// The rail says that it failed, or the code that the rail waits for came too late.
    Failed(FailureReason),
}

/// The part of a charge that decides what may happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub state: State,
    /// Present on FAILED alone.
    pub failure_reason: Option<FailureReason>,
    /// Codes that were sent to the rail.
    pub otp_tries: i64,
}

/// The event cannot happen to a charge in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a charge in state {state} takes no event {event:?}")]
pub struct Illegal {
    pub state: State,
    pub event: Event,
}

/// Every legal transition.
pub fn next(from: Progress, event: Event) -> Result<Progress, Illegal> {
    use State::{Failed, Initiated, OtpRequired, OtpSubmitting, Settled, Submitting, Void};

    let to = |state| Progress { state, ..from };
    let failed = |reason| Progress {
        state: Failed,
        failure_reason: Some(reason),
        ..from
    };
    match (from.state, event) {
        (Submitting, Event::Withdrawn) => Ok(to(Void)),
        (Submitting, Event::Unanswered | Event::AlreadyKnown) => Ok(to(Initiated)),
        (Submitting | OtpRequired | OtpSubmitting, Event::Accepted) => Ok(to(Initiated)),
        (Submitting | OtpSubmitting, Event::Approved) => Ok(to(Initiated)),
        // Only the rail's reply to the code itself: what it still wants may be what it has not
        // looked at yet.
        (OtpSubmitting, Event::CodeWrong) if from.otp_tries >= OTP_TRIES_MAX => {
            Ok(failed(FailureReason::OtpAttemptsExceeded))
        }
        (OtpSubmitting, Event::CodeWrong) => Ok(to(OtpRequired)),
        (Submitting | Initiated | OtpSubmitting, Event::CodeWanted)
            if from.otp_tries < OTP_TRIES_MAX =>
        {
            Ok(to(OtpRequired))
        }
        (OtpRequired, Event::CodeSent) => Ok(Progress {
            state: OtpSubmitting,
            otp_tries: from.otp_tries + 1,
            ..from
        }),
        (OtpSubmitting, Event::CodeNotSent) => Ok(Progress {
            state: OtpRequired,
            otp_tries: from.otp_tries - 1,
            ..from
        }),
        (Submitting | Initiated | OtpRequired | OtpSubmitting, Event::Settled) => Ok(to(Settled)),
        (Submitting | Initiated | OtpRequired | OtpSubmitting, Event::Failed(reason)) => {
            Ok(failed(reason))
        }
        (state, event) => Err(Illegal { state, event }),
    }
}

impl State {
    const ALL: [Self; 7] = [
        Self::Submitting,
        Self::Initiated,
        Self::OtpRequired,
        Self::OtpSubmitting,
        Self::Settled,
        Self::Failed,
        Self::Void,
    ];

    /// As it stands in SQL and before operators.
    pub fn code(self) -> &'static str {
        match self {
            Self::Submitting => "SUBMITTING",
            Self::Initiated => "INITIATED",
            Self::OtpRequired => "OTP_REQUIRED",
            Self::OtpSubmitting => "OTP_SUBMITTING",
            Self::Settled => "SETTLED",
            Self::Failed => "FAILED",
            Self::Void => "VOID",
        }
    }

    pub fn is_terminal(self) -> bool {
        match self {
            Self::Settled | Self::Failed | Self::Void => true,
            Self::Submitting | Self::Initiated | Self::OtpRequired | Self::OtpSubmitting => false,
        }
    }

    /// What merchants see; a void charge is not there.
    pub fn shown(self) -> Option<Status> {
        match self {
            Self::Submitting | Self::Initiated | Self::OtpSubmitting => Some(Status::Initiated),
            Self::OtpRequired => Some(Status::OtpRequired),
            Self::Settled => Some(Status::Settled),
            Self::Failed => Some(Status::Failed),
            Self::Void => None,
        }
    }
}

impl Status {
    /// As it stands in SQL.
    pub fn code(self) -> &'static str {
        match self {
            Self::Initiated => "INITIATED",
            Self::OtpRequired => "OTP_REQUIRED",
            Self::Settled => "SETTLED",
            Self::Failed => "FAILED",
        }
    }

    /// What the answer to a POST says: it knows no SETTLED (spec §4.3).
    pub fn in_answer(self) -> Self {
        match self {
            Self::Initiated | Self::Settled => Self::Initiated,
            Self::OtpRequired => Self::OtpRequired,
            Self::Failed => Self::Failed,
        }
    }
}

/// The text is none that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {0}")]
pub struct UnknownCode(&'static str);

impl FromStr for State {
    type Err = UnknownCode;

    fn from_str(code: &str) -> Result<Self, UnknownCode> {
        let found = Self::ALL.into_iter().find(|state| state.code() == code);
        found.ok_or(UnknownCode("state"))
    }
}

impl FromStr for Status {
    type Err = UnknownCode;

    fn from_str(code: &str) -> Result<Self, UnknownCode> {
        match code {
            "INITIATED" => Ok(Self::Initiated),
            "OTP_REQUIRED" => Ok(Self::OtpRequired),
            "SETTLED" => Ok(Self::Settled),
            "FAILED" => Ok(Self::Failed),
            _ => Err(UnknownCode("status")),
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}

chassis::text_column!(State, |state| state.code().to_owned());
chassis::text_column!(Status, |status| status.code().to_owned());

/// One try to debit a payer.
#[derive(Clone, Debug, FromRow)]
pub struct Charge {
    pub transaction_id: ChargeId,
    pub merchant_id: MerchantId,
    /// For the payer's prompt. Absent where a version that kept none wrote the charge.
    pub merchant_name: Option<String>,
    pub session_id: SessionId,
    /// Paid at the hosted checkout: the session was there before.
    pub hosted: bool,
    /// Number of this charge within its session, from 1; void ones count.
    pub charge_number: i64,
    pub tx_id_display: TxIdDisplay,
    pub reference: Reference,
    pub rail: RailName,
    pub rail_reference: RailReference,
    pub callback_token: String,
    amount_minor: i64,
    currency: Currency,
    session_amount_minor: i64,
    session_currency: Currency,
    /// Units of the debited currency for one unit of the session's, where those differ.
    pub rate: Option<String>,
    pub provider: Provider,
    pub phone: Phone,
    pub description: Option<String>,
    pub payer_email: Option<String>,
    pub payer_name: Option<String>,
    pub state: State,
    /// From 1, higher at each change of state.
    pub version: i64,
    pub failure_reason: Option<FailureReason>,
    pub otp_tries: i64,
    pub otp_expires_at: Option<Timestamp>,
    /// The rail has shown that it knows our reference.
    pub seen_at_rail: bool,
    /// The rail reported money for it that is not what we asked for; it cannot settle any more.
    pub mismatched: bool,
    /// When the payment, or the latest code, went to the rail: its queries count from here.
    pub submitted_at: Timestamp,
    /// See [`Charge::taken_by`].
    pub taken_by: Option<Timestamp>,
    /// When the payment request went out once more, if it did.
    pub resent_at: Option<Timestamp>,
    /// When the rail is asked next by the schedule; callbacks make it be asked besides.
    pub next_query_at: Option<Timestamp>,
    /// Callbacks so far. A query that began before the latest one proves nothing about it.
    pub hints: i64,
    /// Real time. Until then nobody else works on this charge.
    pub lease_until: Option<Timestamp>,
    /// Only who holds it may let the lease go.
    pub fence: Option<Uuid>,
    /// The trace of the request that began it.
    pub traceparent: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What somebody wants to debit; checked when it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCharge {
    pub merchant_id: MerchantId,
    pub merchant_name: String,
    pub amount: Money,
    pub phone: Phone,
    pub provider: Provider,
    pub description: Option<String>,
    pub payer_email: Option<String>,
    pub payer_name: Option<String>,
    pub hosted: Option<Hosted>,
}

/// The session that a hosted charge pays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    pub session_id: SessionId,
    /// In the session's currency.
    pub amount: Money,
    /// GHS for one unit of it; absent for a GHS session.
    pub rate: Option<String>,
}

/// Somebody works on a charge.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub fence: Uuid,
    pub term: Term,
}

impl Lease {
    /// One that begins now, to be written after that.
    pub fn new(clock: &Clock, length: Duration) -> Self {
        Self {
            fence: Uuid::new_v4(),
            term: clock.term(length),
        }
    }
}

impl Charge {
    /// A new charge with every identifier that it will ever have. `charge_number` and
    /// `traceparent` are set when it is written.
    pub fn new(new: &NewCharge, rail: RailName, now: Timestamp, timing: Timing<'_>) -> Self {
        let (tx_id_display, taken_by) = (TxIdDisplay::new(), now + CALL_OVER_BY);
        let (session_id, session_amount, rate) = match &new.hosted {
            Some(hosted) => (hosted.session_id, hosted.amount, hosted.rate.clone()),
            None => (SessionId::new(), new.amount, None),
        };
        Self {
            transaction_id: ChargeId::new(),
            merchant_id: new.merchant_id,
            merchant_name: Some(new.merchant_name.clone()),
            session_id,
            hosted: new.hosted.is_some(),
            charge_number: 1,
            reference: Reference::new(&tx_id_display),
            tx_id_display,
            rail,
            rail_reference: RailReference::new(),
            callback_token: Uuid::new_v4().simple().to_string(),
            amount_minor: new.amount.minor_units(),
            currency: new.amount.currency(),
            session_amount_minor: session_amount.minor_units(),
            session_currency: session_amount.currency(),
            rate,
            provider: new.provider,
            phone: new.phone.clone(),
            description: new.description.clone(),
            payer_email: new.payer_email.clone(),
            payer_name: new.payer_name.clone(),
            state: State::Submitting,
            version: 1,
            failure_reason: None,
            otp_tries: 0,
            otp_expires_at: None,
            seen_at_rail: false,
            mismatched: false,
            submitted_at: now,
            taken_by: Some(taken_by),
            resent_at: None,
            next_query_at: Some(timing.next_query(now, taken_by, now)),
            hints: 0,
            lease_until: None,
            fence: None,
            traceparent: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// What the payer is debited.
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }

    /// The same as its session counts it.
    pub fn session_amount(&self) -> Money {
        Money::new(self.session_amount_minor, self.session_currency)
    }

    pub fn progress(&self) -> Progress {
        Progress {
            state: self.state,
            failure_reason: self.failure_reason,
            otp_tries: self.otp_tries,
        }
    }

    pub fn otp_tries_left(&self) -> i64 {
        OTP_TRIES_MAX - self.otp_tries
    }

    /// This charge after `event`, its timers set and nobody working on it.
    pub fn after(&self, event: Event, now: Timestamp, timing: Timing<'_>) -> Result<Self, Illegal> {
        let progress = next(self.progress(), event)?;
        let mut after = self.clone();
        after.state = progress.state;
        after.failure_reason = progress.failure_reason;
        after.otp_tries = progress.otp_tries;
        after.version += 1;
        after.updated_at = now;
        after.lease_until = None;
        after.fence = None;
        after.seen_at_rail |= is_shown_by_rail(event);
        let is_submission = event == Event::CodeSent;
        // The rail went on without a code: its queries count from when we learn it.
        let is_unasked = self.state == State::OtpRequired && progress.state == State::Initiated;
        if is_submission || is_unasked {
            after.submitted_at = now;
            let over_by = if is_submission {
                CALL_OVER_BY
            } else {
                Duration::ZERO
            };
            after.taken_by = Some(now + over_by);
        }
        if progress.state == State::OtpRequired && after.otp_expires_at.is_none() {
            after.otp_expires_at = Some(now + timing.otp_lifetime);
        }
        after.next_query_at = match event {
            Event::Approved => Some(now),
            _ => after.query_after(now, timing),
        };
        Ok(after)
    }

    /// When the rail is asked after `now`, if nothing happens before (design: "Unknown outcomes").
    pub fn query_after(&self, now: Timestamp, timing: Timing<'_>) -> Option<Timestamp> {
        let scheduled = || timing.next_query(self.submitted_at, self.taken_by(), now);
        match self.state {
            State::Submitting | State::Initiated | State::OtpSubmitting => Some(scheduled()),
            // No query schedule runs here, only the code's own timer.
            State::OtpRequired => match self.otp_expires_at {
                Some(expires_at) if now < expires_at => Some(expires_at),
                Some(_) | None => Some(scheduled()),
            },
            State::Failed => Timing::query_after_failure(self.updated_at, now),
            State::Settled | State::Void => None,
        }
    }

    /// The same after a query, at `now`, that the rail did not answer.
    pub fn query_after_silence(&self, now: Timestamp, timing: Timing<'_>) -> Option<Timestamp> {
        match self.state {
            State::Failed => Some(Timing::query_after_unanswered_look(self.updated_at, now)),
            _ => self.query_after(now, timing),
        }
    }
}

/// Whether the event shows that the rail knows our reference.
fn is_shown_by_rail(event: Event) -> bool {
    match event {
        Event::Accepted
        | Event::Approved
        | Event::AlreadyKnown
        | Event::CodeWanted
        | Event::CodeWrong
        | Event::Settled => true,
        Event::Withdrawn
        | Event::Unanswered
        | Event::CodeSent
        | Event::CodeNotSent
        | Event::Failed(_) => false,
    }
}

#[cfg(test)]
pub mod tests;
