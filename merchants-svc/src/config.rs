//! The settings of merchants-svc.

use chassis::config::{Mode, Refusals, Settings};
use clap::Parser;
use db::config::{Command, ServiceConfig};

/// Who merchants are: verification and API keys.
#[derive(Clone, Debug, Parser)]
#[command(name = "merchants-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub service: ServiceConfig,
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.service.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        self.service.check(refusals);
    }
}
