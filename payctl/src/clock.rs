//! `payctl clock`: moves the local stack's clock.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::services::{Failure, Services};

/// Longest wait for the answer. Moving time runs everything that becomes due on the way.
const ANSWER_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// Moves time forward and waits until everything that became due is done.
    Advance {
        /// How far, with its unit: `90s`, `24h`.
        #[arg(value_parser = chassis::config::duration)]
        by: Duration,
    },
}

pub async fn run(services: &Services, command: ClockCommand) -> Result<Value, Failure> {
    let ClockCommand::Advance { by } = command;
    let url = services.clock_url()?;
    let answer = chassis::http::client(ANSWER_MAX)?
        .post(url)
        .json(&json!({ "advance_seconds": by.as_secs() }))
        .send()
        .await
        .with_context(|| format!("the clock at {url} does not answer"))?;
    if !answer.status().is_success() {
        bail!("the clock refused: {}", answer.text().await?);
    }
    Ok(answer.json().await?)
}
