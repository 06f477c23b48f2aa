//! The binary: settings, telemetry, the socket, then [`railsim::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, grpc, shutdown::Shutdown, telemetry};
use railsim::Config;

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("railsim", &config.telemetry)?;
    let listener = grpc::bind("RAILSIM_LISTEN", config.listen).await?;
    tracing::info!(address = %listener.local_addr()?, "handsets, wires and book");
    railsim::serve(config, listener, Clock::system(), Shutdown::on_signals()).await
}
