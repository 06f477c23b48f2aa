//! Sends exhausted deliveries once more, a few at a time, so that what is new need not wait for all
//! of them. Their attempts are like any that is asked for by hand.

use std::time::Duration;

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Timestamp},
    ids::MerchantId,
};
use db::{
    Db, Insert, Result,
    work::{Claimed, TaskSet, Work},
};
use uuid::Uuid;

use crate::{
    error::Error, queues::Queues, replay::Replay, service::Service, store, store::replays,
};

/// The name of this work in logs.
pub const WORK: &str = "webhook replays";

/// How far deliveries are counted.
pub const COUNTED_MAX: i64 = 10_000;

/// Most deliveries of one replay that wait for their attempts or run.
const UNENDED_MAX: i64 = 20;

/// How soon a replay looks for attempts that have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The same while its endpoint is switched off. Switching it on wakes the replay.
const LOOK_AGAIN_SWITCHED_OFF: Duration = Duration::from_secs(60);

/// The work that goes on with replays.
#[derive(Debug)]
pub struct Replaying {
    pub db: Db,
    pub clock: Clock,
    pub queues: Queues,
}

impl Work for Replaying {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let looked = async { replays::next_due(&mut self.db.read().await?).await }.await;
        looked.context("replays cannot be read")
    }

    async fn claim(&mut self, _tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let went_on = self.go_on().await.context("a replay does not go on")?;
        Ok(match went_on {
            // There may be others.
            true => Claimed::Part(self.clock.now()),
            false => Claimed::Nothing,
        })
    }
}

impl Replaying {
    /// Goes on with one that is due. Returns whether there was one.
    async fn go_on(&self) -> Result<bool> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        let Some(mut replay) = replays::lock_due(&mut tx, now).await? else {
            return Ok(false);
        };
        let ended = replays::take_ended(&mut tx, replay.replay_id).await?;
        replay.count(&ended);
        let unended = replays::count_unended(&mut tx, replay.replay_id).await?;
        let mut next = replays::list_next(&mut tx, &replay, UNENDED_MAX - unended).await?;
        let is_last = next.is_empty() && unended == 0;
        // Of one that somebody else is just changing, the next look takes it and what follows.
        let locked = replays::lock(&mut tx, &next).await?;
        let free = next.iter();
        let free = free.take_while(|next| locked.contains(&next.delivery_id));
        next.truncate(free.count());
        if let Some(last) = next.last() {
            (replay.queued_at, replay.queued_id) = (last.created_at, last.delivery_id.to_string());
            replay.queued += i64::try_from(next.len()).unwrap_or(i64::MAX);
            replays::queue(&mut tx, replay.replay_id, &next, now).await?;
        }
        if is_last {
            replay.finish(now);
        } else {
            let endpoint = store::find_endpoint(&mut tx, replay.merchant_id).await?;
            let is_enabled = endpoint.is_some_and(|endpoint| endpoint.enabled);
            replay.due_at = Some(match is_enabled {
                true => now + LOOK_AGAIN,
                false => now + LOOK_AGAIN_SWITCHED_OFF,
            });
        }
        let written = replays::update(&mut tx, &replay).await?;
        debug_assert_eq!(written, db::Update::Updated, "it is locked");
        tx.commit().await?;
        if !next.is_empty() {
            self.queues.tell(replay.merchant_id);
        }
        if replay.finished_at.is_some() {
            tracing::info!(
                merchant.id = %replay.merchant_id,
                replay.id = %replay.replay_id,
                delivered = replay.delivered,
                failed = replay.failed,
                "a replay has ended"
            );
        }
        Ok(true)
    }
}

impl Service {
    /// How many deliveries a replay would send; one more than [`COUNTED_MAX`] if there are more.
    pub async fn count_exhausted(
        &self,
        merchant_id: MerchantId,
        since: Timestamp,
    ) -> Result<i64, Error> {
        let mut conn = self.db.read().await?;
        Ok(replays::count_exhausted(&mut conn, merchant_id, since, COUNTED_MAX + 1).await?)
    }

    /// Starts a replay. The same nonce starts one only once.
    pub async fn start_replay(
        &self,
        merchant_id: MerchantId,
        since: Timestamp,
        nonce: Uuid,
    ) -> Result<Replay, Error> {
        let mut tx = self.db.begin().await?;
        if let Some(known) = replays::find_by_nonce(&mut tx, merchant_id, nonce).await? {
            return Ok(known);
        }
        let endpoint = store::find_endpoint(&mut tx, merchant_id).await?;
        endpoint.ok_or(Error::EndpointNotFound)?;
        let matched =
            replays::count_exhausted(&mut tx, merchant_id, since, COUNTED_MAX + 1).await?;
        let replay = Replay::new(merchant_id, nonce, since, matched, self.clock.now());
        if replays::insert(&mut tx, &replay).await? == Insert::AlreadyThere {
            // Of two forms at once, or of one sent twice, the other was first.
            let known = replays::find_by_nonce(&mut tx, merchant_id, nonce).await?;
            return known.ok_or(Error::ReplayRunning);
        }
        tx.commit().await?;
        self.replays.ring_at(replay.created_at);
        tracing::info!(merchant.id = %merchant_id, replay.id = %replay.replay_id, "a replay has started");
        Ok(replay)
    }

    pub async fn get_replay(
        &self,
        merchant_id: MerchantId,
        replay_id: Uuid,
    ) -> Result<Replay, Error> {
        let found = replays::find(&mut self.db.read().await?, merchant_id, replay_id).await?;
        found.ok_or(Error::ReplayNotFound)
    }

    pub async fn list_replays(&self, merchant_id: MerchantId) -> Result<Vec<Replay>, Error> {
        Ok(replays::list(&mut self.db.read().await?, merchant_id).await?)
    }
}
