//! The binary: settings, telemetry, sockets, then [`merchants_svc::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};
use db::config::Command;
use merchants_svc::config::Config;

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let service = &config.service;
    let _telemetry = telemetry::start("merchants-svc", &service.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return db::migrate(&service.database, service.mode, &merchants_svc::SCHEMA).await;
    }
    let sockets = Sockets::bind(&service.listen).await?;
    merchants_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
