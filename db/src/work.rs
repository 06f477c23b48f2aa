//! Recurring work, and the one loop that does it: the work claims a set of what is due, the loop
//! runs each in its own task and rests until the next is due. How they end is recorded in sets, too
//! ([`crate::GroupCommit`]).
//!
//! Promises: a task that fails, panics or hangs affects no other; what it held is free once its
//! lease ends. When the process stops, the loop starts nothing more and waits for running tasks; a
//! deadline is up to whoever waits for the loop ([`drain`]). A dropped loop leaves everything as a
//! crash would.

use std::{collections::HashMap, panic::AssertUnwindSafe, time::Duration};

use chassis::{
    clock::{Activity, Clock, Timestamp, Worker},
    error_chain::chain,
    shutdown::Shutdown,
};
use futures::FutureExt as _;
use tokio::task::{self, JoinError, JoinSet};

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
