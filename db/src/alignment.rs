//! Keeps a clock in line with the store's, so that all replicas go by one time.
//!
//! Only PostgreSQL has a clock of its own; SQLite's is the host's.

use std::time::Duration;

use chassis::{
    clock::{Clock, Look},
    shutdown::Shutdown,
};
use sqlx::PgPool;

use crate::{Conn, Db, Error, Result, Store};

/// How often the store's clock is looked at. A host that drifts by 200 millionths, which is bad,
/// is 2 ms off by then.
const LOOK_EVERY: Duration = Duration::from_secs(10);

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

impl Db {
    /// Brings a clock into line with the store's: now, and every few seconds until the last clone
    /// of this is closed or dropped. Call it before the clock is read.
    pub async fn align(&self, clock: &Clock) -> Result<()> {
        let Store::Postgres(pool) = &self.store else {
            return Ok(());
        };
        let (pool, clock, end) = (pool.clone(), clock.clone(), self.alive.0.clone());
        if !look(&pool, &clock).await? {
            return Err(Error::Protocol("the host's clock was set meanwhile".into()));
        }
        self.tasks.spawn(async move {
            let looking = async {
                loop {
                    tokio::time::sleep(LOOK_EVERY).await;
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
}

/// False: no look was of use, and the clock stays as it is.
async fn look(pool: &PgPool, clock: &Clock) -> Result<bool> {
    let mut conn = Conn::postgres(pool.acquire().await?);
    let mut looks = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let before = clock.host_now();
        let (store,) = conn.sql("select clock_timestamp()").one().await?;
        let after = clock.host_now();
        looks.push(Look {
            before,
            store,
            after,
        });
        if (before..=before + QUICK).contains(&after) {
            break;
        }
    }
    Ok(clock.align(&looks))
}
