//! A fresh database for a test: an SQLite file, or a PostgreSQL database where `TEST_DATABASE_URL`
//! names a server.
//!
//! When it is dropped it is deleted, and the test fails if work is left in the outbox. Wait for it
//! with [`TestDb::until_relayed`]; a test that means to leave some says [`TestDb::leave_work`].

use std::path::{Path, PathBuf};

use chassis::testing::until;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    postgres::PgConnectOptions,
};
use uuid::Uuid;

use crate::{
    Db, config::Database, connection::StoreConnection, create_database_if_missing, outbox,
    postgres, sqlite,
};

/// A test's database. Keep it for as long as the database is used.
#[derive(Debug)]
pub struct TestDb {
    pub url: String,
    /// The folder of the SQLite file.
    folder: Option<PathBuf>,
    /// Roles created for this database, dropped with it.
    roles: Vec<String>,
    /// Whether the test may end with work in the outbox.
    leaves_work: bool,
}

impl TestDb {
    /// An empty database for a test of this service.
    ///
    /// # Panics
    /// If the server of `TEST_DATABASE_URL` refuses: the test cannot go on.
    pub async fn new(service: &str) -> Self {
        let unique = Uuid::new_v4().simple();
        let Some(server) = server_url() else {
            let folder = std::env::temp_dir().join(format!("{service}-{unique}"));
            let url = format!("sqlite://{}/{service}.db", folder.display());
            return Self {
                url,
                folder: Some(folder),
                roles: Vec::new(),
                leaves_work: false,
            };
        };
        let name = service.replace('-', "_");
        let url = format!("{}/test_{name}_{unique}", server.trim_end_matches('/'));
        create_database_if_missing(&url)
            .await
            .expect("the server of TEST_DATABASE_URL makes databases");
        Self {
            url,
            folder: None,
            roles: Vec::new(),
            leaves_work: false,
        }
    }

    /// Settings as in production: one role that owns the database, and one that only serves. On
    /// SQLite, which has no roles, a developer's settings.
    ///
    /// # Panics
    /// If the server cannot create roles.
    pub async fn settings(&mut self) -> Database {
        let mut settings = Database {
            database_url: self.url.clone(),
            migrate_database_url: None,
            database_max_connections: 16,
        };
        if self.folder.is_some() {
            return settings;
        }
        let options: PgConnectOptions = self.url.parse().expect("a PostgreSQL URL");
        let mut conn = options.connect().await.expect("the server answers");
        let name = options.get_database().unwrap_or_default();
        let (owner, running) = (format!("{name}_owner"), format!("{name}_running"));
        for statement in [
            format!("create role {owner} login password '{owner}'"),
            format!("create role {running} login password '{running}'"),
            format!("alter database {name} owner to {owner}"),
        ] {
            execute(&mut conn, statement).await;
        }
        conn.close().await.expect("the connection ends");
        let (_, place) = self.url.rsplit_once('@').expect("a URL with a role");
        let url_of = |role: &str| format!("postgres://{role}:{role}@{place}");
        settings.database_url = url_of(&running);
        settings.migrate_database_url = Some(url_of(&owner));
        self.roles = vec![owner, running];
        settings
    }

    /// Opens the database with up to 16 connections.
    ///
    /// # Panics
    /// If the database does not open.
    pub async fn connect(&self) -> Db {
        Db::connect(&self.url, 16)
            .await
            .expect("a fresh database opens")
    }

    /// Waits until everything in the outbox has been relayed.
    ///
    /// # Panics
    /// If work is left after a while.
    pub async fn until_relayed(&self) {
        let db = self.connect().await;
        let is_empty = async || outbox::len(&db).await.expect("an outbox") == 0;
        until("the outbox is empty", is_empty).await;
        db.close().await;
    }

    /// Lets this test end with work in the outbox, as after a crash.
    pub fn leave_work(&mut self) {
        self.leaves_work = true;
    }

    /// Checks again, after [`TestDb::leave_work`], that no work is left.
    pub fn leave_no_work(&mut self) {
        self.leaves_work = false;
    }

