//! What is particular to PostgreSQL: limits, migrations on a connection of their own, and making
//! a database.

use std::{str::FromStr, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{Error, Result};

/// How long a call waits for a connection. The default of 30 s would hang every caller while the
/// server is down.
const ACQUIRE_AT_MOST: Duration = Duration::from_secs(2);

/// A connection that was idle for longer is tried before it is handed out.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// Kept by the server, which undoes what it cuts off.
const SERVER_LIMITS: [(&str, &str); 3] = [
    ("statement_timeout", "5s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "10s"),
];

/// Kept here, for a server that no longer answers. Longer than the server's own limit, so that
/// it strikes only then.
pub(crate) const STATEMENT_AT_MOST: Duration = Duration::from_secs(6);

/// For statements that look at everything: an hour, kept by the server, and here a little longer.
pub(crate) const BEGIN_SURVEY: &str =
    "begin isolation level repeatable read read only; set local statement_timeout = '1h'";
pub(crate) const SURVEY_AT_MOST: Duration = Duration::from_secs(3_610);

/// Connections that died unseen which one `begin` passes over.
pub(crate) const DEAD_CONNECTIONS_MAX: usize = 32;

/// A migration may wait for others and rebuild a table.
const NO_LIMITS: [(&str, &str); 3] = [
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

pub(crate) async fn connect(url: &str, max_connections: u32) -> Result<PgPool> {
    let mut options = PgConnectOptions::from_str(url)?.options(SERVER_LIMITS);
    if options.get_application_name().is_none() {
        options = options.application_name(&program());
    }
    PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(ACQUIRE_AT_MOST)
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                if meta.idle_for > TRUSTED_IDLE {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_with(options)
        .await
}

/// The name of the running program, which `pg_stat_activity` shows.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A connection without limits, for one who may wait.
pub(crate) async fn connect_unhurried(options: PgConnectOptions) -> Result<PgConnection> {
    options.options(NO_LIMITS).connect().await
}

/// The connection is gone, or the server is going.
pub(crate) fn is_lost(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() != std::io::ErrorKind::TimedOut,
        Error::Database(error) => {
            matches!(error.code().as_deref(), Some("57P01" | "57P02" | "25P03"))
        }
        _ => false,
    }
}

/// Makes the database that a `postgres://` URL names, unless it exists. Does nothing for SQLite,
/// whose file is made by connecting.
pub async fn create_database_if_missing(url: &str) -> Result<()> {
    if !crate::is_postgres(url) {
        return Ok(());
    }
    let options = PgConnectOptions::from_str(url)?;
    let Some(name) = options.get_database().map(str::to_owned) else {
        return Ok(());
    };
    let mut conn = options.database("postgres").connect().await?;
    let exists = sqlx::query("select 1 from pg_database where datname = $1")
        .bind(&name)
        .fetch_optional(&mut conn)
        .await?;
    if exists.is_none() {
        let create = format!("create database {}", quoted(&name));
        let created = conn.execute(AssertSqlSafe(create)).await;
        created
            .map(drop)
            .or_else(|error| match is_duplicate(&error) {
                true => Ok(()),
                false => Err(error),
            })?;
    }
    conn.close().await
}

/// Drops a database, whoever is connected to it, and roles that own nothing else. For tests.
pub(crate) async fn drop_database(url: &str, roles: &[String]) -> Result<()> {
    let options = PgConnectOptions::from_str(url)?;
    let name = options.get_database().unwrap_or_default().to_owned();
    let mut conn = options.database("postgres").connect().await?;
    let statement = format!("drop database if exists {} with (force)", quoted(&name));
    conn.execute(AssertSqlSafe(statement)).await?;
    for role in roles {
        let statement = format!("drop role {}", quoted(role));
        conn.execute(AssertSqlSafe(statement)).await?;
    }
    conn.close().await
}

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Somebody else made it at the same moment.
fn is_duplicate(error: &Error) -> bool {
    error
        .as_database_error()
        .and_then(|error| error.code())
        .is_some_and(|code| matches!(&*code, "42P04" | "23505"))
}
