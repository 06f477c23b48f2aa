//! The PostgreSQL server: databases for a measurement, and what the server counted in them.

use std::str::FromStr as _;

use anyhow::Context as _;
use db::Db;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection,
    postgres::PgConnectOptions,
};

/// A PostgreSQL server on which databases may be created.
#[derive(Clone, Debug)]
pub struct Server {
    options: PgConnectOptions,
    url: String,
}

/// What was read from a table.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Scans {
    pub table_name: String,
    pub sequential: i64,
    pub index_rows: i64,
}

/// The rows that wait for work, in the databases of one measurement.
pub struct Queues {
    charges: Db,
    sessions: Db,
    webhooks: Db,
}

impl Queues {
    /// Opens the databases at these URLs, which must have been migrated.
    pub async fn open(charges: &str, sessions: &str, webhooks: &str) -> anyhow::Result<Self> {
        Ok(Self {
            charges: Db::connect(charges, 1).await?,
            sessions: Db::connect(sessions, 1).await?,
            webhooks: Db::connect(webhooks, 1).await?,
        })
    }

    /// How many rows wait: (queue, rows).
    pub async fn read(&self) -> anyhow::Result<[(&'static str, u64); 4]> {
        let count = async |db: &Db, text: &'static str| {
            let (rows,) = db.read().await?.sql(text).one::<(i64,)>().await?;
            anyhow::Ok(u64::try_from(rows)?)
        };
        let open = "select count(*) from charges where state not in ('SETTLED', 'FAILED', 'VOID')";
        let outbox = "select count(*) from outbox";
        let due =
            "select (select count(*) from deliveries where claim is null and due_at is not null)
                        + (select count(*) from deliveries where claim is not null)";
        Ok([
            ("open charges", count(&self.charges, open).await?),
            ("charges' outbox", count(&self.charges, outbox).await?),
            ("sessions' outbox", count(&self.sessions, outbox).await?),
            ("due deliveries", count(&self.webhooks, due).await?),
        ])
    }
}

impl Server {
    /// The server at `postgres://user@host:port/`.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            options: PgConnectOptions::from_str(url).context("the database URL")?,
            url: url.trim_end_matches('/').to_owned(),
        })
    }

    /// The URL of a database of this server.
    pub fn database(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    pub async fn create(&self, name: &str) -> anyhow::Result<()> {
        Ok(db::create_database_if_missing(&self.database(name)).await?)
    }

    /// Drops a database, even if something is connected to it.
    pub async fn drop(&self, name: &str) -> anyhow::Result<()> {
        let mut server = self.connect("postgres").await?;
        let name = name.replace('"', "\"\"");
        let statement = format!("drop database if exists \"{name}\" with (force)");
        server.execute(AssertSqlSafe(statement)).await?;
        Ok(server.close().await?)
    }

    /// Lets the planner scan a table sequentially only where no index serves, however small the
    /// table is.
    pub async fn avoid_sequential_scans(&self, name: &str) -> anyhow::Result<()> {
        let mut server = self.connect("postgres").await?;
        let name = name.replace('"', "\"\"");
        let statement = format!("alter database \"{name}\" set enable_seqscan = off");
        server.execute(AssertSqlSafe(statement)).await?;
        Ok(server.close().await?)
    }

    /// Removes dead rows and counts the living ones, for the planner.
    pub async fn vacuum(&self, name: &str) -> anyhow::Result<()> {
        let mut database = self.connect(name).await?;
        database.execute("vacuum analyze").await?;
        Ok(database.close().await?)
    }

    /// How often each table was scanned sequentially, and how many rows were read from its indexes.
    pub async fn scans(&self, name: &str) -> anyhow::Result<Vec<Scans>> {
        let mut database = self.connect(name).await?;
        let scans: Vec<Scans> = sqlx::query_as(
            "select t.relname::text as table_name, t.seq_scan as sequential,
                    coalesce(sum(i.idx_tup_read), 0)::bigint as index_rows
             from pg_stat_user_tables t left join pg_stat_user_indexes i using (relid)
             group by t.relname, t.seq_scan",
        )
        .fetch_all(&mut database)
        .await?;
        database.close().await?;
        Ok(scans)
    }

    pub async fn connect(&self, name: &str) -> anyhow::Result<PgConnection> {
        let options = self.options.clone().database(name);
        let connected = options.connect().await;
        connected.with_context(|| format!("no connection to the database {name}"))
    }

    /// The number of a table's rows.
    pub async fn rows(&self, name: &str, table: &str) -> anyhow::Result<u64> {
        let mut database = self.connect(name).await?;
        let statement = format!("select count(*) from {table}");
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(statement))
            .fetch_one(&mut database)
            .await?;
        Ok(u64::try_from(rows)?)
    }
}
