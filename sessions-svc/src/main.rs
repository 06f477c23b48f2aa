//! The binary: settings, telemetry, sockets, then [`sessions_svc::serve`].

use chassis::{clock::Clock, grpc::Sockets, shutdown::Shutdown, telemetry};
use clap::Parser as _;
use sessions_svc::config::{Command, Config};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let _telemetry = telemetry::start("sessions-svc", &config.telemetry)?;
    if let Some(Command::Migrate) = config.command {
        return sessions_svc::open(&config).await.map(drop);
    }
    let sockets = Sockets::bind(&config.listen).await?;
    sessions_svc::serve(config, sockets, Clock::system(), Shutdown::on_signals()).await
}
