//! The binary: settings, telemetry, sockets, then [`sessions_svc::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};
use db::config::Command;
use sessions_svc::config::Config;

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let service = &config.service;
    let _telemetry = telemetry::start("sessions-svc", &service.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return db::migrate(&service.database, service.mode, &sessions_svc::SCHEMA).await;
    }
    let sockets = Sockets::bind(&service.listen).await?;
    sessions_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
