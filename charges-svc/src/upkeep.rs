//! What a running service does beside its work: forgets old keys, and shows how much is waiting.

use std::{sync::Arc, time::Duration};

use chassis::{
    clock::{Timestamp, Worker},
    shutdown::Shutdown,
};
use db::outbox;

use crate::{error::Result, service::Service, store};

/// Keys live a day, so this is soon enough.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// Keys that one transaction removes.
const SWEPT_MAX: i64 = 1_000;

const MEASURE_EVERY: Duration = Duration::from_secs(15);

/// Sweeps every hour until the process stops.
pub async fn sweep(service: Arc<Service>, mut worker: Worker, shutdown: Shutdown) {
    let mut due = service.clock.now() + SWEEP_EVERY;
    while !shutdown.has_begun() {
        if due <= service.clock.now() {
            if let Err(error) = sweep_once(&service).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "old keys are not all forgotten"
                );
            }
            due = service.clock.now() + SWEEP_EVERY;
        }
        tokio::select! {
            () = shutdown.wait() => break,
            () = worker.rest(Some(due)) => {}
        }
    }
}

async fn sweep_once(service: &Service) -> Result<()> {
    loop {
        let mut tx = service.db.begin().await?;
        let removed = store::idempotency::sweep(&mut tx, service.clock.now(), SWEPT_MAX).await?;
        tx.commit().await?;
        if removed == 0 {
            return Ok(());
        }
    }
}

/// Shows every few seconds how much is waiting, until the process stops.
pub async fn measure(service: Arc<Service>, shutdown: Shutdown) {
    while !shutdown.has_begun() {
        if let Err(error) = measure_once(&service).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "what is waiting cannot be read"
            );
        }
        tokio::select! {
            () = shutdown.wait() => break,
            () = tokio::time::sleep(MEASURE_EVERY) => {}
        }
    }
}

async fn measure_once(service: &Service) -> Result<()> {
    let mut conn = service.db.read().await?;
    let backlog = store::charges::backlog(&mut conn).await?;
    let cases = store::cases::count_open(&mut conn).await?;
    let oldest_row = store::oldest_in_outbox(&mut conn).await?;
    let unsealed = store::blocks::count_unsealed(&mut conn).await?;
    let checked = store::blocks::checked(&mut conn).await?;
    drop(conn);
    let age = |since: Option<Timestamp>| {
        since.map_or(Duration::ZERO, |since| service.clock.now().since(since))
    };
    metrics::gauge!("charges_open").set(gauged(backlog.open));
    metrics::gauge!("charges_open_oldest_seconds").set(age(backlog.oldest));
    metrics::gauge!("cases_open").set(gauged(cases));
    metrics::gauge!("charges_outbox_rows").set(gauged(outbox::len(&service.db).await?));
    metrics::gauge!("charges_outbox_oldest_seconds").set(age(oldest_row));
    metrics::gauge!("ledger_unsealed_postings").set(gauged(unsealed));
    metrics::gauge!("ledger_checked_seconds_ago").set(age(checked.ended_at));
    metrics::gauge!("ledger_wholly_checked_seconds_ago").set(age(checked.whole_at));
    Ok(())
}

/// A gauge is an f64, which is made of a u32 but not of an i64.
fn gauged(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
