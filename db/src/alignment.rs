//! Keeps a clock in line with the store's, so that all replicas share one time.
//!
//! Only PostgreSQL has a clock of its own; SQLite's is the host's.

use std::time::Duration;

use chassis::{
    clock::{Clock, StoreReading},
    error_chain::chain,
    shutdown::{Shutdown, Tasks},
};
use sqlx::PgPool;
use tokio::time::Instant;

use crate::{Conn, Result, connection::Purpose};

/// How often the store's clock is read. A host that drifts by 200 ppm, which is bad, is 2 ms off
/// by then.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How soon the store's clock is read again after the host's clock was set or the machine was
/// suspended.
const LEAP_SEEN_EVERY: Duration = Duration::from_secs(1);

/// Readings per alignment, of which the quickest counts. The first one on a connection also
/// prepares the statement.
const LOOKS: usize = 4;

/// A reading this quick need not be repeated.
const QUICK: Duration = Duration::from_millis(1);

/// Ends the task that reads the store's clock when the database is closed or its last clone
/// dropped.
#[derive(Debug, Default)]
pub(crate) struct Alive(Shutdown);

impl Alive {
    pub fn end(&self) {
        self.0.begin();
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.end();
    }
}

/// Aligns a clock with the store's: now, and every few seconds until `alive` has ended.
pub(crate) async fn align(
    clock: &Clock,
    pool: &PgPool,
    alive: &Alive,
    tasks: &Tasks,
) -> Result<()> {
    let (pool, clock, end) = (pool.clone(), clock.clone(), alive.0.clone());
    look(&pool, &clock).await?;
    tasks.spawn(async move {
        let looking = async {
            loop {
                let looked_at = Instant::now();
                loop {
                    tokio::time::sleep(LEAP_SEEN_EVERY).await;
                    if looked_at.elapsed() >= LOOK_EVERY || clock.has_leapt() {
                        break;
                    }
                }
                if let Err(error) = look(&pool, &clock).await {
                    tracing::debug!(error = %chain(&error), "the store's clock cannot be looked at");
                }
            }
        };
        tokio::select! {
            () = end.wait() => {}
            () = looking => {}
        }
    });
    Ok(())
}

async fn look(pool: &PgPool, clock: &Clock) -> Result<()> {
    let mut conn = Conn::postgres(pool.acquire().await?, Purpose::Read);
    let mut looks = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let before = clock.steady_now();
        let (store,) = conn.sql("select clock_timestamp()").one().await?;
        let after = clock.steady_now();
        looks.push(StoreReading {
            before,
            store,
            after,
        });
        if (before..=before + QUICK).contains(&after) {
            break;
        }
    }
    clock.align(&looks);
    Ok(())
}
