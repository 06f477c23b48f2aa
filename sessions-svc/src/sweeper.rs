//! Does what comes due: expires unpaid sessions, with their events, and forgets idempotency keys.
//!
//! A session's expiry and the outbox row of its event are written in one transaction, so that the
//! event exists once and is never lost. A session with a charge in flight is not PENDING and does
//! not expire before that charge has failed.

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Timestamp},
    ids::EventId,
};
use db::{
    Db, Relay, outbox,
    work::{Claimed, TaskSet, Work},
};

use crate::{session::Session, store};

/// Rows per transaction, so that none takes long.
const BATCH: i64 = 100;

#[derive(Debug)]
pub struct Sweeper {
    pub db: Db,
    pub clock: Clock,
    /// Relays the events.
    pub relay: Relay<Session>,
}

impl Work for Sweeper {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let mut conn = self.db.read().await.context("nothing is read")?;
        let due = store::next_due(&mut conn).await;
        due.context("nobody knows when a session is next due")
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        let due = self.clock.now();
        let swept = self.sweep().await.context("the sweep failed")?;
        Ok(match swept {
            0 => Claimed::Nothing,
            swept if swept < BATCH.unsigned_abs() => Claimed::All,
            _ => Claimed::Part(due),
        })
    }
}

impl Sweeper {
    /// How many were swept of the kind of which there were more.
    async fn sweep(&self) -> db::Result<u64> {
        let (expired, forgotten) = (self.expire_batch().await?, self.forget_batch().await?);
        Ok(expired.max(forgotten))
    }

    async fn expire_batch(&self) -> db::Result<u64> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        let expired = store::expire(&mut tx, now, BATCH).await?;
        for id in &expired {
            let event_id = EventId::new();
            outbox::put(&mut tx, &id.to_string(), Some(event_id.as_str()), now).await?;
        }
        let ended: Vec<_> = expired.iter().map(|id| (id.uuid(), now)).collect();
        let forgetting = store::KEYS.forget_later_set(tx.joint(), &ended);
        forgetting.run().await?;
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
