//! What can go wrong, and what callers are told.

use std::borrow::Cow;

use chassis::grpc::{self, Reason};
use tonic::{Code, Status};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown or revoked API key")]
    InvalidApiKey,
    #[error("no such merchant")]
    MerchantNotFound,
    #[error("no such API key")]
    KeyNotFound,
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
            Error::Invalid { field, message } => grpc::invalid(&[(field, &message)]),
            Error::Database(source) => db::status(&source),
        }
    }
}
