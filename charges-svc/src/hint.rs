//! Callbacks that come at the same moment are recorded together.

use std::collections::{BTreeMap, HashMap};

use chassis::clock::Timestamp;
use db::{Db, Grouped, Result};
use rails::RailName;

use crate::store::{
    charges,
    hints::{self, About},
};

/// A callback to record.
#[derive(Debug)]
pub struct Hint {
    pub rail: RailName,
    pub about: About,
    pub at: Timestamp,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is durable.
    Done,
    /// It is about no charge of ours.
    NotThere,
    /// Somebody else has the charge.
    Locked,
}

impl Grouped for Hint {
    type Outcome = Kept;

    async fn write(db: &Db, set: &[Self]) -> Result<Vec<Kept>> {
        let about: Vec<_> = set.iter().map(|hint| (hint.rail, &hint.about)).collect();
        let found = hints::find_set(&mut db.read().await?, &about).await?;
        let found: HashMap<_, _> = found.into_iter().collect();
        let (mut kept, mut called) = (Vec::new(), BTreeMap::new());
        for (place, hint) in (0..).zip(set) {
            kept.push(match found.get(&place) {
                None => Kept::NotThere,
                // The same charge twice: the second follows in another set.
                Some(id) if called.contains_key(id) => Kept::Locked,
                Some(id) => {
                    called.insert(*id, hint.at);
                    Kept::Done
                }
            });
        }
        if called.is_empty() {
            return Ok(kept);
        }
        let mut tx = db.begin().await?;
        let free = charges::lock_free(&mut tx, called.keys().copied()).await?;
        called.retain(|id, _| free.contains(id));
        hints::put_set(&mut tx, &called).await?;
        tx.commit().await?;
        for (place, kept) in (0..).zip(&mut kept) {
            let id = found.get(&place);
            if *kept == Kept::Done && id.is_some_and(|id| !called.contains_key(id)) {
                *kept = Kept::Locked;
            }
        }
        Ok(kept)
    }
}