    /// How many rows are in the outbox; none if the database was never opened or has no outbox.
    fn rows_left(&self) -> anyhow::Result<i64> {
        let was_opened = self.folder.as_deref().is_none_or(Path::exists);
        if !was_opened {
            return Ok(0);
        }
        let url = self.url.clone();
        on_own_thread(async move {
            let db = Db::connect(&url, 1).await?;
            let has_outbox = match db.is_postgres() {
                true => "select count(*) from pg_tables where tablename = 'outbox'",
                false => "select count(*) from sqlite_master where name = 'outbox'",
            };
            let (tables,): (i64,) = db.read().await?.sql(has_outbox).one().await?;
            let rows = match tables {
                0 => 0,
                _ => outbox::len(&db).await?,
            };
            db.close().await;
            Ok(rows)
        })
    }
}

/// How the store runs this statement, whatever its parameters are: which tables it scans, which
/// indexes it uses, and whether it sorts.
///
/// # Panics
/// If the store does not understand the statement.
pub async fn plan(db: &Db, text: &'static str) -> String {
    let mut conn = db.read().await.expect("the database answers");
    let lines: Vec<String> = match &mut conn.held {
        StoreConnection::Postgres(held) => {
            let parameters = (1..).take_while(|number| text.contains(&format!("${number}")));
            let nulls = match parameters.count() {
                0 => String::new(),
                count => format!("({})", vec!["null"; count].join(", ")),
            };
            execute(held, format!("prepare planned as {text}")).await;
            let explain = AssertSqlSafe(format!("explain execute planned {nulls}"));
            let rows = sqlx::raw_sql(explain).fetch_all(&mut **held).await;
            execute(held, "deallocate planned".to_owned()).await;
            let rows = rows.expect("a plan");
            rows.iter().map(|row| row.get(0)).collect()
        }
        StoreConnection::Sqlite(held) => {
            let text = sqlite::translated(text);
            let explain = AssertSqlSafe(format!("explain query plan {text}"));
            let rows = sqlx::query(explain).fetch_all(&mut **held).await;
            let rows = rows.expect("a plan");
            rows.iter().map(|row| row.get("detail")).collect()
        }
    };
    lines.join("\n")
}

/// Checks that a list reads its rows by this index alone, in the order in which it shows them.
///
/// # Panics
/// If it scans or sorts.
pub async fn check_ordered_by_index(db: &Db, text: &'static str, index: &str) {
    let plan = plan(db, text).await;
    assert!(plan.contains(index), "{index} is not used:\n{plan}");
    for costly in ["SCAN", "TEMP B-TREE", "Seq Scan", "Sort"] {
        assert!(!plan.contains(costly), "{costly}:\n{plan}");
    }
}

async fn execute(conn: &mut PgConnection, statement: String) {
    let done = conn.execute(AssertSqlSafe(statement)).await;
    done.expect("a superuser may");
}

#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn server_url() -> Option<String> {
    std::env::var("TEST_DATABASE_URL")
        .ok()
        .filter(|url| !url.is_empty())
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let is_checked = !self.leaves_work && !std::thread::panicking();
        let left = is_checked.then(|| self.rows_left());
        let removed = match self.folder.take() {
            Some(folder) if folder.exists() => std::fs::remove_dir_all(folder).map_err(Into::into),
            Some(_) => Ok(()),
            None => {
                let (url, roles) = (self.url.clone(), std::mem::take(&mut self.roles));
                on_own_thread(async move { Ok(postgres::drop_database(&url, &roles).await?) })
            }
        };
        if let Err(error) = removed {
            eprintln!("a test database is left behind: {error:#}");
        }
        if let Some(left) = left {
            let left = left.expect("the outbox can be read");
            assert_eq!(left, 0, "the test leaves work in the outbox");
        }
    }
}

/// The test's own runtime may be shutting down.
fn on_own_thread<T: Send + 'static>(
    running: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let thread = std::thread::spawn(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(running)
    });
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread panicked")))
}
