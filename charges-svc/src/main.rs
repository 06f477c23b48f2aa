//! The binary: settings, telemetry, sockets, then [`charges_svc::serve`].

use std::process::ExitCode;

use charges_svc::config::{Command, Config};
use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};

#[tokio::main]
async fn main() -> ExitCode {
    config::main(run).await
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("charges-svc", &config.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return db::migrate(&config.database, config.mode, &charges_svc::SCHEMA).await;
    }
    let sockets = Sockets::bind(&config.listen).await?;
    charges_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
