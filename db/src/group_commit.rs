//! Writes that wait at the same moment share a transaction.
//!
//! A transaction costs about the same for one row as for many, so what arrives while others are being
//! written forms the next set. Nothing waits for a timer: a write that comes alone goes alone. One
//! set is written at a time, because two would be half as large and cost as much each; only beside
//! one that stalls, on somebody's lock, others go on.
//!
//! Promise: each write has an outcome of its own, and learns it only after the commit. A set that
//! fails is written one by one, so that one that cannot be written holds up no other. Nobody who
//! stops waiting cuts off the others.

use std::{
    collections::VecDeque,
    fmt, io,
    panic::AssertUnwindSafe,
    pin::pin,
    slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chassis::{error_chain::chain, shutdown::Tasks};
use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::{sync::oneshot, time::timeout};
use tracing::{Instrument as _, Span};

use crate::{
    Db, Error, Result, is_retryable, is_unavailable,
    postgres::{DEAD_CONNECTIONS_MAX, is_lost},
};

/// The most writes in a set: one that cannot be written makes its set slow, but no other.
const SET_MAX: usize = 64;

/// How many sets are written at the same time, all but one of them [`STALLED`].
const WRITERS_MAX: usize = 2;

/// A set that takes longer (real time) waits for something, and the next need not wait with it.
const STALLED: Duration = Duration::from_millis(300);

/// How many may wait. More than a writer clears in any caller's time are not taken on.
const WAITING_MAX: usize = 1024;

/// How many are written by themselves at the same time after their set has failed.
const SINGLES_MAX: usize = 4;

/// Something that is written together with its like.
pub trait Grouped: Send + Sync + Sized + 'static {
    /// What became of one of them, if the transaction was committed: a conflict, too.
    type Outcome: Send + 'static;

    /// Writes these in one transaction, and returns an outcome for each, in their order. After an
    /// error each is written again, with the others or by itself. The error may hide a commit, so a
    /// write must recognize its own earlier one.
    ///
    /// Others are written at the same time, here and by other replicas: all of them must lock rows
    /// in the same order.
    fn write(db: &Db, set: &[Self]) -> impl Future<Output = Result<Vec<Self::Outcome>>> + Send;
}

/// Writes in sets. Clones share their queue.
pub struct GroupCommit<T: Grouped>(Arc<Shared<T>>);

struct Shared<T: Grouped> {
    db: Db,
    /// Waits for locks only for a moment: a set has strangers in it.
    hasty: Db,
    tasks: Tasks,
    queue: Mutex<Queue<T>>,
}

struct Queue<T: Grouped> {
    waiting: VecDeque<Waiting<T>>,
    writers: usize,
    /// Of these.
    stalled: usize,
}

struct Waiting<T: Grouped> {
    item: T,
    /// Of its caller.
    span: Span,
    answer: oneshot::Sender<Result<T::Outcome>>,
}

impl<T: Grouped> Clone for GroupCommit<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Grouped> GroupCommit<T> {
    /// `tasks` are drained before the process ends.
    pub fn new(db: &Db, tasks: &Tasks) -> Self {
        Self(Arc::new(Shared {
            db: db.clone(),
            hasty: db.hasty(),
            tasks: tasks.clone(),
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                writers: 0,
                stalled: 0,
            }),
        }))
    }

    /// Writes this in a set. It may be written even if the caller stops waiting. Fails at once with
    /// [`Error::PoolTimedOut`] if too many wait.
    pub async fn write(&self, item: T) -> Result<T::Outcome> {
        let (answer, written) = oneshot::channel();
        {
            let mut queue = self.0.queue();
            if queue.waiting.len() >= WAITING_MAX {
                return Err(Error::PoolTimedOut);
            }
            queue.waiting.push_back(Waiting {
                item,
                span: Span::current(),
                answer,
            });
        }
        self.0.start_writer();
        let written = written.instrument(tracing::debug_span!("group commit"));
        // The sender is gone only if the process ends.
        written.await.unwrap_or(Err(Error::WorkerCrashed))
    }

    /// Writes what is at hand as one set, beside those of [`Self::write`].
    pub async fn write_set(&self, set: &[T]) -> Vec<Result<T::Outcome>> {
        self.0.write_set(set).await
    }
}

impl<T: Grouped> Shared<T> {
    /// Starts a writer if something waits for one.
    fn start_writer(self: &Arc<Self>) {
        {
            let mut queue = self.queue();
            let is_wanted = queue.writers == queue.stalled && queue.writers < WRITERS_MAX;
            if !is_wanted || queue.waiting.is_empty() {
                return;
            }
            queue.writers += 1;
        }
        let shared = Arc::clone(self);
        self.tasks
            .spawn_apart(async move { shared.write_sets().await });
    }

