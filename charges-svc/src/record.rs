//! Charges that are recorded at the same moment are recorded together, each with its key.
//!
//! Nearly every key is new. So a set of direct charges is first written by one statement, which writes
//! nothing if a key is not. Its commit is a message of its own, because somebody may give up before it.
//! If nothing was written, another transaction finds out, with a round trip for each step, what each
//! key stands for and each session allows. So does that of hosted charges, whose numbers and sessions
//! are not known to be free.
//!
//! Promise: whoever has given up on a record and then finds that its key is free is right: it is
//! not recorded any more.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use chassis::ids::{ChargeId, MerchantId};
use db::{
    Db, Error, Grouped, Result, Tx,
    idempotency::{IdempotencyKey, KeyUse, WantedKey},
};

use crate::{
    charge::Charge,
    store::{
        charges,
        idempotency::{FirstRequest, KEYS},
    },
};

/// A charge to record, and its key.
#[derive(Debug)]
pub struct Recording {
    pub charge: Charge,
    pub key: IdempotencyKey,
    pub patience: Patience,
    /// Whether a commit of it has been tried, of which nobody knows what became.
    has_been_tried: AtomicBool,
}

/// Whether somebody still waits for a record. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Patience(Arc<AtomicBool>);

impl Patience {
    /// What is not about to be committed now will not be.
    pub fn end(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What became of a recording.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// It is recorded, under this number of its session.
    Numbered(i64),
    /// A try before has recorded it, and its answer was lost.
    Before,
    /// The key stands for an earlier request.
    Repeat(FirstRequest),
    /// The key was used with another request.
    Reuse,
    /// The key's charge has become void meanwhile.
    Freed,
    /// The session has an open charge or is being given one.
    NotPayable,
    /// Somebody else is taking the key, and did not end in time.
    Contended,
    /// Nobody waits any more.
    GivenUp,
}

impl Grouped for Recording {
    type Outcome = Recorded;

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<Recorded>> {
        let is_awaited: Vec<bool> = set.iter().map(|one| !one.patience.is_over()).collect();
        let awaited = set.iter().zip(&is_awaited);
        let awaited: Vec<&Self> = awaited
            .filter(|(_, is_awaited)| **is_awaited)
            .map(|(one, _)| one)
            .collect();
        let mut recorded = record(db, &awaited).await?.into_iter();
        let outcomes = is_awaited.into_iter().map(|is_awaited| match is_awaited {
            true => recorded.next().ok_or(Error::WorkerCrashed),
            false => Ok(Recorded::GivenUp),
        });
        outcomes.collect()
    }
}

/// Records those for whom somebody waits.
async fn record(db: &Db, set: &[&Recording]) -> Result<Vec<Recorded>> {
    if set.is_empty() {
        return Ok(Vec::new());
    }
    let new = set
        .iter()
        .map(|one| Some((&one.charge, one.number()?)))
        .collect::<Option<Vec<_>>>();
    if let Some(new) = new {
        match record_new(db, set, &new).await {
            Err(error) if db::is_incomplete(&error) => {}
            // It waited in vain. The transaction below finds out whether for its key.
            Err(error) if db::is_retryable(&error) && is_first_alone(set) => {}
            recorded => return recorded,
        }
    }
    record_each(db, set).await
}

/// Records all of them under these numbers. If a key is taken or wanted twice, nothing is recorded and
/// it fails with [`db::is_incomplete`].
async fn record_new(db: &Db, set: &[&Recording], new: &[(&Charge, i64)]) -> Result<Vec<Recorded>> {
    let mut tx = db.begin().await?;
    let wanted: Vec<_> = set.iter().map(|one| one.wanted_key()).collect();
    let joint = KEYS.take_free_set(tx.joint(), &wanted);
    charges::insert_whole(joint, new).run().await?;
    commit(tx, set).await?;
    let recorded = new.iter().map(|(_, number)| Recorded::Numbered(*number));
    Ok(recorded.collect())
}

/// Finds out what each key stands for and each session allows, and records what may be.
async fn record_each(db: &Db, set: &[&Recording]) -> Result<Vec<Recorded>> {
    let mut tx = db.begin().await?;
    let wanted: Vec<_> = set.iter().map(|one| one.wanted_key()).collect();
    let uses: Vec<KeyUse<FirstRequest>> = match KEYS.take_set(&mut tx, &wanted).await {
        // After an earlier try it may be its own commit that takes so long.
        Err(error) if db::is_retryable(&error) && is_first_alone(set) => {
            return Ok(vec![Recorded::Contended]);
        }
        uses => uses?,
    };
    let new = set.iter().zip(&uses);
    let new = new.filter(|(_, used)| matches!(used, KeyUse::First));
    let new: Vec<_> = new.map(|(one, _)| (&one.charge, one.number())).collect();
    let inserted = charges::insert_set(&mut tx, &new).await?;
    let inserted: HashMap<_, _> = inserted.into_iter().collect();
    let new = new.iter().map(|(charge, _)| charge.facts.transaction_id);
    let refused: HashSet<ChargeId> = new.filter(|id| !inserted.contains_key(id)).collect();
    for id in &refused {
        KEYS.free(&mut tx, *id).await?;
    }
    if !inserted.is_empty() {
        commit(tx, set).await?;
    }
    let given_back = set.iter().filter(|one| refused.contains(&one.id()));
    let given_back: HashSet<_> = given_back.map(|one| one.name()).collect();
    let outcomes = set.iter().zip(uses).map(|(one, used)| match used {
        KeyUse::First => {
            let number = inserted.get(&one.id()).copied();
            number.map_or(Recorded::NotPayable, Recorded::Numbered)
        }
        KeyUse::Repeat(first) if first.transaction_id == one.id() => Recorded::Before,
        // Its twin took the key in this very set, and gave it back.
        KeyUse::Repeat(first) if refused.contains(&first.transaction_id) => Recorded::NotPayable,
        KeyUse::Reuse if given_back.contains(&one.name()) => Recorded::Freed,
        KeyUse::Repeat(first) => Recorded::Repeat(first),
        KeyUse::Reuse => Recorded::Reuse,
        KeyUse::Freed => Recorded::Freed,
    });
    Ok(outcomes.collect())
}

/// Commits the transaction that has taken the keys of these.
async fn commit(tx: Tx, set: &[&Recording]) -> Result<()> {
    // From here on, whoever gives up waits for this transaction's key.
    if set.iter().any(|one| one.patience.is_over()) {
        return Err(Error::Protocol("somebody has given up".into()));
    }
    for one in set {
        one.has_been_tried.store(true, Ordering::SeqCst);
    }
    tx.commit().await
}

/// A set of one whose commit has not been tried before.
fn is_first_alone(set: &[&Recording]) -> bool {
    matches!(set, [one] if !one.has_been_tried.load(Ordering::SeqCst))
}

impl Recording {
    pub fn new(charge: Charge, key: IdempotencyKey, patience: Patience) -> Self {
        Self {
            charge,
            key,
            patience,
            has_been_tried: AtomicBool::default(),
        }
    }

    fn name(&self) -> (MerchantId, &str) {
        (self.key.merchant_id, &self.key.key)
    }

    fn id(&self) -> ChargeId {
        self.charge.facts.transaction_id
    }

    fn wanted_key(&self) -> WantedKey<'_> {
        WantedKey {
            key: &self.key,
            subject: self.id().uuid(),
            now: self.charge.facts.created_at,
        }
    }

    /// A direct charge is the first of its session.
    fn number(&self) -> Option<i64> {
        let facts = &self.charge.facts;
        (!facts.hosted).then_some(facts.charge_number)
    }
}
