//! A service's tables: who creates them, who may do what with them, and waiting for them.
//!
//! There are two ways. A service whose only role may create tables applies its migrations when it
//! starts. Or there are two roles, as always in production: `migrate` runs as the owner, named in
//! `MIGRATE_DATABASE_URL`, and grants the running role what serving needs; a service that starts
//! changes nothing, and waits. So nobody who takes over a running service can alter a table, or
//! change what is append-only: every table with a trigger that calls a function `refuse_change`.

use std::{borrow::Cow, time::Duration};

use anyhow::{Context as _, bail};
use chassis::{
    clock::Clock,
    config::{Mode, SettingsError},
    error_chain::chain,
    shutdown::Shutdown,
};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool,
    migrate::{MigrateError, Migration, Migrator},
    postgres::PgConnectOptions,
};

use crate::{Db, Error, Result, config::Database, database::Store, postgres};

/// A migration whose description starts with this word (`0003_postgres_append_only.sql`) is for
/// PostgreSQL alone.
const POSTGRES_ONLY: &str = "postgres";

/// Where sqlx records which migrations were applied.
const APPLIED: &str = "_sqlx_migrations";

/// Longest wait for another process to migrate. After that this one ends, which its supervisor
/// notices. Less than the startup probes of `k8s/base` allow.
const WAIT_MAX: Duration = Duration::from_secs(240);

/// Pause between two checks whether the migrations are applied.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A service's migrations, and how to release its leases.
#[derive(Debug)]
pub struct Schema {
    pub migrations: Migrator,
    /// Statements that release everything that a process that died may have held.
    pub release_leases: &'static [&'static str],
}

impl Db {
    /// Connects to the database of these settings, keeps `clock` aligned with it for as long as it
    /// is open, and brings it up to date or, if that is another role's job, waits until it is.
    ///
    /// # Errors
    /// [`SettingsError`] in production if the running role could change the tables, or what is
    /// append-only.
    pub async fn open(
        config: &Database,
        mode: Mode,
        schema: &Schema,
        clock: &Clock,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let db = Self::connect(&config.database_url, config.database_max_connections)
            .await
            .context("DATABASE_URL cannot be connected to")?;
        db.align(clock)
            .await
            .context("the database does not tell the time")?;
        let is_anothers = match &db.store {
            Store::Postgres(pool) => {
                config.migrate_database_url.is_some()
                    || mode == Mode::Production
                    || !may_make_tables(pool).await?
            }
            Store::Sqlite(_) => false,
        };
        match &db.store {
            Store::Postgres(pool) if is_anothers => {
                let wanted = db.wanted(&schema.migrations);
                tokio::select! {
                    waited = wait_for(pool, &wanted) => waited?,
                    () = shutdown.wait() => bail!("told to stop while waiting for the migrations"),
                }
                if mode == Mode::Production
                    && let Some(power) = power(pool).await?
                {
                    let why = format!("this one {power}, or may become a role that does");
                    let line = format!(
                        "DATABASE_URL wants another role in production, {why}: see \
                         MIGRATE_DATABASE_URL"
                    );
                    return Err(SettingsError::new(line).into());
                }
            }
            _ => db
                .migrate(&schema.migrations)
                .await
                .context("the migrations failed")?,
        }
        Ok(db)
    }

    /// Applies the missing migrations, under a lock across processes. Migrations that a newer
    /// version has applied are left alone.
    pub async fn migrate(&self, migrator: &Migrator) -> Result<()> {
        let migrator = Migrator {
            migrations: Cow::Owned(self.wanted(migrator)),
            ignore_missing: true,
            ..Migrator::DEFAULT
        };
        match &self.store {
            Store::Postgres(pool) => {
                let options = PgConnectOptions::clone(&pool.connect_options());
                let mut conn = postgres::connect_unhurried(options).await?;
                // sqlx holds an advisory lock meanwhile.
                migrator.run_direct(None, &mut conn, false).await?;
                conn.close().await
            }
            Store::Sqlite(pools) => pools.migrate(&migrator).await,
        }
    }

