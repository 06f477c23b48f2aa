//! The binary: settings, telemetry, sockets, then [`ratelimit_svc::serve`].

use chassis::{clock::Clock, grpc::Sockets, shutdown::Shutdown, telemetry};
use clap::Parser as _;
use ratelimit_svc::config::Config;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::start("ratelimit-svc", &config.telemetry)?;
    let sockets = Sockets::bind(&config.listen).await?;
    ratelimit_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
