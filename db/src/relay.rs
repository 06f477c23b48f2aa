//! Relays outbox rows: from memory, by the process that has just written them, or as a work that
//! never gives up.
//!
//! A row leaves the outbox only after its handler has succeeded. If the handler fails, panics or
//! outlives the lease, or the process dies first, the row is tried again later.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use chassis::{
    clock::{Alarm, Clock, Term, Timestamp, Worker},
    error_chain::chain,
    shutdown::Tasks,
    telemetry,
};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    Db, GroupCommit, Update,
    outbox::{self, Hold, NewRow, Row, RowEnd},
    work::{Claimed, TaskSet, Work},
};

/// How many handlers the work runs at the same time.
const RUNNING_MAX: usize = 16;

/// How many rows the process holds to tell them from memory. More only pile up if the receiver
/// stalls, and then wait in the store.
const HELD_MAX: usize = 256;

/// What became of a row that its writer relays itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayOutcome {
    /// The receiver has acknowledged it.
    Acknowledged,
    /// It is tried again, or is somebody else's.
    Later,
}

/// Relays the rows of one outbox. Clones share its state. `T` is what a writer knows about a row's
/// subject, so that the handler need not read it.
pub struct Relay<T>(Arc<RelayState<T>>);

struct RelayState<T> {
    db: Db,
    clock: Clock,
    alarm: Alarm,
    tasks: Tasks,
    lease: Duration,
    handler: Box<Handler<T>>,
    ends: GroupCommit<RowEnd>,
    places: Arc<Semaphore>,
}

type Handler<T> =
    dyn Fn(Row, Option<T>) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync + 'static;

impl<T: Send + 'static> Relay<T> {
    /// `handler` relays one row, and succeeds only once the receiver has acknowledged it. It gets
    /// what the row's writer knew, or `None` for a row that was found in the store. It may take at
    /// most `lease` (real time), which is also how long a row held by a process that died waits for
    /// another. `worker` is the one that runs this work; `tasks` are drained before the process
    /// ends.
    pub fn new<H, F>(
        db: &Db,
        clock: &Clock,
        worker: &Worker,
        tasks: &Tasks,
        lease: Duration,
        handler: H,
    ) -> Self
    where
        H: Fn(Row, Option<T>) -> F + Send + Sync + 'static,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self(Arc::new(RelayState {
            db: db.clone(),
            clock: clock.clone(),
            alarm: worker.alarm(),
            tasks: tasks.clone(),
            lease,
            handler: Box::new(move |row, known| Box::pin(handler(row, known))),
            ends: GroupCommit::new(db, tasks),
            places: Arc::new(Semaphore::new(HELD_MAX)),
        }))
    }

    /// Signals that a transaction that wrote rows which nobody holds has been committed. Without it
    /// the work finds them within a second.
    pub fn ring(&self) {
        self.0.alarm.ring_at(self.0.clock.now());
    }

    /// A row for the caller to write and, once that is committed, to [tell](Relay::tell). This
    /// process holds it from the start, unless it holds too many: then the work finds it.
    pub fn row(&self, subject: &str, event_id: Option<&str>, now: Timestamp) -> UntoldRow<T> {
        let mut new = NewRow::new(subject, event_id, now);
        let place = Arc::clone(&self.0.places).try_acquire_owned().ok();
        let held = place.map(|place| {
            let term = self.0.clock.term(self.0.lease);
            new.hold = Some(Hold {
                claim: Uuid::new_v4(),
                lease_until: term.until,
            });
            (term, place)
        });
        UntoldRow {
            new,
            held,
            relay: self.clone(),
        }
    }

    /// Tells a row that the caller has just committed, and what it knows about its subject. This
    /// goes on by itself, whether or not anybody waits for it.
    pub fn tell(&self, mut row: UntoldRow<T>, known: T) -> Telling {
        let (answer, told) = oneshot::channel();
        let held = row.held.take().zip(claimed(&row.new));
        let Some(((term, place), row)) = held else {
            self.ring();
            return Telling(told);
        };
        let activity = self.0.clock.activity();
        let relay = self.clone();
        self.0.tasks.spawn(async move {
            relay.hand_on(row, Some(known), term, Some(answer)).await;
            drop((place, activity));
        });
        Telling(told)
    }

    /// Runs the handler in the trace that wrote the row. Whoever waits is answered as soon as the
    /// receiver has acknowledged it, and in any other case once that is recorded.
    async fn hand_on(
        &self,
        row: Row,
        known: Option<T>,
        term: Term,
        mut waiting: Option<oneshot::Sender<()>>,
    ) {
        let span = tracing::info_span!(
            "relay",
            subject = row.subject,
            event_id = row.event_id,
            attempt = row.attempts,
        );
        telemetry::set_parent(&span, row.traceparent.as_deref());
        let handing_on = async {
            if term.is_over(&self.0.clock) {
                tracing::warn!("the lease was over before the row was handed on");
                return;
            }
            let handling = (self.0.handler)(row.clone(), known);
            let handled = tokio::time::timeout(term.left(), handling).await;
            let handled = handled.unwrap_or_else(|late| Err(late.into()));
            let due = handled.as_ref().err().map(|error| {
                tracing::warn!(error = %chain(error.as_ref()), "not relayed, will try again");
                self.0.clock.now() + outbox::backoff(row.attempts)
            });
            if handled.is_ok()
                && let Some(waiting) = waiting.take()
            {
                // It may have stopped waiting.
                waiting.send(()).ok();
            }
            if self.end(RowEnd { row, due }).await == Some(Update::NotThere) {
                tracing::info!("a lease ran out and somebody else has the row");
            }
        };
        handing_on.instrument(span).await;
    }

    /// `None` if it is not recorded: the row waits for its lease.
    async fn end(&self, end: RowEnd) -> Option<Update> {
        let due = end.due;
        let ended = self.0.ends.run(end).await.inspect_err(|error| {
            tracing::warn!(error = %chain(error), "not recorded, the row waits for its lease");
        });
        if let (Ok(Update::Updated), Some(due)) = (&ended, due) {
            self.0.alarm.ring_at(due);
        }
        ended.ok()
    }
}

