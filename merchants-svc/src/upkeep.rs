//! Forgets what nobody needs any more: old logins and links, and tries whose pause is over.

use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::{Clock, Timestamp};
use db::{
    Db,
    work::{Claimed, TaskSet, Work},
};

use crate::store;

/// The name of this work in logs.
pub const WORK: &str = "upkeep";

const EVERY: Duration = Duration::from_hours(6);

/// How long logins and links are kept once they are over.
const KEPT: Duration = Duration::from_hours(30 * 24);

/// The work that forgets.
#[derive(Debug)]
pub struct Upkeep {
    pub db: Db,
    pub clock: Clock,
    /// When it is next due.
    pub due: Timestamp,
}

impl Work for Upkeep {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        Ok(Some(self.due))
    }

    async fn claim(&mut self, _tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let now = self.clock.now();
        // Also after a failure.
        self.due = now + EVERY;
        let is_all = store::forget(&self.db, now - KEPT, now).await;
        if is_all.context("what is old is not forgotten")? {
            return Ok(Claimed::All);
        }
        self.due = now;
        Ok(Claimed::Part(now))
    }
}
