//! Callbacks that come at the same moment are recorded together. Where the rail may be queried at
//! once, its charge is claimed with the record, so that nobody need look for it.
//!
//! Promise: a charge that is claimed and then not asked about is found once its lease is over.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chassis::{clock::Timestamp, ids::ChargeId};
use db::{Db, Grouped, Result};
use rails::RailName;

use crate::{
    charge::{Charge, Claim, Lease, State},
    store::{
        charges,
        hints::{self, About, Called},
    },
    turns::{RailTurns, Turn},
};

/// Bounds of the wait before a rail that gave no answer is queried again. Between them it is as
/// long as the callback is old, so each wait doubles the callback's age.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60 * 60);

/// When to query the rail again if it gave no answer `now` and the callback came at `hinted_at`.
pub fn ask_again(hinted_at: Timestamp, now: Timestamp) -> Timestamp {
    now + now.since(hinted_at).clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX)
}

/// A callback to record.
#[derive(Debug)]
pub struct Hint {
    pub rail: RailName,
    pub about: About,
    pub at: Timestamp,
    /// The rail's words, for operators.
    pub rail_text: Option<String>,
    pub turns: Arc<RailTurns>,
    /// With which to hold the charge, if the rail may be queried at once.
    pub lease: Lease,
    /// When the callback is due again if that query has no end.
    pub asked_until: Timestamp,
}

/// What became of it.
#[derive(Debug)]
pub enum Kept {
    /// It is durable.
    Done,
    /// It is durable. This process holds the charge, and it is its turn to query the rail.
    Claimed(Box<Charge>, Turn),
    /// It is about no charge of ours.
    NotThere,
    /// Somebody else has the charge.
    Locked,
}

impl Grouped for Hint {
    type Outcome = Kept;

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<Kept>> {
        let about: Vec<_> = set.iter().map(|hint| (hint.rail, &hint.about)).collect();
        let found = hints::find_set(&mut db.read().await?, &about).await?;
        let found: HashMap<_, _> = found.into_iter().collect();
        let mut called = HashMap::new();
        for (place, hint) in (0_i64..).zip(set) {
            if let Some(id) = found.get(&place) {
                // The same charge twice: the second follows in another set.
                called.entry(*id).or_insert((place, hint));
            }
        }
        let mut kept = match called.is_empty() {
            true => HashMap::new(),
            false => keep(db, called).await?,
        };
        let kept = (0_i64..).zip(set).map(|(place, _)| {
            let otherwise = match found.contains_key(&place) {
                true => Kept::Locked,
                false => Kept::NotThere,
            };
            kept.remove(&place).unwrap_or(otherwise)
        });
        Ok(kept.collect())
    }
}

/// Writes callbacks about these charges, each with its place in the set. Leaves out what somebody
/// else has locked, and what is void.
async fn keep(db: &Db, mut called: HashMap<ChargeId, (i64, &Hint)>) -> Result<HashMap<i64, Kept>> {
    let mut tx = db.begin().await?;
    let held = charges::hold_free(&mut tx, called.keys().copied()).await?;
    let held = held.into_iter().map(|held| held.charge);
    let held = held.filter(|charge| charge.progress.state != State::Void);
    let written = held.filter_map(|charge| {
        let (place, hint) = called.remove(&charge.facts.transaction_id)?;
        Some((place, hint.on(charge)))
    });
    let written: Vec<(i64, (Called, Kept))> = written.collect();
    let rows: Vec<&Called> = written.iter().map(|(_, (called, _))| called).collect();
    hints::put_set(&mut tx, &rows).await?;
    tx.commit().await?;
    let kept = written.into_iter().map(|(place, (_, kept))| (place, kept));
    Ok(kept.collect())
}

impl Hint {
    /// What it makes of its charge, as that stands.
    fn on(&self, mut charge: Charge) -> (Called, Kept) {
        let turn = self.turns.take(charge.claim, self.lease);
        charge.timer.hints += 1;
        if turn.is_some() {
            charge.claim = self.lease.into();
        } else if charge.claim.fence == Some(self.lease.fence) {
            // Taken by an earlier try, whose commit was not confirmed, and not to be used.
            charge.claim = Claim::default();
        }
        let called = Called {
            id: charge.facts.transaction_id,
            at: self.at,
            rail_text: self.rail_text.clone(),
            due_at: turn.as_ref().map_or(self.at, |_| self.asked_until),
            claim: charge.claim,
        };
        let kept = turn.map_or(Kept::Done, |turn| Kept::Claimed(Box::new(charge), turn));
        (called, kept)
    }
}
