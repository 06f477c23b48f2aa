//! What is specific to SQLite: one writer that transactions queue for, a few readers, a lock file,
//! and the parts of our SQL that it does not know.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::PathBuf,
    str::FromStr,
    sync::{LazyLock, PoisonError, RwLock},
    time::Duration,
};

use sqlx::{
    SqlitePool,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{Error, Result};

/// How long a transaction waits for the writer, and a reader for a connection.
const ACQUIRE_AT_MOST: Duration = Duration::from_secs(5);

/// How long a statement waits for another process's lock.
const BUSY_AT_MOST: Duration = Duration::from_secs(5);

const READERS_MAX: u32 = 4;

/// Prepared statements that a connection keeps: more than a service has, each for sets of five sizes.
const STATEMENTS_KEPT: usize = 512;

/// Older versions may corrupt a database when a write-ahead log is reset
/// (sqlite.org/changes.html).
const VERSION_MIN: [u32; 3] = [3, 51, 3];

/// One writer, which transactions queue for, and readers that do not wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    pub write: SqlitePool,
    /// The writer itself if the database is in memory.
    pub read: SqlitePool,
    /// Locked while the file is created or migrated; `None` in memory.
    lock_file: Option<PathBuf>,
}

/// Whether the URL names a file, or memory. It may have no parameters, because [`connect`] decides
/// how the file is opened.
pub(crate) fn is_url(url: &str) -> bool {
    let options = SqliteConnectOptions::from_str(url);
    let names_file = |options: SqliteConnectOptions| !options.get_filename().as_os_str().is_empty();
    url.starts_with("sqlite:") && !url.contains('?') && options.is_ok_and(names_file)
}

pub(crate) async fn connect(url: &str, max_connections: u32) -> Result<Pools> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Money: a commit must survive a power failure.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_AT_MOST)
        .statement_cache_capacity(STATEMENTS_KEPT);
    if url.contains(":memory:") {
        let write = pool(1).connect_with(options).await?;
        check_version(&write).await?;
        let read = write.clone();
        return Ok(Pools {
            write,
            read,
            lock_file: None,
        });
    }
    let file = options.get_filename().to_owned();
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let lock_file = file.with_added_extension("lock");
    let locked = lock(lock_file.clone()).await?;
    let write = pool(1).connect_with(options.clone()).await?;
    drop(locked);
    check_version(&write).await?;
    let readers = max_connections.clamp(1, READERS_MAX);
    let read = pool(readers).connect_with(options.read_only(true)).await?;
    Ok(Pools {
        write,
        read,
        lock_file: Some(lock_file),
    })
}

/// Connections live as long as the pool: a database in memory dies with its connection.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .min_connections(1)
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_AT_MOST)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
}

/// Takes an exclusive lock across processes, which is held until the file is dropped.
async fn lock(path: PathBuf) -> Result<File> {
    let locked = tokio::task::spawn_blocking(move || {
        let file = File::options().create(true).append(true).open(path)?;
        file.lock()?;
        Ok(file)
    });
    locked.await.map_err(|error| Error::Io(error.into()))?
}

async fn check_version(pool: &SqlitePool) -> Result<()> {
    let (text,): (String,) = sqlx::query_as("select sqlite_version()")
        .fetch_one(pool)
        .await?;
    let version: Vec<u32> = text
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    if version.as_slice() < VERSION_MIN.as_slice() {
        let error = format!("SQLite {text} may corrupt its file: 3.51.3 or later is needed");
        return Err(Error::Configuration(error.into()));
    }
    Ok(())
}

impl Pools {
    /// sqlx's own lock does nothing on SQLite, so this locks a file beside the database.
    pub async fn migrate(&self, migrator: &Migrator) -> Result<()> {
        let _locked = match &self.lock_file {
            Some(path) => Some(lock(path.clone()).await?),
            None => None,
        };
        let mut writer = self.write.acquire().await?;
        migrator.run_direct(None, &mut *writer, false).await?;
        Ok(())
    }

    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
}

/// SQLite has no row locks and needs none: it has one writer. Longer forms come first.
const ROW_LOCKS: [&str; 5] = [
    "for update skip locked",
    "for no key update skip locked",
    "for no key update",
    "for update",
    "for share",
];

/// `id = any(array(select …))` makes PostgreSQL look each id up by index, whatever it believes about
/// the size of the table. SQLite has no arrays.
const ANY_OF: (&str, &str) = ("= any(array(", "in (select * from (");

static TRANSLATED: LazyLock<RwLock<HashMap<&str, &str>>> = LazyLock::new(RwLock::default);

/// The statement as SQLite understands it. Statements are static, so each is rewritten once and
/// cached.
pub(crate) fn translated(text: &'static str) -> &'static str {
    if !ROW_LOCKS.iter().any(|lock| text.contains(lock)) && !text.contains(ANY_OF.0) {
        return text;
    }
    let known = TRANSLATED.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(translated) = known.get(text) {
        return translated;
    }
    drop(known);
    let translated = ROW_LOCKS
        .iter()
        .fold(text.replace(ANY_OF.0, ANY_OF.1), |text, lock| {
            text.replace(lock, "")
        });
    let translated: &'static str = translated.leak();
    let mut known = TRANSLATED.write().unwrap_or_else(PoisonError::into_inner);
    known.entry(text).or_insert(translated)
}
