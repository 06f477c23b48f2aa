//! What waits for the database at the same moment, to be written or read, shares a transaction.
//!
//! Promise: each has an outcome of its own, and learns it only after the commit. A set
//! ([`chassis::sets`]) that fails is run one by one, so that one that cannot be done holds up no
//! other.

use std::{
    fmt, io,
    marker::PhantomData,
    slice,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use chassis::{
    error_chain::chain,
    sets::{SetError, SetWork, Sets},
    shutdown::Tasks,
};
use futures::{StreamExt as _, stream};
use tracing::Instrument as _;

use crate::{
    Db, Error, Result, is_retryable, is_unavailable,
    postgres::{DEAD_CONNECTIONS_MAX, is_lost},
};

/// How many are run by themselves at the same time after their set has failed.
const SINGLES_MAX: usize = 4;

/// Something that is written, or read, together with its like.
pub trait Grouped: Send + Sync + Sized + 'static {
    /// What became of one of them, if the transaction was committed: a conflict, too.
    type Outcome: Send + 'static;

    /// See [`SetWork::BESIDE_MIN`].
    const BESIDE_MIN: usize = usize::MAX;

    /// Runs these in one transaction, and returns an outcome for each, in their order. After an
    /// error each is run again, with the others or by itself. The error may hide a commit, so a
    /// write must recognize its own earlier one.
    ///
    /// Others run at the same time, here and in other replicas: all of them must lock rows in the
    /// same order.
    fn run_set(db: &Db, set: &[Self]) -> impl Future<Output = Result<Vec<Self::Outcome>>> + Send;
}

/// Runs in sets. Clones share their queue.
pub struct GroupCommit<T: Grouped>(Sets<Runner<T>>);

/// Runs a set on its database.
struct Runner<T> {
    db: Db,
    /// Waits for locks only for a moment: a set has strangers in it.
    hasty: Db,
    items: PhantomData<fn(T)>,
}

impl<T: Grouped> Clone for GroupCommit<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Grouped> GroupCommit<T> {
    /// `tasks` are drained before the process ends.
    pub fn new(db: &Db, tasks: &Tasks) -> Self {
        let runner = Runner {
            db: db.clone(),
            hasty: db.hasty(),
            items: PhantomData,
        };
        Self(Sets::new(runner, tasks.clone()))
    }

    /// Runs this in a set. It may be written even if the caller stops waiting. Fails at once with
    /// [`Error::PoolTimedOut`] if too many wait.
    pub async fn run(&self, item: T) -> Result<T::Outcome> {
        let outcome = self.0.run(item);
        let outcome = outcome.instrument(tracing::debug_span!("group commit"));
        outcome.await.unwrap_or_else(|error| {
            Err(match error {
                SetError::Crowded => Error::PoolTimedOut,
                SetError::Abandoned => Error::WorkerCrashed,
            })
        })
    }

    /// Runs what is at hand as one set, beside those of [`Self::run`].
    pub async fn run_set(&self, set: &[T]) -> Vec<Result<T::Outcome>> {
        self.0.work().run_set(set).await
    }
}

impl<T: Grouped> SetWork for Runner<T> {
    type Item = T;
    type Outcome = Result<T::Outcome>;

    /// One that cannot be done makes its set slow, but no other.
    const SET_MAX: usize = 64;

    const IN_HAND_MAX: usize = 2;

    const BESIDE_MIN: usize = T::BESIDE_MIN;

    /// On somebody's lock.
    const STALLED: Duration = Duration::from_millis(300);

    /// More than is cleared in any caller's time are not taken on.
    const WAITING_MAX: usize = 1024;

    async fn run(&self, set: Vec<T>) -> Vec<Result<T::Outcome>> {
        self.run_set(&set).await
    }
}

impl<T: Grouped> Runner<T> {
    async fn run_set(&self, set: &[T]) -> Vec<Result<T::Outcome>> {
        if set.is_empty() {
            return Vec::new();
        }
        let db = if set.len() > 1 { &self.hasty } else { &self.db };
        let mut outcomes = T::run_set(db, set).await;
        for _ in 0..DEAD_CONNECTIONS_MAX {
            // After a failover every connection at hand is dead, and each would cost a whole set.
            if !outcomes
                .as_ref()
                .is_err_and(|error| is_lost(error) && tells_of_outage(error))
            {
                break;
            }
            outcomes = T::run_set(db, set).await;
        }
        match outcomes {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) if set.len() == 1 => vec![Err(error)],
            // No connection was had, and none will be for the next.
            Err(Error::PoolTimedOut) => set.iter().map(|_| Err(Error::PoolTimedOut)).collect(),
            Err(error) => {
                let items = set.len();
                tracing::debug!(error = %chain(&error), items, "a set failed, each is run by itself");
                run_each(&self.db, set).await
            }
        }
    }
}

impl<T: Grouped> fmt::Debug for GroupCommit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

/// Runs each by itself, a few at a time: one that waits for a lock holds up no other.
async fn run_each<T: Grouped>(db: &Db, set: &[T]) -> Vec<Result<T::Outcome>> {
    let is_away = AtomicBool::new(false);
    let runs = set.iter().map(|one| run_one(db, one, &is_away));
    let runs: Vec<_> = runs.collect();
    stream::iter(runs).buffered(SINGLES_MAX).collect().await
}

async fn run_one<T: Grouped>(db: &Db, one: &T, is_away: &AtomicBool) -> Result<T::Outcome> {
    if is_away.load(Ordering::Relaxed) {
        // It would only time out, too.
        return Err(Error::PoolTimedOut);
    }
    let outcome = T::run_set(db, slice::from_ref(one)).await;
    let outcome = outcome.inspect_err(|error| {
        is_away.fetch_or(tells_of_outage(error), Ordering::Relaxed);
    });
    outcome?.pop().ok_or(Error::WorkerCrashed)
}

/// Whether the database is away or stalls, so that nothing else can be done now.
fn tells_of_outage(error: &Error) -> bool {
    match error {
        // A service's own word that others were quicker.
        Error::Io(error) if error.kind() == io::ErrorKind::Other => false,
        error => is_unavailable(error) && !is_retryable(error),
    }
}
