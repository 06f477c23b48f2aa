//! What can go wrong here, and what callers see of it.

use std::borrow::Cow;

use chassis::{
    error_chain::chain,
    grpc::{self, Reason},
    ids::Reference,
    money::{Money, MoneyError},
};
use rails::CallbackError;
use tonic::{Code, Status};

use crate::{
    charge::{IllegalTransition, Void},
    disbursement::{DisbursementRefusal, IllegalEvent, Kind, NotARefusal},
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no such charge")]
    ChargeNotFound,
    #[error("the charge is not awaiting a code")]
    NotAwaitingOtp,
    #[error("a request with this key is running")]
    IdempotencyInProgress,
    #[error("the key was used with another request")]
    IdempotencyKeyReused,
    /// Returned only if it is certain: what this request wrote is gone, and no earlier request has
    /// its key.
    #[error("nothing was started, try again")]
    NothingStarted,
    #[error("nobody knows what was started")]
    OutcomeUnknown,
    #[error(transparent)]
    TooManySearches(#[from] db::TooManySearches),
    #[error("the session cannot be paid")]
    SessionNotPayable,
    #[error("no such rail or token")]
    CallbackNotFound,
    #[error("the callback's signature is missing or wrong")]
    CallbackSignatureInvalid,
    #[error("the charge has ended")]
    ChargeAlreadyTerminal,
    #[error("the rail reported something else than we asked for")]
    EvidenceMismatch,
    #[error("no such case")]
    CaseNotFound,
    #[error("the case is closed")]
    CaseClosed,
    #[error("the case's charge is still open")]
    CaseNeedsChargeResolved,
    #[error(
        "the merchant was credited for this session by {0}: refund the payer, or release with the \
         reason why both payments are the merchant's"
    )]
    ReleaseWouldCreditTwice(Reference),
    #[error(
        "the rail took this payment back: refund, or release with the reason why the money is the \
         merchant's all the same"
    )]
    ReleaseAfterReversal,
    #[error(
        "what the merchant was credited for this charge was taken back before: release, which posts \
         nothing"
    )]
    AlreadyTakenBack,
    #[error("the money of this case is on its way to the payer")]
    CaseBeingRefunded,
    #[error("the rail took this payment back, so there is nothing to send: close it as refunded")]
    RefundAfterReversal,
    #[error("the payer has this money: the rail paid an earlier refund of it after it had failed")]
    RefundPaidLate,
    #[error(transparent)]
    Refused(#[from] DisbursementRefusal),
    /// An earlier request with the same key was.
    #[error("{0}, when it was first asked for")]
    RefusedBefore(DisbursementRefusal),
    #[error("the refusal is not readable")]
    RefusalUnreadable(#[from] NotARefusal),
    /// Of a form that has seen another state.
    #[error("the payout account has been set meanwhile")]
    FormUsed,
    #[error("the merchant has no payout account")]
    PayoutAccountNotFound,
    /// Carries the name that the rail knows, if it told one.
    #[error("the rail does not confirm the holder of this account")]
    HolderMismatch(Option<String>),
    #[error("the id was used for another move")]
    FloatMoveReused,
    #[error("no such payout")]
    PayoutNotFound,
    #[error("no such refund")]
    RefundNotFound,
    #[error("no such disbursement")]
    DisbursementNotFound,
    #[error("the disbursement has ended")]
    DisbursementAlreadyTerminal,
    #[error("it is being sent, or asked about, at this moment: try again in a minute")]
    DisbursementInHand,
    #[error("nothing was sealed up to the end of that day")]
    StatementNotFound,
    #[error("the day is not over, or not proven yet")]
    StatementNotReady,
    #[error("no key is configured that signs statements")]
    StatementKeyMissing,
    /// Carries the account.
    #[error("the day's lines of {0} do not lead to its closing balance")]
    StatementDiffers(String),
    #[error("the day's blocks are not as they were sealed")]
    BlocksChanged,
    #[error("not everything booked in this period can be listed yet: try again in a minute")]
    PostingsNotSealed,
    #[error("invalid {field}")]
    Invalid {
        field: &'static str,
        message: Cow<'static, str>,
    },
    #[error("the charge cannot take this step")]
    Illegal(#[from] IllegalTransition),
    #[error("the disbursement cannot take this step")]
    IllegalEvent(#[from] IllegalEvent),
    #[error("the ledger cannot hold this")]
    Ledger(#[from] MoneyError),
    /// It is locked, so this is a bug.
    #[error("the charge is not as it was read")]
    NotAsBefore,
    #[error("other reports about the same payments are being compared")]
    ComparedAtOnce,
    #[error("another replica has taken it over")]
    TakenOver,
    #[error("the ledger holds this posting already")]
    PostedBefore,
    #[error("the database failed")]
    Database(#[from] db::Error),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error as the caller of a call about this kind of disbursement knows it.
    pub fn of(self, kind: Kind) -> Self {
        match (self, kind) {
            (Self::DisbursementNotFound, Kind::Payout) => Self::PayoutNotFound,
            (Self::DisbursementNotFound, Kind::Refund) => Self::RefundNotFound,
            (other, _) => other,
        }
    }

    /// The error of a statement that waits for other users of the same key.
    pub fn of_contended_key(error: db::Error) -> Self {
        if db::is_retryable(&error) {
            Self::IdempotencyInProgress
        } else {
            error.into()
        }
    }
}

fn refused_to_disburse(
    refusal: &DisbursementRefusal,
    message: String,
    mut told: Vec<(&str, String)>,
) -> Status {
    let mut tell_amount = |name, amount: &Money| {
        let currency = amount.currency().code().to_owned();
        told.extend([
            (name, amount.minor_units().to_string()),
            ("currency", currency),
        ]);
    };
    let (code, reason) = match refusal {
        DisbursementRefusal::ChargeNotSettled => {
            (Code::FailedPrecondition, Reason::ChargeNotSettled)
        }
        DisbursementRefusal::RefundExceedsCharge(left) => {
            tell_amount("refundable_minor", left);
            (Code::FailedPrecondition, Reason::RefundExceedsCharge)
        }
        DisbursementRefusal::PartOfCharge(fault) => return grpc::invalid(&[("amount", fault)]),
        DisbursementRefusal::InsufficientBalance(available) => {
            tell_amount("available_minor", available);
            (Code::FailedPrecondition, Reason::InsufficientBalance)
        }
        DisbursementRefusal::PayoutsNotEnabled => {
            (Code::PermissionDenied, Reason::PayoutsNotEnabled)
        }
        DisbursementRefusal::PayoutAccountOnHold(until) => {
            told.push(("held_until", until.to_string()));
            (Code::FailedPrecondition, Reason::PayoutAccountOnHold)
        }
        DisbursementRefusal::PayoutTermsChanged => {
            (Code::FailedPrecondition, Reason::PayoutTermsChanged)
        }
    };
    grpc::status_with(code, reason, message, told)
}

impl From<CallbackError> for Error {
    fn from(error: CallbackError) -> Self {
        match error {
            CallbackError::WrongToken => Self::CallbackNotFound,
            CallbackError::WrongSignature => Self::CallbackSignatureInvalid,
        }
    }
}

impl From<Void> for Error {
    fn from(Void: Void) -> Self {
        Self::ChargeNotFound
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let told = |code, reason| grpc::status(code, reason, message.clone());
        let refused = |reason| told(Code::FailedPrecondition, reason);
        match &error {
            Error::ChargeNotFound => told(Code::NotFound, Reason::ChargeNotFound),
            Error::NotAwaitingOtp => refused(Reason::ChargeNotAwaitingOtp),
            Error::IdempotencyInProgress => told(Code::Aborted, Reason::IdempotencyInProgress),
            Error::IdempotencyKeyReused => told(Code::AlreadyExists, Reason::IdempotencyKeyReused),
            Error::NothingStarted => told(Code::Unavailable, Reason::NothingStarted),
            Error::TooManySearches(_) => told(Code::ResourceExhausted, Reason::NothingStarted),
            Error::OutcomeUnknown => told(Code::Unavailable, Reason::OutcomeUnknown),
            Error::SessionNotPayable => refused(Reason::SessionNotPayable),
            Error::CallbackNotFound => told(Code::NotFound, Reason::CallbackNotFound),
            Error::CallbackSignatureInvalid => {
                told(Code::Unauthenticated, Reason::CallbackSignatureInvalid)
            }
            Error::ChargeAlreadyTerminal => refused(Reason::ChargeAlreadyTerminal),
            Error::EvidenceMismatch => refused(Reason::EvidenceMismatch),
            Error::CaseNotFound => told(Code::NotFound, Reason::CaseNotFound),
            Error::CaseClosed => refused(Reason::CaseClosed),
            Error::CaseNeedsChargeResolved => refused(Reason::CaseNeedsChargeResolved),
            Error::ReleaseWouldCreditTwice(_) => refused(Reason::ReleaseWouldCreditTwice),
            Error::ReleaseAfterReversal => refused(Reason::ReleaseAfterReversal),
            Error::AlreadyTakenBack => refused(Reason::AlreadyTakenBack),
            Error::CaseBeingRefunded => refused(Reason::CaseBeingRefunded),
            Error::RefundAfterReversal => refused(Reason::RefundAfterReversal),
            Error::RefundPaidLate => refused(Reason::RefundPaidLate),
            Error::DisbursementInHand => told(Code::Aborted, Reason::DisbursementInHand),
            Error::Refused(refusal) => refused_to_disburse(refusal, message, vec![]),
            Error::RefusedBefore(refusal) => {
                let replayed = vec![("replayed", "true".to_owned())];
                refused_to_disburse(refusal, message, replayed)
            }
            Error::FormUsed => refused(Reason::FormUsed),
            Error::PayoutAccountNotFound => told(Code::NotFound, Reason::PayoutAccountNotFound),
            Error::FloatMoveReused => told(Code::AlreadyExists, Reason::FloatMoveReused),
            Error::PayoutNotFound => told(Code::NotFound, Reason::PayoutNotFound),
            Error::RefundNotFound => told(Code::NotFound, Reason::RefundNotFound),
            Error::DisbursementNotFound => told(Code::NotFound, Reason::DisbursementNotFound),
            Error::DisbursementAlreadyTerminal => refused(Reason::DisbursementAlreadyTerminal),
            Error::StatementNotFound => told(Code::NotFound, Reason::StatementNotFound),
            Error::StatementNotReady => refused(Reason::StatementNotReady),
            Error::StatementKeyMissing => told(Code::Unavailable, Reason::StatementKeyMissing),
            Error::ComparedAtOnce => told(Code::Aborted, Reason::ComparedAtOnce),
            Error::PostingsNotSealed => refused(Reason::PostingsNotSealed),
            Error::HolderMismatch(name) => {
                let (code, reason) = (Code::FailedPrecondition, Reason::HolderMismatch);
                let name = [("rail_holder_name", name.clone().unwrap_or_default())];
                grpc::status_with(code, reason, message, name)
            }
            Error::Invalid { field, message } => grpc::invalid(&[(field, message)]),
            Error::Illegal(_)
            | Error::IllegalEvent(_)
            | Error::Ledger(_)
            | Error::NotAsBefore
            | Error::TakenOver
            | Error::PostedBefore
            | Error::RefusalUnreadable(_)
            | Error::StatementDiffers(_)
            | Error::BlocksChanged => {
                tracing::error!(error = %chain(&error), "the call failed");
                told(Code::Internal, Reason::Internal)
            }
            Error::Database(source) => db::status(source),
        }
    }
}
