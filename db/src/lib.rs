//! One database over PostgreSQL or SQLite, chosen by the URL's scheme alone.
//!
//! SQL is written once, in the words that both understand, and runs through [`Conn::sql`]. The
//! dialects differ here and nowhere else: SQLite has one writer, for which transactions queue,
//! and takes no row locks, so `for update` is stripped from what it is given.
//!
//! What a caller may rely on:
//!
//! - A transaction that is dropped, by an error, a panic or a cancelled request, is rolled back.
//! - A transaction in which a statement failed cannot be committed, on either store.
//! - [`Tx::commit`] that returns an error leaves the outcome *unknown*: the reply may have been
//!   lost after the server committed. Treat it as neither done nor undone, and look again.
//! - No call waits for ever: see the limits in `postgres.rs` and `sqlite.rs`.
//!
//! Functions that only read take `&mut Conn`, functions that write take `&mut Tx`; a `&mut Tx`
//! passes for a `&mut Conn`. Never ask the [`Db`] for a second connection while holding a
//! transaction: on SQLite it would wait for itself.

mod alignment;
mod connection;
mod error;
pub mod frame;
pub mod idempotency;
pub mod outbox;
mod postgres;
mod relay;
mod schema;
mod sqlite;
#[doc(hidden)]
pub mod testing;
pub mod work;

use std::sync::Arc;

use chassis::{admin::Readiness, clock::Clock, shutdown::Tasks};
use sqlx::PgPool;

use alignment::Alive;

pub use connection::{Conn, Insert, Param, Record, Sql, Tx, Update};
pub use error::{Error, Result, is_retryable, is_unavailable, is_unique_violation};
pub use frame::Frame;
pub use postgres::create_database_if_missing;
pub use relay::Relay;
pub use schema::{Schema, check, migrate};

/// A pool of connections. Clones share it.
#[derive(Clone, Debug)]
pub struct Db {
    store: Store,
    /// Rollbacks of dropped transactions, and who looks at the store's clock.
    tasks: Tasks,
    alive: Arc<Alive>,
}

#[derive(Clone, Debug)]
enum Store {
    Postgres(PgPool),
    Sqlite(sqlite::Pools),
}

impl Db {
    /// Connects to `postgres://…`, `sqlite://path` (made if it is missing, with its folder) or
    /// `sqlite::memory:`.
    pub async fn connect(url: &str, max_connections: u32) -> Result<Self> {
        let store = if is_postgres(url) {
            Store::Postgres(postgres::connect(url, max_connections).await?)
        } else {
            Store::Sqlite(sqlite::connect(url, max_connections).await?)
        };
        Ok(Self {
            store,
            tasks: Tasks::new(),
            alive: Arc::default(),
        })
    }

    /// A connection for statements that only read. Does not queue behind SQLite's writer; each
    /// statement sees what was committed before it.
    pub async fn read(&self) -> Result<Conn> {
        match &self.store {
            Store::Postgres(pool) => Ok(Conn::postgres(pool.acquire().await?)),
            Store::Sqlite(pools) => Ok(Conn::sqlite(pools.read.acquire().await?)),
        }
    }

    /// A transaction. On SQLite it holds the one writer from here to its end.
    pub async fn begin(&self) -> Result<Tx> {
        let mut tries_left = postgres::DEAD_CONNECTIONS_MAX;
        loop {
            let begun = Tx::begin(self.write().await?, &self.tasks).await;
            match begun {
                // The connection had died unseen. Nothing is done yet: take another.
                Err(error) if postgres::is_lost(&error) && tries_left > 0 => tries_left -= 1,
                begun => return begun,
            }
        }
    }

    /// A transaction that only reads, for statements that look at everything: it sees one moment
    /// from its first statement on, its statements may take as long as they need, and it waits for
    /// no writer.
    pub async fn survey(&self) -> Result<Tx> {
        Tx::survey(self.read().await?, &self.tasks).await
    }

    /// A connection on which one statement may write and commits by itself.
    pub(crate) async fn write(&self) -> Result<Conn> {
        match &self.store {
            Store::Postgres(pool) => Ok(Conn::postgres(pool.acquire().await?)),
            Store::Sqlite(pools) => Ok(Conn::sqlite(pools.write.acquire().await?)),
        }
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        let (_one,) = self.read().await?.sql("select 1").one::<(i32,)>().await?;
        Ok(())
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.store, Store::Postgres(_))
    }

    /// What a service with this database needs to be ready: that the database answers, and that
    /// the host's clock is right.
    pub fn readiness(&self, clock: &Clock) -> Readiness {
        let (db, clock) = (self.clone(), clock.clone());
        Readiness::new()
            .check("database", move || {
                let db = db.clone();
                async move { db.ping().await.is_ok() }
            })
            .check("clock", move || {
                std::future::ready(clock.agrees_with_store())
            })
    }

    /// Waits for transactions that roll back, then closes every connection.
    pub async fn close(&self) {
        self.alive.end();
        self.tasks.drain(postgres::STATEMENT_AT_MOST).await;
        match &self.store {
            Store::Postgres(pool) => pool.close().await,
            Store::Sqlite(pools) => pools.close().await,
        }
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres:") || url.starts_with("postgresql:")
}
