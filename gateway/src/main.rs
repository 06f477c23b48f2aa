//! The gateway's process.

use std::process::ExitCode;

use chassis::{clock::Clock, config, shutdown::Shutdown, telemetry};
use gateway::{Sockets, config::Config};

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("gateway", &config.telemetry)?;
    let sockets = Sockets::bind(&config).await?;
    gateway::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
