//! What can go wrong, and what callers are told.

use std::{borrow::Cow, time::Duration};

use chassis::{
    error_chain::chain,
    grpc::{self, Reason},
    sealed::SecretError,
};
use tonic::{Code, Status};

use crate::{
    business_form::{Field, FieldFault},
    password::HasherError,
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown or revoked API key")]
    InvalidApiKey,
    #[error("no such merchant")]
    MerchantNotFound,
    #[error("no such API key")]
    KeyNotFound,
    #[error("a key was made with this form")]
    FormUsed,
    #[error("too many keys are live: revoke one first")]
    TooManyKeys,
    #[error("the merchant has submitted no business")]
    BusinessNotFound,
    #[error("an operator is looking at the business")]
    BusinessInReview,
    #[error("something newer was submitted than was looked at")]
    BusinessChanged,
    #[error("fields of the form are at fault")]
    InvalidForm(Vec<(Field, FieldFault)>),
    #[error("invalid {field}")]
    Invalid {
        field: &'static str,
        message: Cow<'static, str>,
    },
    #[error("unknown e-mail address or wrong password")]
    WrongPassword,
    #[error("wrong code")]
    WrongCode,
    /// Carries how long to wait.
    #[error("too many tries")]
    TooManyTries(Duration),
    #[error("nobody is logged in")]
    LoginEnded,
    #[error("no such login")]
    LoginNotFound,
    #[error("the link is unknown, used up or too old")]
    LinkNotFound,
    #[error("no authenticator is set up")]
    TotpNotBegun,
    #[error("the address is not verified")]
    EmailNotVerified,
    #[error("the person belongs to another merchant")]
    EmailTaken,
    #[error(transparent)]
    Hasher(#[from] HasherError),
    #[error("a secret cannot be read")]
    Secret(#[from] SecretError),
    #[error("the database failed")]
    Database(#[from] db::Error),
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::InvalidApiKey => {
                grpc::status(Code::Unauthenticated, Reason::InvalidApiKey, message)
            }
            Error::MerchantNotFound => {
                grpc::status(Code::NotFound, Reason::MerchantNotFound, message)
            }
            Error::KeyNotFound => grpc::status(Code::NotFound, Reason::KeyNotFound, message),
            Error::FormUsed => grpc::status(Code::AlreadyExists, Reason::FormUsed, message),
            Error::TooManyKeys => {
                grpc::status(Code::FailedPrecondition, Reason::TooManyKeys, message)
            }
            Error::BusinessNotFound => {
                grpc::status(Code::NotFound, Reason::BusinessNotFound, message)
            }
            Error::BusinessInReview => {
                grpc::status(Code::FailedPrecondition, Reason::BusinessInReview, message)
            }
            Error::BusinessChanged => {
                grpc::status(Code::FailedPrecondition, Reason::BusinessChanged, message)
            }
            Error::InvalidForm(faults) => {
                let named = faults.iter().map(|(field, fault)| (field.code(), fault.0));
                grpc::invalid(&named.collect::<Vec<_>>())
            }
            Error::Invalid { field, message } => grpc::invalid(&[(field, &message)]),
            Error::WrongPassword => {
                grpc::status(Code::Unauthenticated, Reason::WrongPassword, message)
            }
            Error::WrongCode => grpc::status(Code::Unauthenticated, Reason::WrongCode, message),
            Error::TooManyTries(wait) => {
                let code = Code::ResourceExhausted;
                grpc::status_after(code, Reason::TooManyTries, message, wait)
            }
            Error::LoginEnded => grpc::status(Code::Unauthenticated, Reason::LoginEnded, message),
            Error::LoginNotFound => grpc::status(Code::NotFound, Reason::LoginNotFound, message),
            Error::LinkNotFound => grpc::status(Code::NotFound, Reason::LinkNotFound, message),
            Error::EmailNotVerified => {
                grpc::status(Code::FailedPrecondition, Reason::EmailNotVerified, message)
            }
            Error::EmailTaken => {
                grpc::status(Code::FailedPrecondition, Reason::EmailTaken, message)
            }
            Error::TotpNotBegun => grpc::status(Code::NotFound, Reason::TotpNotBegun, message),
            Error::Hasher(HasherError::Busy) => {
                grpc::status(Code::Unavailable, Reason::NothingStarted, message)
            }
            Error::Hasher(HasherError::Failed) => {
                grpc::status(Code::Internal, Reason::Internal, message)
            }
            Error::Secret(source) => {
                tracing::error!(error = %chain(&source), "a secret cannot be read");
                grpc::status(Code::Internal, Reason::SecretUnreadable, message)
            }
            Error::Database(source) => db::status(&source),
        }
    }
}
