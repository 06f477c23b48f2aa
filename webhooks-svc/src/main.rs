//! The binary: settings, telemetry, sockets, then [`webhooks_svc::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};
use webhooks_svc::config::{Command, Config};

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let service = &config.service;
    let _telemetry = telemetry::start("webhooks-svc", &service.telemetry)?;
    match config.command {
        Some(Command::Migrate) => {
            db::migrate(&service.database, service.mode, &webhooks_svc::SCHEMA).await
        }
        Some(Command::Reseal) => webhooks_svc::reseal(&config).await,
        Some(Command::Common(_)) | None => {
            let sockets = Sockets::bind_for_operators(&service.listen, &config.operators).await?;
            webhooks_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
        }
    }
}
