//! A merchant's exhausted deliveries, sent once more. No I/O.

use chassis::{clock::Timestamp, ids::MerchantId};
use sqlx::FromRow;
use uuid::Uuid;

use crate::delivery::Status;

#[derive(Clone, Debug, FromRow)]
pub struct Replay {
    pub replay_id: Uuid,
    pub merchant_id: MerchantId,
    /// Of the form that asked for it.
    pub nonce: Uuid,
    /// Sends those that were created from here on, and before the replay.
    pub since: Timestamp,
    /// How many there were, as far as they were counted.
    pub matched: i64,
    /// The place of the last one that was queued.
    pub queued_at: Timestamp,
    pub queued_id: String,
    pub queued: i64,
    pub delivered: i64,
    pub failed: i64,
    /// When it goes on; `None` once it has ended.
    pub due_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

impl Replay {
    /// One that goes on at once.
    pub fn new(
        merchant_id: MerchantId,
        nonce: Uuid,
        since: Timestamp,
        matched: i64,
        now: Timestamp,
    ) -> Self {
        Self {
            replay_id: Uuid::now_v7(),
            merchant_id,
            nonce,
            since,
            matched,
            queued_at: since,
            // Before every delivery's.
            queued_id: String::new(),
            queued: 0,
            delivered: 0,
            failed: 0,
            due_at: Some(now),
            created_at: now,
            finished_at: None,
        }
    }

    /// Counts those whose attempts have ended, by how they stand.
    pub fn count(&mut self, ended: &[Status]) {
        for status in ended {
            match status {
                Status::Delivered => self.delivered += 1,
                Status::Pending | Status::Exhausted => self.failed += 1,
            }
        }
    }

    pub fn finish(&mut self, now: Timestamp) {
        self.due_at = None;
        self.finished_at = Some(now);
    }
}
