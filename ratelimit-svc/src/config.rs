//! How ratelimit-svc is started.

use std::time::Duration;

use chassis::config::{self, Listen, Telemetry, Tls};
use clap::{Args, Parser};

/// Fixed-window rate buckets for the gateway.
#[derive(Clone, Debug, Parser)]
#[command(name = "ratelimit-svc", version)]
pub struct Config {
    #[command(flatten)]
    pub listen: Listen,

    /// The Redis whose counts all replicas share. Without it this process counts alone, which is
    /// exact for one replica.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,

    /// Longest wait for one answer of Redis, which takes well under 1 ms when it is healthy. Then
    /// this process counts by itself, and leaves Redis alone for a second.
    #[arg(long, env = "REDIS_TIMEOUT", default_value = "50ms", value_parser = config::duration)]
    pub redis_timeout: Duration,

    #[command(flatten)]
    pub limits: Limits,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub telemetry: Telemetry,
}

/// Requests per merchant and minute (spec §8).
#[derive(Clone, Copy, Debug, Args)]
pub struct Limits {
    /// Bucket v1/payments: sessions created and read.
    #[arg(long = "limit-payments", env = "LIMIT_PAYMENTS", default_value_t = 60)]
    pub payments: u32,

    /// Bucket v1/payments/charge: charges and OTPs.
    #[arg(long = "limit-charge", env = "LIMIT_CHARGE", default_value_t = 60)]
    pub charge: u32,

    /// Bucket v1/payments/charge:status: charges read.
    #[arg(
        long = "limit-charge-status",
        env = "LIMIT_CHARGE_STATUS",
        default_value_t = 300
    )]
    pub charge_status: u32,
}
