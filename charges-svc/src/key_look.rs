//! Looks for keys in sets: whoever is refused a new charge must know whether it is one, and many
//! are refused at the same moment.

use db::{Db, Grouped, Result, idempotency::IdempotencyKey};

use crate::store::idempotency::taken_set;

/// Whether an earlier request has this key, so that this one is a repeat.
#[derive(Debug)]
pub struct KeyLook(pub IdempotencyKey);

impl Grouped for KeyLook {
    type Outcome = bool;

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<bool>> {
        let keys: Vec<_> = set.iter().map(|look| &look.0).collect();
        taken_set(&mut db.read().await?, &keys).await
    }
}
