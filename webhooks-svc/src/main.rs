//! The binary: settings, telemetry, sockets, then [`webhooks_svc::serve`].

use chassis::{clock::Clock, grpc::Sockets, shutdown::Shutdown, telemetry};
use clap::Parser as _;
use webhooks_svc::config::{Command, Config};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::start("webhooks-svc", &config.telemetry)?;
    match config.command {
        Some(Command::Migrate) => webhooks_svc::open(&config).await.map(drop),
        Some(Command::Reseal) => webhooks_svc::reseal(&config).await,
        None => {
            let sockets = Sockets::bind(&config.listen).await?;
            webhooks_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
        }
    }
}
