//! Who works on a charge.

use std::time::Duration;

use chassis::clock::{Clock, Term, Timestamp};
use sqlx::FromRow;
use uuid::Uuid;

/// Who works on a charge, as it is written down; empty: nobody does.
#[derive(Clone, Copy, Debug, Default, FromRow)]
pub struct Claim {
    /// Real time. Until then nobody else works on the charge.
    pub lease_until: Option<Timestamp>,
    /// Only who holds it may release the charge.
    pub fence: Option<Uuid>,
}

/// The right to work on a charge, in the hands of who has it.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub fence: Uuid,
    pub term: Term,
}

impl Lease {
    /// One that begins now, to be written after that.
    pub fn new(clock: &Clock, length: Duration) -> Self {
        Self {
            fence: Uuid::new_v4(),
            term: clock.term(length),
        }
    }
}

impl From<Lease> for Claim {
    fn from(lease: Lease) -> Self {
        Self {
            lease_until: Some(lease.term.until),
            fence: Some(lease.fence),
        }
    }
}
