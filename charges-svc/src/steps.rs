//! Steps of charges that wait at the same moment are decided and written together.
//!
//! A step is decided in memory, and all of them are written in one round trip. If this process holds
//! every charge of a set and knows how each stands, the steps are decided on that and written by one
//! statement, which writes nothing if a charge has changed. Otherwise a transaction locks the charges
//! first. What needs more than a step, or waits for somebody else, is left to whoever asked for it, in
//! a transaction of its own.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use chassis::{ids::ChargeId, shutdown::Tasks};
use db::{Db, GroupCommit, Grouped, Result};
use tracing::Span;

use crate::store::{
    charges::{self, Held},
    steps::{self, Step, Written},
};

/// How many sets a step waits for its charge, which somebody else has locked for a moment.
const SETS_MAX: usize = 3;

/// Writes steps in sets.
#[derive(Debug)]
pub struct StepWriter(GroupCommit<Undecided>);

impl StepWriter {
    pub fn new(db: &Db, tasks: &Tasks) -> Self {
        Self(GroupCommit::new(db, tasks))
    }

    /// Writes the step that follows from the charge as it stands. `decide` may be asked several
    /// times. Returns `None`, with nothing written, if it gives no step or somebody else has the
    /// charge: then the caller writes it alone.
    pub async fn write(
        &self,
        id: ChargeId,
        decide: impl Fn(&Held) -> Option<Step> + Send + Sync + 'static,
    ) -> Result<Option<Step>> {
        self.run(Undecided::new(id, decide)).await
    }

    /// Like [`StepWriter::write`] for a charge that this process holds.
    pub async fn write_known(
        &self,
        known: Held,
        decide: impl Fn(&Held) -> Option<Step> + Send + Sync + 'static,
    ) -> Result<Option<Step>> {
        let undecided = Undecided::new(known.charge.facts.transaction_id, decide);
        self.run(Undecided {
            known: Some(known),
            ..undecided
        })
        .await
    }

    async fn run(&self, undecided: Undecided) -> Result<Option<Step>> {
        let again = Undecided {
            // If its set could not write it, the charge may no longer be as it was known.
            known: None,
            ..undecided.clone()
        };
        let mut next = undecided;
        for _ in 0..SETS_MAX {
            match self.0.run(next).await? {
                Outcome::Written(step) => return Ok(Some(*step)),
                Outcome::Alone => return Ok(None),
                Outcome::Locked => next = again.clone(),
            }
        }
        Ok(None)
    }
}

/// Decides a charge's step, as it stands.
type Decide = dyn Fn(&Held) -> Option<Step> + Send + Sync;

/// A step that is not decided yet.
#[derive(Clone)]
struct Undecided {
    id: ChargeId,
    /// The charge, if this process holds it and knows how it stands.
    known: Option<Held>,
    decide: Arc<Decide>,
    /// Of whoever asked, whose trace the step belongs to.
    span: Span,
}

impl fmt::Debug for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undecided")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

enum Outcome {
    Written(Box<Step>),
    /// Somebody else has the charge, or a step of it before this one in the set.
    Locked,
    /// It must be written alone.
    Alone,
}

impl Grouped for Undecided {
    type Outcome = Outcome;

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<Outcome>> {
        if let Some(written) = write_at_once(db, set).await? {
            return Ok(written);
        }
        let mut tx = db.begin().await?;
        let held = charges::hold_free(&mut tx, set.iter().map(|undecided| undecided.id)).await?;
        let held = held
            .into_iter()
            .map(|held| (held.charge.facts.transaction_id, held));
        let mut held: HashMap<_, _> = held.collect();
        let decided = set.iter().map(|undecided| {
            // A charge takes one step at a time.
            let Some(held) = held.remove(&undecided.id) else {
                return Outcome::Locked;
            };
            let step = undecided.step_of(&held);
            step.map_or(Outcome::Alone, Outcome::Written)
        });
        let decided: Vec<Outcome> = decided.collect();
        let steps: Vec<&Step> = decided
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Written(step) => Some(&**step),
                Outcome::Locked | Outcome::Alone => None,
            })
            .collect();
        if steps.is_empty() {
            return Ok(decided);
        }
        if steps::write(&mut tx, &steps).await? != Written::All {
            // Each finds out alone whether it was the one.
            return Ok(set.iter().map(|_| Outcome::Alone).collect());
        }
        tx.commit().await?;
        Ok(decided)
    }
}

impl Undecided {
    fn new(id: ChargeId, decide: impl Fn(&Held) -> Option<Step> + Send + Sync + 'static) -> Self {
        Self {
            id,
            known: None,
            decide: Arc::new(decide),
            span: Span::current(),
        }
    }

    /// Its step, if the charge stands like this.
    fn step_of(&self, held: &Held) -> Option<Box<Step>> {
        let step = self.span.in_scope(|| (self.decide)(held));
        step.map(Box::new)
    }
}

/// Writes the steps of charges that are known. `None`: nothing was written, because not all are, or one
/// is no longer as it was known.
async fn write_at_once(db: &Db, set: &[Undecided]) -> Result<Option<Vec<Outcome>>> {
    // On SQLite, a look before costs no round trip.
    if !db.is_postgres() {
        return Ok(None);
    }
    let mut ids = HashSet::new();
    // A charge takes one step at a time.
    if !set.iter().all(|undecided| ids.insert(undecided.id)) {
        return Ok(None);
    }
    let decided = set
        .iter()
        .map(|undecided| undecided.step_of(undecided.known.as_ref()?));
    let Some(decided) = decided.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let steps: Vec<&Step> = decided.iter().map(|step| &**step).collect();
    let is_written = steps::write_at_once(db, &steps).await?;
    Ok(is_written.then(|| decided.into_iter().map(Outcome::Written).collect()))
}
