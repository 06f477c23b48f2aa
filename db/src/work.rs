//! Recurring work, and the one loop that does it: the work claims a set of what is due, the loop
//! runs each in its own task and rests until the next is due. How they end is recorded in sets, too.
//!
//! Promises: a task that fails, panics or hangs affects no other; what it held is free once its
//! lease ends. When the process stops, the loop starts nothing more and waits for running tasks; a
//! deadline is up to whoever waits for the loop ([`drain`]). A dropped loop leaves everything as a
//! crash would.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chassis::{
    clock::{Activity, Clock, Timestamp, Worker},
    error_chain::chain,
    shutdown::Shutdown,
};
use futures::FutureExt as _;
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    task::{self, JoinError, JoinSet},
};

use crate::{Db, Error, Result, Update, is_retryable, is_unavailable};

/// Work that is done as it comes due.
pub trait Work: Send + 'static {
    /// How many of its tasks may run at the same time.
    fn running_max(&self) -> usize {
        1
    }

    /// Claims a set of what is due, as far as there is room, and starts it, or does it directly if
    /// it needs no task. Returns when the next is due (moved time): if that is past, because there
    /// may be more, the loop looks again at once. If it is unknown, and after an error, the loop
    /// looks again within a second.
    fn claim(
        &mut self,
        tasks: &mut TaskSet,
    ) -> impl Future<Output = anyhow::Result<Option<Timestamp>>> + Send;
}

/// Runs a work until the process stops, then waits for its running tasks.
pub async fn run(mut work: impl Work, mut worker: Worker, clock: Clock, shutdown: Shutdown) {
    let mut tasks = TaskSet {
        work: worker.name(),
        most: work.running_max(),
        clock,
        running: JoinSet::new(),
        activities: HashMap::new(),
    };
    while !shutdown.has_begun() {
        let due = look(&mut work, &mut tasks).await;
        tokio::select! {
            () = shutdown.wait() => break,
            Some(ended) = tasks.running.join_next_with_id() => tasks.end(ended),
            () = worker.rest(due), if tasks.room() > 0 => {}
        }
        while let Some(ended) = tasks.running.try_join_next_with_id() {
            tasks.end(ended);
        }
    }
    while let Some(ended) = tasks.running.join_next_with_id().await {
        tasks.end(ended);
    }
}

/// Waits until these works have ended, and cuts off what has not ended by the deadline.
pub async fn drain(mut works: JoinSet<()>, deadline: Duration) {
    let drained = async {
        while let Some(ended) = works.join_next().await {
            if let Err(error) = ended {
                tracing::error!(error = %chain(&error), "a work panicked");
            }
        }
    };
    if tokio::time::timeout(deadline, drained).await.is_err() {
        tracing::warn!(left = works.len(), "works did not end before the deadline");
        works.shutdown().await;
    }
}

/// A panic in `claim` does not end the loop: nothing else would do this work.
async fn look(work: &mut impl Work, tasks: &mut TaskSet) -> Option<Timestamp> {
    let name = tasks.work;
    let looked = AssertUnwindSafe(work.claim(tasks)).catch_unwind();
    match looked.await {
        Ok(Ok(due)) => due,
        Ok(Err(error)) => {
            tracing::warn!(work = name, error = %chain(error.as_ref()), "what is due is not started");
            None
        }
        Err(_) => {
            tracing::error!(work = name, "looking for what is due panicked");
            None
        }
    }
}

/// The running tasks of one work.
#[derive(Debug)]
pub struct TaskSet {
    work: &'static str,
    most: usize,
    clock: Clock,
    running: JoinSet<()>,
    /// Each ends only while the loop is awake and about to look for the next due time.
    activities: HashMap<task::Id, Activity>,
}

impl TaskSet {
    /// How many more tasks may start.
    pub fn room(&self) -> usize {
        self.most.saturating_sub(self.running.len())
    }

    /// Starts a task. Time travel waits for it.
    pub fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let activity = self.clock.activity();
        let started = self.running.spawn(task);
        self.activities.insert(started.id(), activity);
    }

    fn end(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        if let Err(error) = ended {
            let work = self.work;
            tracing::error!(work, error = %chain(&error), "a task panicked, what it held waits for its lease");
        }
        self.activities.remove(&id);
    }
}

impl Drop for TaskSet {
    fn drop(&mut self) {
        let (work, left) = (self.work, self.running.len());
        if left > 0 {
            tracing::warn!(
                work,
                left,
                "tasks are cut off, what they hold waits for its lease"
            );
        }
    }
}

/// How a task ended, as the store records it.
pub trait End: Send + Sync + Sized + 'static {
    /// Writes these in one transaction, each only under the claim that its task held. Returns a
    /// result for each; [`Update::NotThere`] means that the claim was lost to another.
    fn write(db: &Db, set: &[Self]) -> impl Future<Output = Result<Vec<Update>>> + Send;
}

/// The most ends in a set: one that cannot be written makes its set slow, but no other.
const SET_MAX: usize = 32;

/// Records ends in sets: those that arrive while one set is being written form the next, up to
/// [`SET_MAX`].
#[derive(Debug)]
pub struct EndRecorder<T> {
    db: Db,
    waiting: Mutex<Vec<(T, oneshot::Sender<Result<Update>>)>>,
    turn: tokio::sync::Mutex<()>,
}

impl<T: End> EndRecorder<T> {
    pub fn new(db: &Db) -> Self {
        Self {
            db: db.clone(),
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Records `end`, in a set that this call or another writes.
    pub async fn record(&self, end: T) -> Result<Update> {
        let (answer, mut recorded) = oneshot::channel();
        self.waiting().push((end, answer));
        let _turn = self.turn.lock().await;
        loop {
            match recorded.try_recv() {
                Ok(recorded) => return recorded,
                // Ours still waits, behind others that nobody may be left to record.
                Err(TryRecvError::Empty) => self.record_next_set().await,
                // Whoever recorded it panicked or was cut off.
                Err(TryRecvError::Closed) => return Err(Error::WorkerCrashed),
            }
        }
    }

    /// Only for whoever has the turn.
    async fn record_next_set(&self) {
        let set: Vec<_> = {
            let mut waiting = self.waiting();
            let most = waiting.len().min(SET_MAX);
            waiting.drain(..most).collect()
        };
        let (set, answers): (Vec<T>, Vec<_>) = set.into_iter().unzip();
        for (answer, recorded) in answers.into_iter().zip(self.record_set(&set).await) {
            // Its task may have been cut off.
            answer.send(recorded).ok();
        }
    }

    /// Records ends that are at hand as one set, beside those of [`Self::record`]. If the set
    /// fails, writes each end by itself, so that one that cannot be written holds up no other. If
    /// the set was committed although its answer was lost, each end finds that its claim is gone.
    pub async fn record_set(&self, set: &[T]) -> Vec<Result<Update>> {
        match T::write(&self.db, set).await {
            Ok(written) => return written.into_iter().map(Ok).collect(),
            Err(error) if set.len() == 1 => return vec![Err(error)],
            Err(_) => {}
        }
        let mut each = Vec::new();
        for end in set.chunks(1) {
            match T::write(&self.db, end).await {
                Ok(written) => each.extend(written.into_iter().map(Ok)),
                Err(error) => {
                    let is_away = is_unavailable(&error) && !is_retryable(&error);
                    each.push(Err(error));
                    if is_away {
                        break;
                    }
                }
            }
        }
        // While the database is away or stalls, the rest fails at once: each would only time out.
        each.resize_with(set.len(), || Err(Error::PoolTimedOut));
        each
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(T, oneshot::Sender<Result<Update>>)>> {
        // No code panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
