//! `loadtest TARGET`: see `loadtest --help`.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    loadtest::run(loadtest::config::Config::parse()).await
}
