//! The binary: settings, telemetry, sockets, then [`charges_svc::serve`].

use std::process::ExitCode;

use charges_svc::config::Config;
use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};
use db::config::Command;

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let service = &config.service;
    let _telemetry = telemetry::start("charges-svc", &service.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return db::migrate(&service.database, service.mode, &charges_svc::SCHEMA).await;
    }
    let sockets = Sockets::bind_for_operators(&service.listen, &config.operators).await?;
    charges_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