    /// Releases every lease, at start, on SQLite, where no other process can hold one. On
    /// PostgreSQL leases run out.
    pub async fn release_leases(&self, schema: &Schema) -> Result<()> {
        if self.is_postgres() || schema.release_leases.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        for statement in schema.release_leases {
            tx.sql(statement).run().await?;
        }
        tx.commit().await
    }

    /// The migrations for this store.
    fn wanted(&self, migrator: &Migrator) -> Vec<Migration> {
        let is_wanted = |migration: &&Migration| {
            self.is_postgres() || !migration.description.starts_with(POSTGRES_ONLY)
        };
        migrator.iter().filter(is_wanted).cloned().collect()
    }
}

/// Brings the database up to date, as the owner of its tables if one is named, and then grants the
/// running role what serving needs. This is what `<service> migrate` does.
///
/// # Errors
/// [`SettingsError`] in production if no owner is named.
pub async fn migrate(config: &Database, mode: Mode, schema: &Schema) -> anyhow::Result<()> {
    let owner_url = config.migrate_database_url.as_ref();
    if mode == Mode::Production && owner_url.is_none() {
        let wants = "postgres://owner:password@host/database in production";
        let line = format!("MIGRATE_DATABASE_URL is not set; wants {wants}");
        return Err(SettingsError::new(line).into());
    }
    let url = owner_url.unwrap_or(&config.database_url);
    let db = Db::connect(url, 1)
        .await
        .context("the database cannot be connected to")?;
    db.migrate(&schema.migrations)
        .await
        .context("the migrations failed")?;
    if let Store::Postgres(pool) = &db.store
        && owner_url.is_some()
    {
        let running: PgConnectOptions = config.database_url.parse()?;
        let owner = pool.connect_options();
        if running.get_username() != owner.get_username() {
            let mut conn = postgres::connect_unhurried(PgConnectOptions::clone(&owner)).await?;
            grant(&mut conn, running.get_username())
                .await
                .with_context(|| format!("{} cannot be granted", running.get_username()))?;
            conn.close().await?;
        }
    }
    db.close().await;
    Ok(())
}

/// Grants a role what serving needs and revokes what it had beyond that, in one transaction.
async fn grant(conn: &mut PgConnection, name: &str) -> anyhow::Result<()> {
    let (schema,): (String,) = sqlx::query_as("select current_schema()::text")
        .fetch_one(&mut *conn)
        .await?;
    let (role, schema) = (postgres::quoted(name), postgres::quoted(&schema));
    let rows = "select, insert, update, delete";
    let statements = vec![
        format!("grant usage on schema {schema} to {role}"),
        format!("revoke create on schema {schema} from public, {role}"),
        format!("revoke all on all tables in schema {schema} from {role}"),
        format!("grant {rows} on all tables in schema {schema} to {role}"),
        format!("grant usage on all sequences in schema {schema} to {role}"),
        // For tables of a later version, which this one's `migrate` does not know.
        format!("alter default privileges in schema {schema} grant {rows} on tables to {role}"),
        format!("alter default privileges in schema {schema} grant usage on sequences to {role}"),
        format!("revoke insert, update, delete on {APPLIED} from {role}"),
    ];
    let mut tx = conn.begin().await?;
    for statement in statements {
        tx.execute(AssertSqlSafe(statement)).await?;
    }
    postgres::close_append_only(&mut tx).await?;
    // PostgreSQL only warns about what the owner may not revoke.
    let may_create = "select has_schema_privilege($1, current_schema(), 'create')";
    let (may_create,): (bool,) = sqlx::query_as(may_create)
        .bind(name)
        .fetch_one(&mut *tx)
        .await?;
    if may_create {
        let statement = format!("revoke create on schema {schema} from public, {role}");
        bail!("it may create in the schema; as who owns the schema, or a superuser: {statement}");
    }
    tx.commit().await?;
    Ok(())
}

