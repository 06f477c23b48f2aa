//! What can go wrong here, and what callers are told.

use std::borrow::Cow;

use chassis::grpc::{self, Reason};
use tonic::{Code, Status};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no such session")]
    SessionNotFound,
    #[error("no such customer")]
    CustomerNotFound,
    #[error("the session is another merchant's or has another amount")]
    SessionMismatch,
    #[error("the key was used with another request")]
    IdempotencyKeyReused,
    #[error("another request with this key is running")]
    IdempotencyInProgress,
    #[error("invalid {field}")]
    Invalid {
        field: &'static str,
        message: Cow<'static, str>,
    },
    #[error(transparent)]
    TooManySearches(#[from] db::TooManySearches),
    #[error("the database failed")]
    Database(#[from] db::Error),
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::SessionNotFound => {
                grpc::status(Code::NotFound, Reason::SessionNotFound, message)
            }
            Error::CustomerNotFound => {
                grpc::status(Code::NotFound, Reason::CustomerNotFound, message)
            }
            Error::SessionMismatch => {
                grpc::status(Code::FailedPrecondition, Reason::SessionMismatch, message)
            }
            Error::IdempotencyKeyReused => {
                grpc::status(Code::AlreadyExists, Reason::IdempotencyKeyReused, message)
            }
            Error::IdempotencyInProgress => {
                grpc::status(Code::Aborted, Reason::IdempotencyInProgress, message)
            }
            Error::Invalid { field, message } => grpc::invalid(&[(field, &message)]),
            Error::TooManySearches(_) => {
                grpc::status(Code::ResourceExhausted, Reason::NothingStarted, message)
            }
            Error::Database(source) => db::status(&source),
        }
    }
}
