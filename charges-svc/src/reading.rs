//! Reads charges in sets: the requests that wait at the same moment share a statement.

use std::collections::HashMap;

use chassis::{
    ids::{MerchantId, Reference},
    sets::LARGE_SET,
};
use db::{Db, Grouped, Result};

use crate::{charge::Charge, store};

/// A merchant's charge to show, unless it is void.
#[derive(Debug)]
pub struct Reading {
    pub merchant_id: MerchantId,
    pub reference: Reference,
}

impl Grouped for Reading {
    type Outcome = Option<Charge>;

    /// While one waits for its answer, another can be formed.
    const BESIDE_MIN: usize = LARGE_SET;

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<Self::Outcome>> {
        let references: Vec<_> = set.iter().map(|reading| &reading.reference).collect();
        let found = store::charges::find_shown(&mut db.read().await?, &references).await?;
        let found: HashMap<_, _> = found
            .iter()
            .map(|charge| (&charge.facts.reference, charge))
            .collect();
        let outcome = |reading: &Self| {
            let charge = *found.get(&reading.reference)?;
            (charge.facts.merchant_id == reading.merchant_id).then(|| charge.clone())
        };
        Ok(set.iter().map(outcome).collect())
    }
}
