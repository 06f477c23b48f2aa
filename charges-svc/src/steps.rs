//! Steps of charges that wait at the same moment are decided and written together.
//!
//! A step is decided in memory, on its charge as the transaction has locked it, and all of them are
//! written in one round trip. What needs more than that, or waits for somebody else, is left to
//! whoever asked for it, in a transaction of its own.

use std::{collections::HashMap, fmt, sync::Arc};

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
        let decide: Arc<Decide> = Arc::new(decide);
        for _ in 0..SETS_MAX {
            let undecided = Undecided {
                id,
                decide: decide.clone(),
                span: Span::current(),
            };
            match self.0.run(undecided).await? {
                Outcome::Written(step) => return Ok(Some(*step)),
                Outcome::Alone => return Ok(None),
                Outcome::Locked => {}
            }
        }
        Ok(None)
    }
}

/// Decides a charge's step, as it stands.
type Decide = dyn Fn(&Held) -> Option<Step> + Send + Sync;

/// A step that is not decided yet.
struct Undecided {
    id: ChargeId,
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
            let step = undecided.span.in_scope(|| (undecided.decide)(&held));
            step.map_or(Outcome::Alone, |step| Outcome::Written(Box::new(step)))
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
