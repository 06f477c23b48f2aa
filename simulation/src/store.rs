//! The databases of a world: PostgreSQL if a server is given, otherwise SQLite files.
//!
//! PostgreSQL's clock cannot be moved, so the services' databases read the world's: a function
//! with the same name, earlier in the search path, reads a file that the driver writes.

use std::{
    fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, path::PathBuf, str::FromStr as _,
};

use anyhow::Context as _;
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::time::START_UNIX_MS;

/// Services with a database of their own.
pub const OWNERS: [&str; 4] = ["merchants", "sessions", "charges", "webhooks"];

/// For the services' connections: the world's clock comes before the server's own. PostgreSQL
/// plans a statement anew for each of its first five runs on a connection; most connections here
/// end before that, so it keeps the first plan.
const SERVER_SETTINGS: &str =
    "-c%20search_path%3Dpublic%2Cpg_catalog%20-c%20plan_cache_mode%3Dforce_generic_plan";

/// Where a world keeps its records. Gone when dropped.
pub struct Store {
    server: Option<Server>,
    folder: TempDir,
    prefix: String,
}

#[derive(Clone)]
struct Server {
    url: String,
    address: SocketAddr,
}

impl Store {
    /// Creates empty databases, on the server if there is one, for this process's only world.
    ///
    /// # Errors
    /// The server refuses, or no folder can be created.
    pub async fn make(server: Option<&str>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("simulation-")
            .tempdir_in(shared_memory())?;
        // PostgreSQL's own user reads the clock's file.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let server = server.map(Server::parse).transpose()?;
        let store = Self {
            server,
            folder,
            prefix: format!("simulation_{}", std::process::id()),
        };
        if let Some(server) = &store.server {
            fs::write(store.clock_path(), START_UNIX_MS.to_string())?;
            for owner in OWNERS {
                let database = store.database(owner);
                db::create_database_if_missing(&server.url_of(&database)).await?;
                let mut conn = server.connect(&database).await?;
                let file = store.clock_path();
                let function = format!(
                    "create function public.clock_timestamp() returns timestamptz language sql as $$
                         select to_timestamp(pg_catalog.pg_read_file('{}')::bigint / 1000.0)
                     $$",
                    file.display()
                );
                conn.execute(AssertSqlSafe(function)).await?;
                conn.close().await?;
            }
        }
        Ok(store)
    }

    /// The server that links lead to.
    pub fn server(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|server| server.address)
    }

    pub fn is_postgres(&self) -> bool {
        self.server.is_some()
    }

    pub fn clock_file(&self) -> Option<PathBuf> {
        self.server.as_ref().map(|_| self.clock_path())
    }

    fn clock_path(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    fn database(&self, owner: &str) -> String {
        format!("{}_{owner}", self.prefix)
    }

    /// The URL for a service, over a link to the server.
    pub fn url(&self, owner: &str, link: Option<SocketAddr>) -> String {
        match (&self.server, link) {
            (Some(server), Some(link)) => server.url_over(&self.database(owner), link),
            (Some(server), None) => server.url_over(&self.database(owner), server.address),
            (None, _) => format!("sqlite://{}/{owner}.db", self.folder.path().display()),
        }
    }

    /// The URL for reading without a link, in the server's own time.
    pub fn url_aside(&self, owner: &str) -> String {
        match &self.server {
            Some(server) => server.url_of(&self.database(owner)),
            None => self.url(owner, None),
        }
    }

    /// Tells who waits for a lock. `None` on SQLite.
    pub fn lock_waits(&self) -> Option<LockWaits> {
        let server = self.server.as_ref()?;
        Some(LockWaits {
            url: server.url_of("postgres"),
            prefix: self.prefix.clone(),
            connected: None,
        })
    }

    /// Drops the databases.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn drop_databases(&self) -> anyhow::Result<()> {
        let Some(server) = &self.server else {
            return Ok(());
        };
        let mut conn = server.connect("postgres").await?;
        for owner in OWNERS {
            let drop = format!(
                "drop database if exists \"{}\" with (force)",
                self.database(owner)
            );
            conn.execute(AssertSqlSafe(drop)).await?;
        }
        conn.close().await?;
        Ok(())
    }
}

/// Counts the statements that wait for a lock in one world's databases, for a thread outside every
/// runtime.
pub struct LockWaits {
    url: String,
    prefix: String,
    connected: Option<(Runtime, PgConnection)>,
}

impl LockWaits {
    /// # Errors
    /// The server does not answer.
    pub fn count(&mut self) -> anyhow::Result<usize> {
        let (runtime, conn) = match &mut self.connected {
            Some(connected) => connected,
            none => {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let conn = runtime.block_on(PgConnection::connect(&self.url))?;
                none.insert((runtime, conn))
            }
        };
        let waits = sqlx::query_scalar::<_, i64>(
            "select count(*) from pg_stat_activity
             where starts_with(datname, $1) and wait_event_type = 'Lock'",
        );
        let count = runtime.block_on(waits.bind(&self.prefix).fetch_one(conn))?;
        Ok(usize::try_from(count)?)
    }
}

impl Server {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(url)?;
        let (host, port) = (options.get_host().to_owned(), options.get_port());
        let address = format!("{host}:{port}").parse();
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            address: address.context("the server's host must be an IP address")?,
        })
    }

    fn url_of(&self, database: &str) -> String {
        format!("{}/{database}", self.url)
    }

    fn url_over(&self, database: &str, link: SocketAddr) -> String {
        let through = self
            .url
            .replace(&self.address.to_string(), &link.to_string());
        format!("{through}/{database}?sslmode=disable&options={SERVER_SETTINGS}")
    }

    async fn connect(&self, database: &str) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect(&self.url_of(database)).await
    }
}

/// A folder in memory if the machine has one: a simulated crash loses no file.
fn shared_memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let is_writable = fs::metadata(&memory).is_ok_and(|found| found.is_dir());
    if is_writable {
        memory
    } else {
        std::env::temp_dir()
    }
}
