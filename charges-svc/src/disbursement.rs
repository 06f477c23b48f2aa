//! What a disbursement is, and every way in which it can change: money that goes out, as a payout
//! to a merchant or a refund to a payer. Pure: no I/O, and time is an argument.
//!
//! Promise: COMPLETED and FAILED never change. Only the word of the rail or an operator leads
//! there. Once something may have been sent, a disbursement never becomes PENDING again.

mod destination;
mod refusal;
mod schedule;
mod verdict;

use chassis::{
    clock::Timestamp,
    failure::FailureReason,
    ids::{CaseId, ChargeId, DisbursementId, MerchantId, PayoutId, RailReference, RefundId},
    money::{Currency, Money, MoneyError},
};
use rails::RailName;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{
    asked_by::AskedBy,
    charge::{Claim, Facts},
};

pub use destination::{Destination, DestinationType};
pub use refusal::{DisbursementRefusal, NotARefusal};
pub use schedule::{next_query, next_send};
pub use verdict::{Verdict, is_answer, judge};

chassis::closed_list! {
    /// Why money goes out.
    pub enum Kind: "a kind of disbursement" {
        /// To the merchant's payout account.
        Payout = "PAYOUT",
        /// To the wallet that paid.
        Refund = "REFUND",
    }
}

chassis::text_column!(Kind);

chassis::closed_list! {
    /// How a disbursement stands.
    pub enum State: "a state of a disbursement" {
        /// Recorded. Nothing has been sent.
        Pending = "PENDING",
        /// Sent, or perhaps sent.
        Processing = "PROCESSING",
        /// The rail has paid it.
        Completed = "COMPLETED",
        /// The rail has declined it.
        Failed = "FAILED",
    }
}

chassis::text_column!(State);

impl State {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// One attempt to credit an account outside.
#[derive(Clone, Debug, FromRow)]
pub struct Disbursement {
    pub disbursement_id: DisbursementId,
    pub kind: Kind,
    /// `PO-…` or `RF-…`.
    pub shown_id: String,
    pub merchant_id: MerchantId,
    amount_minor: i64,
    currency: Currency,
    fee_minor: i64,
    #[sqlx(flatten)]
    pub refunded: Refunded,
    /// Made by the daily settlement, not on request.
    pub scheduled: bool,
    #[sqlx(flatten)]
    pub destination: Destination,
    /// As it was stored; only a newer version may know it.
    pub rail: String,
    pub rail_reference: RailReference,
    pub callback_token: String,
    /// The trace of the request that created it.
    pub traceparent: Option<String>,
    pub created_at: Timestamp,
    #[sqlx(flatten)]
    pub progress: Progress,
    /// When it was first sent. Absent while it is PENDING.
    pub sent_at: Option<Timestamp>,
    /// When it was sent again, under the same reference.
    pub resent_at: Option<Timestamp>,
    /// When it is next sent or asked about.
    pub next_due_at: Option<Timestamp>,
    /// Callbacks so far.
    pub hints: i64,
    #[sqlx(flatten)]
    pub claim: Claim,
    #[sqlx(flatten)]
    pub asked_by: AskedBy,
}

/// How far a disbursement has come.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Progress {
    pub state: State,
    /// Grows with each change of the state.
    pub version: i64,
    /// As it was stored; only a newer version may know it.
    pub failure_reason: Option<String>,
    pub updated_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    /// When the rail took it back after it was COMPLETED.
    pub reversed_at: Option<Timestamp>,
}

/// What a refund refunds. Empty for a payout.
#[derive(Clone, Debug, Default, FromRow)]
pub struct Refunded {
    pub transaction_id: Option<ChargeId>,
    pub reference: Option<String>,
    pub session_id: Option<Uuid>,
    /// The case whose suspense it pays out.
    pub case_id: Option<CaseId>,
}

/// What becomes of a disbursement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is about to be sent.
    Sending,
    /// It is certain that the only attempt to send it has sent nothing.
    NotSent,
    Completed,
    Failed(FailureReason),
    /// The rail took it back after it was COMPLETED.
    Reversed,
}

/// A change that a disbursement cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a disbursement that is {state} cannot take {event:?}")]
pub struct IllegalEvent {
    pub state: State,
    pub event: Event,
}

impl Disbursement {
    /// A payout that is recorded now, and due to be sent at once.
    pub fn payout(
        merchant_id: MerchantId,
        amount: Money,
        destination: Destination,
        rail: RailName,
        scheduled: bool,
        now: Timestamp,
    ) -> Self {
        let shown_id = PayoutId::new().to_string();
        let new = Self::new(Kind::Payout, shown_id, merchant_id, amount, now);
        Self {
            destination,
            rail: rail.code().to_owned(),
            scheduled,
            ..new
        }
    }

