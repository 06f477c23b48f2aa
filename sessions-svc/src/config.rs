//! The settings of sessions-svc.

use std::time::Duration;

use chassis::{
    config::{Mode, Refusals, Settings, duration},
    grpc::{self, Caller},
};
use clap::Parser;
use db::config::{Command, ServiceConfig};

use crate::expiry_event::PUBLISH_MAX;

/// Payment sessions, their transactions as shown, expiry, the customer directory.
#[derive(Clone, Debug, Parser)]
#[command(name = "sessions-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub service: ServiceConfig,

    /// Address of webhooks-svc, which tells merchants that a session has expired.
    #[arg(long, env = "WEBHOOKS_URL")]
    pub webhooks_url: String,

    /// How long after its creation a session expires.
    #[arg(long, env = "SESSION_LIFETIME", default_value = "24h", value_parser = duration)]
    pub session_lifetime: Duration,

    /// How long an event of a process that died waits for another to relay it, and the longest that
    /// relaying it may take. At least 8s.
    #[arg(long, env = "LEASE", default_value = "30s", value_parser = duration)]
    pub lease: Duration,
}

/// The time that a lease must leave for reading an event and recording that it was sent. If it
/// ends earlier, another process may send the same event at the same time.
const RECORDING_MAX: Duration = Duration::from_secs(3);

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.service.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        self.service.check(refusals);
        let (url, tls) = (&self.webhooks_url, &self.service.tls);
        tls.check_caller(Caller::SessionsSvc, refusals);
        grpc::check_url(refusals, "WEBHOOKS_URL", url, tls);
        let lives = !self.session_lifetime.is_zero();
        refusals.unless(lives, "SESSION_LIFETIME", "more than nothing");
        let is_longer = self.lease >= PUBLISH_MAX + RECORDING_MAX;
        refusals.unless(
            is_longer,
            "LEASE",
            "at least 8s: telling webhooks-svc takes 5s",
        );
    }
}
