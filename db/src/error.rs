//! Database errors, and the cases that callers tell apart.

use chassis::{
    closed_list::UnknownCode,
    error_chain::chain,
    grpc::{self, Reason},
};
use tonic::{Code, Status};

/// A database error. Its text may contain values of a constraint's columns: it is for logs, not
/// for clients.
pub type Error = sqlx::Error;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// PostgreSQL: serialization failure, deadlock, lock not available. SQLite: BUSY in its variants.
const RETRYABLE: &[&str] = &["40001", "40P01", "55P03", "5", "261", "517", "773"];

/// PostgreSQL: too many connections, out of resources, cancelled by a timeout, shutting down,
/// crashed, starting, idle too long in a transaction, no longer the primary.
const UNAVAILABLE: &[&str] = &[
    "53300", "53200", "53100", "57014", "57P01", "57P02", "57P03", "25P03", "25006",
];

/// Whether a row with this key already exists.
pub fn is_unique_violation(error: &Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation())
}

/// Whether a part of a joint write, which had to be [`whole`](crate::Joint::whole), was not.
pub fn is_incomplete(error: &Error) -> bool {
    matches!(error, Error::RowNotFound)
}

/// Whether the same transaction may succeed if it is run again from its start.
pub fn is_retryable(error: &Error) -> bool {
    has_code(error, RETRYABLE)
}

/// Whether the database cannot be reached or cannot keep up: nothing is wrong with the statement.
pub fn is_unavailable(error: &Error) -> bool {
    is_unreachable(error) || has_code(error, UNAVAILABLE) || is_retryable(error)
}

/// Whether there was no connection, or it broke.
fn is_unreachable(error: &Error) -> bool {
    matches!(
        error,
        Error::PoolTimedOut
            | Error::PoolClosed
            | Error::WorkerCrashed
            | Error::Io(_)
            | Error::Tls(_)
    )
}

/// Logs a database error, and returns what the caller is told.
pub fn status(error: &Error) -> Status {
    tracing::error!(error = %chain(error), "the database failed");
    let code = if is_unavailable(error) {
        Code::Unavailable
    } else {
        Code::Internal
    };
    grpc::status(code, Reason::DatabaseFailed, "the database failed")
}

/// The column whose value this version does not know, if that is the error.
pub fn unknown_value(error: &Error) -> Option<&str> {
    match error {
        Error::ColumnDecode { index, source } if source.is::<UnknownCode>() => {
            Some(index.trim_matches('"'))
        }
        _ => None,
    }
}

pub(crate) fn has_code(error: &Error, codes: &[&str]) -> bool {
    error
        .as_database_error()
        .and_then(|error| error.code())
        .is_some_and(|code| codes.contains(&&*code))
}
