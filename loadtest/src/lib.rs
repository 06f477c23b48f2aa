//! The load tester: what each service, and all of them together, do under load on this machine or
//! in a cluster.
//!
//! A [`plan`] says at which pace requests are sent, the [`engine`] sends them and counts latencies
//! into a [`tally`], a [`usage::Meter`] reads what the processes used meanwhile, and a [`report`]
//! shows it all. [`processes`] starts what a measurement needs. Each target has its own file.

pub mod config;
pub mod engine;
pub mod grpc;
pub mod http;
pub mod plan;
pub mod processes;
mod ratelimit;
pub mod report;
pub mod store;
pub mod tally;
pub mod thousandths;
pub mod usage;

use config::{Common, Config, Target};

/// Measures what the command line says, and prints it.
pub async fn run(config: Config) -> anyhow::Result<()> {
    match &config.target {
        Target::Ratelimit(common) => tell(common, &ratelimit::run(common).await?),
    }
}

fn tell(common: &Common, reports: &[report::Report]) -> anyhow::Result<()> {
    for report in reports {
        println!("{report}");
    }
    if let Some(file) = &common.output.json {
        report::write_json(file, &reports)?;
    }
    Ok(())
}
