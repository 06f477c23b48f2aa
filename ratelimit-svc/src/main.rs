//! The binary: settings, telemetry, sockets, then [`ratelimit_svc::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};
use ratelimit_svc::config::Config;

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("ratelimit-svc", &config.telemetry)?;
    let sockets = Sockets::bind(&config.listen).await?;
    ratelimit_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
