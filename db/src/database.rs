//! A database on either store.

use std::sync::Arc;

use chassis::{admin::Readiness, clock::Clock, shutdown::Tasks};
use futures::{FutureExt as _, future::BoxFuture};
use sqlx::{Database, PgPool, Pool, pool::PoolConnection};

use crate::{
    Conn, Result, Tx,
    alignment::{self, Alive},
    connection::Purpose,
    postgres, sqlite,
};

/// A pool of connections. Clones share it.
#[derive(Clone, Debug)]
pub struct Db {
    pub(crate) store: Store,
    /// Rollbacks of dropped transactions, and the task that reads the store's clock.
    tasks: Tasks,
    alive: Arc<Alive>,
    /// Whether its transactions wait for locks only for a moment.
    pub(crate) is_hasty: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Store {
    Postgres(PgPool),
    Sqlite(sqlite::Pools),
}

impl Db {
    /// Connects to `postgres://…`, `sqlite://path` (created if missing, with its folder) or
    /// `sqlite::memory:`.
    pub async fn connect(url: &str, max_connections: u32) -> Result<Self> {
        let store = if postgres::is_url(url) {
            Store::Postgres(postgres::connect(url, max_connections).await?)
        } else {
            Store::Sqlite(sqlite::connect(url, max_connections).await?)
        };
        Ok(Self {
            store,
            tasks: Tasks::new(),
            alive: Arc::default(),
            is_hasty: false,
        })
    }

    /// A connection for statements that only read. Does not queue behind SQLite's writer, except
    /// in memory; each statement sees what was committed before it.
    pub async fn read(&self) -> Result<Conn> {
        match &self.store {
            Store::Postgres(pool) => Ok(Conn::postgres(acquire(pool).await?, Purpose::Read)),
            Store::Sqlite(pools) => Ok(Conn::sqlite(acquire(&pools.read).await?, Purpose::Read)),
        }
    }

    /// A transaction. On SQLite it holds the one writer until it ends.
    pub async fn begin(&self) -> Result<Tx> {
        let mut tries_left = postgres::DEAD_CONNECTIONS_MAX;
        loop {
            let begun = Tx::begin(self.write().await?, &self.tasks, self.is_hasty).await;
            match begun {
                // The connection had died unnoticed. Nothing has been done yet, so take another.
                Err(error) if postgres::is_lost(&error) && tries_left > 0 => tries_left -= 1,
                begun => return begun,
            }
        }
    }

    /// The same database, whose transactions wait for a lock only for a moment.
    pub(crate) fn hasty(&self) -> Self {
        Self {
            is_hasty: true,
            ..self.clone()
        }
    }

    /// A read-only transaction for statements that scan everything: it sees one snapshot from its
    /// first statement on, its statements may take minutes, and it neither waits for writers nor
    /// holds them up.
    pub async fn survey(&self) -> Result<Tx> {
        Tx::survey(self.read().await?, &self.tasks).await
    }

    /// A connection for a single writing statement, which commits by itself. If its answer is lost,
    /// the outcome is unknown, as after [`Tx::commit`].
    pub async fn write(&self) -> Result<Conn> {
        match &self.store {
            Store::Postgres(pool) => Ok(Conn::postgres(acquire(pool).await?, Purpose::Write)),
            Store::Sqlite(pools) => Ok(Conn::sqlite(acquire(&pools.write).await?, Purpose::Write)),
        }
    }

    /// Succeeds if the database answers.
    pub async fn ping(&self) -> Result<()> {
        let (_one,) = self.read().await?.sql("select 1").one::<(i32,)>().await?;
        Ok(())
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.store, Store::Postgres(_))
    }

    /// The readiness checks of a service with this database: that the database answers, and that
    /// the host's clock agrees with it.
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

    /// Aligns a clock with PostgreSQL's: now, and every few seconds until the database is closed
    /// or its last clone dropped. Call it before reading the clock.
    pub async fn align(&self, clock: &Clock) -> Result<()> {
        match &self.store {
            Store::Postgres(pool) => alignment::align(clock, pool, &self.alive, &self.tasks).await,
            Store::Sqlite(_) => Ok(()),
        }
    }

    /// Waits for pending rollbacks, then closes every connection.
    pub async fn close(&self) {
        self.alive.end();
        self.tasks.drain(postgres::STATEMENT_AT_MOST).await;
        match &self.store {
            Store::Postgres(pool) => pool.close().await,
            Store::Sqlite(pools) => pools.close().await,
        }
    }
}

/// Boxed: it may have to connect, which takes 14 KB of state, and every charge in flight would carry
/// that several times.
fn acquire<DB: Database>(pool: &Pool<DB>) -> BoxFuture<'static, Result<PoolConnection<DB>>> {
    pool.acquire().boxed()
}
