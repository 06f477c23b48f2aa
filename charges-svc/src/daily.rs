//! The daily settlement: at its time of day, every merchant that has it switched on is paid out.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    clock::Timestamp,
    error_chain::chain,
    ids::MerchantId,
    money::{Currency, Money},
};
use db::{
    Insert,
    work::{Claimed, TaskSet, Work},
};

use crate::{error::Result, service::Service, store};

/// Merchants per turn.
const SETTLED_MAX: usize = 100;

/// How often it looks for merchants that were not there before, on a day that has begun.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Settles each day, from its time on. A merchant whose account is held at that time is settled
/// once it is free, on the same day; a day on which nobody ran it is left out, because the next one
/// pays all that there is.
pub struct DailySettlement {
    service: Arc<Service>,
    due: Timestamp,
    /// Where this look goes on.
    after: Option<MerchantId>,
}

impl DailySettlement {
    pub fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            due: service.clock.now(),
            after: None,
        }
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
        let begins = self.service.settings.settlement_time;
        let Some(day) = begun_day(now, begins) else {
            return Ok(Claimed::All);
        };
        let looked_at = self.service.settle_day(&day, self.after.take()).await;
        let looked_at = looked_at.inspect_err(|_| count_error());
        self.after = looked_at.context("the daily settlement is not done")?;
        if self.after.is_some() {
            self.due = now;
        }
        Ok(Claimed::All)
    }
}

fn count_error() {
    metrics::counter!("daily_settlement_errors_total").increment(1);
}

/// The UTC day that is settled now, if it is as long after midnight as the settlement begins.
fn begun_day(now: Timestamp, begins: Duration) -> Option<String> {
    let at = now.datetime();
    let seconds = u64::from(at.hour()) * 3_600 + u64::from(at.minute()) * 60;
    (Duration::from_secs(seconds) >= begins).then(|| at.date().to_string())
}

impl Service {
    /// Pays out what the next merchants with a daily settlement have available, if their day has
    /// not been settled. Returns the last of them if there may be more.
    async fn settle_day(&self, day: &str, after: Option<MerchantId>) -> Result<Option<MerchantId>> {
        let now = self.clock.now();
        let mut conn = self.db.read().await?;
        let unsettled =
            store::payout_accounts::list_unsettled(&mut conn, day, now, after, SETTLED_MAX);
        let unsettled = unsettled.await?;
        drop(conn);
        for merchant_id in &unsettled {
            // One that cannot be settled does not keep the others from it.
            if let Err(error) = self.settle_merchant(*merchant_id, day, now).await {
                count_error();
                tracing::error!(
                    merchant.id = %merchant_id,
                    error = %chain(&error),
                    "the day is not settled"
                );
            }
        }
        let last = unsettled.last().copied();
        Ok(last.filter(|_| unsettled.len() == SETTLED_MAX))
    }

    async fn settle_merchant(
        &self,
        merchant_id: MerchantId,
        day: &str,
        now: Timestamp,
    ) -> Result<()> {
        let mut tx = self.db.begin().await?;
        let Some(account) = store::payout_accounts::find_shared(&mut tx, merchant_id).await? else {
            return Ok(());
        };
        if !account.daily_settlement || account.held_until > now {
            return Ok(());
        }
        let available =
            store::postings::lock_available(&mut tx, merchant_id, Currency::GHS).await?;
        let settings = &self.settings;
        let kept = settings.settlement_reserve.minor_units();
        let least = settings.settlement_minimum.minor_units().max(1);
        // What a person has to decide about is not paid out by a timer.
        let undecided = store::disbursements::undecided_late(&mut tx, merchant_id, Currency::GHS);
        let kept = kept.saturating_add(undecided.await?.minor_units());
        let left = available.minor_units().saturating_sub(kept);
        let amount = match left >= least {
            true => left.saturating_sub(self.payout_fee(&account)?.minor_units()),
            false => 0,
        };
        let payout = match amount >= least {
            true => {
                let amount = Money::new(amount, Currency::GHS);
                Some(self.payout_to(&account, amount, true, now)?)
            }
            false => None,
        };
        let id = payout.as_ref().map(|payout| payout.disbursement_id);
        let settled =
            store::payout_accounts::settle_day(&mut tx, merchant_id, day, id, now).await?;
        if settled == Insert::AlreadyThere {
            return Ok(());
        }
        if let Some(payout) = &payout {
            self.reserve(&mut tx, payout).await?;
        }
        tx.commit().await?;
        if let Some(payout) = &payout {
            self.announce_new(payout);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_settled_from_its_time_on() {
        let begins = Duration::from_secs(6 * 3_600);
        for (now, day) in [
            ("2026-11-24T05:59:59.999Z", None),
            ("2026-11-24T06:00:00.000Z", Some("2026-11-24")),
            ("2026-11-24T23:59:59.999Z", Some("2026-11-24")),
            ("2026-11-25T00:00:00.000Z", None),
        ] {
            let at: Timestamp = now.parse().unwrap();
            assert_eq!(begun_day(at, begins).as_deref(), day, "{now}");
        }
        let midnight: Timestamp = "2026-11-25T00:00:00.000Z".parse().unwrap();
        assert!(begun_day(midnight, Duration::ZERO).is_some());
    }
}
