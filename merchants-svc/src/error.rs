//! What can go wrong, and what callers are told.

use std::borrow::Cow;

use chassis::grpc::{self, Reason};
use tonic::{Code, Status};

use crate::business_form::{Field, FieldFault};

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
            Error::Database(source) => db::status(&source),
        }
    }
}
