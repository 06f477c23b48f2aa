//! The binary: settings, telemetry, sockets, then [`charges_svc::serve`].

use charges_svc::config::{Command, Config};
use chassis::{clock::Clock, grpc::Sockets, shutdown::Shutdown, telemetry};
use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::start("charges-svc", &config.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return charges_svc::open(&config).await.map(drop);
    }
    let sockets = Sockets::bind(&config.listen).await?;
    charges_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
