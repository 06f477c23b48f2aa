//! A fresh database for a test: an SQLite file, or a PostgreSQL database where
//! `TEST_DATABASE_URL` names a server. Gone when it is dropped.

use std::path::PathBuf;

use uuid::Uuid;

use crate::{Db, create_database_if_missing, postgres};

/// Keep it as long as the database is used.
#[derive(Debug)]
pub struct TestDb {
    pub url: String,
    /// Of the SQLite file.
    folder: Option<PathBuf>,
}

impl TestDb {
    /// # Panics
    /// Where the server of `TEST_DATABASE_URL` refuses: a test cannot go on.
    pub async fn new(service: &str) -> Self {
        let unique = Uuid::new_v4().simple();
        let Some(server) = server_url() else {
            let folder = std::env::temp_dir().join(format!("{service}-{unique}"));
            let url = format!("sqlite://{}/{service}.db", folder.display());
            let folder = Some(folder);
            return Self { url, folder };
        };
        let name = service.replace('-', "_");
        let url = format!("{}/test_{name}_{unique}", server.trim_end_matches('/'));
        create_database_if_missing(&url)
            .await
            .expect("the server of TEST_DATABASE_URL makes databases");
        Self { url, folder: None }
    }

    /// # Panics
    /// Where the database does not open.
    pub async fn connect(&self) -> Db {
        Db::connect(&self.url, 16)
            .await
            .expect("a fresh database opens")
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn server_url() -> Option<String> {
    std::env::var("TEST_DATABASE_URL")
        .ok()
        .filter(|url| !url.is_empty())
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let removed = match self.folder.take() {
            Some(folder) if folder.exists() => std::fs::remove_dir_all(folder).map_err(Into::into),
            Some(_) => Ok(()),
            None => drop_database(self.url.clone()),
        };
        if let Err(error) = removed {
            eprintln!("a test database is left behind: {error:#}");
        }
    }
}

/// On a thread of its own: the test's runtime may be the one that is ending.
fn drop_database(url: String) -> anyhow::Result<()> {
    let dropping = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(postgres::drop_database(&url))?;
        anyhow::Ok(())
    });
    dropping
        .join()
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread panicked")))
}
