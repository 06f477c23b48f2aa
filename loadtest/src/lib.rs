//! The load tester: what each service, and all of them together, do under load on this machine or
//! in a cluster.
//!
//! A [`plan`] says at which pace requests are sent, the [`engine`] sends them and counts latencies
//! into a [`tally`], a [`usage::Meter`] reads what the processes used meanwhile, and a [`report`]
//! and a [`chart`] show it all. [`processes`] starts what a measurement needs, and a [`bench`] ends
//! it. Each target has a file of its own.

pub mod api;
pub mod baseline;
pub mod bench;
mod charges;
pub mod chart;
mod compare;
pub mod config;
pub mod engine;
mod gateway;
mod growth;
pub mod grpc;
pub mod http;
pub mod lives;
mod logins;
mod merchants;
mod overload;
pub mod payers;
pub mod plan;
pub mod processes;
mod ratelimit;
pub mod receiver;
pub mod report;
mod rounds;
mod sessions;
pub mod shop;
mod soak;
mod statements;
pub mod store;
mod storm;
pub mod tally;
pub mod thousandths;
pub mod usage;
mod waits;
mod webhooks;
pub mod work;

use anyhow::ensure;
use chassis::shutdown::Shutdown;

use config::{Config, Output, Target};
use report::{Report, write_json};

/// Measures what the command line says, and prints it.
pub async fn run(mut config: Config) -> anyhow::Result<()> {
    chassis::http::raise_open_files_max();
    // Before anything is started that a signal would leave behind.
    if let Some(place) = config.target.place_mut() {
        place.shutdown = Shutdown::on_signals();
    }
    match &config.target {
        Target::Gateway(target) => tell(&target.common.output, &gateway::run(target).await?),
        Target::Sessions(target) => tell(&target.common.output, &sessions::run(target).await?),
        Target::Charges(common) => tell(&common.output, &charges::run(common).await?),
        Target::Webhooks(target) => tell(&target.common.output, &webhooks::run(target).await?),
        Target::Ratelimit(common) => tell(&common.output, &ratelimit::run(common).await?),
        Target::Merchants(common) => tell(&common.output, &merchants::run(common).await?),
        Target::Overload(target) => tell(&target.output, &overload::run(target).await?),
        Target::Soak(target) => {
            let soak = soak::run(target).await?;
            println!("{soak}");
            keep(&target.output, &soak)
        }
        Target::Baseline { path, common } => {
            tell(&common.output, &baseline::run(*path, common).await?)
        }
        Target::Compare(target) => {
            let rows = compare::run(target).await?;
            keep(&target.output, &rows)?;
            let failed = rows.iter().filter(|row| row.failed > 0).count();
            ensure!(failed == 0, "requests failed in {failed} rows");
            Ok(())
        }
        Target::Growth(target) => keep(&target.output, &growth::run(target).await?),
        Target::Waits(target) => {
            let waits = waits::run(target).await?;
            println!("{waits}");
            keep(&target.output, &waits)
        }
        Target::Logins(target) => {
            let logins = logins::run(target).await?;
            println!("{logins}");
            keep(&target.output, &logins)
        }
        Target::Bare(hop) => baseline::hop::serve(hop.clone()).await,
        Target::Storm(target) => {
            let storm = storm::run(target).await?;
            println!("{storm}");
            keep(&target.output, &storm)?;
            ensure!(storm.verdict.is_kept(), "a promise is broken");
            Ok(())
        }
        Target::Statements(target) => {
            let statements = statements::run(target).await?;
            println!("{statements}");
            keep(&target.output, &statements)?;
            ensure!(statements.faults.is_empty(), "out of bounds");
            Ok(())
        }
    }
}

fn tell(output: &Output, reports: &[Report]) -> anyhow::Result<()> {
    for report in reports {
        println!("{report}");
    }
    if let Some(file) = &output.svg {
        chart::write(file, reports)?;
    }
    keep(output, &reports)
}

fn keep(output: &Output, found: &impl serde::Serialize) -> anyhow::Result<()> {
    match &output.json {
        Some(file) => write_json(file, found),
        None => Ok(()),
    }
}
