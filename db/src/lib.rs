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

mod connection;
mod error;
pub mod outbox;
mod postgres;
mod relay;
mod sqlite;
#[doc(hidden)]
pub mod testing;

use std::borrow::Cow;

use anyhow::Context as _;
use chassis::{
    config::{Database, Refusals},
    shutdown::Tasks,
};
use sqlx::{PgPool, migrate::Migrator, postgres::PgConnectOptions};

pub use connection::{Conn, Param, Record, Sql, Tx};
pub use error::{Error, Result, is_retryable, is_unavailable, is_unique_violation};
pub use postgres::create_database_if_missing;

/// A migration whose description starts with this word (`0003_postgres_append_only.sql`) is for
/// PostgreSQL alone.
const POSTGRES_ONLY: &str = "postgres";

/// A pool of connections. Clones share it.
#[derive(Clone, Debug)]
pub struct Db {
    store: Store,
    /// Rollbacks of dropped transactions.
    rollbacks: Tasks,
}

#[derive(Clone, Debug)]
enum Store {
    Postgres(PgPool),
    Sqlite(sqlite::Pools),
}

impl Db {
    /// Connects to the database of these settings and brings it up to date.
    pub async fn open(config: &Database, migrations: &Migrator) -> anyhow::Result<Self> {
        let db = Self::connect(&config.database_url, config.database_max_connections)
            .await
            .context("DATABASE_URL cannot be connected to")?;
        db.migrate(migrations)
            .await
            .context("the migrations failed")?;
        Ok(db)
    }

    /// Connects to `postgres://…`, `sqlite://path` (made if it is missing, with its folder) or
    /// `sqlite::memory:`.
    pub async fn connect(url: &str, max_connections: u32) -> Result<Self> {
        let store = if is_postgres(url) {
            Store::Postgres(postgres::connect(url, max_connections).await?)
        } else {
            Store::Sqlite(sqlite::connect(url, max_connections).await?)
        };
        let rollbacks = Tasks::new();
        Ok(Self { store, rollbacks })
    }

    /// Applies the migrations that are missing, under a lock that other processes respect.
    /// Migrations that a newer version has applied are left alone.
    pub async fn migrate(&self, migrator: &Migrator) -> Result<()> {
        let on_postgres = self.is_postgres();
        let wanted = migrator
            .iter()
            .filter(|migration| on_postgres || !migration.description.starts_with(POSTGRES_ONLY))
            .cloned()
            .collect();
        let migrator = Migrator {
            migrations: Cow::Owned(wanted),
            ignore_missing: true,
            ..Migrator::DEFAULT
        };
        match &self.store {
            Store::Postgres(pool) => postgres::migrate(pool, &migrator).await,
            Store::Sqlite(pools) => pools.migrate(&migrator).await,
        }
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
            let begun = Tx::begin(self.write().await?, &self.rollbacks).await;
            match begun {
                // The connection had died unseen. Nothing is done yet: take another.
                Err(error) if postgres::is_lost(&error) && tries_left > 0 => tries_left -= 1,
                begun => return begun,
            }
        }
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

    /// Waits for transactions that roll back, then closes every connection.
    pub async fn close(&self) {
        self.rollbacks.drain(postgres::STATEMENT_AT_MOST).await;
        match &self.store {
            Store::Postgres(pool) => pool.close().await,
            Store::Sqlite(pools) => pools.close().await,
        }
    }
}

/// Refuses a database that cannot be, or must not be in production. Connects to nothing.
pub fn check(config: &Database, refusals: &mut Refusals) {
    let url = &config.database_url;
    let is_postgres = is_postgres(url);
    let is_good = match is_postgres {
        true => url.parse::<PgConnectOptions>().is_ok(),
        false => sqlite::is_url(url),
    };
    let wants = "postgres://user:password@host/database, or sqlite:// and a file's path";
    refusals.unless(is_good, "DATABASE_URL", wants);
    refusals.in_production(is_postgres, "DATABASE_URL", "a postgres:// URL");
    refusals.password("DATABASE_URL", url);
    refusals.files("DATABASE_URL", url);
    let connections = config.database_max_connections;
    refusals.unless(connections > 0, "DATABASE_MAX_CONNECTIONS", "at least 1");
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres:") || url.starts_with("postgresql:")
}
