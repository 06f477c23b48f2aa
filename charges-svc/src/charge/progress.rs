//! How far a charge has come: the state machine.

use chassis::{charge_status::ChargeStatus, clock::Timestamp, failure::FailureReason};
use sqlx::FromRow;

/// How many codes a payer may try.
pub const OTP_TRIES_MAX: i64 = 3;

chassis::closed_list! {
    /// Where a charge stands inside this service.
    pub enum State: "a charge's state" {
        /// Recorded. The rail may have been called, but its reply is not here.
        Submitting = "SUBMITTING",
        /// The payer has the prompt, or may have it.
        Initiated = "INITIATED",
        /// The rail is waiting for a code from the payer.
        OtpRequired = "OTP_REQUIRED",
        /// A code is on its way to the rail, whose reply is not here.
        OtpSubmitting = "OTP_SUBMITTING",
        /// The payer was debited.
        Settled = "SETTLED",
        /// It ended without a debit, see `failure_reason`.
        Failed = "FAILED",
        /// Nothing was ever sent. Shown to nobody.
        Void = "VOID",
    }
}

chassis::text_column!(State);

/// What can happen to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing was sent and nothing will be.
    Withdrawn,
    /// The rail has the payment, or its code, and is waiting for the payer.
    Accepted,
    /// The rail's reply says that the payer was debited. The rail is queried at once.
    Approved,
    /// The payment request may have reached the rail. Only a query can tell.
    Unanswered,
    /// The rail refuses the reference because it already has it. Only a query can tell the rest.
    AlreadyKnown,
    /// The rail is waiting for a code.
    CodeWanted,
    /// A code is about to be sent to the rail.
    CodeSent,
    /// The rail says that the code was wrong.
    CodeWrong,
    /// The code was not sent after all.
    CodeNotSent,
    /// The rail says that it debited the payer what we asked for.
    Settled,
    /// The rail says that the payment failed, or the code did not arrive in time.
    Failed(FailureReason),
}

/// The part of a charge that the state machine reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Progress {
    pub state: State,
    /// Starts at 1 and increases with each change of state.
    pub version: i64,
    /// Present only with FAILED. As it was stored; only a newer version may know it.
    pub failure_reason: Option<String>,
    /// How many codes were sent to the rail.
    pub otp_tries: i64,
    /// The rail has shown that it knows our reference.
    pub seen_at_rail: bool,
    /// The rail reported money that is not what we asked for, so the charge can no longer settle.
    pub mismatched: bool,
    /// When the state last changed.
    pub updated_at: Timestamp,
}

/// The event cannot happen to a charge in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a charge in state {state} takes no event {event:?}")]
pub struct IllegalTransition {
    pub state: State,
    pub event: Event,
}

impl Progress {
    /// The progress of a charge that is recorded `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: State::Submitting,
            version: 1,
            failure_reason: None,
            otp_tries: 0,
            seen_at_rail: false,
            mismatched: false,
            updated_at: now,
        }
    }

    pub fn otp_tries_left(&self) -> i64 {
        OTP_TRIES_MAX - self.otp_tries
    }

    /// Makes every legal transition, and refuses the others.
    pub fn after(&self, event: Event, now: Timestamp) -> Result<Self, IllegalTransition> {
        use State::{Failed, Initiated, OtpRequired, OtpSubmitting, Settled, Submitting, Void};

        let to = |state| Self {
            state,
            version: self.version + 1,
            seen_at_rail: self.seen_at_rail || event.is_shown_by_rail(),
            updated_at: now,
            ..self.clone()
        };
        let failed = |reason: FailureReason| Self {
            failure_reason: Some(reason.code().to_owned()),
            ..to(Failed)
        };
        match (self.state, event) {
            (Submitting, Event::Withdrawn) => Ok(to(Void)),
            (Submitting, Event::Unanswered | Event::AlreadyKnown) => Ok(to(Initiated)),
            (Submitting | OtpRequired | OtpSubmitting, Event::Accepted) => Ok(to(Initiated)),
            (Submitting | OtpSubmitting, Event::Approved) => Ok(to(Initiated)),
            // Only the rail's reply to the code itself says that it was wrong. A rail that still
            // wants a code may not have checked the last one yet.
            (OtpSubmitting, Event::CodeWrong) if self.otp_tries >= OTP_TRIES_MAX => {
                Ok(failed(FailureReason::OtpAttemptsExceeded))
            }
            (OtpSubmitting, Event::CodeWrong) => Ok(to(OtpRequired)),
            (Submitting | Initiated | OtpSubmitting, Event::CodeWanted)
                if self.otp_tries < OTP_TRIES_MAX =>
            {
                Ok(to(OtpRequired))
            }
            (OtpRequired, Event::CodeSent) => Ok(Self {
                otp_tries: self.otp_tries + 1,
                ..to(OtpSubmitting)
            }),
            (OtpSubmitting, Event::CodeNotSent) => Ok(Self {
                otp_tries: self.otp_tries - 1,
                ..to(OtpRequired)
            }),
            (Submitting | Initiated | OtpRequired | OtpSubmitting, Event::Settled) => {
                Ok(to(Settled))
            }
            (Submitting | Initiated | OtpRequired | OtpSubmitting, Event::Failed(reason)) => {
                Ok(failed(reason))
            }
            (state, event) => Err(IllegalTransition { state, event }),
        }
    }
}

impl Event {
    /// Whether this event shows that the rail knows our reference.
    pub fn is_shown_by_rail(self) -> bool {
        match self {
            Self::Accepted
            | Self::Approved
            | Self::AlreadyKnown
            | Self::CodeWanted
            | Self::CodeWrong
            | Self::Settled => true,
            Self::Withdrawn
            | Self::Unanswered
            | Self::CodeSent
            | Self::CodeNotSent
            | Self::Failed(_) => false,
        }
    }
}

impl State {
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Settled | Self::Failed | Self::Void => true,
            Self::Submitting | Self::Initiated | Self::OtpRequired | Self::OtpSubmitting => false,
        }
    }

    /// The status that merchants see. A void charge has none.
    pub fn shown(self) -> Option<ChargeStatus> {
        match self {
            Self::Submitting | Self::Initiated | Self::OtpSubmitting => {
                Some(ChargeStatus::Initiated)
            }
            Self::OtpRequired => Some(ChargeStatus::OtpRequired),
            Self::Settled => Some(ChargeStatus::Settled),
            Self::Failed => Some(ChargeStatus::Failed),
            Self::Void => None,
        }
    }
}
