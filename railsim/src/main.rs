//! The binary: settings, telemetry, the sockets, then [`railsim::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, shutdown::Shutdown, telemetry};
use railsim::{Config, Sockets};

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("railsim", &config.telemetry)?;
    let sockets = Sockets::bind(&config).await?;
    tracing::info!(address = %sockets.web.local_addr()?, "handsets, wires, book and mail");
    tracing::info!(address = %sockets.mail.local_addr()?, "catching mail");
    railsim::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
