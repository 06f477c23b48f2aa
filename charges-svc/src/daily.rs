//! The daily settlement: at its time of day, every merchant that has it switched on is paid out.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::clock::Timestamp;
use db::work::{Claimed, TaskSet, Work};

use crate::{schedule::DAY, service::Service};

/// Merchants per turn.
const SETTLED_MAX: i64 = 100;

/// How often it looks for merchants that were not there before, on a day that has begun.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Settles each day, from its time on. A merchant whose account is held at that time is settled
/// once it is free, on the same day; a day on which nobody ran it is left out, because the next one
/// pays all that there is.
pub struct DailySettlement {
    service: Arc<Service>,
    due: Timestamp,
}

impl DailySettlement {
    pub fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            due: service.clock.now(),
        }
    }

    /// The day that is settled now, if its time has come.
    fn day(&self, now: Timestamp) -> Option<String> {
        let at = now.datetime();
        let midnight = u64::from(at.hour()) * 3_600 + u64::from(at.minute()) * 60;
        let since_midnight = Duration::from_secs(midnight);
        let has_begun = since_midnight >= self.service.settings.settlement_time.min(DAY);
        has_begun.then(|| at.date().to_string())
    }
}

impl Work for DailySettlement {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        // A minute late does not matter, so time travel need not stop for it.
        Ok(Some(self.due).filter(|due| *due <= self.service.clock.now()))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        let now = self.service.clock.now();
        self.due = now + LOOK_EVERY;
        let Some(day) = self.day(now) else {
            return Ok(Claimed::All);
        };
        let settled = self.service.settle_day(&day, SETTLED_MAX).await;
        if settled.context("the daily settlement is not done")? {
            self.due = now;
        }
        Ok(Claimed::All)
    }
}
