//! The gateway's process.

use chassis::{clock::Clock, shutdown::Shutdown, telemetry};
use clap::Parser as _;
use gateway::{Sockets, config::Config};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::start("gateway", &config.telemetry)?;
    let sockets = Sockets::bind(&config).await?;
    gateway::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
