//! Recurring work, and the one loop that does it: the work claims a set of what is due, the loop
//! runs each in its own task and rests until the next is due. How they end is recorded in sets, too
//! ([`crate::GroupCommit`]).
//!
//! **When the loop claims.** It knows when the next is due: from the store, which it looks at when
//! it starts, after a failure and once a second, and from the work's alarm, which whoever makes
//! something due rings after the commit. With `ring_at` the loop need not look: it claims once that
//! time has come. With `ring` it looks first. It looks again after each claim for a time that has
//! come, because others may follow it, but not after one for something that was told as due now. A
//! task's end is no reason to look.
//!
//! **So that it claims sets and not single tasks**, what is rung for within a few milliseconds of
//! the last claim waits for these to pass. And while as many tasks run as may, the loop waits until
//! a quarter of the places is free, or for a few milliseconds from the first that is, whichever is
//! sooner. So whatever comes alone is claimed at once, and no free place waits long.
//!
//! Promises: a task that fails, panics or hangs affects no other; what it held is free once its
//! lease ends. When the process stops, the loop starts nothing more and waits for running tasks; a
//! deadline is up to whoever waits for the loop ([`drain`]). A dropped loop leaves everything as a
//! crash would.

use std::{collections::HashMap, panic::AssertUnwindSafe, time::Duration};

use chassis::{
    clock::{Activity, Clock, Timestamp, Wake, Worker},
    error_chain::chain,
    shutdown::Shutdown,
};
use futures::FutureExt as _;
use tokio::{
    task::{self, JoinError, JoinSet},
    time::Instant,
};

/// How often the loop looks at the store, so that it finds what nobody has told it of.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pause between two claims of what is due but somebody else is just taking.
const CLAIM_AGAIN: Duration = Duration::from_millis(10);

/// How long what is due, or a free place, waits for more of its like.
const GATHERED_WITHIN: Duration = Duration::from_millis(3);

/// Work that is done as it comes due. See above for when the loop claims.
pub trait Work: Send + 'static {
    /// How many of its tasks may run at the same time.
    fn running_max(&self) -> usize {
        1
    }

    /// When the next is due (moved time), by the store.
    fn next_due(&mut self) -> impl Future<Output = anyhow::Result<Option<Timestamp>>> + Send;

    /// Claims a set of what is due, as far as there is room, and starts it, or does it directly if
    /// it needs no task.
    fn claim(
        &mut self,
        tasks: &mut TaskSet,
    ) -> impl Future<Output = anyhow::Result<Claimed>> + Send;
}

/// How much a claim took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// All that was due.
    All,
    /// Nothing: what was due is somebody else's, perhaps only for a moment.
    Nothing,
    /// A part. The rest may be claimed from this moment on (moved time); if it is past, as soon as
    /// there is room.
    Part(Timestamp),
}

/// Runs a work until the process stops, then waits for its running tasks.
pub async fn run(work: impl Work, worker: Worker, clock: Clock, shutdown: Shutdown) {
    let tasks = TaskSet {
        work: worker.name(),
        most: work.running_max(),
        clock: clock.clone(),
        running: JoinSet::new(),
        activities: HashMap::new(),
    };
    let mut working = Loop {
        work,
        worker,
        clock,
        shutdown: shutdown.clone(),
        tasks,
        next_due: None,
        look_at: Instant::now(),
        gathers_until: Instant::now(),
    };
    let mut step = Step::Look { has_claimed: false };
    while !shutdown.has_begun() {
        step = match step {
            Step::Look { has_claimed } => working.look(has_claimed).await,
            Step::Claim { looks } => working.claim(looks).await,
            Step::Rest => working.rest().await,
        };
    }
    while let Some(ended) = working.tasks.running.join_next_with_id().await {
        working.tasks.end(ended);
    }
}

/// What the loop does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Looks when the next is due. What still is after a claim is held by somebody else.
    Look {
        has_claimed: bool,
    },
    /// Claims. Others may follow that nobody tells of, unless only something told is due.
    Claim {
        looks: bool,
    },
    Rest,
}

