//! The settings of ratelimit-svc.

use std::time::Duration;

use chassis::config::{self, Listen, Mode, Refusals, Settings, Telemetry, Tls};
use clap::{Args, Parser};

/// Fixed-window rate buckets for the gateway.
#[derive(Clone, Debug, Parser)]
#[command(name = "ratelimit-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<config::Command>,

    /// How strict the process is: `production` refuses settings that are only for trying things
    /// out.
    #[arg(long, env = "MODE", value_enum, default_value_t)]
    pub mode: Mode,

    #[command(flatten)]
    pub listen: Listen,

    /// Redis that keeps the counts of all replicas. Without it, this process counts alone, which is
    /// exact for one replica. Production requires it.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,

    /// How long to wait for an answer from Redis, which takes well under 1 ms when it is healthy.
    /// After that, this process counts by itself and leaves Redis alone for a second.
    #[arg(long, env = "REDIS_TIMEOUT", default_value = "50ms", value_parser = config::duration)]
    pub redis_timeout: Duration,

    #[command(flatten)]
    pub limits: BucketLimits,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub telemetry: Telemetry,
}

/// Requests in a minute, per merchant (spec §8) and number.
#[derive(Clone, Copy, Debug, Args)]
pub struct BucketLimits {
    /// Most requests of a merchant in a minute in bucket v1/payments: sessions created and read.
    #[arg(long = "limit-payments", env = "LIMIT_PAYMENTS", default_value_t = 60)]
    pub payments: u32,

    /// The same in bucket v1/payments/charge: charges and codes.
    #[arg(long = "limit-charge", env = "LIMIT_CHARGE", default_value_t = 60)]
    pub charge: u32,

    /// The same in bucket v1/payments/charge:status: charges read.
    #[arg(
        long = "limit-charge-status",
        env = "LIMIT_CHARGE_STATUS",
        default_value_t = 300
    )]
    pub charge_status: u32,

    /// The same in bucket v1/read: everything else that is read.
    #[arg(long = "limit-read", env = "LIMIT_READ", default_value_t = 300)]
    pub read: u32,

    /// The same in bucket v1/write: everything else that is created, such as refunds and payouts.
    #[arg(long = "limit-write", env = "LIMIT_WRITE", default_value_t = 60)]
    pub write: u32,

    /// How often a merchant may look up one phone number in a minute.
    #[arg(long = "limit-number", env = "LIMIT_NUMBER", default_value_t = 5)]
    pub number: u32,

    /// How often one phone number may be looked up in a minute, by all merchants together. More than
    /// LIMIT_NUMBER, so that no merchant alone uses it up.
    #[arg(
        long = "limit-number-overall",
        env = "LIMIT_NUMBER_OVERALL",
        default_value_t = 100
    )]
    pub number_overall: u32,
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        self.listen.check(refusals);
        self.tls.check(refusals);
        self.telemetry.check(refusals);
        let url = self.redis_url.as_deref();
        let is_good = url.is_none_or(|url| redis::Client::open(url).is_ok());
        let wants = "redis://[user:password@]host:port";
        refusals.unless(is_good, "REDIS_URL", wants);
        let is_shared = url.is_some();
        refusals.in_production(is_shared, "REDIS_URL", "the Redis that all replicas share");
        refusals.password("REDIS_URL", url.unwrap_or_default());
        let waits = !self.redis_timeout.is_zero();
        refusals.unless(waits, "REDIS_TIMEOUT", "more than nothing");
        let limits = [
            ("LIMIT_PAYMENTS", self.limits.payments),
            ("LIMIT_CHARGE", self.limits.charge),
            ("LIMIT_CHARGE_STATUS", self.limits.charge_status),
            ("LIMIT_READ", self.limits.read),
            ("LIMIT_WRITE", self.limits.write),
            ("LIMIT_NUMBER", self.limits.number),
        ];
        for (variable, limit) in limits {
            refusals.unless(limit > 0, variable, "at least 1");
        }
        let is_out_of_reach = self.limits.number_overall > self.limits.number;
        refusals.unless(
            is_out_of_reach,
            "LIMIT_NUMBER_OVERALL",
            "more than LIMIT_NUMBER",
        );
    }
}
