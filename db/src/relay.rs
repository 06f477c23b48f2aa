//! Relays outbox rows: at once for a request that waits, or as a work that never gives up.
//!
//! A row leaves the outbox only after its handler has succeeded. If the handler fails, panics or
//! outlives the lease, the row is tried again later.

use std::{fmt, sync::Arc, time::Duration};

use chassis::{
    clock::{Alarm, Clock, Term, Timestamp, Worker},
    error_chain::chain,
    shutdown::Tasks,
    telemetry,
};
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    Db, GroupCommit, Result, Update,
    outbox::{self, Row, RowEnd},
    work::{TaskSet, Work},
};

/// How many handlers the work runs at the same time.
const RUNNING_MAX: usize = 16;

/// What became of a row that a request relays itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayOutcome {
    /// The receiver has acknowledged it.
    Acknowledged,
    /// It is tried again, or is somebody else's.
    Later,
}

/// Relays the rows of one outbox. Clones share its state.
#[derive(Clone)]
pub struct Relay {
    db: Db,
    clock: Clock,
    alarm: Alarm,
    tasks: Tasks,
    lease: Duration,
    handler: Arc<dyn Fn(Row) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>,
    ends: GroupCommit<RowEnd>,
}

impl Relay {
    /// `handler` relays one row, and succeeds only once the receiver has acknowledged it. It may
    /// take at most `lease` (real time), which is also how long a row claimed by a process that
    /// died waits for another. `worker` is the one that runs this work; `tasks` are drained before
    /// the process ends.
    pub fn new<H, F>(
        db: &Db,
        clock: &Clock,
        worker: &Worker,
        tasks: &Tasks,
        lease: Duration,
        handler: H,
    ) -> Self
    where
        H: Fn(Row) -> F + Send + Sync + 'static,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self {
            db: db.clone(),
            clock: clock.clone(),
            alarm: worker.alarm(),
            tasks: tasks.clone(),
            lease,
            handler: Arc::new(move |row| Box::pin(handler(row))),
            ends: GroupCommit::new(db, tasks),
        }
    }

    /// Signals that a transaction that wrote rows has been committed. Without it the work finds
    /// them within a second.
    pub fn ring(&self) {
        self.alarm.ring();
    }

    /// Relays the row that the caller has just committed, and waits for it for at most `wait`;
    /// after that the relay goes on by itself.
    pub async fn at_once(&self, id: Uuid, wait: Duration) -> RelayOutcome {
        let activity = self.clock.activity();
        let (answer, relayed) = oneshot::channel();
        let relay = self.clone();
        self.tasks.spawn(async move {
            let relayed = relay.claim_and_hand_on(id).await.unwrap_or_else(|error| {
                tracing::warn!(error = %chain(&error), "the row cannot be claimed and is left to the loop");
                RelayOutcome::Later
            });
            if relayed == RelayOutcome::Later {
                // The row may have a new due time.
                relay.ring();
            }
            drop(activity);
            // The caller may have stopped waiting.
            answer.send(relayed).ok();
        });
        let relayed = tokio::time::timeout(wait, relayed).await;
        relayed
            .ok()
            .and_then(|ended| ended.ok())
            .unwrap_or(RelayOutcome::Later)
    }

    async fn claim_and_hand_on(&self, id: Uuid) -> Result<RelayOutcome> {
        let term = self.clock.term(self.lease);
        match outbox::claim_one(&self.db, &self.clock, id, self.lease).await? {
            Some(row) => Ok(self.hand_on(row, term).await),
            None => Ok(RelayOutcome::Later),
        }
    }

    /// Runs the handler in the trace that wrote the row.
    async fn hand_on(&self, row: Row, term: Term) -> RelayOutcome {
        let span = tracing::info_span!(
            "relay",
            subject = row.subject,
            event_id = row.event_id,
            attempt = row.attempts,
        );
        telemetry::set_parent(&span, row.traceparent.as_deref());
        let handing_on = async {
            if term.is_over(&self.clock) {
                tracing::warn!("the lease was over before the row was handed on");
                return RelayOutcome::Later;
            }
            let handling = (self.handler)(row.clone());
            let handled = tokio::time::timeout(term.left(), handling).await;
            let handled = handled.unwrap_or_else(|late| Err(late.into()));
            self.end(row, &handled).await;
            match handled {
                Ok(()) => RelayOutcome::Acknowledged,
                Err(_) => RelayOutcome::Later,
            }
        };
        handing_on.instrument(span).await
    }

    async fn end(&self, row: Row, handled: &anyhow::Result<()>) {
        let due = handled.as_ref().err().map(|error| {
            tracing::warn!(error = %chain(error.as_ref()), "not relayed, will try again");
            self.clock.now() + outbox::backoff(row.attempts)
        });
        match self.ends.write(RowEnd { row, due }).await {
            Ok(Update::Updated) => {}
            Ok(Update::NotThere) => {
                tracing::info!("a lease ran out and somebody else has the row");
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "not recorded, the row waits for its lease");
            }
        }
    }
}

impl Work for Relay {
    fn running_max(&self) -> usize {
        RUNNING_MAX
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Option<Timestamp>> {
        // Reads first, so that it writes only when something is due.
        let due = outbox::next_due(&self.db, &self.clock).await?;
        if due.is_none_or(|due| due > self.clock.now()) {
            return Ok(due);
        }
        let limit = i64::try_from(tasks.room()).unwrap_or(i64::MAX);
        let term = self.clock.term(self.lease);
        for row in outbox::claim(&self.db, &self.clock, limit, self.lease).await? {
            let relay = self.clone();
            tasks.start(async move {
                relay.hand_on(row, term).await;
            });
        }
        // Past: there may be more, or another process is just claiming the row.
        Ok(due)
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
