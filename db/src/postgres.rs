//! What is specific to PostgreSQL: limits, migrations on their own connection, and creating a
//! database.

use std::{io, ops, pin::Pin, str::FromStr, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, PgPool,
    migrate::{AppliedMigration, Migrate, MigrateError, Migration},
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{Error, Result};

/// How long a call waits for a connection. The default of 30 s would hang every caller while the
/// server is down.
const ACQUIRE_AT_MOST: Duration = Duration::from_secs(2);

/// A connection that was idle for longer is pinged before it is handed out.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// Enforced by the server, which rolls back what it cuts off.
const SERVER_LIMITS: [(&str, &str); 10] = [
    ("statement_timeout", "5s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "10s"),
    // Ends even a long statement once its client is gone. PostgreSQL 14 and newer.
    ("client_connection_check_interval", "10s"),
    // A plan is kept, also one that was made while a table was empty and looked best read whole.
    // Nothing that is served needs to: a table without a fitting index is still read.
    ("enable_seqscan", "off"),
    // Never forgets the dead entries that it meets in an index, as other scans do. An index of what
    // is running or due is full of them: each row that passed through it would cost every later
    // statement, until the next vacuum.
    ("enable_bitmapscan", "off"),
    // What is given is looked up row by row. While a table is small, the other joins look better:
    // they read the whole of it, and their plans are kept while it grows.
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    // Would compile such a statement, which takes longer than running it.
    ("jit", "off"),
    // Statements about sets look costlier without their values than they are, so each would be
    // planned anew every time. Their plans do not depend on the values.
    ("plan_cache_mode", "force_generic_plan"),
];

/// Enforced here, for a server that no longer answers. Longer than the server's own limit, so that
/// it applies only then.
pub(crate) const STATEMENT_AT_MOST: Duration = Duration::from_secs(6);

/// For statements that scan everything: ten minutes, enforced by the server, and a little longer
/// here.
pub(crate) const BEGIN_SURVEY: &str =
    "begin isolation level repeatable read read only; set local statement_timeout = '10min';
     set local enable_seqscan = on; set local enable_bitmapscan = on;
     set local enable_hashjoin = on; set local enable_mergejoin = on;
     set local plan_cache_mode = auto";
pub(crate) const SURVEY_AT_MOST: Duration = Duration::from_secs(610);

/// For sets, in which one write's lock must not hold up the others: those are then written alone.
pub(crate) const BEGIN_HASTY: &str = "begin; set local lock_timeout = '250ms'";

/// The same for a statement that commits by itself: the first value that it selects.
pub(crate) const SELECT_HASTY: &str = "set_config('lock_timeout', '250ms', true)";

/// How many connections that died unnoticed one `begin` skips.
pub(crate) const DEAD_CONNECTIONS_MAX: usize = 32;

/// A migration may rebuild a table, so its statements may take any time. But others queue behind
/// one that waits for a lock, so it waits only for a moment, shorter than they do, and tries
/// again.
const MIGRATION_LIMITS: [(&str, &str); 3] = [
    ("statement_timeout", "0"),
    ("lock_timeout", "1s"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// How many times one migration is tried, and how long it lets others go first in between.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_secs(2);

pub(crate) async fn connect(url: &str, max_connections: u32) -> Result<PgPool> {
    let mut options = PgConnectOptions::from_str(url)?.options(SERVER_LIMITS);
    if options.get_application_name().is_none() {
        options = options.application_name(&program());
    }
    PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(ACQUIRE_AT_MOST)
        .test_before_acquire(false)
        .after_connect(|conn, _meta| Box::pin(refuse_standby(conn)))
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

/// After a failover the name may still lead to the old primary for a while. As a standby it answers
/// reads, so everything would look well while every write fails.
async fn refuse_standby(conn: &mut PgConnection) -> Result<()> {
    let (is_standby,): (bool,) = sqlx::query_as("select pg_is_in_recovery()")
        .fetch_one(conn)
        .await?;
    if is_standby {
        let refused = io::Error::other("the server is a standby");
        return Err(Error::Io(refused));
    }
    Ok(())
}

pub(crate) fn is_url(url: &str) -> bool {
    url.starts_with("postgres:") || url.starts_with("postgresql:")
}

/// The name of the running program, for `pg_stat_activity`.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Connects for a migration.
pub(crate) async fn connect_unhurried(options: PgConnectOptions) -> Result<MigrationConnection> {
    options
        .options(MIGRATION_LIMITS)
        .connect()
        .await
        .map(MigrationConnection)
}

/// Migrates without holding up running services.
pub(crate) struct MigrationConnection(PgConnection);

impl MigrationConnection {
    pub(crate) async fn close(self) -> Result<()> {
        self.0.close().await
    }

    async fn apply_patiently(
        &mut self,
        table: &str,
        migration: &Migration,
    ) -> Result<Duration, MigrateError> {
        if migration.no_tx {
            // It waits for others, but nobody waits behind it.
            self.0.execute("set lock_timeout = 0").await?;
            self.drop_broken_indexes(migration).await?;
            let taken = self.0.apply(table, migration).await?;
            self.0.execute("set lock_timeout = '1s'").await?;
            return Ok(taken);
        }
        let mut tries_left = LOCK_TRIES;
        loop {
            tries_left -= 1;
            match self.0.apply(table, migration).await {
                Err(error) if tries_left > 0 && is_lock_timeout(&error) => {
                    let version = migration.version;
                    tracing::warn!(version, tries_left, "a migration let others go first");
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                applied => return applied,
            }
        }
    }

    /// Drops the invalid index that a concurrent build of this migration left when it broke off.
    /// It would pass for built.
    async fn drop_broken_indexes(&mut self, migration: &Migration) -> Result<()> {
        let broken: Vec<(String,)> = sqlx::query_as(
            "select relname::text from pg_index join pg_class on pg_class.oid = indexrelid
             where not indisvalid and relnamespace = current_schema()::regnamespace",
        )
        .fetch_all(&mut self.0)
        .await?;
        for (name,) in broken {
            if migration.sql.as_str().contains(&name) {
                tracing::warn!(name, "an index that was not completed is built anew");
                let statement = format!("drop index concurrently {}", quoted(&name));
                self.0.execute(AssertSqlSafe(statement)).await?;
            }
        }
        Ok(())
    }
}

impl ops::Deref for MigrationConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl ops::DerefMut for MigrationConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

/// Revokes everybody's right to change what is append-only. That is read from the catalog, so that an
/// older version closes a newer one's tables too.
pub(crate) async fn close_append_only(conn: &mut PgConnection) -> Result<()> {
    let open: Vec<(String, String)> = sqlx::query_as(
        "select distinct quote_ident(c.relname),
             case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
         from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid,
             aclexplode(c.relacl) a
         where p.proname = 'refuse_change' and c.relnamespace = current_schema()::regnamespace
             and a.privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')
             and a.grantee <> c.relowner",
    )
    .fetch_all(&mut *conn)
    .await?;
    for (table, grantee) in open {
        let revoke = format!("revoke update, delete, truncate, trigger on {table} from {grantee}");
        conn.execute(AssertSqlSafe(revoke)).await?;
    }
    Ok(())
}

type MigrationFuture<'e, T> = Pin<Box<dyn Future<Output = Result<T, MigrateError>> + Send + 'e>>;

impl Migrate for MigrationConnection {
    fn create_schema_if_not_exists<'e>(&'e mut self, name: &'e str) -> MigrationFuture<'e, ()> {
        self.0.create_schema_if_not_exists(name)
    }

    fn ensure_migrations_table<'e>(&'e mut self, table: &'e str) -> MigrationFuture<'e, ()> {
        self.0.ensure_migrations_table(table)
    }

    fn dirty_version<'e>(&'e mut self, table: &'e str) -> MigrationFuture<'e, Option<i64>> {
        self.0.dirty_version(table)
    }

    fn list_applied_migrations<'e>(
        &'e mut self,
        table: &'e str,
    ) -> MigrationFuture<'e, Vec<AppliedMigration>> {
        self.0.list_applied_migrations(table)
    }

    /// Waits for as long as another process migrates, in short statements: the other may build an
    /// index concurrently, which waits for every statement that began before it.
    fn lock(&mut self) -> MigrationFuture<'_, ()> {
        Box::pin(async move {
            self.0.execute("set lock_timeout = '200ms'").await?;
            loop {
                match self.0.lock().await {
                    Err(error) if is_lock_timeout(&error) => {
                        tracing::info!("another process migrates");
                        tokio::time::sleep(LOCK_PAUSE).await;
                    }
                    locked => break locked?,
                }
            }
            self.0.execute("set lock_timeout = '1s'").await?;
            Ok(())
        })
    }

    fn unlock(&mut self) -> MigrationFuture<'_, ()> {
        self.0.unlock()
    }

    fn apply<'e>(
        &'e mut self,
        table: &'e str,
        migration: &'e Migration,
    ) -> MigrationFuture<'e, Duration> {
        Box::pin(async move {
            let applied = self.apply_patiently(table, migration).await?;
            // The serving role got it by default, and must lose it before the next migration, which
            // may take hours: no service starts with a role that may change what is append-only.
            close_append_only(&mut self.0).await?;
            Ok(applied)
        })
    }

    fn revert<'e>(
        &'e mut self,
        table: &'e str,
        migration: &'e Migration,
    ) -> MigrationFuture<'e, Duration> {
        self.0.revert(table, migration)
    }
}
/// Whether somebody else held the lock for as long as this waited for it, or both waited for each
/// other.
fn is_lock_timeout(error: &MigrateError) -> bool {
    let (MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) = error else {
        return false;
    };
    error
        .as_database_error()
        .and_then(|error| error.code())
        .is_some_and(|code| code == "55P03" || code == "40P01")
}

/// Whether the connection is gone, or its server is shutting down.
pub(crate) fn is_lost(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() != std::io::ErrorKind::TimedOut,
        Error::Database(error) => {
            matches!(error.code().as_deref(), Some("57P01" | "57P02" | "25P03"))
        }
        _ => false,
    }
}

/// Whether the server takes no writes, as one that is no longer the primary.
pub(crate) fn is_read_only(error: &Error) -> bool {
    matches!(error, Error::Database(error) if error.code().as_deref() == Some("25006"))
}

/// Creates the database that a `postgres://` URL names, unless it exists. Does nothing for SQLite,
/// whose file is created on connecting.
pub async fn create_database_if_missing(url: &str) -> Result<()> {
    if !is_url(url) {
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

/// Drops a database, even if others are connected to it, and roles that own nothing else. For
/// tests.
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

/// Whether somebody else created it at the same moment.
fn is_duplicate(error: &Error) -> bool {
    error
        .as_database_error()
        .and_then(|error| error.code())
        .is_some_and(|code| matches!(&*code, "42P04" | "23505"))
}
