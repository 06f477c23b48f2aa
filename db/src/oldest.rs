//! Gauges of how long the oldest of what waits has waited, so that a queue that stands still is
//! seen long before anything in it is given up.

use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::{Clock, Timestamp};

use crate::{
    Db,
    work::{Claimed, TaskSet, Work},
};

const MEASURE_EVERY: Duration = Duration::from_secs(15);

/// The work that measures it. Every replica shows the same.
#[derive(Debug)]
pub struct OldestGauge {
    db: Db,
    clock: Clock,
    name: &'static str,
    oldest: &'static str,
    due: Timestamp,
}

impl OldestGauge {
    /// `oldest` selects since when the oldest has waited: nothing, or a time to come, if nothing waits.
    /// It reads a row of an index or a few for each queue: one that stands still is long.
    pub fn new(db: &Db, clock: &Clock, name: &'static str, oldest: &'static str) -> Self {
        Self {
            db: db.clone(),
            clock: clock.clone(),
            name,
            oldest,
            due: clock.now(),
        }
    }
}

impl Work for OldestGauge {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        // It may be measured a second late, so time travel need not stop for it.
        Ok(Some(self.due).filter(|due| *due <= self.clock.now()))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        // Also after a failure.
        self.due = self.clock.now() + MEASURE_EVERY;
        let mut conn = self.db.read().await.context("nothing is read")?;
        let oldest = conn.sql(self.oldest).optional::<(Timestamp,)>().await;
        let oldest = oldest.context("what is waiting cannot be read")?;
        let waited = oldest.map_or(Duration::ZERO, |(since,)| self.clock.now().since(since));
        metrics::gauge!(self.name).set(waited);
        Ok(Claimed::All)
    }
}
