//! The binary: settings, telemetry, sockets, then [`merchants_svc::serve`].

use std::process::ExitCode;

use chassis::{clock::Clock, config, grpc::Sockets, shutdown::Shutdown, telemetry};
use merchants_svc::config::{Command, Config};

#[tokio::main]
async fn main() -> ExitCode {
    config::main(run).await
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("merchants-svc", &config.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return db::migrate(&config.database, config.mode, &merchants_svc::SCHEMA).await;
    }
    let sockets = Sockets::bind(&config.listen).await?;
    merchants_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
