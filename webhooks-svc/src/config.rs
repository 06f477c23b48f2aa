//! The settings of webhooks-svc.

use std::time::Duration;

use chassis::{
    config::{self, Mode, OperatorsListen, Refusals, Settings},
    grpc::{self, Caller},
    sealed,
};
use clap::{ArgAction, Parser, Subcommand};
use db::config::ServiceConfig;
use ipnet::IpNet;
use secrecy::SecretString;

/// The time that a lease must leave for recording an attempt after its timeout. If an endpoint's
/// row is locked, the set waits for it for 2 s, then that end by itself for 2 s, and the rest of
/// the set is written within another.
const RECORDING_MAX: Duration = Duration::from_secs(5);

/// Merchants' webhook endpoints, and the deliveries of events to them.
#[derive(Clone, Debug, Parser)]
#[command(name = "webhooks-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub service: ServiceConfig,

    #[command(flatten)]
    pub operators: OperatorsListen,

    /// Key that encrypts signing secrets at rest: 32 bytes in base64. Of several, separated by
    /// commas, the first encrypts and all decrypt.
    #[arg(long, env = "WEBHOOK_SECRET_KEY", hide_env_values = true)]
    pub webhook_secret_key: SecretString,

    /// Address of merchants-svc, which mails merchants whose endpoints no longer take events.
    #[arg(long, env = "MERCHANTS_URL")]
    pub merchants_url: String,

    /// How long to wait after each failed attempt. After the last, the delivery is exhausted.
    #[arg(
        long,
        env = "WEBHOOK_RETRY_SCHEDULE",
        default_value = "1m,5m,30m,2h,8h,24h",
        value_delimiter = ',',
        value_parser = config::duration
    )]
    pub webhook_retry_schedule: Vec<Duration>,

    /// How long an attempt may take, from looking up the name to the answer's status.
    #[arg(long, env = "WEBHOOK_TIMEOUT", default_value = "10s", value_parser = config::duration)]
    pub webhook_timeout: Duration,

    /// How long the attempt of a process that died waits for another: at least 5s more than
    /// WEBHOOK_TIMEOUT.
    #[arg(long, env = "LEASE", default_value = "30s", value_parser = config::duration)]
    pub lease: Duration,

    /// Networks that may be called although they are not public, such as 127.0.0.0/8. Production
    /// refuses any.
    #[arg(long, env = "WEBHOOK_ALLOW_NETS", value_delimiter = ',')]
    pub webhook_allow_nets: Vec<IpNet>,

    /// Whether endpoints without TLS may be called. Production refuses it.
    #[arg(long, env = "WEBHOOK_ALLOW_HTTP", action = ArgAction::Set, default_value_t = false)]
    pub webhook_allow_http: bool,

    /// How long the previous signing secret signs alongside a new one.
    #[arg(
        long,
        env = "WEBHOOK_ROTATION_OVERLAP",
        default_value = "24h",
        value_parser = config::duration
    )]
    pub webhook_rotation_overlap: Duration,

    /// Most attempts at once in this process.
    #[arg(long, env = "WEBHOOK_CONCURRENCY", default_value_t = 256)]
    pub webhook_concurrency: usize,

    /// Most attempts at once to one endpoint, from all processes together.
    #[arg(long, env = "WEBHOOK_ENDPOINT_CONCURRENCY", default_value_t = 4)]
    pub webhook_endpoint_concurrency: u32,

    /// Most readers of the feed that may wait for the next event at once in this process. Others
    /// are answered without a wait.
    #[arg(long, env = "WEBHOOK_FEED_WAITS", default_value_t = 10_000)]
    pub webhook_feed_waits: usize,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Applies the database's migrations and exits.
    Migrate,
    /// Encrypts every signing secret with the first key and exits. The other keys are then no
    /// longer needed.
    Reseal,
    #[command(flatten)]
    Common(config::Command),
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.service.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        self.service.check(refusals);
        self.operators.check(&self.service.listen, refusals);
        config::check_authorities(refusals);
        let tls = &self.service.tls;
        tls.check_caller(Caller::WebhooksSvc, refusals);
        grpc::check_url(refusals, "MERCHANTS_URL", &self.merchants_url, tls);
        sealed::check(refusals, "WEBHOOK_SECRET_KEY", &self.webhook_secret_key);
        let nets = self.webhook_allow_nets.is_empty();
        refusals.in_production(nets, "WEBHOOK_ALLOW_NETS", "nothing");
        refusals.in_production(!self.webhook_allow_http, "WEBHOOK_ALLOW_HTTP", "false");
        let timeout = self.webhook_timeout;
        refusals.unless(!timeout.is_zero(), "WEBHOOK_TIMEOUT", "more than nothing");
        let is_longer = self.lease >= timeout.saturating_add(RECORDING_MAX);
        let wants = "at least five seconds more than WEBHOOK_TIMEOUT";
        refusals.unless(is_longer, "LEASE", wants);
        let all = self.webhook_concurrency;
        refusals.unless(all > 0, "WEBHOOK_CONCURRENCY", "at least 1");
        let one = self.webhook_endpoint_concurrency;
        refusals.unless(one > 0, "WEBHOOK_ENDPOINT_CONCURRENCY", "at least 1");
    }
}
