//! Notes when keys were last used, to the minute.
//!
//! A use only changes a map in memory; the database learns of all of them in one statement, at most
//! once a minute, and at once after a quiet one. When the process stops, the uses of its last minute
//! may be lost: nothing but what people are shown depends on them.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Timestamp},
    ids::KeyId,
};
use db::{
    Db,
    work::{Claimed, TaskSet, Work},
};

use crate::{merchant::KeyUse, store};

/// The name of the work, in logs and metrics.
pub const WORK: &str = "last uses of keys";

const MINUTE: Duration = Duration::from_secs(60);

/// The uses that are not written yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LastUses(Arc<Mutex<HashMap<KeyId, Timestamp>>>);

impl LastUses {
    /// Notes that a key is used now.
    pub fn note(&self, key: KeyId, now: Timestamp) {
        let into_minute = now.since(Timestamp::EPOCH).as_millis() % MINUTE.as_millis();
        let into_minute = u64::try_from(into_minute).unwrap_or_default();
        let minute = now - Duration::from_millis(into_minute);
        self.change(|uses| {
            uses.entry(key)
                .and_modify(|at| *at = minute.max(*at))
                .or_insert(minute);
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<KeyId, Timestamp>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes them.
#[derive(Debug)]
pub struct WriteLastUses {
    pub db: Db,
    pub clock: Clock,
    pub uses: LastUses,
    /// Not before then, so that a busy key costs one write a minute.
    pub rests_until: Timestamp,
}

impl Work for WriteLastUses {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let waits = self.uses.change(|uses| !uses.is_empty());
        let due = Some(self.rests_until).filter(|_| waits);
        // A minute late does not matter, so time travel need not stop for it.
        Ok(due.filter(|due| *due <= self.clock.now()))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        self.rests_until = self.clock.now() + MINUTE;
        let uses = self.uses.change(mem::take);
        let mut set: Vec<KeyUse> = uses
            .into_iter()
            .map(|(key_id, at)| KeyUse { key_id, at })
            .collect();
        // In one order, so that two replicas wait for each other rather than deadlock.
        set.sort_unstable_by_key(|key_use| key_use.key_id);
        if let Err(error) = store::keys::note_uses(&self.db, &set).await {
            for key_use in set {
                self.uses.note(key_use.key_id, key_use.at);
            }
            return Err(error).context("uses of keys are not written");
        }
        Ok(Claimed::All)
    }
}
