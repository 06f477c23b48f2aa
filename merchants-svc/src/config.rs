//! The settings of merchants-svc.

use chassis::config::{self, Database, Listen, Mode, Refusals, Settings, Telemetry, Tls};
use clap::{Parser, Subcommand};

/// Who merchants are: verification and API keys.
#[derive(Clone, Debug, Parser)]
#[command(name = "merchants-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// How strict the process is: `production` refuses settings that are only for trying things
    /// out.
    #[arg(long, env = "MODE", value_enum, default_value_t)]
    pub mode: Mode,

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
    /// Applies the database's migrations and exits.
    Migrate,
    #[command(flatten)]
    Common(config::Command),
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        self.listen.check(refusals);
        db::check(&self.database, refusals);
        self.tls.check(refusals);
        self.telemetry.check(refusals);
    }
}
