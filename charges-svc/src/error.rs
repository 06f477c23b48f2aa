//! What can go wrong here, and what callers see of it.

use std::borrow::Cow;

use chassis::{
    error_chain::chain,
    grpc::{self, Reason},
    ids::Reference,
    money::MoneyError,
};
use rails::CallbackError;
use tonic::{Code, Status};

use crate::charge::{IllegalTransition, Void};

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
    #[error("invalid {field}")]
    Invalid {
        field: &'static str,
        message: Cow<'static, str>,
    },
    #[error("the charge cannot take this step")]
    Illegal(#[from] IllegalTransition),
    #[error("the ledger cannot hold this")]
    Ledger(#[from] MoneyError),
    /// It is locked, so this is a bug.
    #[error("the charge is not as it was read")]
    NotAsBefore,
    #[error("the ledger holds this posting already")]
    PostedBefore,
    #[error("the database failed")]
    Database(#[from] db::Error),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error of a statement that waits for other users of the same key.
    pub fn of_contended_key(error: db::Error) -> Self {
        if db::is_retryable(&error) {
            Self::IdempotencyInProgress
        } else {
            error.into()
        }
    }
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
        match &error {
            Error::ChargeNotFound => told(Code::NotFound, Reason::ChargeNotFound),
            Error::NotAwaitingOtp => told(Code::FailedPrecondition, Reason::ChargeNotAwaitingOtp),
            Error::IdempotencyInProgress => told(Code::Aborted, Reason::IdempotencyInProgress),
            Error::IdempotencyKeyReused => told(Code::AlreadyExists, Reason::IdempotencyKeyReused),
            Error::NothingStarted => told(Code::Unavailable, Reason::NothingStarted),
            Error::OutcomeUnknown => told(Code::Unavailable, Reason::OutcomeUnknown),
            Error::SessionNotPayable => told(Code::FailedPrecondition, Reason::SessionNotPayable),
            Error::CallbackNotFound => told(Code::NotFound, Reason::CallbackNotFound),
            Error::CallbackSignatureInvalid => {
                told(Code::Unauthenticated, Reason::CallbackSignatureInvalid)
            }
            Error::ChargeAlreadyTerminal => {
                told(Code::FailedPrecondition, Reason::ChargeAlreadyTerminal)
            }
            Error::EvidenceMismatch => told(Code::FailedPrecondition, Reason::EvidenceMismatch),
            Error::CaseNotFound => told(Code::NotFound, Reason::CaseNotFound),
            Error::CaseClosed => told(Code::FailedPrecondition, Reason::CaseClosed),
            Error::CaseNeedsChargeResolved => {
                told(Code::FailedPrecondition, Reason::CaseNeedsChargeResolved)
            }
            Error::ReleaseWouldCreditTwice(_) => {
                told(Code::FailedPrecondition, Reason::ReleaseWouldCreditTwice)
            }
            Error::ReleaseAfterReversal => {
                told(Code::FailedPrecondition, Reason::ReleaseAfterReversal)
            }
            Error::AlreadyTakenBack => told(Code::FailedPrecondition, Reason::AlreadyTakenBack),
            Error::Invalid { field, message } => grpc::invalid(&[(field, message)]),
            Error::Illegal(_) | Error::Ledger(_) | Error::NotAsBefore | Error::PostedBefore => {
                tracing::error!(error = %chain(&error), "the call failed");
                told(Code::Internal, Reason::Internal)
            }
            Error::Database(source) => db::status(source),
        }
    }
}