    /// A refund that is recorded now, and due to be sent at once: of what the merchant was
    /// credited, or of a case's suspense.
    pub fn refund(
        charge: &Facts,
        case_id: Option<CaseId>,
        amount: Money,
        rail: RailName,
        now: Timestamp,
    ) -> Self {
        let shown_id = RefundId::new().to_string();
        let new = Self::new(Kind::Refund, shown_id, charge.merchant_id, amount, now);
        Self {
            destination: Destination::wallet_of(charge),
            rail: rail.code().to_owned(),
            refunded: Refunded {
                transaction_id: Some(charge.transaction_id),
                reference: Some(charge.reference.to_string()),
                session_id: Some(charge.session_id.uuid()),
                case_id,
            },
            ..new
        }
    }

    fn new(
        kind: Kind,
        shown_id: String,
        merchant_id: MerchantId,
        amount: Money,
        now: Timestamp,
    ) -> Self {
        Self {
            disbursement_id: DisbursementId::new(),
            kind,
            shown_id,
            merchant_id,
            amount_minor: amount.minor_units(),
            currency: amount.currency(),
            fee_minor: 0,
            refunded: Refunded::default(),
            scheduled: false,
            destination: Destination::default(),
            rail: String::new(),
            rail_reference: RailReference::new(),
            callback_token: Uuid::new_v4().simple().to_string(),
            traceparent: chassis::telemetry::current_traceparent(),
            created_at: now,
            progress: Progress {
                state: State::Pending,
                version: 1,
                failure_reason: None,
                updated_at: now,
                completed_at: None,
                reversed_at: None,
            },
            sent_at: None,
            resent_at: None,
            next_due_at: Some(now),
            hints: 0,
            claim: Claim::default(),
            asked_by: AskedBy::default(),
        }
    }

    /// The same, for which the merchant pays this, in the amount's currency.
    pub fn with_fee(self, fee: Money) -> Self {
        let fee_minor = fee.minor_units();
        Self { fee_minor, ..self }
    }

    /// When something of it may first have left; for what is PENDING, when it was created.
    pub fn first_sent_at(&self) -> Timestamp {
        self.sent_at.unwrap_or(self.created_at)
    }

    /// What is paid.
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }

    /// What the merchant pays for it, beside the amount, once it is COMPLETED.
    pub fn fee(&self) -> Money {
        Money::new(self.fee_minor, self.currency)
    }

    /// What is reserved for it: the amount and the fee.
    pub fn reserved(&self) -> Result<Money, MoneyError> {
        let reserved = self.amount_minor.checked_add(self.fee_minor);
        let reserved = reserved.map(|minor| Money::new(minor, self.currency));
        reserved.ok_or(MoneyError::OutOfRange)
    }

    /// As it was when it was created, which is what a repeated request is told.
    pub fn as_created(self) -> Self {
        let progress = Progress {
            state: State::Pending,
            version: 1,
            failure_reason: None,
            updated_at: self.created_at,
            completed_at: None,
            reversed_at: None,
        };
        Self { progress, ..self }
    }

    /// This disbursement after `event`, held as before.
    pub fn after(&self, event: Event, now: Timestamp) -> Result<Self, IllegalEvent> {
        let mut after = self.clone();
        let progress = &mut after.progress;
        progress.version += 1;
        progress.updated_at = now;
        match (event, self.progress.state) {
            (Event::Sending, State::Pending) => {
                progress.state = State::Processing;
                after.sent_at = Some(now);
            }
            (Event::NotSent, State::Processing) if self.resent_at.is_none() => {
                progress.state = State::Pending;
                after.sent_at = None;
            }
            (Event::Completed, State::Processing) => {
                progress.state = State::Completed;
                progress.completed_at = Some(now);
            }
            (Event::Failed(reason), State::Pending | State::Processing) => {
                progress.state = State::Failed;
                progress.failure_reason = Some(reason.code().to_owned());
            }
            (Event::Reversed, State::Completed) if self.progress.reversed_at.is_none() => {
                progress.reversed_at = Some(now);
            }
            (event, state) => return Err(IllegalEvent { state, event }),
        }
        Ok(after)
    }

    /// What the transaction of a refunded charge is called: its reference without the suffix.
    pub fn tx_id_display(&self) -> Option<String> {
        let (display, _suffix) = self.refunded.reference.as_deref()?.rsplit_once('-')?;
        Some(display.to_owned())
    }

    /// The failure reason in words for people, unless only a newer version knows it.
    pub fn failure_message(&self) -> Option<&'static str> {
        let reason: FailureReason = self.progress.failure_reason.as_deref()?.parse().ok()?;
        Some(reason.message())
    }
}

#[cfg(test)]
mod tests;