    /// Writes until nothing waits, or somebody else writes.
    async fn write_sets(self: &Arc<Self>) {
        loop {
            let set = self.next_set();
            if set.is_empty() {
                return;
            }
            let mut writing = pin!(self.write_and_answer(set));
            if timeout(STALLED, &mut writing).await.is_ok() {
                continue;
            }
            self.queue().stalled += 1;
            self.start_writer();
            writing.await;
            self.queue().stalled -= 1;
        }
    }

    async fn write_and_answer(&self, set: Vec<Waiting<T>>) {
        let span = span_of(&set);
        let (set, answers): (Vec<T>, Vec<_>) =
            set.into_iter().map(|one| (one.item, one.answer)).unzip();
        let written = AssertUnwindSafe(self.write_set(&set)).catch_unwind();
        let written = written.instrument(span).await.unwrap_or_else(|_| {
            tracing::error!("writing a set panicked");
            Vec::new()
        });
        // Those without an outcome learn that they have none, because their sender is dropped.
        for (answer, outcome) in answers.into_iter().zip(written) {
            // Its caller may have stopped waiting.
            answer.send(outcome).ok();
        }
    }

    /// Leaves out those whose callers have gone: after a stall they would only make the others
    /// late. If the set is empty, the writer ends.
    fn next_set(&self) -> Vec<Waiting<T>> {
        let mut queue = self.queue();
        let mut set = Vec::new();
        let has_other = queue.writers - queue.stalled > 1;
        while !has_other
            && set.len() < SET_MAX
            && let Some(waiting) = queue.waiting.pop_front()
        {
            if !waiting.answer.is_closed() {
                set.push(waiting);
            }
        }
        queue.writers -= usize::from(set.is_empty());
        set
    }

    async fn write_set(&self, set: &[T]) -> Vec<Result<T::Outcome>> {
        if set.is_empty() {
            return Vec::new();
        }
        let db = if set.len() > 1 { &self.hasty } else { &self.db };
        let mut written = T::write(db, set).await;
        for _ in 0..DEAD_CONNECTIONS_MAX {
            // After a failover every connection at hand is dead, and each would cost a whole set.
            if !written
                .as_ref()
                .is_err_and(|error| is_lost(error) && tells_of_outage(error))
            {
                break;
            }
            written = T::write(db, set).await;
        }
        match written {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) if set.len() == 1 => vec![Err(error)],
            // No connection was had, and none will be for the next.
            Err(Error::PoolTimedOut) => set.iter().map(|_| Err(Error::PoolTimedOut)).collect(),
            Err(error) => {
                let writes = set.len();
                tracing::debug!(error = %chain(&error), writes, "a set failed, each is written by itself");
                write_each(&self.db, set).await
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        // No code panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Grouped> fmt::Debug for GroupCommit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

/// A set of one is written in its caller's trace, a larger one in a trace of its own, which follows
/// those of its callers.
fn span_of<T: Grouped>(set: &[Waiting<T>]) -> Span {
    if let [one] = set {
        return one.span.clone();
    }
    let span = tracing::debug_span!(parent: None, "set", writes = set.len());
    if !span.is_disabled() {
        for one in set {
            span.follows_from(&one.span);
        }
    }
    span
}

/// Writes each by itself, a few at a time: one that waits for a lock holds up no other.
async fn write_each<T: Grouped>(db: &Db, set: &[T]) -> Vec<Result<T::Outcome>> {
    let is_away = AtomicBool::new(false);
    let writes = set.iter().map(|one| write_one(db, one, &is_away));
    let writes: Vec<_> = writes.collect();
    stream::iter(writes).buffered(SINGLES_MAX).collect().await
}

async fn write_one<T: Grouped>(db: &Db, one: &T, is_away: &AtomicBool) -> Result<T::Outcome> {
    if is_away.load(Ordering::Relaxed) {
        // It would only time out, too.
        return Err(Error::PoolTimedOut);
    }
    let written = T::write(db, slice::from_ref(one)).await;
    let written = written.inspect_err(|error| {
        is_away.fetch_or(tells_of_outage(error), Ordering::Relaxed);
    });
    written?.pop().ok_or(Error::WorkerCrashed)
}

/// Whether the database is away or stalls, so that nothing else can be written now.
fn tells_of_outage(error: &Error) -> bool {
    match error {
        // A service's own word that others were quicker.
        Error::Io(error) if error.kind() == io::ErrorKind::Other => false,
        error => is_unavailable(error) && !is_retryable(error),
    }
}
