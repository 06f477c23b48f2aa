//! The binary: settings, telemetry, the socket, then [`railsim::serve`].

use anyhow::Context as _;
use chassis::{clock::Clock, shutdown::Shutdown, telemetry};
use clap::Parser as _;
use railsim::Config;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::start("railsim", &config.telemetry)?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    tracing::info!(address = %listener.local_addr()?, "handsets, wires and book");
    railsim::serve(config, listener, Clock::system(), Shutdown::on_signals()).await
}
