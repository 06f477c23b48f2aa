//! Counts merchants' charges by the hour, once each hour is over, so that figures of a week need
//! not count a week's charges.
//!
//! An hour in which a charge is still open is counted again once none is. Nothing waits for this:
//! what is not counted yet, whoever reads the figures counts then (`figures.rs`).

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::clock::Timestamp;
use db::work::{Claimed, TaskSet, Work};

use crate::{
    error::Result,
    schedule::DAY,
    service::Service,
    store::hours::{self, Done, Hour},
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// How long after its end an hour is counted. A charge is on record long before, if ever.
const COUNTED_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long counted hours are kept. Figures go back to a midnight within this.
const KEPT: Duration = DAY.saturating_mul(8);

/// Merchants per transaction.
const MERCHANTS_MAX: i64 = 50;

/// How many hours one look counts again.
const AGAIN_MAX: i64 = 100;

const LOOK_EVERY: Duration = Duration::from_secs(60);

pub struct HourCounter {
    service: Arc<Service>,
    due: Timestamp,
}

impl HourCounter {
    pub fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            due: service.clock.now() + LOOK_EVERY,
        }
    }
}

impl Work for HourCounter {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        // Nobody waits for it, so time travel need not stop for it.
        Ok(Some(self.due).filter(|due| *due <= self.service.clock.now()))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        self.due = self.service.clock.now() + LOOK_EVERY;
        let counted = self.service.count_hours().await;
        counted.context("charges are not counted by the hour")?;
        let counted = self.service.count_ended_hours().await;
        counted.context("hours are not counted again")?;
        Ok(Claimed::All)
    }
}

impl Service {
    /// Counts every hour that is over, one after the other, unless another replica is at it.
    async fn count_hours(&self) -> Result<()> {
        let due = hour_of(self.clock.now() - COUNTED_AFTER);
        while hours::done(&mut self.db.read().await?).await?.until < due {
            let mut tx = self.db.begin().await?;
            let Some(done) = hours::lock_done(&mut tx).await? else {
                return Ok(());
            };
            let from = done.until.max(due - KEPT);
            let hour = (from, from + HOUR);
            let after = done.after_merchant;
            let merchants = hours::merchants(&mut tx, after, MERCHANTS_MAX, hour).await?;
            for (merchant_id, has_charges) in &merchants {
                hours::forget(&mut tx, *merchant_id, due - KEPT).await?;
                if *has_charges {
                    let hour = Hour {
                        merchant_id: *merchant_id,
                        hour: hour.0,
                        ends_at: hour.1,
                    };
                    hours::write(&mut tx, &hour).await?;
                }
            }
            let is_full = i64::try_from(merchants.len()) == Ok(MERCHANTS_MAX);
            let last = merchants.last().map(|(merchant_id, _)| *merchant_id);
            let until = match (is_full, last, after) {
                (true, ..) => hour.0,
                // Nobody ever charged.
                (false, None, None) => due,
                (false, ..) => hour.1,
            };
            let done = Done {
                until,
                after_merchant: last.filter(|_| is_full),
            };
            hours::note_done(&mut tx, &done).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Counts hours again whose charges have all ended meanwhile.
    async fn count_ended_hours(&self) -> Result<()> {
        let ended = hours::ended(&mut self.db.read().await?, AGAIN_MAX).await?;
        for hour in ended {
            let mut tx = self.db.begin().await?;
            if hours::lock_done(&mut tx).await?.is_none() {
                return Ok(());
            }
            hours::write(&mut tx, &hour).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

/// The hour that holds this moment.
fn hour_of(moment: Timestamp) -> Timestamp {
    let into = moment.since(Timestamp::EPOCH).as_millis() % HOUR.as_millis();
    moment - Duration::from_millis(u64::try_from(into).unwrap_or_default())
}
