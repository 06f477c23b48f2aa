//! The binary: settings, telemetry, sockets, then [`sessions_svc::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};
use sessions_svc::config::{Command, Config};

#[tokio::main]
async fn main() -> ExitCode {
    config::main(run).await
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("sessions-svc", &config.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return db::migrate(&config.database, config.mode, &sessions_svc::SCHEMA).await;
    }
    let sockets = Sockets::bind(&config.listen).await?;
    sessions_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
