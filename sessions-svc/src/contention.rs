//! What becomes of a transaction that met another one.

use std::io;

/// How often a transaction is tried before its caller is told to come back.
pub const ATTEMPTS_MAX: usize = 5;

pub type Attempt<T> = Result<T, Interruption>;

/// Why a transaction was given up. Nothing was written.
#[derive(Debug)]
pub enum Interruption {
    /// Somebody else changed what it had read.
    Contended,
    Failed(db::Error),
}

impl From<db::Error> for Interruption {
    fn from(error: db::Error) -> Self {
        match db::is_unique_violation(&error) {
            true => Self::Contended,
            false => Self::Failed(error),
        }
    }
}

/// For whoever was interrupted as often as it may try: the caller is told to come back.
pub fn out_of_attempts() -> db::Error {
    db::Error::Io(io::Error::other("others kept changing the same records"))
}
