//! How sessions-svc is started.

use std::time::Duration;

use chassis::config::{Database, Listen, Telemetry, Tls, duration};
use clap::{Parser, Subcommand};

/// Payment sessions, their transactions as shown, expiry, the customer directory.
#[derive(Clone, Debug, Parser)]
#[command(name = "sessions-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub listen: Listen,

    #[command(flatten)]
    pub database: Database,

    /// Where webhooks-svc is, which is told of sessions that expire.
    #[arg(long, env = "WEBHOOKS_URL", default_value = "http://127.0.0.1:50054")]
    pub webhooks_url: String,

    /// How long after its creation a session expires (spec §8).
    #[arg(long, env = "SESSION_LIFETIME", default_value = "24h", value_parser = duration)]
    pub session_lifetime: Duration,

    /// How long the event of a process that died waits for another to relay it; also the most
    /// that one relay may take.
    #[arg(long, env = "LEASE", default_value = "30s", value_parser = duration)]
    pub lease: Duration,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub telemetry: Telemetry,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Applies the database's migrations and ends.
    Migrate,
}
