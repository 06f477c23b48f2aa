//! pgbench, where it is installed: PostgreSQL alone, without any service.

use std::{io::Write as _, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::store;
use crate::{store::Server, thousandths::Thousandths};

/// How many INSERTs per second this many clients make, prepared and each committed by itself.
/// `None` if pgbench is not installed.
pub async fn inserts(
    server: &Server,
    clients: usize,
    duration: Duration,
) -> anyhow::Result<Option<Thousandths>> {
    let name = "loadtest_pgbench";
    let url = server.database(name);
    store::prepare(&url).await?;
    let mut script = NamedTempFile::new()?;
    script.write_all(store::PGBENCH.as_bytes())?;
    let output = Command::new("pgbench")
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .arg(format!("--client={clients}"))
        .arg(format!("--time={}", duration.as_secs().max(1)))
        .arg("--file")
        .args([script.path().as_os_str(), url.as_ref()])
        .stdin(Stdio::null())
        .output()
        .await;
    server.drop(name).await?;
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pgbench failed: {errors}");
    let found = rate(&String::from_utf8_lossy(&output.stdout));
    Ok(Some(found.context("pgbench told no rate")?))
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
