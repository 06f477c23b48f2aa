//! How webhooks-svc is started.

use std::time::Duration;

use anyhow::ensure;
use chassis::config::{self, Database, Listen, Telemetry, Tls};
use clap::{ArgAction, Parser, Subcommand};
use ipnet::IpNet;
use secrecy::SecretString;

/// What a lease must leave for recording an attempt once its time is over.
const RECORDING_MAX: Duration = Duration::from_secs(1);

/// Merchants' webhook endpoints, and the deliveries of events to them.
#[derive(Clone, Debug, Parser)]
#[command(name = "webhooks-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub listen: Listen,

    #[command(flatten)]
    pub database: Database,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub telemetry: Telemetry,

    /// Encrypts signing secrets at rest: 32 bytes in base64. More keys may follow after commas:
    /// the first encrypts, all decrypt.
    #[arg(long, env = "WEBHOOK_SECRET_KEY", hide_env_values = true)]
    pub webhook_secret_key: SecretString,

    /// Waiting times after each failed attempt; when they are used up, the delivery is exhausted
    /// (spec §6.2).
    #[arg(
        long,
        env = "WEBHOOK_RETRY_SCHEDULE",
        default_value = "1m,5m,30m,2h,8h,24h",
        value_delimiter = ',',
        value_parser = config::duration
    )]
    pub webhook_retry_schedule: Vec<Duration>,

    /// Longest that an attempt takes, from looking up the name to the answer's status.
    #[arg(long, env = "WEBHOOK_TIMEOUT", default_value = "10s", value_parser = config::duration)]
    pub webhook_timeout: Duration,

    /// How long the attempt of a process that died waits to be found.
    #[arg(long, env = "LEASE", default_value = "30s", value_parser = config::duration)]
    pub lease: Duration,

    /// Networks that may be called although they are not public, such as 127.0.0.0/8.
    #[arg(long, env = "WEBHOOK_ALLOW_NETS", value_delimiter = ',')]
    pub webhook_allow_nets: Vec<IpNet>,

    /// Also calls endpoints without TLS. Never in production.
    #[arg(long, env = "WEBHOOK_ALLOW_HTTP", action = ArgAction::Set, default_value_t = false)]
    pub webhook_allow_http: bool,

    /// How long the previous signing secret signs beside a new one.
    #[arg(
        long,
        env = "WEBHOOK_ROTATION_OVERLAP",
        default_value = "24h",
        value_parser = config::duration
    )]
    pub webhook_rotation_overlap: Duration,

    /// Attempts that this process runs at the same time.
    #[arg(long, env = "WEBHOOK_CONCURRENCY", default_value_t = 256)]
    pub webhook_concurrency: usize,

    /// Attempts that run at the same time to one endpoint, over all processes.
    #[arg(long, env = "WEBHOOK_ENDPOINT_CONCURRENCY", default_value_t = 4)]
    pub webhook_endpoint_concurrency: u32,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Applies the database's migrations and ends.
    Migrate,
    /// Encrypts every signing secret with the first of the keys and ends. Afterwards the others
    /// are no longer needed.
    Reseal,
}

impl Config {
    /// What the settings must be to each other.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.lease >= self.webhook_timeout + RECORDING_MAX,
            "LEASE must be at least one second longer than WEBHOOK_TIMEOUT"
        );
        ensure!(
            self.webhook_concurrency > 0 && self.webhook_endpoint_concurrency > 0,
            "WEBHOOK_CONCURRENCY and WEBHOOK_ENDPOINT_CONCURRENCY must be at least 1"
        );
        Ok(())
    }
}
