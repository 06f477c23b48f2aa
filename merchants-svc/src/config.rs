//! How merchants-svc is started.

use chassis::config::{Database, Listen, Telemetry, Tls};
use clap::{Parser, Subcommand};

/// Who merchants are: verification and API keys.
#[derive(Clone, Debug, Parser)]
#[command(name = "merchants-svc", version)]
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
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Applies the database's migrations and ends.
    Migrate,
}
