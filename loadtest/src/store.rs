//! The PostgreSQL server: databases for a measurement, and what the server counted in them.

use std::str::FromStr as _;

use anyhow::Context as _;
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