impl<T: Send + 'static> Work for Relay<T> {
    fn running_max(&self) -> usize {
        RUNNING_MAX
    }

    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        Ok(outbox::next_due(&self.0.db, &self.0.clock).await?)
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let room = tasks.room();
        let limit = i64::try_from(room).unwrap_or(i64::MAX);
        let (now, term) = (self.0.clock.now(), self.0.clock.term(self.0.lease));
        let claimed = outbox::claim(&self.0.db, &self.0.clock, limit, self.0.lease).await?;
        if claimed.is_empty() {
            return Ok(Claimed::Nothing);
        }
        let is_all = claimed.len() < room;
        for row in claimed {
            let relay = self.clone();
            tasks.start(async move {
                relay.hand_on(row, None, term, None).await;
            });
        }
        Ok(if is_all {
            Claimed::All
        } else {
            Claimed::Part(now)
        })
    }
}

impl<T> Clone for Relay<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Relay<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("lease", &self.0.lease)
            .finish_non_exhaustive()
    }
}

/// A row to write, and to [tell](Relay::tell) after the commit. Derefs to what is written.
///
/// Dropped instead, because its transaction was rolled back or nobody knows whether it was
/// committed, it is let go of, so that the work finds it if it is there.
#[must_use = "it is to be written, and told after the commit"]
pub struct UntoldRow<T: Send + 'static> {
    new: NewRow,
    /// While this process holds it.
    held: Option<(Term, OwnedSemaphorePermit)>,
    relay: Relay<T>,
}

impl<T: Send + 'static> Deref for UntoldRow<T> {
    type Target = NewRow;

    fn deref(&self) -> &NewRow {
        &self.new
    }
}

impl<T: Send + 'static> Drop for UntoldRow<T> {
    fn drop(&mut self) {
        let Some((held, row)) = self.held.take().zip(claimed(&self.new)) else {
            return;
        };
        let relay = self.relay.clone();
        let activity = relay.0.clock.activity();
        self.relay.0.tasks.spawn(async move {
            let due = Some(row.created_at);
            // Not there: it was rolled back.
            let _released = relay.end(RowEnd { row, due }).await;
            drop((held, activity));
        });
    }
}

impl<T: Send + 'static> fmt::Debug for UntoldRow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.new, f)
    }
}

/// The row that this process holds once `new` is committed.
fn claimed(new: &NewRow) -> Option<Row> {
    let hold = new.hold?;
    Some(Row {
        id: new.id,
        subject: new.subject.clone(),
        event_id: new.event_id.clone(),
        traceparent: new.traceparent.clone(),
        created_at: new.created_at,
        attempts: new.attempts(),
        claim: hold.claim,
    })
}

/// A row that is being told.
#[derive(Debug)]
pub struct Telling(oneshot::Receiver<()>);

impl Telling {
    /// Waits for the outcome for at most `wait`. A row that the work must find is for later at
    /// once: so many are only held while the receiver stalls.
    pub async fn within(self, wait: Duration) -> RelayOutcome {
        let told = tokio::time::timeout(wait, self.0).await;
        match told {
            Ok(Ok(())) => RelayOutcome::Acknowledged,
            Ok(Err(_)) | Err(_) => RelayOutcome::Later,
        }
    }
}