struct Loop<W> {
    work: W,
    worker: Worker,
    clock: Clock,
    shutdown: Shutdown,
    tasks: TaskSet,
    /// By the last look. What was told since is up to the worker.
    next_due: Option<Timestamp>,
    /// When to look again, whatever happens.
    look_at: Instant,
    /// Until then, rings wait for more.
    gathers_until: Instant,
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

impl<W: Work> Loop<W> {
    async fn look(&mut self, has_claimed: bool) -> Step {
        self.worker.forget_told();
        self.look_at = Instant::now() + LOOK_EVERY;
        let looked = unfailing(self.tasks.work, self.work.next_due()).await;
        self.gathers_until = Instant::now() + GATHERED_WITHIN;
        self.next_due = looked.flatten();
        let now = self.clock.now();
        if self.next_due.is_none_or(|due| due > now) {
            return Step::Rest;
        }
        if has_claimed {
            self.next_due = Some(now + CLAIM_AGAIN);
            return Step::Rest;
        }
        Step::Claim { looks: true }
    }

    async fn claim(&mut self, looks: bool) -> Step {
        if self.tasks.room() == 0 {
            tokio::select! {
                () = self.shutdown.wait() => return Step::Rest,
                () = self.tasks.make_room() => {}
            }
        }
        let claimed = unfailing(self.tasks.work, self.work.claim(&mut self.tasks)).await;
        self.gathers_until = Instant::now() + GATHERED_WITHIN;
        let now = self.clock.now();
        match claimed {
            Some(Claimed::All) if looks => return Step::Look { has_claimed: true },
            Some(Claimed::Nothing) => return Step::Look { has_claimed: true },
            Some(Claimed::All) => {}
            Some(Claimed::Part(rest_from)) if rest_from <= now => return Step::Claim { looks },
            Some(Claimed::Part(rest_from)) => {
                // Claims the rest then, and looks after that.
                let known = self.next_due.filter(|due| *due > now);
                self.next_due = known.into_iter().chain([rest_from]).min();
                self.worker.forget_told();
            }
            None => {
                self.next_due = None;
                self.worker.forget_told();
            }
        }
        Step::Rest
    }

    async fn rest(&mut self) -> Step {
        let wake = tokio::select! {
            () = self.shutdown.wait() => return Step::Rest,
            Some(ended) = self.tasks.running.join_next_with_id() => {
                self.tasks.end(ended);
                return Step::Rest;
            }
            () = tokio::time::sleep_until(self.look_at) => Wake::Look,
            wake = self.worker.rest(self.next_due) => wake,
        };
        let wake = match wake {
            Wake::Due => wake,
            Wake::Told | Wake::Look => {
                tokio::time::sleep_until(self.gathers_until).await;
                self.worker.hear().map_or(wake, |rung| rung.max(wake))
            }
        };
        match wake {
            Wake::Told => Step::Claim { looks: false },
            Wake::Due => Step::Claim { looks: true },
            Wake::Look => Step::Look { has_claimed: false },
        }
    }
}

/// A failure or a panic does not end the loop: nothing else would do this work.
async fn unfailing<T>(
    work: &'static str,
    looking: impl Future<Output = anyhow::Result<T>>,
) -> Option<T> {
    match AssertUnwindSafe(looking).catch_unwind().await {
        Ok(Ok(found)) => Some(found),
        Ok(Err(error)) => {
            tracing::warn!(work, error = %chain(error.as_ref()), "what is due is not started");
            None
        }
        Err(_) => {
            tracing::error!(work, "looking for what is due panicked");
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
    /// Each ends only while the loop is awake. A task whose end makes something due rings first.
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

    /// Waits while as many run as may, until a set of places is free.
    async fn make_room(&mut self) {
        self.end_next().await;
        let a_quarter = self.most / 4;
        let gathering = async {
            while self.room() < a_quarter {
                self.end_next().await;
            }
        };
        tokio::time::timeout(GATHERED_WITHIN, gathering).await.ok();
    }

    async fn end_next(&mut self) {
        if let Some(ended) = self.running.join_next_with_id().await {
            self.end(ended);
        }
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
