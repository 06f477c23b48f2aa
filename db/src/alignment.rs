//! Keeps a clock in line with the store's, so that all replicas go by one time.
//!
//! Only PostgreSQL has a clock of its own; SQLite's is the host's.

use std::time::Duration;

use chassis::{
    clock::{Clock, Look},
    shutdown::{Shutdown, Tasks},
};
use sqlx::PgPool;
use tokio::time::Instant;

use crate::{Conn, Result};

/// How often the store's clock is looked at. A host that drifts by 200 millionths, which is bad,
/// is 2 ms off by then.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How soon a look follows where the host's clock was set or the machine was suspended.
const LEAP_SEEN_EVERY: Duration = Duration::from_secs(1);

/// Looks of which the quickest counts. The first one on a connection also prepares the statement.
const LOOKS: usize = 4;

/// A look that is over as soon as this need not be repeated.
const QUICK: Duration = Duration::from_millis(1);

/// Ends what looks at the store's clock once no clone of the database is left, however that came
/// about.
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

/// Brings a clock into line with the store's: now, and every few seconds until `alive` has ended.
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
                    tracing::debug!(%error, "the store's clock cannot be looked at");
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
    let mut conn = Conn::postgres(pool.acquire().await?);
    let mut looks = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let before = clock.steady_now();
        let (store,) = conn.sql("select clock_timestamp()").one().await?;
        let after = clock.steady_now();
        looks.push(Look {
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
