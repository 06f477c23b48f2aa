//! Fixed-window rate buckets (spec §8).
//!
//! Owns nothing but counters, in Redis. Promises that exactly the limit passes in a window,
//! whatever the concurrency and however many replicas, by a single clock, that of Redis. It also
//! promises always to decide: while Redis is away, each replica counts by itself.

pub mod config;
mod grpc;
mod service;
mod shared;
mod window;

use anyhow::Context as _;
use chassis::{
    admin::Readiness,
    clock::Clock,
    grpc::{Caller::Gateway, Door, ServerSetup, Sockets},
    shutdown::{Shutdown, Tasks},
};
use proto::ratelimit::rate_limits_server::RateLimitsServer;

use config::Config;
use grpc::Grpc;
use service::Service;

/// Serves until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    chassis::config::check(&config)?;
    let tasks = Tasks::new();
    let service =
        Service::new(&config, clock.clone(), &tasks).context("REDIS_URL is not usable")?;
    let services = Door::default().service(RateLimitsServer::new(Grpc(service)), &[Gateway]);
    let serving = ServerSetup {
        sockets,
        tls: config.tls,
        reflection: config.listen.reflection(config.mode),
        // It is ready without Redis, too.
        readiness: Readiness::new(),
        clock,
        shutdown,
    };
    chassis::grpc::serve(services, serving).await
}
