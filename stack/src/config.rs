//! The settings of the local stack.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use chassis::config::{self, Mode, Refusals, Settings, Telemetry};
use clap::Parser;

/// The whole payment service in one process on this machine: embedded databases, simulated
/// networks, and a clock that can be moved. For trying out and for tests, never for production.
#[derive(Clone, Debug, Parser)]
#[command(name = "stack", version, mut_arg("log", |log| log.default_value("error")))]
pub struct Config {
    /// Anything but `development` is refused: the stack creates a demo merchant and simulates
    /// networks.
    #[arg(long, env = "MODE", value_enum, default_value_t)]
    pub mode: Mode,

    /// Takes a payment of each kind through the public API, prints every request and answer, and
    /// exits: with 0 only if everything went as the specification says.
    #[arg(long)]
    pub demo: bool,

    /// Folder for databases and keys, and for how far the clock has been moved.
    #[arg(long, default_value = "./data")]
    pub data: PathBuf,

    /// Keeps nothing: uses a temporary folder and removes it at the end.
    #[arg(long, conflicts_with = "data")]
    pub ephemeral: bool,

    /// Address of the merchants' API. Port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub api: SocketAddr,

    /// Address of the hosted checkout. Port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub checkout: SocketAddr,

    /// Address of the merchants' dashboard. Port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:8082")]
    pub dashboard: SocketAddr,

    /// Address of the simulated networks and their handset page. Port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:8083")]
    pub handset: SocketAddr,

    /// File to write once everything answers: all addresses and the demo merchant, as JSON.
    #[arg(long)]
    pub ready_file: Option<PathBuf>,

    /// Keeps records on a PostgreSQL server, in databases that are created if missing. Their URL is
    /// this prefix and the service's name, such as `postgres://me@localhost/pay_` and `charges`.
    #[arg(long, env = "DATABASE_URL_PREFIX", hide_env_values = true)]
    pub database_url_prefix: Option<String>,

    /// Counts rate limits in this Redis instead of in the process.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,

    /// When a network is first queried about a charge, each counted from the submission; sooner
    /// than in production.
    #[arg(
        long,
        env = "RECONCILE_SCHEDULE",
        default_value = "1s,2s,4s,8s,16s",
        value_delimiter = ',',
        value_parser = config::duration
    )]
    pub reconcile_schedule: Vec<Duration>,

    /// How long the simulated networks wait for a payer's answer.
    #[arg(
        long,
        env = "RAILSIM_PROMPT_TIMEOUT",
        default_value = "10s",
        value_parser = config::duration
    )]
    pub railsim_prompt_timeout: Duration,

    #[command(flatten)]
    pub telemetry: Telemetry,

    /// More flags for a service, for tests: (service, flag).
    #[arg(skip)]
    pub flags: Vec<(&'static str, String)>,
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        let is_trial = self.mode == Mode::Development;
        let wants = "development: the stack makes a demo merchant and simulates networks";
        refusals.unless(is_trial, "MODE", wants);
        self.telemetry.check(refusals);
        let prefix = self.database_url_prefix.as_deref();
        let is_postgres = |prefix: &str| prefix.starts_with("postgres") && prefix.contains("://");
        let wants = "postgres:// and what is before a database's name";
        refusals.unless(prefix.is_none_or(is_postgres), "DATABASE_URL_PREFIX", wants);
        let redis = self.redis_url.as_deref();
        let is_redis = |url: &str| url.starts_with("redis://") || url.starts_with("rediss://");
        let wants = "redis://host:port";
        refusals.unless(redis.is_none_or(is_redis), "REDIS_URL", wants);
    }
}