/// Returns once the migrations are applied.
async fn wait_for(pool: &PgPool, wanted: &[Migration]) -> anyhow::Result<()> {
    let waiting = async {
        loop {
            match missing(pool, wanted).await {
                Ok(None) => return Ok(()),
                Ok(Some(migration)) => tracing::warn!(
                    migration.version = migration.version,
                    migration.description = &*migration.description,
                    "waiting until `migrate` has applied this migration"
                ),
                Err(error @ Error::Migrate(_)) => return Err(error),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "waiting until `migrate` has run")
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let waited = tokio::time::timeout(WAIT_MAX, waiting).await;
    let waited = waited.context("the migrations are not applied: run `migrate`")?;
    waited.context("the migrations that are applied are not this version's")
}

/// The first migration that is not applied.
async fn missing<'m>(pool: &PgPool, wanted: &'m [Migration]) -> Result<Option<&'m Migration>> {
    let mut conn = pool.acquire().await?;
    let exists = "select to_regclass($1) is not null";
    let (exists,): (bool,) = sqlx::query_as(exists)
        .bind(APPLIED)
        .fetch_one(&mut *conn)
        .await?;
    if !exists {
        return Ok(wanted.first());
    }
    let applied: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("select version, checksum from _sqlx_migrations")
            .fetch_all(&mut *conn)
            .await?;
    for migration in wanted {
        let found = applied
            .iter()
            .find(|(version, _)| *version == migration.version);
        let Some((version, checksum)) = found else {
            return Ok(Some(migration));
        };
        if *checksum != *migration.checksum {
            let mismatch = MigrateError::VersionMismatch(*version);
            return Err(mismatch.into());
        }
    }
    Ok(None)
}

/// Whether the pool's role may create tables.
async fn may_make_tables(pool: &PgPool) -> Result<bool> {
    let (may,): (bool,) = sqlx::query_as("select has_schema_privilege(current_schema(), 'create')")
        .fetch_one(pool)
        .await?;
    Ok(may)
}

/// What makes the pool's role, or one that it may become, unfit to serve in production.
async fn power(pool: &PgPool) -> Result<Option<String>> {
    let found: Option<(String,)> = sqlx::query_as(
        "with
             role as (select * from pg_roles where pg_has_role(session_user, oid, 'member')),
             here as (select * from pg_namespace where nspname = current_schema()),
             append_only as (
                 select distinct t.tgrelid as oid
                 from pg_trigger t join pg_proc p on p.oid = t.tgfoid join pg_class c on c.oid = t.tgrelid
                 where p.proname = 'refuse_change' and c.relnamespace in (select oid from here)
             )
         select power from (values
             (1, 'is a superuser', exists (select from role where rolsuper)),
             (2, 'may make roles', exists (select from role where rolcreaterole)),
             (3, 'owns the database', exists (
                 select from pg_database join role on role.oid = datdba
                 where datname = current_database()
             )),
             (4, 'owns the schema', exists (select from here join role on role.oid = nspowner)),
             (5, 'may create in the schema', exists (
                 select from role, here where has_schema_privilege(role.oid, here.oid, 'create')
             )),
             (6, 'owns tables or functions', exists (
                 select from pg_class join role on role.oid = relowner
                 where relnamespace in (select oid from here)
             ) or exists (
                 select from pg_proc join role on role.oid = proowner
                 where pronamespace in (select oid from here)
             )),
             (7, 'may change what is append-only', exists (
                 select from role, append_only a
                 where has_table_privilege(role.oid, a.oid, 'update, delete, truncate, trigger')
                     or has_any_column_privilege(role.oid, a.oid, 'update')
             ))
         ) as powers (number, power, is_there)
         where is_there order by number limit 1",
    )
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|(power,)| power))
}
