//! Who holds a charge.

use std::time::Duration;

use chassis::clock::{Clock, Term, Timestamp};
use sqlx::FromRow;
use uuid::Uuid;

/// The record of who holds a charge. Empty if nobody does.
#[derive(Clone, Copy, Debug, Default, FromRow)]
pub struct Claim {
    /// Real time. Until then nobody else may claim the charge.
    pub lease_until: Option<Timestamp>,
    /// Only its holder may release the charge.
    pub fence: Option<Uuid>,
}

/// The right to work on a charge, as its holder has it.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub fence: Uuid,
    pub term: Term,
}

impl Lease {
    /// A lease that begins now and is written afterwards.
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
