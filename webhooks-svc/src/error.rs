//! What can go wrong here, and what callers are told.

use std::borrow::Cow;

use chassis::{
    error_chain::chain,
    grpc::{self, Reason},
    sealed::SecretError,
};
use tonic::{Code, Status};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the merchant has no webhook endpoint")]
    EndpointNotFound,
    #[error("the merchant has no such event")]
    EventNotFound,
    #[error("no such delivery")]
    DeliveryNotFound,
    #[error("no such replay")]
    ReplayNotFound,
    #[error("the endpoint has changed since")]
    FormUsed,
    #[error("another replay has not ended")]
    ReplayRunning,
    #[error("no such conformance run")]
    ConformanceNotFound,
    #[error("the conformance run before it runs")]
    ConformanceRunning,
    #[error("too many tests and conformance runs within a minute")]
    TooManyTrials,
    #[error("too many searches")]
    TooManySearches(#[from] db::TooManySearches),
    #[error("invalid {field}")]
    Invalid {
        field: &'static str,
        message: Cow<'static, str>,
    },
    #[error("a signing secret cannot be read")]
    Secret(#[from] SecretError),
    #[error("the database failed")]
    Database(#[from] db::Error),
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::EndpointNotFound => {
                grpc::status(Code::NotFound, Reason::EndpointNotFound, message)
            }
            Error::EventNotFound => grpc::status(Code::NotFound, Reason::EventNotFound, message),
            Error::DeliveryNotFound => {
                grpc::status(Code::NotFound, Reason::DeliveryNotFound, message)
            }
            Error::ReplayNotFound => grpc::status(Code::NotFound, Reason::ReplayNotFound, message),
            Error::FormUsed => grpc::status(Code::FailedPrecondition, Reason::FormUsed, message),
            Error::ReplayRunning => {
                grpc::status(Code::FailedPrecondition, Reason::ReplayRunning, message)
            }
            Error::ConformanceNotFound => {
                grpc::status(Code::NotFound, Reason::ConformanceNotFound, message)
            }
            Error::ConformanceRunning => grpc::status(
                Code::FailedPrecondition,
                Reason::ConformanceRunning,
                message,
            ),
            Error::TooManyTrials => {
                grpc::status(Code::ResourceExhausted, Reason::TooManyTries, message)
            }
            Error::TooManySearches(_) => {
                grpc::status(Code::ResourceExhausted, Reason::NothingStarted, message)
            }
            Error::Invalid { field, message } => grpc::invalid(&[(field, &message)]),
            Error::Secret(source) => {
                tracing::error!(error = %chain(&source), "a signing secret cannot be read");
                grpc::status(Code::Internal, Reason::SecretUnreadable, message)
            }
            Error::Database(source) => db::status(&source),
        }
    }
}
