//! Does what comes due: expires unpaid sessions, with their events, and forgets idempotency keys.
//!
//! A session's expiry and the outbox row of its event are written in one transaction, so that the
//! event exists once and is never lost. A session with a charge in flight is not PENDING and does
//! not expire before that charge has failed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use chassis::{
    clock::{Alarm, Clock, Timestamp, Worker},
    ids::EventId,
};
use db::{
    Db, Relay, outbox,
    work::{TaskSet, Work},
};

use crate::store;

/// Rows per transaction, so that none takes long.
const BATCH: i64 = 100;

/// Pause between two tries at a row that is due but locked by somebody else.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Tells the sweeper when something will be due. Clones wake the same sweeper.
#[derive(Clone, Debug)]
pub struct SweeperAlarm {
    alarm: Alarm,
    /// The due time that the sweeper waits for, in Unix milliseconds; [`i64::MAX`] while it waits
    /// for none or is about to look.
    waits_for: Arc<AtomicI64>,
}

impl SweeperAlarm {
    pub fn new(worker: &Worker) -> Self {
        Self {
            alarm: worker.alarm(),
            waits_for: Arc::new(AtomicI64::new(i64::MAX)),
        }
    }

    /// Call it after the commit. Costs nothing if the sweeper will be awake by then anyway.
    pub fn at(&self, due: Timestamp) {
        if due.unix_millis() < self.waits_for.load(Ordering::SeqCst) {
            self.alarm.ring();
        }
    }

    fn waits_for(&self, due: Option<Timestamp>) {
        let millis = due.map_or(i64::MAX, Timestamp::unix_millis);
        self.waits_for.store(millis, Ordering::SeqCst);
    }
}

#[derive(Debug)]
pub struct Sweeper {
    pub db: Db,
    pub clock: Clock,
    /// Relays the events.
    pub relay: Relay,
    pub wake: SweeperAlarm,
}

impl Work for Sweeper {
    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Option<Timestamp>> {
        // Whatever is committed from here on is either found below or rings the alarm.
        self.wake.waits_for(None);
        let due = self.sweep().await.context("the sweep failed")?;
        self.wake.waits_for(due);
        Ok(due)
    }
}

impl Sweeper {
    /// Returns when the next row is due.
    async fn sweep(&self) -> db::Result<Option<Timestamp>> {
        loop {
            let due = store::next_due(&mut self.db.read().await?).await?;
            if due.is_none_or(|due| due > self.clock.now()) {
                return Ok(due);
            }
            let swept = self.expire_batch().await? + self.forget_batch().await?;
            if swept == 0 {
                return Ok(Some(self.clock.now() + LOOK_AGAIN));
            }
        }
    }

    async fn expire_batch(&self) -> db::Result<u64> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        let expired = store::expire(&mut tx, now, BATCH).await?;
        for id in &expired {
            let event_id = EventId::new();
            outbox::put(&mut tx, &id.to_string(), Some(event_id.as_str()), now).await?;
            store::KEYS.forget_later(&mut tx, *id, now).await?;
        }
        tx.commit().await?;
        let expired = expired.len() as u64;
        if expired > 0 {
            metrics::counter!("sessions_expired_total").increment(expired);
            tracing::info!(sessions = expired, "sessions expired");
            self.relay.ring();
        }
        Ok(expired)
    }

    async fn forget_batch(&self) -> db::Result<u64> {
        let mut tx = self.db.begin().await?;
        let forgotten = store::KEYS
            .forget_due(&mut tx, self.clock.now(), BATCH)
            .await?;
        tx.commit().await?;
        Ok(forgotten)
    }
}
