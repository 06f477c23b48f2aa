//! Housekeeping: removes old idempotency keys, and measures how much is waiting.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    clock::{Day, Timestamp},
    error_chain::chain,
};
use db::work::{Claimed, TaskSet, Work};

use crate::{
    books,
    case::{self, CaseKind},
    days::{self, Wrong},
    error::Result,
    service::Service,
    store::{self, blocks::Duty},
};

/// Keys live for a day, so this is often enough.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// How many keys one transaction removes.
const SWEPT_MAX: i64 = 1_000;

/// Measured counts stop here, because counting more may take longer than a statement may.
const COUNTED_MAX: i64 = 100_000;

const MEASURE_EVERY: Duration = Duration::from_secs(15);

/// Removes old keys every hour.
pub struct Sweeper {
    service: Arc<Service>,
    due: Timestamp,
}

impl Sweeper {
    pub fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            due: service.clock.now() + SWEEP_EVERY,
        }
    }
}

impl Work for Sweeper {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        // A key may be removed a second late, so time travel need not stop for it.
        Ok(Some(self.due).filter(|due| *due <= self.service.clock.now()))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        self.due = self.service.clock.now() + SWEEP_EVERY;
        let swept = sweep_once(&self.service).await;
        swept.context("old keys are not all forgotten")?;
        Ok(Claimed::All)
    }
}

async fn sweep_once(service: &Service) -> Result<()> {
    loop {
        let mut tx = service.db.begin().await?;
        let removed = store::idempotency::KEYS
            .forget_due(&mut tx, service.clock.now(), SWEPT_MAX)
            .await?;
        tx.commit().await?;
        if removed == 0 {
            return Ok(());
        }
    }
}

/// Measures how much is waiting, every few seconds.
pub async fn measure(service: Arc<Service>) {
    show_counters();
    service.admission.show_counters();
    let started_at = service.clock.now();
    loop {
        // Each on its own, so that a failed one does not affect the others.
        log(measure_charges(&service).await, "open charges");
        log(measure_disbursements(&service).await, "open disbursements");
        log(measure_cases(&service).await, "open cases");
        log(measure_outbox(&service).await, "the outbox");
        log(measure_unsealed(&service).await, "unsealed postings");
        log(measure_days(&service, started_at).await, "days");
        log(measure_checks(&service, started_at).await, "checks");
        let measured = measure_figures_and_notices(&service).await;
        log(measured, "figures and notices");
        tokio::time::sleep(MEASURE_EVERY).await;
    }
}

/// Registers the counters at 0, so that their first increase is seen as one.
fn show_counters() {
    for kind in CaseKind::ALL {
        case::count_opened(*kind, 0);
    }
    books::count_errors(0);
    days::count_error(Wrong::Difference, 0);
    days::count_error(Wrong::ChangedBlock, 0);
}

fn log(measured: Result<()>, what: &'static str) {
    if let Err(error) = measured {
        tracing::warn!(error = %chain(&error), what, "what is waiting cannot be read");
    }
}

async fn measure_charges(service: &Service) -> Result<()> {
    let mut conn = service.db.read().await?;
    let backlog = store::charges::backlog(&mut conn, COUNTED_MAX).await?;
    metrics::gauge!("charges_open").set(gauged(backlog.count));
    metrics::gauge!("charges_open_oldest_seconds").set(age(service, backlog.oldest));
    Ok(())
}

async fn measure_disbursements(service: &Service) -> Result<()> {
    let mut conn = service.db.read().await?;
    let backlog = store::disbursements::backlog(&mut conn, COUNTED_MAX, service.clock.now());
    let backlog = backlog.await?;
    metrics::gauge!("disbursements_open").set(gauged(backlog.count));
    metrics::gauge!("disbursements_open_oldest_seconds").set(age(service, backlog.oldest));
    Ok(())
}

async fn measure_cases(service: &Service) -> Result<()> {
    let mut conn = service.db.read().await?;
    let open = store::cases::count_open(&mut conn, COUNTED_MAX).await?;
    metrics::gauge!("cases_open").set(gauged(open));
    Ok(())
}

async fn measure_outbox(service: &Service) -> Result<()> {
    let mut conn = service.db.read().await?;
    let rows = store::count_outbox(&mut conn, COUNTED_MAX).await?;
    metrics::gauge!("charges_outbox_rows").set(gauged(rows));
    Ok(())
}

/// How long ago the hours end that are counted, and how long a merchant has waited to be told of a
/// payout account.
async fn measure_figures_and_notices(service: &Service) -> Result<()> {
    let mut conn = service.db.read().await?;
    let counted = store::hours::done(&mut conn).await?.until;
    metrics::gauge!("charge_hours_counted_seconds_ago").set(service.clock.now().since(counted));
    let untold = store::payout_accounts::find_untold(&mut conn).await?;
    let since = untold.map(|change| change.created_at);
    metrics::gauge!("notices_untold_oldest_seconds").set(age(service, since));
    Ok(())
}

async fn measure_unsealed(service: &Service) -> Result<()> {
    let mut conn = service.db.read().await?;
    let waiting = store::blocks::waiting(&mut conn, COUNTED_MAX).await?;
    metrics::gauge!("ledger_unsealed_postings").set(gauged(waiting.count));
    Ok(())
}

/// How long ago the last proven day ended. If none ever was, as for checks.
async fn measure_days(service: &Service, started_at: Timestamp) -> Result<()> {
    let mut conn = service.db.read().await?;
    let last = store::days::last_proven(&mut conn).await?;
    if store::days::first_unproven(&mut conn).await?.is_none() {
        // Another replica may have proven the day that differed here.
        days::show_no_difference();
    }
    let ended_at = last.map(Day::end);
    let ago = since_check(ended_at, started_at, service.clock.now());
    metrics::gauge!("statement_proven_seconds_ago").set(ago);
    Ok(())
}

async fn measure_checks(service: &Service, started_at: Timestamp) -> Result<()> {
    let mut conn = service.db.read().await?;
    let new = store::works::checkpoint(&mut conn, Duty::CheckNew.code()).await?;
    let whole = store::works::checkpoint(&mut conn, Duty::CheckWhole.code()).await?;
    let now = service.clock.now();
    let ago = |ended_at| since_check(ended_at, started_at, now);
    metrics::gauge!("ledger_checked_seconds_ago").set(ago(new.ended_at));
    metrics::gauge!("ledger_wholly_checked_seconds_ago").set(ago(whole.ended_at));
    Ok(())
}

/// How long ago a check ended, or how long this process has waited for one if none ever did.
fn since_check(ended_at: Option<Timestamp>, started_at: Timestamp, now: Timestamp) -> Duration {
    now.since(ended_at.unwrap_or(started_at))
}

/// The age of the oldest waiting item, or zero if nothing waits.
fn age(service: &Service, oldest: Option<Timestamp>) -> Duration {
    oldest.map_or(Duration::ZERO, |oldest| service.clock.now().since(oldest))
}

/// A gauge is an `f64`, which converts from a `u32` but not from an `i64`.
fn gauged(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_never_ended_grows_old_with_the_process() {
        let now: Timestamp = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        let started_at = now - hours(30);
        assert_eq!(since_check(None, started_at, now), hours(30));
        let ended_at = Some(now - hours(1));
        assert_eq!(since_check(ended_at, started_at, now), hours(1));
    }
}
