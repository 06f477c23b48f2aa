//! pgbench, where it is installed: PostgreSQL alone, without any service.

use std::{io::Write as _, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use tempfile::NamedTempFile;
use tokio::process::Command;
use uuid::Uuid;

use super::store;
use crate::{processes::ended, store::Server, thousandths::Thousandths};

/// A database for pgbench.
pub struct Pgbench {
    server: Server,
    database: String,
}

impl Pgbench {
    /// Makes the database, does the work, and drops it, whatever happens. A signal is the work's
    /// own matter.
    pub async fn during<T>(
        server: Server,
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let database = format!("loadtest_{}_pgbench", Uuid::new_v4().simple());
        let pgbench = Self { server, database };
        let done = match pgbench.prepare().await {
            Ok(()) => work(&pgbench).await,
            Err(error) => Err(error),
        };
        ended(done, pgbench.server.drop(&pgbench.database).await)
    }

    /// How many INSERTs per second this many clients make into an empty table, prepared and each
    /// committed by itself. `None` if pgbench is not installed.
    pub async fn inserts(
        &self,
        clients: usize,
        duration: Duration,
    ) -> anyhow::Result<Option<Thousandths>> {
        self.prepare().await?;
        let mut script = NamedTempFile::new()?;
        script.write_all(store::PGBENCH.as_bytes())?;
        let output = Command::new("pgbench")
            .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
            .arg(format!("--client={clients}"))
            .arg(format!("--time={}", duration.as_secs().max(1)))
            .arg("--file")
            .args([script.path().as_os_str(), self.url().as_ref()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        let output = match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            output => output?,
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pgbench failed: {errors}");
        let found = rate(&String::from_utf8_lossy(&output.stdout));
        Ok(Some(found.context("pgbench told no rate")?))
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        store::prepare(&self.url()).await
    }

    fn url(&self) -> String {
        self.server.database(&self.database)
    }
}

/// Of the line `tps = 15234.567890 (without initial connection time)`.
fn rate(output: &str) -> Option<Thousandths> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))?;
    let (whole, rest) = line.split_whitespace().next()?.split_once('.')?;
    let digits = format!("{whole}{}", rest.get(..3)?);
    digits.parse().ok().map(Thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found() {
        let output = "latency average = 1.050 ms\n\
                      tps = 15234.567890 (without initial connection time)\n";
        assert_eq!(rate(output), Some(Thousandths(15_234_567)));
        assert_eq!(rate("no figure"), None);
    }
}
